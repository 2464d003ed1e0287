"""The planner's replies: plain, short, in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from casual_mcp_nb.discovery.manifest import counted
from casual_mcp_nb.discovery.text import terms

_MAX_TEXT, _MAX_INLINE = 2000, 500
_MAX_ROWS, _MAX_ITEMS, _MAX_EXAMPLES = 20, 40, 3
EXAMPLES = {
    "time": "What time is it in Tokyo when it is 14:30 in Oslo?",
    "units": "Convert 26.2 miles to kilometres",
    "sqlite": "Which tables are in the database?",
    "math": "What is 17 * 23 + 4?",
    "system-info": "How much memory is free?",
}
"""Questions that the planner answers with the bundled servers of these names."""
_QUESTION = re.compile(r"For “(?P<need>.*?)” I can use `(?P<tool>[^`]+)`, but I still need (?P<names>`[^\n]+`)\.", re.S)


def report_result(name: str, text: str, request_terms: Collection[str] = ()) -> str:
    """Format a tool's result, or its `summary` if there is one; fields named in the terms of the request come first."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict) and (list(value) == ["result"] or isinstance(value.get("summary"), str)):
        value = value.get("summary", value.get("result"))
    fields = value if isinstance(value, dict) else {}
    first = [
        key for key in fields if _is_plain(fields[key]) and (key == "result" or not set(terms(key)).isdisjoint(request_terms))
    ]
    lead = "\n\n".join(f"**{key}: {_scalar(fields[key])}**" for key in first)
    remaining = _shown({key: item for key, item in fields.items() if key not in first} if first else value)
    if lead and len(first) == len(fields):
        return f"{lead} (from `{_for_people(name)}`)"
    if not lead and "\n" not in remaining and len(remaining) < 200:
        return f"{remaining} (from `{_for_people(name)}`)"
    return "\n\n".join(filter(None, [lead, f"From `{_for_people(name)}`:", remaining]))


def report_error(name: str, text: str) -> str:
    """Report that a tool failed, with its message."""
    reason = re.sub(r"^error:?\s*", "", text.strip(), flags=re.I)
    return f"`{_for_people(name)}` failed: {_cut(reason) or 'it gave no reason.'}"


def ask_for(need: str, tool: str, missing: Sequence[str]) -> str:
    """Ask for the missing arguments of a request; `parse_question` parses the question."""
    return f"For “{need}” I can use `{tool}`, but I still need {', '.join(f'`{name}`' for name in missing)}."


def parse_question(text: str) -> tuple[str, list[str]] | None:
    """Parse the need and the missing parameters that an `ask_for` was about; None for any other text."""
    match = _QUESTION.search(text)
    return (match["need"], re.findall(r"`([^`]+)`", match["names"])) if match else None


def cannot(need: str, servers: Mapping[str, int]) -> str:
    """Reply that no offered tool matches, or that nothing was requested, with the available servers."""
    listed = ", ".join(f"{name} ({counted(count)})" for name, count in sorted(servers.items()))
    available = f"Available: {listed}." if listed else "No tools are offered."
    about = f"None of the tools fits “{_cut(need, 200)}”." if need else "Ask for something that a tool can do."
    examples = [f"“{question}”" for server, question in EXAMPLES.items() if server in servers][:_MAX_EXAMPLES]
    tries = f" Try {' or '.join(examples)}" if examples else ""
    return f"{about} This is the offline planner, not a language model: it can only use tools. {available}{tries}"


def _for_people(name: str) -> str:
    """Convert a tool's name on the wire to the spelling for people: `server:tool`."""
    return ":".join(name.rsplit("__", 1))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(_items(value)) or "Nothing."
    return _list(value) if isinstance(value, list) else _scalar(value)


def _items(fields: Mapping[str, Any]) -> Iterator[str]:
    for key, value in islice(fields.items(), _MAX_ITEMS):
        if isinstance(value, dict) and value:
            yield "\n".join([f"- {key}:", *(f"  - {name}: {_inline(item)}" for name, item in value.items())])
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            yield f"- {key}:\n\n{_list(value)}\n"
        else:
            yield f"- {key}: {_inline(value)}"
    if len(fields) > _MAX_ITEMS:
        yield f"- … and {len(fields) - _MAX_ITEMS:,} more"


def _list(items: list[Any]) -> str:
    rows = items[:_MAX_ROWS]
    more = f"\n\n… and {len(items) - _MAX_ROWS:,} more" if len(items) > _MAX_ROWS else ""
    if rows and all(isinstance(item, dict) and list(item) == list(rows[0]) for item in rows):
        lines = [list(rows[0]), ["---"] * len(rows[0]), *([_inline(cell) for cell in row.values()] for row in rows)]
        return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + more
    if all(map(_is_plain, items)) and not more:
        return ", ".join(map(_scalar, items)) or "None."
    return "\n".join(f"- {_inline(item)}" for item in rows) + more


def _inline(value: Any) -> str:
    if _is_plain(value):
        return " ".join(_scalar(value).split("\n"))
    listed = isinstance(value, list) and all(map(_is_plain, value))
    return _cut(", ".join(map(_scalar, value)) or "none" if listed else json.dumps(value, ensure_ascii=False), _MAX_INLINE)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.12g}" if isinstance(value, float) else _cut(str(value)) or "(empty)"


def _cut(text: str, limit: int = _MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters in all)"
