import assert from "node:assert/strict";
import { test } from "node:test";
import { refusal, sendable } from "../src/panel/attachments";
import { activity, announcement, clears, questionsInOrder, replaces, turnsInOrder, when } from "../src/panel/conversation";
import { atFirst, inputProps, toggled } from "../src/panel/form";
import type { ApprovalAsked, ConversationState, Field, TurnRow } from "../src/panel/state";
import { byTurn, partsInWords, tokensIn, tokensOut, turnInWords } from "../src/tokens/tokens";

const TURN: TurnRow = { number: 1, prompt: "x", images: [], steps: 1, status: "done", html: "" };
const ASKED: ApprovalAsked = {
  kind: "approval",
  order: 0,
  channel: "panel",
  server: "math",
  tool: "add",
  arguments: "{}",
  claims: [],
  why: "",
  choices: [],
  difference: "",
};
const QUIET: ConversationState = {
  turns: {},
  earlier: 0,
  busy: false,
  in_cell: false,
  doing: "",
  said: "",
  models: [],
  tool_sets: [],
  custom: false,
  step_mode: false,
  examples: [],
  image_limits: { each: 100, together: 150 },
  questions: {},
  calls: 0,
};
const FIELD: Field = {
  name: "meals",
  title: "Meals",
  kind: "choices",
  description: "",
  required: false,
  choices: [
    ["a", "A"],
    ["b", "B"],
  ],
};

test("a conversation of today has its time, and an older one its date", () => {
  const now = new Date(2026, 4, 3, 12);
  assert.equal(when(new Date(2026, 4, 3, 9, 5).toISOString(), now), "09:05");
  assert.equal(when(new Date(2026, 3, 3, 9, 5).toISOString(), now), "3 Apr");
  assert.equal(when(new Date(2024, 3, 3, 9, 5).toISOString(), now), "3 Apr 2024");
});

test("turns and questions come in the order of their numbers, not of their keys", () => {
  const turns = { t2: { ...TURN, number: 2 }, t1: TURN };
  assert.deepEqual(
    turnsInOrder(turns).map(({ key }) => key),
    ["t1", "t2"],
  );
  const questions = { b: { ...ASKED, order: 1 }, a: ASKED };
  assert.deepEqual(
    questionsInOrder(questions).map(({ key }) => key),
    ["a", "b"],
  );
});

test("a new question is announced before what became of the turn", () => {
  const started = { ...QUIET, said: "Turn 1 started." };
  assert.equal(announcement(QUIET, started), "Turn 1 started.");
  assert.equal(announcement(started, started), undefined);
  const asks = { ...started, said: "more", questions: { a: ASKED } };
  assert.match(announcement(started, asks) ?? "", /Allow math to run add\?/);
  assert.equal(announcement(asks, { ...asks }), undefined);
});

test("the foot line says what happens now", () => {
  assert.equal(activity(QUIET), "");
  assert.equal(activity({ ...QUIET, pending: "x" }), "Sending …");
  assert.equal(activity({ ...QUIET, pending: "x", doing: "Asking the model …" }), "Asking the model …");
  const busy = { ...QUIET, busy: true, doing: "Step 1" };
  assert.equal(activity(busy), "Step 1");
  assert.equal(activity({ ...busy, questions: { a: ASKED } }), "Waiting for you");
  assert.match(activity({ ...busy, in_cell: true }), /^Step 1 · /);
});

test("what an edit or a new start removes is counted", () => {
  assert.deepEqual(
    [0, 1, 3].map(replaces).map((text) => text.match(/the (one|\d) after/)?.[1]),
    [undefined, "one", "3"],
  );
  assert.match(clears(1), /1 turn and the tools found in it\./);
  assert.match(clears(4), /4 turns and the tools found in them\./);
});

test("an image is refused for its kind, its size, and what is attached already", () => {
  const limits = QUIET.image_limits;
  const file = { name: "a.png", type: "image/png", size: 90 };
  assert.equal(refusal(file, 0, limits), undefined);
  assert.match(refusal({ ...file, type: "image/svg+xml" }, 0, limits) ?? "", /^a\.png is not/);
  assert.match(refusal({ ...file, size: 101 }, 0, limits) ?? "", /the limit is/);
  assert.match(refusal(file, 61, limits) ?? "", /together/);
  const attached = { id: 1, name: "a.png", size: 3, url: "data:image/png;base64,QUJD" };
  assert.deepEqual(sendable([attached]), [{ name: "a.png", data: "QUJD" }]);
});

test("a form begins with what the server suggests, whatever it calls its fields", () => {
  const values = atFirst([
    { ...FIELD, default: ["b"] },
    { ...FIELD, name: "__proto__", kind: "text" },
  ]);
  assert.deepEqual(values.meals, ["b"]);
  assert.ok(Object.hasOwn(values, "__proto__"));
  assert.deepEqual(toggled(FIELD, ["b"], "a", true), ["a", "b"]);
  assert.deepEqual(toggled(FIELD, ["a", "b"], "b", false), ["a"]);
  assert.deepEqual(inputProps({ ...FIELD, kind: "integer", minimum: 1 }), { type: "number", step: "1", min: 1 });
  const types = ["email", "uri", "date", "date-time"].map((format) => inputProps({ ...FIELD, kind: "text", format }).type);
  assert.deepEqual(types, ["email", "url", "date", "text"]);
});

test("tokens read as people write them, and what was not reported says so", () => {
  const sum = { parts: [3, 0], sent: 1204, origin: "estimated" as const, steps: 2 };
  assert.equal(tokensIn(sum), "≈ 1,204 tokens in");
  assert.equal(tokensOut(sum), "output tokens not reported");
  assert.equal(tokensOut({ ...sum, answer: 7, answer_origin: "reported" }), "7 tokens out");
  assert.equal(partsInWords([3, 0, 4], ["A", "B", "C"]), "A 3, C 4");
  const step = { turn: 1, step: 2, parts: [3, 0], sent: 3, origin: "estimated" as const };
  const groups = byTurn({
    parts: ["A", "B"],
    rows: { "1.2": step, "1.1": { ...step, step: 1 } },
    earlier: 0,
    turns: { 1: sum, 2: sum },
    all: sum,
  });
  assert.deepEqual(
    groups.map(({ turn, steps }) => [turn, steps.map((each) => each.step)]),
    [[1, [1, 2]]],
  );
  assert.match(turnInWords(groups[0] as (typeof groups)[0]), /^Turn 1: 2 steps, ≈ 1,204 tokens in/);
});
