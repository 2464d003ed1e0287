import assert from "node:assert/strict";
import { test } from "node:test";
import { headlineSaving, partRows, verdict, wholeRows } from "../src/explorer/budget";
import { sumOf, ToolsetDraft, tickable } from "../src/explorer/draft";
import { scoreText, splitHits, summaryOf } from "../src/explorer/hits";
import { type ListEntry, RowMaker } from "../src/explorer/rows";
import type { Cost, Hit, ServerInfo, ToolEntry, WireGroup } from "../src/explorer/state";
import { modeHelp, statusOf } from "../src/explorer/statuses";
import { aboutGroup, aboutWire } from "../src/explorer/WireView";
import { Workbench } from "../src/explorer/workbench";

const server = (more: Partial<ServerInfo> = {}): ServerInfo => ({
  state: "ready",
  mode: "loaded",
  effective: "loaded",
  tools: 2,
  inside: 2,
  tokens: 30,
  all_tokens: 30,
  transport: "stdio",
  ...more,
});
const add: ToolEntry = ["add", "math__add", 20, "read-only", "Add numbers"];
const root: ToolEntry = ["root", "math__root", 10];
const stock: ToolEntry = ["stock", "shop__stock", 40, "", "What is in the shop"];
const source = {
  order: ["math", "shop", "gone"],
  servers: { math: server(), shop: server(), gone: server({ state: "failed", tools: 0 }) },
  tools: { math: [add, root], shop: [stock] },
  fates: { math: "ld", shop: "o" },
};
const rowsOf: RowMaker["make"] = (source, view) => new RowMaker().make(source, view);
const open = { filter: "", order: "server", isOpen: () => true } as const;
const keys = (rows: readonly ListEntry[]) => rows.map((row) => row.key);

test("each server is followed by its tools, and a failed one by its reason", () => {
  const { rows, count } = rowsOf(source, open);
  assert.deepEqual(keys(rows), ["s:math", "t:math__add", "t:math__root", "s:shop", "t:shop__stock", "s:gone", "f:gone"]);
  assert.equal(count, 3);
  assert.deepEqual(
    rows.map((row) => (row.kind === "tool" ? row.status : "")),
    ["", "l", "d", "", "o", "", ""],
  );
});

test("a closed server shows no tools, and they are counted all the same", () => {
  const { rows, count } = rowsOf(source, { ...open, isOpen: (name) => name === "shop" });
  assert.deepEqual(keys(rows), ["s:math", "s:shop", "t:shop__stock", "s:gone", "f:gone"]);
  assert.equal(count, 3);
});

test("a filter looks in texts, claims and servers' names, and opens what it matches", () => {
  const matches = (filter: string) => keys(rowsOf(source, { ...open, filter, isOpen: () => false }).rows);
  assert.deepEqual(matches("NUMBERS"), ["s:math", "t:math__add"]);
  assert.deepEqual(matches("shop in"), ["s:shop", "t:shop__stock"]);
  assert.deepEqual(matches("math"), ["s:math", "t:math__add", "t:math__root"]);
  assert.deepEqual(matches("read-only"), ["s:math", "t:math__add"]);
  assert.deepEqual(matches("zzz"), []);
});

test("tools by tokens and by name are one list without servers", () => {
  assert.deepEqual(keys(rowsOf(source, { ...open, order: "tokens" }).rows), ["t:shop__stock", "t:math__add", "t:math__root"]);
  const named = rowsOf(source, { ...open, order: "name", isOpen: () => false });
  assert.deepEqual(keys(named.rows), ["t:math__add", "t:math__root", "t:shop__stock"]);
  assert.ok(named.rows.every((row) => row.kind === "tool" && !row.grouped));
});

test("a key in the filter makes no row anew, and one with the same matches no list", () => {
  for (const order of ["server", "tokens", "name"] as const) {
    const maker = new RowMaker();
    const made = (filter: string, changed: Partial<typeof source> = {}) =>
      maker.make({ ...source, ...changed }, { ...open, order, filter }).rows;
    const fresh = (rows: readonly ListEntry[], old: readonly ListEntry[]) => keys(rows.filter((row) => !old.includes(row)));
    const all = made("");
    const narrowed = made("numbers");
    assert.ok(narrowed.length < all.length);
    assert.deepEqual(fresh(narrowed, all), order === "server" ? ["s:math"] : []);
    assert.equal(made("number"), narrowed);
    assert.equal(made("zzz"), made("zzzz"));
    const before = made("");
    assert.deepEqual(fresh(before, all), order === "server" ? ["s:math"] : []);
    assert.equal(made("", { servers: { ...source.servers } }), before);
    // Only the row whose status changed.
    const after = made("", { fates: { math: "lo", shop: "o" } });
    assert.deepEqual(fresh(after, before), ["t:math__root"]);
  }
});

test("once the list had time to prepare, a key reads no tool", () => {
  let reads = 0;
  const counted = (tool: ToolEntry) =>
    new Proxy(tool, {
      get: (target, name) => {
        reads++;
        return Reflect.get(target, name);
      },
    });
  const tools = { math: [counted(add), counted(root)], shop: [counted(stock)] };
  const maker = new RowMaker();
  maker.make({ ...source, tools }, open);
  for (const more of [true, true, true, false]) assert.equal(maker.prepare(), more);
  const before = reads;
  assert.equal(maker.make({ ...source, tools }, { ...open, filter: "numbers" }).count, 1);
  // Nor when a status changed.
  maker.make({ ...source, tools, fates: { math: "ll", shop: "o" } }, { ...open, filter: "the" });
  assert.equal(maker.prepare(), false);
  assert.equal(reads - before, 1);
});

test("a draft keeps the rules of servers whose ticks were not changed", () => {
  const tools = {
    math: [
      ["add", "math__add", 10],
      ["root", "math__root", 20],
      ["own", "math__own", 5],
    ],
    time: [["now", "time__now", 7]],
  } as const;
  const fates = { math: "lox", time: "l" };
  const data = { description: "Sums", servers: { math: ["add"], gone: true as const }, ticked: { math: ["math__add"] } };
  const draft = new ToolsetDraft(data, "sums");
  assert.equal(draft.description.value, "Sums");
  assert.deepEqual(draft.arguments(tools), { description: "Sums", servers: data.servers, ticked: {} });
  assert.deepEqual(sumOf(tickable({ tools, fates }, "math"), draft.ticked.value), { count: 1, tokens: 10 });
  assert.deepEqual(
    tickable({ tools, fates }, "math").map(([name]) => name),
    ["add", "root"],
  );
  draft.tick("math", ["math__root"], true);
  draft.tick("math", ["math__add"], false);
  draft.tick("time", ["time__now"], true);
  assert.deepEqual(draft.arguments(tools).servers, { gone: true });
  assert.deepEqual(draft.arguments(tools).ticked, { math: ["math__root"], time: ["time__now"] });
  assert.equal(new ToolsetDraft(data).description.value, "");
});

const cost = (total: number, more: Partial<Cost> = {}): Cost => ({ total, servers: {}, finder: 0, manifest: 0, ...more });

test("the budget has rows for what is known of it", () => {
  const rows = wholeRows({ now: cost(10), undeferred: cost(40) });
  assert.deepEqual(rows, [{ key: "all", label: "Tool definitions", now: 10, before: undefined, undeferred: 40 }]);
  const turns = { turn: 100, ten_turns: 900 };
  const more = wholeRows({ now: cost(10, turns), before: cost(20, turns), undeferred: cost(40, turns) });
  assert.deepEqual(
    more.map((row) => [row.key, row.now, row.before]),
    [
      ["all", 10, 20],
      ["turn", 100, 100],
      ["ten", 900, 900],
    ],
  );
});

test("parts of the budget are sorted, and the smallest of many servers are one row", () => {
  const names = Array.from({ length: 20 }, (_, number) => `s${number}`);
  const servers = Object.fromEntries(names.map((name, number) => [name, number + 1]));
  const rows = partRows({ now: cost(300, { servers, finder: 50 }), undeferred: cost(210, { servers }) }, names);
  assert.equal(rows[0]?.label, "s19");
  assert.deepEqual(
    rows.slice(-2).map((row) => [row.key, row.now]),
    [
      ["others", 36],
      ["finder", 50],
    ],
  );
  assert.equal(
    rows.reduce((sum, row) => sum + row.undeferred, 0),
    210,
  );
});

test("what deferring does is said as it is", () => {
  const say = (now: Cost, undeferred: Cost, tools = 3) => {
    const state = { budget: { now, undeferred }, manifest: { tokens: 0, tools } };
    return [headlineSaving(state), verdict(state)];
  };
  assert.deepEqual(say(cost(40), cost(40), 0), ["", "Nothing is deferred."]);
  const [saving, sentence] = say(cost(40, { turn: 90 }), cost(100, { turn: 200 }));
  assert.equal(saving, "a turn costs 55% less than with every tool loaded");
  assert.match(sentence as string, /saves 60%.* and 55% /);
  const mixed = say(cost(40, { turn: 300, ten_turns: 30 }), cost(100, { turn: 200, ten_turns: 60 }))[1];
  assert.equal(
    mixed,
    "Deferring saves 60% of the tool definitions and 50% of ten turns with three searches, but costs 50% more for a turn with a search.",
  );
  assert.match(say(cost(40, { turn: 300 }), cost(100, { turn: 200 }))[0] as string, /^a turn costs 50% more than/);
});

test("hits are cut where the model's view ends", () => {
  const hits = [1, 2, 3].map((rank) => ({ rank, wire_name: `t${rank}` }) as Hit);
  const ranked = { query: "x", cut: 2, searched: 30, hits };
  assert.deepEqual(
    splitHits(ranked).map((part) => part.map((hit) => hit.rank)),
    [[1, 2], [3]],
  );
  assert.equal(summaryOf(ranked), "Showing 3 matches of 30 tools, ranked by words. The model gets the top 2.");
  assert.equal(
    summaryOf({ ...ranked, ranked_by: "words and meaning", note: "Why." }),
    "Showing 3 matches of 30 tools, ranked by words and meaning. The model gets the top 2. Why.",
  );
  assert.equal(summaryOf({ ...ranked, query: " " }), "");
  assert.deepEqual([scoreText(12.34), scoreText(7.01)], ["12.3", "7"]);
});

test("a status and a mode say why", () => {
  assert.equal(statusOf("d").included, true);
  assert.equal(statusOf("c").fixed, true);
  assert.equal(statusOf("?").included, false);
  assert.match(modeHelp({ mode: "deferred", effective: "loaded" }), /^Now loaded, because discovery is off/);
  assert.match(modeHelp({ mode: "loaded", effective: "deferred" }), /Defer every server/);
});

test("a few tools are in the list from the start, many when their server is opened", () => {
  const bench = new Workbench();
  assert.equal(bench.isOpen("math", 100), true);
  assert.equal(bench.isOpen("math", 101), false);
  bench.setOpen(["math"], true);
  assert.equal(bench.isOpen("math", 5_000), true);
});

test("a choice shows its card, whatever tab or form was there", () => {
  const bench = new Workbench();
  bench.tab.value = "budget";
  bench.task.value = "add server";
  bench.choose({ kind: "tool", server: "math", name: "math__add" });
  assert.deepEqual([bench.tab.value, bench.task.value, bench.cardFocus.value], ["tool", null, 0]);
  bench.choose({ kind: "server", server: "math" }, { focus: true });
  assert.equal(bench.cardFocus.value, 1);
});

test("a group of messages says how many rounds it had, how long it took and how it ended", () => {
  const group: WireGroup = {
    number: 1,
    method: "tools/call",
    tool: "book",
    at: 0,
    seconds: "12 ms",
    rounds: 3,
    ended: "open",
    messages: [],
    hidden: 9,
  };
  assert.equal(aboutGroup(group), "9 messages, 3 rounds, 12 ms, … no answer");
  assert.equal(aboutGroup({ ...group, hidden: 1, rounds: 1, seconds: "", ended: "ok" }), "1 message");
  assert.equal(aboutWire({ groups: [group], hidden: 0, dropped: 0 }), "1 group");
  assert.equal(
    aboutWire({ groups: [group, group], hidden: 1, dropped: 4 }),
    "2 groups, 1 earlier group not shown, 4 messages before that were dropped",
  );
  assert.equal(aboutWire({ groups: [], hidden: 0, dropped: 0 }), "None.");
});
