import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { PlainIndex } from "../src/search/index";
import { Ranking } from "../src/search/ranking";

/** What Python finds, as `tests/discovery/test_index_in_a_page.py` wrote it. */
const FILE = "../../../tests/discovery/ranking_in_a_page.json";
const SHOWN = 5;

interface Ranked {
  index: PlainIndex;
  queries: string[];
  found: [wireName: string, score: number][][];
}

const { index, queries, found } = JSON.parse(readFileSync(FILE, "utf8")) as Ranked;
const ranking = new Ranking(index);

test("a page finds the same tools as Python, with the same scores", () => {
  for (const [number, query] of queries.entries()) {
    const here = ranking.search(query, SHOWN);
    const there = found[number] ?? [];
    assert.deepEqual(
      here.map(({ tool }) => index.tools[tool]?.[2]),
      there.map(([name]) => name),
      query.slice(0, 200),
    );
    here.forEach(({ score }, place) => {
      const expected = there[place]?.[1] ?? 0;
      assert.ok(Math.abs(score - expected) <= 1e-9 * expected, `${query.slice(0, 200)}: ${score} is not ${expected}`);
    });
  }
});

test("the words of a query that a tool matches are told", () => {
  const named = (name: string) => index.tools.findIndex(([each]) => each === name);
  assert.deepEqual(ranking.words("convert the time zones", named("convert_time")), ["convert", "time", "zones"]);
  assert.deepEqual(ranking.words("constructor", named("read_file")), []);
});
