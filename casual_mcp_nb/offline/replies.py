"""The planner's own words: results, questions for missing arguments, and what it cannot do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.base.content import says_failed
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.discovery.manifest import counted
from casual_mcp_nb.discovery.text import one_line
from casual_mcp_nb.offline.candidates import Candidate

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
_QUESTION = re.compile(r"For “(.*?)” I can use `[^`]+`, but I still need `([^`]+)`", re.S)


_LARGE = re.compile(
    r"\[Result r_\w+: (?P<what>[^\]]+?)\. You read its head\.[^\]]*\]\n(?P<head>.*?)(?:\n\[A tool.*)?",
    re.S,
)
"""The head of a large result, between what tells a model how to read on and how to pass it."""


def ask_for(need: str, candidate: Candidate) -> str:
    """Ask for a request's missing arguments; `parse_question` parses the question."""
    name, names = for_people(candidate.tool.wire_name), _names(candidate)
    return (
        f"For “{need}” I can use `{name}`, but I still need {names}. {_ITSELF}, with values that a"
        " message gives."
    )


def parse_question(text: str) -> tuple[str, str] | None:
    """Find the need and the first missing argument in an `ask_for`, or return None for any other
    text.
    """
    match = _QUESTION.search(text)
    return (match[1], match[2]) if match else None


def cannot(need: str, servers: Mapping[str, int], nearest: Candidate | None = None) -> str:
    """Reply that no offered tool matches, or that nothing was requested, with the nearest tool and
    the available servers.
    """
    not_sure = f"I found no tool that certainly fits “{cut(need, 200)}”."
    parts = [not_sure if need else "Ask for something that a tool can do."]
    if nearest is not None:
        name, filling = for_people(nearest.tool.wire_name), nearest.filling
        lacking = f", which still needs {_names(nearest)}" if filling.missing else ""
        given = "=… ".join([*filling.arguments, *filling.missing, ""])
        call = f"{name} {given}".rstrip()
        parts.append(f"The nearest is `{name}`{lacking}. To call it, ask for “{call}”.")
    parts.append(f"{_ITSELF}.")
    available = [f"{server} ({counted(count)})" for server, count in sorted(servers.items())]
    examples = [f"“{question}”" for server, question in EXAMPLES.items() if server in servers]
    parts.append(f"Available: {', '.join(available)}." if available else "No tools are offered.")
    if examples:
        parts.append(f"Try {' or '.join(examples[:_MAX_EXAMPLES])}")
    return " ".join(parts)


def _names(candidate: Candidate) -> str:
    return ", ".join(f"`{name}`" for name in candidate.filling.missing)


def for_people(name: str) -> str:
    """Convert a tool's name on the wire to the spelling for people: `server:tool`."""
    tool = ToolName.split(name)
    return str(tool) if tool.server else name


def report(name: str, text: str) -> str:
    """Report a tool's result: its `summary` and the rows in it, or all of it; or why it failed, in
    the tool's own words.
    """
    if says_failed(text):
        reason = re.sub(r"^error:\s*", "", text.strip(), flags=re.I)
        return f"`{for_people(name)}` failed: {cut(reason) or 'it gave no reason.'}"
    if large := _LARGE.fullmatch(text):
        head = large["head"].replace("```", "")
        shown = f"A {large['what']}. It begins:\n\n```\n{cut(head)}\n```"
        return f"{shown}\n\n(from\u00a0`{for_people(name)}`)"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
    shown = _shown(value) or "Nothing."
    gap = "\n\n" if "\n" in shown else " "
    return f"{shown}{gap}(from\u00a0`{for_people(name)}`)"


def _shown(value: Any) -> str:
    """Write a value as Markdown: rows as a table, fields and other items in a line each. A `summary`
    stands for all but the first table.
    """
    if _is_table(value):
        return _table(value)
    if isinstance(value, list):
        return _joined([f"- {_inline(item)}" for item in value])
    if not isinstance(value, dict):
        return _plain(value)
    lines: list[str] = []
    tables: list[str] = []
    for name, item in value.items():
        if _is_table(item):
            tables.append(_table(item))
        else:
            lines.append(f"- {name}: {_inline(item)}")
    if "summary" in value:
        lines = [_plain(value["summary"])]
        del tables[1:]
    return "\n\n".join([_joined(lines), *tables])


def _is_table(value: Any) -> bool:
    """Check whether a value is a list of objects with the same fields."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(row, dict) and row.keys() == value[0].keys() for row in value)


def _table(rows: list[dict[str, Any]]) -> str:
    lines: list[str] = []
    for row in rows:
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
