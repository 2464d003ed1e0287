"""What each part of the ranking earns: the change in quality when it is switched off, by words
alone and beside meaning.

    python benchmarks/ablation.py [--data DIR] [--unseen DIR] [--misspelt] [--embedding
    MODULE:FUNCTION] [--part NAME ...]

The data folder is that of `discovery.py`. Of each of its sets, the cases in even places are the
half that the ranking was tuned on, and those in odd places the other half. `--unseen` is a folder
of the same kind with sets that nobody looked at while tuning: all of their cases count, and with
`--misspelt` once more, with a wrong letter in one word of each. Each cell has three changes in
thousandths: in the share of cases with any need met among five tools, in the share of needs met
there, and in the reciprocal rank.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA, parser_for
from common.figures import Figure
from common.rankers import Embed, Fused, MakeRanker, Ours, embedding
from discovery import SETS, Data, load, quality, sample

from casual_mcp_nb.discovery import _engine, _ranking, text

Change = tuple[Any, str, Any]
"""A module or class, one of its names, and the value that takes its place."""
NEVER = re.compile(r"(?!)")
MCP_SERVERS = "livemcp"
"""The catalog of real MCP servers. The others are lists of functions."""


def _without_fields(*names: str) -> Change:
    """Leave fields of the tools empty."""
    left_out = {number for number, field in enumerate(text.FIELDS) if field.name in names}

    def texts(tool: Any) -> tuple[str, ...]:
        return tuple(
            "" if number in left_out else each for number, each in enumerate(text.texts(tool))
        )

    return _engine, "texts", texts


PARTS: Mapping[str, Sequence[Change]] = {
    "synonyms": [(_ranking, "synonyms", dict)],
    "topics": [(_ranking, "topics", dict)],
    "reading the query": [(_ranking, "readable", lambda query: query[: text.MAX_QUERY])],
    "of which literal values": [(text, "_literal", lambda match: match.group())],
    "of which operators": [(text, "_OPERATOR", NEVER)],
    "of which phrases": [(text, "_PHRASE", NEVER)],
    "suffixes": [(text, "_ENDS", ())],
    "names in mixed case as one word": [
        (text, "_WORD", re.compile(text._WORD.pattern.removeprefix(f"{text._COMPOUNDS}|")))
    ],
    "weak words": [(_ranking, "emphasis", lambda term: 1.0)],
    "prefix look-alikes": [(_ranking.Lookup, "_alike", lambda self, term: [])],
    "evidence of the server": [(_ranking, "SERVER", 0.0)],
    "name of the server": [_without_fields("server")],
    "parts of the request": [(_ranking, "CLAUSE", 0.0)],
    "part of the name that is covered": [(_ranking, "NAME_COVERED", 0.0)],
    "names of parameters": [_without_fields("parameter name")],
    "details": [_without_fields("details")],
    "copies rank lower": [(_engine, "COPY", 1.0)],
    "deprecated tools rank lower": [(_engine, "DEPRECATED", 1.0)],
    "exact names": [(_engine.ExactNames, "called", lambda self, query: [])],
}
"""Each part of the ranking, with the changes that switch it off."""
CACHES = (text.stem, text._remembered, text.synonyms, text.topics, text._weak_terms)


@contextmanager
def without(changes: Sequence[Change]) -> Iterator[None]:
    """Switch a part off for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        _apply(changes)
        yield
    finally:
        _apply(before)


def _apply(changes: Sequence[Change]) -> None:
    for owner, name, value in changes:
        setattr(owner, name, value)
    for cached in CACHES:
        cached.cache_clear()


def misspelt(query: str, draw: random.Random) -> str:
    """Get a letter in the second half of one long word wrong: leave it out, swap it, or write
    another one.
    """
    words = list(re.finditer(r"[A-Za-z]{6,}", query))
    if not words:
        return query
    word = draw.choice(words)
    at = draw.randrange((word.start() + word.end()) // 2, word.end() - 1)
    wrong = draw.choice(("", query[at + 1] + query[at], draw.choice("aeiourstn")))
    return query[:at] + wrong + query[at + max(1, len(wrong)) :]


def groups(data: Data, unseen: Data | None, wrong: bool = False) -> dict[str, Data]:
    """Group the sets: MCP servers and functions, the half that was looked at and the other, and
    each unseen set.
    """
    grouped: dict[str, Data] = {}
    for kind, chosen in (("MCP servers", True), ("functions", False)):
        sets = {
            name: pair
            for name, pair in data.sets.items()
            if (SETS.get(name) == MCP_SERVERS) is chosen
        }
        for half, start in (("looked at", 0), ("other half", 1)):
            halved = {name: (tools, cases[start::2]) for name, (tools, cases) in sets.items()}
            if halved:
                grouped[f"{kind}, {half}"] = replace(data, sets=halved)
    for name, pair in unseen.sets.items() if unseen else ():
        grouped[name] = replace(data, sets={name: pair})
        if wrong:
            draw = random.Random(name)
            cases = [replace(case, query=misspelt(case.query, draw)) for case in pair[1]]
            grouped[f"{name}, misspelt"] = replace(data, sets={name: (pair[0], cases)})
    return grouped


def measured(grouped: Mapping[str, Data], make: MakeRanker) -> dict[str, np.ndarray[Any, Any]]:
    """Measure each group: the mean over its sets."""
    return {
        name: (
            np.mean([quality(make(tools), cases) for tools, cases in data.sets.values()], axis=0)
            * 1_000
        )
        for name, data in grouped.items()
    }


def print_table(
    grouped: Mapping[str, Data], make: MakeRanker, parts: Sequence[str], title: str
) -> None:
    """Print a line for each part."""
    whole = measured(grouped, make)
    print(f"\n{title}\n\n| without | {' | '.join(grouped)} |\n|{'---|' * (len(grouped) + 1)}")
    print(
        f"| (nothing) | {' | '.join(_cell(values, '') for values in whole.values())} |", flush=True
    )
    for part in parts:
        with without(PARTS[part]):
            rest = measured(grouped, make)
        print(
            f"| {part} | {' | '.join(_cell(rest[name] - whole[name], '+') for name in grouped)} |",
            flush=True,
        )


def _cell(values: Any, sign: str) -> str:
    return " / ".join(
        f"{round(value):{sign}d}" if round(value) else "0" for value in values.tolist()
    )


def figures(quick: bool) -> list[Figure]:
    """How much is lost without some parts, in the share of cases with any need met among five
    tools.
    """
    data = sample() if quick or not DATA.is_dir() else load(DATA)
    grouped = {name: each for name, each in groups(data, None).items() if "looked at" not in name}
    whole = measured(grouped, Ours)
    results = []
    for part in ("synonyms", "reading the query"):
        with without(PARTS[part]):
            rest = measured(grouped, Ours)
        results += [
            Figure(f"{name}: any need, with {part}", float(whole[name][0]) / 1_000, "share", float(rest[name][0]) / 1_000,
                   more_is_better=True)
            for name in grouped
        ]  # fmt: skip
    return results


def main(argv: Sequence[str]) -> None:
    """Print the tables."""
    parser = parser_for(__doc__)
    parser.add_argument("--unseen", type=Path, help="folder with sets that were not looked at")
    parser.add_argument(
        "--misspelt", action="store_true", help="the unseen sets with misspelt words, too"
    )
    parser.add_argument(
        "--embedding", metavar="MODULE:FUNCTION", help="an embedding, for the second table"
    )
    parser.add_argument(
        "--part",
        nargs="*",
        default=list(PARTS),
        choices=PARTS,
        metavar="NAME",
        help="only these parts",
    )
    options = parser.parse_args(argv)
    data = load(options.data) if options.data else sample()
    grouped = groups(data, load(options.unseen) if options.unseen else None, options.misspelt)
    print_table(grouped, Ours, options.part, "by words alone")
    if options.embedding:
        embed: Embed = embedding(options.embedding)
        print_table(grouped, partial(Fused, embed=embed), options.part, "words and meaning")


if __name__ == "__main__":
    main(sys.argv[1:])
