import assert from "node:assert/strict";
import { test } from "node:test";
import { AGAIN_MS, Bridge, MOST_SENT, type Model, UNANSWERED } from "../src/lib/bridge";
import { mergePatch } from "../src/lib/merge_patch";
import { MAX_NEW, Slots } from "../src/lib/RowList";
import { compared, counted, signed, tokens } from "../src/lib/words";

test("a patch changes what it names, removes nulls and leaves the rest the same object", () => {
  const before = { tools: { math: ["add"] }, budget: { now: 3, before: 4 } };
  const after = mergePatch(before, { budget: { now: 5, before: null } }) as typeof before;
  assert.deepEqual(after, { tools: { math: ["add"] }, budget: { now: 5 } });
  assert.equal(after.tools, before.tools);
});

test("a patch cannot reach the prototype", () => {
  const after = mergePatch({}, JSON.parse('{"__proto__": {"bad": true}}'));
  assert.equal((after as { bad?: boolean }).bad, undefined);
});

test("numbers read as people write them", () => {
  assert.equal(tokens(1204), "≈ 1,204 tokens");
  assert.equal(tokens(1, "reported"), "1 token");
  assert.equal(counted(2, "server"), "2 servers");
  assert.deepEqual([signed(-3), signed(0), signed(12)], ["−3", "±0", "+12"]);
  assert.deepEqual([compared(40, 100), compared(194, 100), compared(0, 0)], ["60% less", "94% more", "the same"]);
});

function loopback(send: (message: { id: string; call: string; args: object }) => object) {
  const listeners = new Map<string, (content: never) => void>();
  const model: Model = {
    get: () => ({ count: 1 }),
    set: () => {},
    send: (message) => listeners.get("msg:custom")?.(send(message as never) as never),
    on: (event, listener) => void listeners.set(event, listener as never),
    off: (event) => void listeners.delete(event),
  };
  return model;
}

test("a command gets its own answer, and its error shows until one succeeds", async () => {
  const bridge = new Bridge<{ count: number }>(
    loopback(({ id, call }) => (call === "good.one" ? { id, result: 42 } : { id, error: "It is not there." })),
  );
  assert.equal(await bridge.call("bad.one"), undefined);
  assert.equal(bridge.error.value, "It is not there.");
  assert.equal(await bridge.call("good.one"), 42);
  assert.equal(bridge.error.value, null);
});

test("a widget whose kernel is gone says so and rejects commands", async () => {
  const model = loopback(() => ({}));
  model.send = () => {
    throw new Error("closed");
  };
  const bridge = new Bridge(model);
  await assert.rejects(bridge.request("any.one"));
  assert.equal(bridge.live.value, false);
});

test("a request without an answer is sent again with its id, then given up; one that is worked on is not", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const sent: string[] = [];
  const model = loopback(({ id, call }) => {
    sent.push(`${call} ${id}`);
    return call === "slow.one" && sent.length > 1 ? { id, working: true } : {};
  });
  const bridge = new Bridge(model);
  const lost = assert.rejects(bridge.request("lost.one"), new Error(UNANSWERED));
  for (let count = 0; count < MOST_SENT; count++) context.mock.timers.tick(AGAIN_MS);
  await lost;
  assert.equal(sent.length, MOST_SENT);
  assert.equal(new Set(sent).size, 1);
  let settled = false;
  void bridge.request("slow.one").finally(() => {
    settled = true;
  });
  for (let count = 0; count < 3 * MOST_SENT; count++) context.mock.timers.tick(AGAIN_MS);
  await Promise.resolve();
  assert.equal(settled, false);
  bridge.close();
});

const rowsNamed = (names: string) => [...names].map((key) => ({ key, kind: key < "a" ? "server" : "tool" }));

test("rows that take the places of others are drawn in their elements, in order", () => {
  const slots = new Slots();
  const all = rowsNamed("AbcdBefg");
  const first = slots.assign(all, all, null);
  assert.equal(new Set(first).size, 8);
  const filtered = rowsNamed("AdfBgh");
  const second = slots.assign(filtered, filtered, null);
  assert.deepEqual(
    second,
    [0, 1, 2, 4, 3, 5].map((place) => first[place]),
  );
});

test("a row that stays in sight of a list that is scrolled keeps its element", () => {
  const slots = new Slots();
  const all = rowsNamed("abcdefgh");
  const [, b, c, d, ...gone] = slots.assign(all, all.slice(0, 4), null);
  assert.deepEqual(gone, []);
  const scrolled = slots.assign(all, all.slice(2, 6), null);
  assert.deepEqual(scrolled.slice(0, 2), [c, d]);
  assert.ok(scrolled.includes(b as string));
  assert.equal(new Set(scrolled).size, 4);
});

test("an element with the focus keeps its row, and goes with it", () => {
  const slots = new Slots();
  const all = rowsNamed("abcd");
  const first = slots.assign(all, all, "c");
  const fewer = rowsNamed("cd");
  assert.deepEqual(slots.assign(fewer, fewer, "c"), first.slice(2));
  const others = rowsNamed("xyz");
  assert.ok(!slots.assign(others, others, "c").includes(first[2] as string));
});

test("many new rows are drawn a part at a time, those that have an element first", () => {
  const slots = new Slots();
  const rows = Array.from({ length: 3 * MAX_NEW - 1 }, (_, place) => ({ key: `${place}`, kind: "tool" }));
  for (const drawn of [MAX_NEW, 2 * MAX_NEW, rows.length]) {
    const inSight = slots.assign(rows, rows, null);
    assert.equal(inSight.filter((slot) => slot !== undefined).length, drawn);
    assert.equal(new Set(inSight.slice(0, drawn)).size, drawn);
  }
  const others = rows.map(({ key }) => ({ key: `other ${key}`, kind: "tool" }));
  assert.ok(!slots.assign(others, others, null).includes(undefined));
});
