"""Python that does the same as a person's action on a page; to be copied into a cell."""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping
from typing import Any

_MAX_LINE = 100


def chat_code(prompt: str, options: Mapping[str, Any], images: int = 0) -> str:
    """Write the call of `Session.chat` that sends a message.

    Args:
        prompt: The text.
        options: What the turn does differently.
        images: How many images went with it; their files have to be named by hand.
    """
    files = {"images": [f"image-{number}.png" for number in range(1, images + 1)]} if images else {}
    return _call("session.chat", [prompt], {**files, **options})


def call_code(tool: str, arguments: Mapping[str, Any]) -> str:
    """Write the call of `Session.call_tool` that calls a tool.

    Args:
        tool: Its name, as `server:tool`.
        arguments: Its arguments.
    """
    return _call("session.call_tool", [tool], arguments)


def literal(value: Any) -> str:
    """Write a JSON value as a Python literal; a text that hides something is escaped."""
    match value:
        case str():
            return _text(value)
        case dict():
            return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case _:
            return repr(value)


def _text(text: str) -> str:
    # Like repr, but with double quotes, as formatters write it.
    quoted = repr(text) if text.replace("\n", "").isprintable() else ascii(text)
    inner = quoted[1:-1]
    if quoted[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    return f'"{inner}"'


def _call(function: str, values: list[Any], named: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in named.items() if name.isidentifier() and not keyword.iskeyword(name)}
    others = {name: value for name, value in named.items() if name not in plain}
    parts = [*map(literal, values), *(f"{name}={literal(value)}" for name, value in plain.items())]
    parts += [f"**{literal(others)}"] if others else []
    line = f"{function}({', '.join(parts)})"
    if len(line) <= _MAX_LINE or len(parts) == 1:
        return line
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{function}(\n{lines})"
