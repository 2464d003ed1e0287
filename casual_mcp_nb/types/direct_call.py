"""Calls made by the user: in the explorer, with `Session.call_tool` or with `%mcp call`."""

from __future__ import annotations

from dataclasses import dataclass, field

from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.step import ToolCall


@dataclass(frozen=True)
class DirectCall(Displayable):
    """One call made by the user.

    Args:
        id: Its number, from 1, as a string.
        at: When it started, in seconds since 1970.
        call: The call with its result; if the server failed, the result says how.
    """

    id: str
    at: float
    call: ToolCall


@dataclass(frozen=True)
class DirectCalls(DisplayableList[DirectCall]):
    """The most recent of these calls, newest first.

    Args:
        calls: The calls.
    """

    calls: tuple[DirectCall, ...] = field(default=(), repr=False)

    @property
    def _items(self) -> tuple[DirectCall, ...]:
        return self.calls
