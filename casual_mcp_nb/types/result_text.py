"""Format a tool's result for the conversation, and parse it again."""

from __future__ import annotations

import re
from typing import Any, Literal

ResultFormat = Literal["result", "function_result", "function_args_result"]


def format_result(text: str, style: ResultFormat, name: str, arguments: dict[str, Any] | str) -> str:
    """Prefix a result's text with the tool's name and arguments.

    Args:
        text: The result's text.
        style: `result`: the text alone; `function_result`: `name → text`; `function_args_result`: `name(a=1) → text`.
        name: The tool's wire name.
        arguments: The call's arguments.

    Returns:
        The text for the model; `bare_result` reverses this.
    """
    if style == "result":
        return text
    if style == "function_result":
        return f"{name} → {text}"
    shown = arguments if isinstance(arguments, str) else ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({shown}) → {text}"


def bare_result(text: str, name: str) -> str:
    """Remove the prefix of `format_result` from the text of a result.

    Args:
        text: The result's text in the conversation.
        name: The tool's wire name.
    """
    return re.sub(rf"\A{re.escape(name)}(?:\(.*?\))? → ", "", text, count=1, flags=re.DOTALL)


def says_failed(text: str) -> bool:
    """Check whether a result's text reports a failure: it begins with `Error`."""
    return text.lstrip().casefold().startswith("error")
