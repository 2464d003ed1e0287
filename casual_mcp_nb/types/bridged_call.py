"""Read a call through `call_tool`, with which a model calls the tools that it found, as the call that it meant."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from casual_mcp_nb.types.event import CALL_TOOL
from casual_mcp_nb.types.nesting import parse_arguments


class NamedCall(NamedTuple):
    """The call that a model meant.

    Args:
        name: The tool's name as the model wrote it.
        arguments: The arguments, or the model's text where that is not a JSON object.
        bridged: Whether it came through `call_tool`.
    """

    name: str
    arguments: dict[str, Any] | str
    bridged: bool = False


def read_call(name: str, text: str | None) -> NamedCall:
    """Parse the call that a model meant, also one through `call_tool`; that itself where it names no tool.

    Args:
        name: The name in its answer.
        text: The arguments as the model wrote them.
    """
    arguments = parse_arguments(text)
    return NamedCall(name, arguments) if name != CALL_TOOL else named_call(name, arguments)


def named_call(name: str, arguments: dict[str, Any] | str) -> NamedCall:
    """Parse the call that was meant, as `read_call` does.

    Args:
        name: The name.
        arguments: The arguments, or the model's text where that is not a JSON object.
    """
    if name != CALL_TOOL or not isinstance(arguments, dict):
        return NamedCall(name, arguments)
    inner, given = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(inner, str) or not inner or arguments.keys() - {"name", "arguments"}:
        return NamedCall(name, arguments)
    if isinstance(given, str) or given is None:
        # Some models write JSON in JSON.
        given = parse_arguments(given)
    return NamedCall(inner, given if isinstance(given, dict) else json.dumps(given), bridged=True)
