"""The texts that can be copied from a turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.event import SYNTHETIC, UNKNOWN
from casual_mcp_nb.types.image import pictures_of
from casual_mcp_nb.types.step import ToolCall, with_nested
from casual_mcp_nb.types.trace import Turn
from casual_mcp_nb.widgets._code import call_code, chat_code

Copied = Literal["answer", "python", "arguments", "result", "call_python"]
"""The answer as the model wrote it, Python that asks the same, and of one call its arguments, its result and its Python."""


def copied(turn: Turn, what: Copied, call: str | None, options: Mapping[str, Any]) -> str:
    """Extract a text of a turn, whole.

    Args:
        turn: The turn.
        what: Which text.
        call: The id of the call whose text it is, where it is one.
        options: What the turn did differently from the next `chat`, for its Python.

    Raises:
        UsageError: There is no such call, or its arguments are not an object, so that no Python can make it.
    """
    match what:
        case "answer":
            return turn.answer
        case "python":
            return chat_code(turn.prompt, options, len(pictures_of(turn.prompt_messages)))
    tool_call = next((each for each in with_nested(turn.tool_calls) if each.id == call), None)
    if tool_call is None:
        raise UsageError("This turn has no such call.")
    match what:
        case "arguments":
            return tool_call.arguments if isinstance(tool_call.arguments, str) else pretty(tool_call.arguments)
        case "result":
            return tool_call.result
        case "call_python":
            return _code(tool_call)


def _code(call: ToolCall) -> str:
    if isinstance(call.arguments, str):
        raise UsageError("The arguments of this call are not a JSON object, so no Python makes the same call.")
    return call_code(call.name if call.tool.server in (SYNTHETIC, UNKNOWN) else str(call.tool), call.arguments)
