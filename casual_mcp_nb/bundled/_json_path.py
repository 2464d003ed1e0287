"""Pick values out of JSON by a path such as `users[0].name` or `users[*].name`."""

from __future__ import annotations

import re
from typing import Any

from casual_mcp_nb.bundled._server import ToolError, closest

_STEP = re.compile(r"\.?(?:\[(?P<index>-?\d{1,9}|\*)\]|(?P<key>[^.\[\]]+))")


def pick(value: Any, path: str) -> Any:
    """Return the value at a path; `[*]` selects every item of a list and returns a list.

    Raises:
        ToolError: The path is not valid, or leads to nothing; the message names what is there.
    """
    steps = _steps(path)
    for index, step in enumerate(steps):
        if step == "*":
            remaining = path_of(steps[index + 1 :])
            return [pick(item, remaining) for item in _items(value)]
        value = _child(value, step)
    return value


def path_of(steps: list[str | int]) -> str:
    """Format steps as a path: numbers and `*` in brackets, keys after a dot."""
    return "".join(f"[{step}]" if isinstance(step, int) or step == "*" else f".{step}" for step in steps)


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    remaining = path.strip().removeprefix("$")
    while remaining:
        match = _STEP.match(remaining)
        if match is None:
            raise ToolError(f"The path is not valid at {remaining[:40]!r}; write it like users[0].name or users[*].name.")
        index = match["index"]
        steps.append(match["key"] if index is None else "*" if index == "*" else int(index))
        remaining = remaining[match.end() :]
    return steps


def _items(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.values())
    raise ToolError(f"[*] needs a list, but there is {_kind(value)}.")


def _child(value: Any, step: str | int) -> Any:
    if isinstance(step, int):
        if not isinstance(value, list):
            raise ToolError(f"[{step}] needs a list, but there is {_kind(value)}.")
        if not -len(value) <= step < len(value):
            raise ToolError(f"[{step}] is outside the list of {len(value)} items.")
        return value[step]
    if not isinstance(value, dict):
        raise ToolError(f"The key {step[:40]!r} needs an object, but there is {_kind(value)}.")
    if step not in value:
        raise ToolError(f"There is no key {step[:40]!r}. {closest(step, list(value))}")
    return value[step]


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
