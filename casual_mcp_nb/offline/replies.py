"""The planner's replies: plain, short, in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from casual_mcp_nb.discovery.manifest import counted
from casual_mcp_nb.discovery.text import terms

_MAX_TEXT = 2000
_MAX_ROWS = 20
_MAX_ITEMS = 40
_MAX_EXAMPLES = 3
EXAMPLES = {
    "time": "What time is it in Tokyo when it is 14:30 in Oslo?",
    "units": "Convert 26.2 miles to kilometres",
    "sqlite": "Which tables are in the database?",
    "math": "What is 17 * 23 + 4?",
    "system-info": "How much memory is free?",
}
"""Questions that the planner answers with the bundled servers of these names."""
_ASKED = re.compile(r"For “(?P<need>.*?)” I can use `(?P<tool>[^`]+)`, but I still need (?P<names>`[^\n]+`)\.", re.S)


def report_result(name: str, text: str, asked: Collection[str] = ()) -> str:
    """Return a tool's result, or its `summary` if there is one.

    Args:
        name: The tool.
        text: Its result in the conversation: plain text or JSON.
        asked: Terms of the request; fields of the result with such a name come first.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict) and (list(value) == ["result"] or isinstance(value.get("summary"), str)):
        value = value.get("summary", value.get("result"))
    lead = ""
    if isinstance(value, dict):
        plain = [key for key, item in value.items() if not isinstance(item, dict | list)]
        first = [key for key in plain if key == "result" or not set(terms(key)).isdisjoint(asked)]
        lead = "\n\n".join(f"**{key}: {_scalar(value[key])}**" for key in first)
        value = {key: item for key, item in value.items() if key not in first}
        if not value and lead:
            return f"{lead} (from `{_for_people(name)}`)"
    shown = _shown(value)
    if not lead and "\n" not in shown and len(shown) < 200:
        return f"{shown} (from `{_for_people(name)}`)"
    return "\n\n".join(filter(None, [lead, f"From `{_for_people(name)}`:", shown]))


def _for_people(name: str) -> str:
    """Return a tool's name on the wire as people write it: `server:tool`."""
    return ":".join(name.rsplit("__", 1))


def report_error(name: str, text: str) -> str:
    """Return that a tool failed, with its message."""
    reason = re.sub(r"^error:?\s*", "", text.strip(), flags=re.I)
    return f"`{_for_people(name)}` failed: {_cut(reason) or 'it gave no reason.'}"


def ask_for(need: str, tool: str, missing: Sequence[str]) -> str:
    """Return a question for the missing arguments of a request; `asked_for` parses it."""
    return f"For “{need}” I can use `{tool}`, but I still need {', '.join(f'`{name}`' for name in missing)}."


def asked_for(text: str) -> tuple[str, list[str]] | None:
    """Return the need and the missing parameters that an `ask_for` was about; None for any other text."""
    match = _ASKED.search(text)
    return (match["need"], re.findall(r"`([^`]+)`", match["names"])) if match else None


def cannot(need: str, servers: Mapping[str, int]) -> str:
    """Return a reply that no offered tool matches, or that nothing was requested, with the available servers."""
    listed = ", ".join(f"{name} ({counted(count)})" for name, count in sorted(servers.items()))
    available = f"Available: {listed}." if listed else "No tools are offered."
    about = f"None of the tools fits “{_cut(need, 200)}”." if need else "Ask for something that a tool can do."
    examples = [f"“{question}”" for server, question in EXAMPLES.items() if server in servers][:_MAX_EXAMPLES]
    tries = f" Try {' or '.join(examples)}" if examples else ""
    return f"{about} This is the offline planner, not a language model: it can only use tools. {available}{tries}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        more = [f"- … and {len(value) - _MAX_ITEMS:,} more"] if len(value) > _MAX_ITEMS else []
        return "\n".join([*(_item(key, item) for key, item in list(value.items())[:_MAX_ITEMS]), *more]) or "Nothing."
    return _list(value) if isinstance(value, list) else _scalar(value)


def _item(key: str, value: Any) -> str:
    if isinstance(value, dict) and value:
        return f"- {key}:\n" + "\n".join(f"  - {name}: {_inline(item)}" for name, item in value.items())
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return f"- {key}:\n\n{_list(value)}\n"
    return f"- {key}: {_inline(value)}"


def _list(items: list[Any]) -> str:
    if not items:
        return "None."
    more = f"\n\n… and {len(items) - _MAX_ROWS:,} more" if len(items) > _MAX_ROWS else ""
    rows = items[:_MAX_ROWS]
    if all(isinstance(item, dict) and list(item) == list(items[0]) for item in rows):
        return _table(rows) + more
    if all(not isinstance(item, dict | list) for item in items) and len(items) <= _MAX_ROWS:
        return ", ".join(map(_scalar, items))
    return "\n".join(f"- {_inline(item)}" for item in rows) + more


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([_inline(row[column]) for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _inline(value: Any) -> str:
    if isinstance(value, list) and all(not isinstance(item, dict | list) for item in value):
        return _cut(", ".join(map(_scalar, value)), 500) or "none"
    if isinstance(value, dict | list):
        return _cut(json.dumps(value, ensure_ascii=False), 500)
    return " ".join(_scalar(value).split("\n"))


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.12g}"
    return _cut(str(value)) or "(empty)"


def _cut(text: str, limit: int = _MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters in all)"
