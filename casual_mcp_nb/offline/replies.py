"""The planner's own words: results, questions for missing arguments, and what it cannot do."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, NamedTuple

from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.discovery.manifest import counted
from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.candidates import Candidate

_MAX_TEXT, _MAX_INLINE = 2000, 500
_MAX_ROWS, _MAX_ITEMS, _MAX_EXAMPLES = 20, 40, 3
EXAMPLES = {
    "time": "What time is it in Tokyo when it is 14:30 in Oslo?",
    "units": "Convert 26.2 miles to kilometres",
    "sqlite": "Which tables are in the database?",
    "math": "What is 17 * 23 + 4?",
    "system-info": "How much memory is free?",
}
"""Questions that the planner answers with these bundled servers."""
_ITSELF = "This is the offline planner, not a language model: it can only use tools"
_QUESTION = re.compile(
    r"For “(?P<need>.*?)” I can use `(?P<tool>[^`]+)`, but I still need (?P<names>`[^\n]+?`)\. ",
    re.S,
)


class Question(NamedTuple):
    """What the planner asked for: arguments that a request's tool still needs."""

    need: str
    tool: str
    missing: list[str]


def ask_for(need: str, candidate: Candidate) -> str:
    """Ask for a request's missing arguments; `parse_question` parses the question."""
    name, names = for_people(candidate.tool.wire_name), _names(candidate)
    return (
        f"For “{need}” I can use `{name}`, but I still need {names}. {_ITSELF}, with values that a"
        " message gives."
    )


def parse_question(text: str) -> Question | None:
    """Parse an `ask_for`, or return None for any other text."""
    match = _QUESTION.search(text)
    if match is None:
        return None
    return Question(match["need"], match["tool"], re.findall(r"`([^`]+)`", match["names"]))


def cannot(need: str, servers: Mapping[str, int], nearest: Candidate | None = None) -> str:
    """Reply that no offered tool matches, or that nothing was requested, with the nearest tool and
    the available servers.
    """
    listed = ", ".join(f"{name} ({counted(count)})" for name, count in sorted(servers.items()))
    parts = ["Ask for something that a tool can do."]
    if need:
        parts = [f"None of the tools fits “{cut(need, 200)}”."]
    if nearest is not None:
        name, filling = for_people(nearest.tool.wire_name), nearest.filling
        request = [name, *(f"{each}=…" for each in (*filling.arguments, *filling.missing))]
        lacking = f", which still needs {_names(nearest)}" if filling.missing else ""
        parts.append(
            f"The nearest is `{name}`{lacking}. To call it, ask for “{' '.join(request)}”."
        )
    parts += [f"{_ITSELF}.", f"Available: {listed}." if listed else "No tools are offered."]
    examples = [f"“{question}”" for server, question in EXAMPLES.items() if server in servers]
    if examples:
        parts.append(f"Try {' or '.join(examples[:_MAX_EXAMPLES])}")
    return " ".join(parts)


def _names(candidate: Candidate) -> str:
    return ", ".join(f"`{name}`" for name in candidate.filling.missing)


def for_people(name: str) -> str:
    """Convert a tool's name on the wire to the spelling for people: `server:tool`."""
    tool = ToolName.split(name)
    return str(tool) if tool.server else name


def report_failure(name: str, result: str) -> str:
    """Report a failed call in the tool's own words."""
    reason = re.sub(r"^error:?\s*", "", result.strip(), flags=re.I)
    return f"`{for_people(name)}` failed: {cut(reason) or 'it gave no reason.'}"


def report_result(name: str, text: str, request_terms: Collection[str] = ()) -> str:
    """Report a tool's result: its `summary` and the rows in it.

    Otherwise, its fields, those named in the request first.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        is_picture = re.match(r"image/[\w+-]+, [\d,]+ bytes$", text)
        value = f"It returned a picture: {text}" if is_picture else text
    parts = [value]
    if isinstance(value, dict) and isinstance(value.get("summary"), str):
        parts = [value["summary"], *islice(filter(_is_table, value.values()), 1)]
    elif isinstance(value, dict) and list(value) == ["result"]:
        parts = [value["result"]]
    elif isinstance(value, dict):
        asked = {key: value[key] for key in value if not set(terms(key)).isdisjoint(request_terms)}
        parts = [{**asked, **value}]
    shown = "\n\n".join(map(_shown, parts))
    gap = "\n\n" if "\n" in shown else " "
    return f"{shown}{gap}(from\u00a0`{for_people(name)}`)"


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        lines = [f"- {key}: {_within(item)}" for key, item in islice(value.items(), _MAX_ITEMS)]
        hidden = len(value) - _MAX_ITEMS
        lines += [f"- … and {hidden:,} more"] if hidden > 0 else []
        return "\n".join(lines) or "Nothing."
    if not isinstance(value, list) or (_are_plain(value) and len(value) <= _MAX_ROWS):
        return _plain(value)
    rows, hidden = value[:_MAX_ROWS], len(value) - _MAX_ROWS
    lines = [f"- {_inline(row)}" for row in rows]
    if _is_table(rows) and all(list(row) == list(rows[0]) for row in rows):
        lines = [_table_row(rows[0]), _table_row(["---"] * len(rows[0]))]
        lines += [_table_row(map(_inline, row.values())) for row in rows]
    return "\n".join(lines) + (f"\n\n… and {hidden:,} more" if hidden > 0 else "")


def _within(value: Any) -> str:
    if isinstance(value, dict) and value:
        return "".join(f"\n  - {name}: {_inline(item)}" for name, item in value.items())
    return f"\n\n{_shown(value)}\n" if _is_table(value) else _inline(value)


def _table_row(cells: Any) -> str:
    texts = [str(cell).replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(texts)} |"


def _inline(value: Any) -> str:
    return cut(" ".join(_plain(value).split("\n")), _MAX_INLINE)


def _are_plain(items: list[Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in items)


def _plain(value: Any) -> str:
    if isinstance(value, list) and _are_plain(value):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return cut(f"{value:.12g}" if isinstance(value, float) else str(value)) or "(empty)"


def cut(text: str, limit: int = _MAX_TEXT) -> str:
    """Cut a long text, and say how long it is."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters in all)"
