"""How a request differs from the recorded ones, in words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence

from casual_mcp_nb.cassettes import Kind, Plain
from casual_mcp_nb.cassettes.interaction import Interaction
from casual_mcp_nb.errors import shown

MAX_DIFF_LINES = 12
MAX_DIFF_LINE = 160
MAX_COMPARED = 200
"""How many recorded requests are compared to find the closest one."""
MAX_NAMES = 8


def first_difference(recorded: Mapping[str, Plain], live: Mapping[str, Plain]) -> tuple[str, str]:
    """Describe the first part in which a request differs, with a diff."""
    if recorded.get("model") != live.get("model"):
        return "it goes to another model", _diff(str(recorded.get("model")), str(live.get("model")))
    if recorded.get("system") != live.get("system"):
        return "its system prompt differs", _diff(_text(recorded["system"]), _text(live["system"]))
    ours, theirs = live.get("messages", []), recorded.get("messages", [])
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False), 1):
        if one != other:
            return f"message {number} ({_role(other)}) differs", _diff(_text(one), _text(other))
    number = min(len(theirs), len(ours))
    if len(ours) > number:
        new = ours[number]
        return f"message {number + 1} ({_role(new)}) is new", _diff("", _text(new))
    if len(theirs) > number:
        old = theirs[number]
        return f"message {number + 1} ({_role(old)}) is missing", _diff(_text(old), "")
    before = {tool["name"]: tool for tool in recorded.get("tools", [])}
    now = {tool["name"]: tool for tool in live.get("tools", [])}
    for name in dict.fromkeys((*before, *now)):
        if name not in now:
            return f"tool {shown(name)} is not offered any more", ""
        if name not in before:
            return f"tool {shown(name)} was not offered", ""
        if before[name] != now[name]:
            difference = _diff(_text(before[name]), _text(now[name]))
            return f"the definition of tool {shown(name)} differs", difference
    return "the tools differ", ""


def call_difference(
    kind: Kind, request: Mapping[str, Plain], recorded: Sequence[Interaction]
) -> tuple[str, str]:
    """Describe how a request to a server differs from the recorded ones, with a diff if one of them
    is like it.
    """
    server, tool = request.get("server"), request.get("tool")
    if kind != "call":
        name = str(_name(request) or "")
        of_server = f"{shown(name)} of server {shown(str(server))}"
        same = [each for each in recorded if each.request.get("server") == server]
        got = [each for each in same if each.request.get("name") == name]
        if kind == "prompt" and got:
            difference = _arguments_difference(got, request)
            return f"prompt {of_server} was read with other arguments", difference
        names = _names(str(_name(each.request)) for each in same)
        return f"{of_server} was not read, {names}", ""
    what = shown(f"{server}:{tool}")
    same, called = [], []
    for each in recorded:
        called.append(f"{each.request['server']}:{each.request['tool']}")
        if called[-1] == f"{server}:{tool}":
            same.append(each)
    if not same:
        return f"{what} was never called, {_names(called)}", ""
    return f"{what} was called with other arguments", _arguments_difference(same, request)


def _name(request: Mapping[str, Plain]) -> Plain:
    return request.get("uri") or request.get("name")


def _arguments_difference(recorded: Sequence[Interaction], request: Mapping[str, Plain]) -> str:
    closest = _closest(recorded, request)
    return _diff(_text(closest.request["arguments"]), _text(request["arguments"]))


def _closest(recorded: Sequence[Interaction], request: Mapping[str, Plain]) -> Interaction:
    """Find the recorded request whose arguments are most like a request's."""
    arguments = _text(request["arguments"])[:500]

    def likeness(each: Interaction) -> float:
        theirs = _text(each.request["arguments"])[:500]
        return difflib.SequenceMatcher(None, theirs, arguments).ratio()

    return max(recorded[:MAX_COMPARED], key=likeness)


def _names(recorded: Iterable[str]) -> str:
    names = list(map(shown, dict.fromkeys(recorded)))
    if not names:
        return "nothing like it was recorded"
    text = f"recorded: {', '.join(names[:MAX_NAMES])}"
    if len(names) > MAX_NAMES:
        text += f" and {len(names) - MAX_NAMES} more"
    return text


def _role(message: Mapping[str, Plain]) -> str:
    if tool := message.get("tool"):
        return f"result of {shown(str(tool))}"
    return str(message.get("role"))


def _text(value: Plain) -> str:
    """Format a value as text to compare by lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(map(_is_plain_message, value)):
        return "\n".join(_text(item["content"]) for item in value)
    if isinstance(value, Mapping) and not value.get("calls"):
        content = value.get("content")
        if isinstance(content, str):
            return content
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _is_plain_message(item: Plain) -> bool:
    return isinstance(item, Mapping) and set(item) == {"role", "content"}


def _diff(recorded: str, live: str) -> str:
    """Format a diff's first lines, cut and without characters that a terminal would obey."""
    before, now = recorded.splitlines(), live.splitlines()
    same = _first(before, now)
    # Comparing many lines takes long; those after the first difference are enough.
    near = slice(max(0, same - 1), same + 50)
    before, now = before[near], now[near]
    lines = list(difflib.unified_diff(before, now, n=1, lineterm=""))[3:]
    cut = [_cut(line, before, now) for line in lines[:MAX_DIFF_LINES]]
    if len(lines) > MAX_DIFF_LINES:
        cut.append("…")
    return "\n".join(cut)


def _cut(line: str, before: Sequence[str], now: Sequence[str]) -> str:
    if len(line) > MAX_DIFF_LINE:
        # From long lines, only the part around the difference.
        at = 0
        different = _first(before, now)
        if different < min(len(before), len(now)):
            at = _first(before[different], now[different])
        start = max(0, min(at - MAX_DIFF_LINE // 3, len(line) - MAX_DIFF_LINE))
        before_it = "…" if start else ""
        line = f"{line[0]}{before_it}{line[start + 1 : start + MAX_DIFF_LINE]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _first(one: Sequence[str], other: Sequence[str]) -> int:
    """Find the first place at which two texts, or lists of lines, differ."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return number
    return min(len(one), len(other))
