"""The planner's own words: results, questions for missing arguments, and what it cannot do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.base.content import says_failed
from casual_mcp_nb.discovery.manifest import counted
from casual_mcp_nb.discovery.text import one_line
from casual_mcp_nb.offline.candidates import Candidate
from casual_mcp_nb.offline.mentions import parsed

_MAX_TEXT, _MAX_INLINE = 2_000, 500
_MAX_ROWS, _MAX_EXAMPLES = 20, 3
EXAMPLES = {
    "time": "What time is it in Tokyo when it is 14:30 in Oslo?",
    "units": "Convert 26.2 miles to kilometres",
    "sqlite": "Which tables are in the database?",
    "math": "What is 17 * 23 + 4?",
    "system-info": "How much memory is free?",
}
"""Questions that the planner answers with these bundled servers."""
_WORDS = {"null": "none", "true": "yes", "false": "no"}
_ITSELF = "This is the offline planner, not a language model: it can only use tools"
QUESTION = re.compile(r"For “(.*?)” I can use `[^`]+`, but I still need `([^`]+)`", re.S)
"""The request and the first missing argument in a question of `ask_for`."""


_LARGE = re.compile(
    r"\[Result r_\w+: (?P<what>[^\]]+?)\. You read its head\.[^\]]*\]\n(?P<head>.*?)(?:\n\[A tool.*)?",
    re.S,
)
"""The head of a large result, between what tells a model how to read on and how to pass it."""


def ask_for(need: str, candidate: Candidate) -> str:
    """Ask for a request's missing arguments, as `QUESTION` reads it."""
    name = for_people(candidate.tool.wire_name)
    names = ", ".join(f"`{missing}`" for missing in candidate.filling.missing)
    return (
        f"For “{need}” I can use `{name}`, but I still need {names}. {_ITSELF}, with values that a"
        " message gives."
    )


def cannot(need: str, servers: Mapping[str, int], nearest: Candidate | None = None) -> str:
    """Reply that no offered tool matches, or that nothing was requested, with the nearest tool and
    the available servers.
    """
    parts = ["Ask for something that a tool can do."]
    if need:
        parts = [f"I found no tool that certainly fits “{cut(need, 200)}”."]
    if nearest is not None:
        name, filling = for_people(nearest.tool.wire_name), nearest.filling
        call = " ".join([name, *map("{}=…".format, [*filling.arguments, *filling.missing])])
        parts.append(f"The nearest is `{name}`. To call it, ask for “{call}”.")
        if not nearest.is_meant:
            parts.append("It does not declare that it only reads, so a question does not run it.")
    available = [f"{server} ({counted(count)})" for server, count in sorted(servers.items())]
    parts.append(f"{_ITSELF}. Available: {', '.join(available) or 'no tools'}.")
    examples = [f"“{question}”" for server, question in EXAMPLES.items() if server in servers]
    if examples:
        parts.append(f"Try {' or '.join(examples[:_MAX_EXAMPLES])}")
    return " ".join(parts)


def for_people(name: str) -> str:
    """Convert a tool's name on the wire to the spelling for people: `server:tool`."""
    return name.replace("__", ":", 1)


def report(name: str, text: str) -> str:
    """Report a tool's result: its `summary` and the rows in it, or all of it; or why it failed, in
    the tool's own words.
    """
    if says_failed(text):
        reason = re.sub(r"(?i)^error:\s*", "", text.strip())
        return f"`{for_people(name)}` failed: {cut(reason) or 'it gave no reason.'}"
    value = parsed(text)
    if value is None:
        value = text
    if isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
    shown = _shown(value) or "Nothing."
    if large := _LARGE.fullmatch(text):
        head = large["head"].replace("```", "")
        shown = f"A {large['what']}. It begins:\n\n```\n{cut(head)}\n```"
    gap = "\n\n" if "\n" in shown else " "
    return f"{shown}{gap}(from\u00a0`{for_people(name)}`)"


def _shown(value: Any) -> str:
    """Write a value as Markdown: rows as a table, fields and other items in a line each. A `summary`
    stands for all but the first table.
    """
    if table := _table(value):
        return table
    if isinstance(value, list):
        return _joined([f"- {_inline(item)}" for item in value])
    if not isinstance(value, dict):
        return _plain(value)
    lines: list[str] = []
    tables: list[str] = []
    for name, item in value.items():
        if table := _table(item):
            tables.append(table)
        else:
            lines.append(f"- {name}: {_inline(item)}")
    if "summary" in value:
        lines = [_plain(value["summary"])]
        del tables[1:]
    return "\n\n".join([_joined(lines), *tables])


def _table(rows: Any) -> str:
    """Write a list of objects with the same fields as a table; empty for any other value."""
    if not isinstance(rows, list) or not rows:
        return ""
    lines: list[str] = []
    for row in rows:
        if not isinstance(row, dict) or row.keys() != rows[0].keys():
            return ""
        cells = [_inline(row[name]).replace("|", r"\|") for name in rows[0]]
        lines.append(f"| {' | '.join(cells)} |")
    head = f"| {' | '.join(rows[0])} |\n|{' --- |' * len(rows[0])}\n"
    return f"{head}{_joined(lines)}"


def _joined(lines: list[str]) -> str:
    """Join the first lines, and say how many more there are."""
    hidden = len(lines) - _MAX_ROWS
    if hidden > 0:
        lines = [*lines[:_MAX_ROWS], f"\n… and {hidden:,} more"]
    return "\n".join(lines)


def _inline(value: Any) -> str:
    return one_line(_plain(value), _MAX_INLINE)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.12g}"
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
        value = _WORDS.get(value, value)
    return cut(value) or "(empty)"


def cut(text: str, limit: int = _MAX_TEXT) -> str:
    """Cut a long text, and say how long it is."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters in all)"
