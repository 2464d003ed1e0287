"""What a search gains by past questions, and what that takes: `python benchmarks/learning.py
[--data DIR] [--past 100] [--seeds 8] [--held-out]`.

The data folder is that of `discovery.py`. Of every other case in a set, some are past questions, at
most half of them, each with the first tool of each of its needs. The others are searched for. If
that would leave fewer past questions than asked for, each case is searched for with all others as
past questions. Each line has the share of needs met among the first five, and of cases whose first
tool meets one, in percent: by words, and what past questions add, first as they are and then with
every fifth tool replaced by a random one. The ranking was tuned on these cases. `--held-out`
measures the others. Times are of the processor, so the load of the machine does not count.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from common import DATA, parser_for
from common.figures import Figure, milliseconds
from discovery import CUT, Case, Data, load, sample

from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.past_questions import MAX_QUESTIONS, PastQuestion
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

WRONG = 0.2
BUILD_LIMIT_MS, SEARCH_LIMIT_MS = 200.0, 3.0


class Quality(NamedTuple):
    """How good searches are, in percent: needs met, and first tools that meet one."""

    recall: float
    first: float


def past_questions(
    cases: Sequence[Case], tools: Sequence[ToolSpec], wrong: float, draw: random.Random
) -> list[PastQuestion]:
    """Make past questions of cases. A share of their tools is replaced."""
    by_name = {tool.tool_name: tool for tool in tools}
    questions = []
    for case in cases:
        for need in case.needs:
            tool = by_name.get(ToolName(*min(need)))
            if draw.random() < wrong:
                tool = draw.choice(tools)
            if tool is not None:
                questions.append(PastQuestion(case.query, tool.tool_name, tool.digest, 0.0, ""))
    return questions


def quality(index: ToolSearchIndex, cases: Sequence[Case]) -> Quality:
    """Search for each case."""
    recalls, firsts = [], []
    for case in cases:
        found = [(hit.tool.server, hit.tool.name) for hit in index.search(case.query, CUT)]
        met = [not need.isdisjoint(found) for need in case.needs]
        recalls.append(sum(met) / len(met))
        firsts.append(any(found[0] in need for need in case.needs) if found else False)
    return Quality(100 * statistics.fmean(recalls), 100 * statistics.fmean(firsts))


def splits(
    cases: Sequence[Case], past: int, seeds: int
) -> Iterator[tuple[Sequence[Case], Sequence[Case], random.Random]]:
    """Yield past cases, those that are searched for, and random numbers for them."""
    if len(cases) < 2 * past:
        for index, case in enumerate(cases):
            yield [*cases[:index], *cases[index + 1 :]][:past], [case], random.Random(index)
        return
    for seed in range(seeds):
        draw = random.Random(seed)
        drawn = draw.sample(cases, len(cases))
        yield drawn[:past], drawn[past:], draw


def gains(
    tools: Sequence[ToolSpec], cases: Sequence[Case], past: int, seeds: int
) -> tuple[Quality, Quality, Quality]:
    """Measure searches by words, and with past questions, right ones and partly wrong ones. The
    mean over all splits.
    """
    index = ToolSearchIndex(tools)
    rows: list[list[Quality]] = []
    for earlier, searched, draw in splits(cases, past, seeds):
        row = [quality(index, searched)]
        for wrong in (0.0, WRONG):
            learned = index.with_past(past_questions(earlier, tools, wrong, draw))
            row.append(quality(learned, searched))
        rows.append(row)
    words, right, mixed = (_mean(column) for column in zip(*rows, strict=True))
    return words, right, mixed


def _mean(rows: Sequence[Quality]) -> Quality:
    return Quality(*(statistics.fmean(column) for column in zip(*rows, strict=True)))


def speed(data: Data) -> list[Figure]:
    """How long it takes to learn from as many questions as count, and to search with them."""
    tools, queries = data.speed_tools, data.speed_queries
    draw = random.Random(0)
    questions = []
    for number in range(MAX_QUESTIONS):
        tool = draw.choice(tools)
        text = f"{queries[number % len(queries)]} {tool.description[:100]}"
        questions.append(PastQuestion(text, tool.tool_name, tool.digest, 0.0, ""))
    index = ToolSearchIndex(tools)
    learned = index.with_past(questions)
    builds = [
        milliseconds(lambda: index.with_past(list(questions)), clock=time.process_time)
        for _ in range(3)
    ]
    times = []
    for each in (learned, index):
        started = time.process_time()
        for query in queries:
            each.search(query, CUT)
        times.append((time.process_time() - started) * 1_000 / len(queries))
    return [
        Figure(
            f"learning from {MAX_QUESTIONS:,} questions", min(builds), "ms", limit=BUILD_LIMIT_MS
        ),
        Figure(
            f"a search in {len(tools):,} tools with them", times[0], "ms", times[1], SEARCH_LIMIT_MS
        ),
    ]


def figures(quick: bool) -> list[Figure]:
    """What past questions add to the needs met, and how long it takes."""
    data = sample() if quick or not DATA.is_dir() else load(DATA)
    results = []
    for name, (tools, cases) in data.sets.items():
        words, right, _mixed = gains(tools, cases[::2], 100, 1 if quick else 4)
        results.append(
            Figure(
                f"{name}: needs met among {CUT}, with past questions",
                right.recall,
                "percent",
                words.recall,
                more_is_better=True,
            )
        )
    return results + speed(data)


def main(argv: Sequence[str]) -> None:
    """Print the tables."""
    parser = parser_for(__doc__)
    parser.add_argument("--past", type=int, default=100, help="how many past questions at most")
    parser.add_argument("--seeds", type=int, default=8, help="how often cases are drawn")
    parser.add_argument("--held-out", action="store_true", help="measure the other half")
    options = parser.parse_args(argv)
    data = load(options.data) if options.data else sample()
    print(f"needs met among {CUT} / first tool, percent\n")
    print(
        "| set | past | searched | words | past questions | a fifth of them wrong |"
        "\n|---|---|---|---|---|---|"
    )
    for name, (tools, cases) in data.sets.items():
        half = cases[int(options.held_out) :: 2]
        words, *others = gains(tools, half, options.past, options.seeds)
        earlier, *_ = next(splits(half, options.past, 1))
        searched = len(half)
        if len(half) >= 2 * options.past:
            searched -= options.past
        cells = [f"{words.recall:.1f} / {words.first:.1f}"]
        for other in others:
            added = other.recall - words.recall, other.first - words.first
            cells.append("{:+.1f} / {:+.1f}".format(*added))
        print(f"| {name} | {len(earlier)} | {searched} | {' | '.join(cells)} |", flush=True)
    for figure in speed(data):
        print(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
