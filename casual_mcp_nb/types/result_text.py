"""How a tool's result is written into a conversation, and how it is read back."""

from __future__ import annotations

import re
from typing import Any, Literal

ResultFormat = Literal["result", "function_result", "function_args_result"]


def format_result(text: str, style: ResultFormat, name: str, arguments: dict[str, Any] | str) -> str:
    """Put the tool's name, and its arguments, before a result's text.

    Args:
        text: The result's text.
        style: `result`: the text alone; `function_result`: `name → text`; `function_args_result`: `name(a=1) → text`.
        name: The tool's name on the wire.
        arguments: The call's arguments.

    Returns:
        The text as a model reads it; `bare_result` takes it apart.
    """
    if style == "result":
        return text
    if style == "function_result":
        return f"{name} → {text}"
    shown = arguments if isinstance(arguments, str) else ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({shown}) → {text}"


def bare_result(text: str, name: str) -> str:
    """Return the text of a result without what `format_result` put before it.

    Args:
        text: The result as it stands in a conversation.
        name: The tool's name on the wire.
    """
    return re.sub(rf"\A{re.escape(name)}(?:\(.*?\))? → ", "", text, count=1, flags=re.DOTALL)


def says_failed(text: str) -> bool:
    """Return whether the text of a result says that its call failed: it begins with `Error`."""
    return text.lstrip().casefold().startswith("error")
