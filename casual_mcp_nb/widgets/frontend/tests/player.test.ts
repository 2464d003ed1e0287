import assert from "node:assert/strict";
import { test } from "node:test";
import { compared, labelOf, matching, placeIn, requestBefore, spread, withTexts } from "../src/player/slides";
import type { Lesson, ListedTool, RequestSlide, Slide } from "../src/player/state";

function request(turn: number, messages: [number, number][], tools: [number, number][]): RequestSlide {
  return { kind: "request", turn, step: 1, words: "", parts: [100, 0, 20], origin: "estimated", messages, tools };
}

test("spans are the numbers in them", () => {
  assert.deepEqual(
    spread([
      [0, 3],
      [7, 8],
    ]),
    [0, 1, 2, 7],
  );
});

test("what is new in a request is what the request before had not, in whatever turn that was", () => {
  const slides: Slide[] = [
    request(1, [[0, 2]], [[0, 2]]),
    { kind: "answer", turn: 1, text: [] },
    request(2, [[0, 4]], [[1, 3]]),
  ];
  const before = requestBefore(slides, 2);
  assert.equal(before, slides[0]);
  assert.equal(requestBefore(slides, 0), undefined);
  assert.deepEqual(compared([[0, 4]], before?.messages), { same: [0, 1], added: [2, 3], removed: [] });
  assert.deepEqual(compared([[1, 3]], before?.tools), { same: [1], added: [2], removed: [0] });
  assert.deepEqual(compared([[0, 1]], undefined), { same: [], added: [0], removed: [] });
});

test("a slide is named in a few words", () => {
  assert.deepEqual(labelOf(request(1, [], [])), ["Request", "≈ 120 in"]);
  assert.deepEqual(labelOf({ kind: "answer", turn: 1, text: [], status: ["✗ failed", "bad"] }), ["Answer", "✗ failed"]);
});

test("an address names a slide, and nothing else does", () => {
  assert.deepEqual(
    ["#1", "#3", "#99", "#0", "#", "", "#x", "#1e3", "#-1"].map((hash) => placeIn(hash, 12)),
    [0, 2, 11, null, null, null, null, null, null],
  );
});

test("long texts are put in their places, and what only looks like one is left", () => {
  const slides = [
    { kind: "prompt", turn: 1, text: { text: 1 } },
    { kind: "answer", turn: 1, text: [["p", "0"]] },
  ];
  const data = { slides, messages: [{ role: "user", text: "0", tokens: 0 }], texts: ["zero", "one"] };
  const lesson = withTexts(data as unknown as Lesson & { texts: string[] });
  assert.deepEqual(lesson.slides, [{ kind: "prompt", turn: 1, text: "one" }, slides[1]]);
  assert.deepEqual(lesson.messages, data.messages);
});

test("tools are found by all words of a query, those with all of them in the name first", () => {
  const tools: ListedTool[] = [
    ["a:list", "Send nothing, read the MAIL"],
    ["b:send_mail", "Send it"],
    ["c:mail", "What you send"],
    ["d:constructor", ""],
  ];
  const named = (query: string) => matching(tools, query).map(([name]) => name);
  assert.deepEqual(named("  Mail SEND "), ["b:send_mail", "a:list", "c:mail"]);
  assert.deepEqual(named("constructor"), ["d:constructor"]);
  assert.deepEqual(named("mail .*"), []);
  assert.equal(named(" ").length, tools.length);
});
