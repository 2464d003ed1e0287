"""The calls that a person made: in the explorer, with `Session.call_tool` or `%mcp call`."""

from __future__ import annotations

from dataclasses import dataclass, field

from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.step import ToolCall


@dataclass(frozen=True)
class DirectCall(Displayable):
    """One such call.

    Args:
        id: Its number, from 1, as text.
        at: When it began, in seconds since 1970.
        call: The call with its result; where its server failed, the result says how.
    """

    id: str
    at: float
    call: ToolCall


@dataclass(frozen=True)
class DirectCalls(DisplayableList[DirectCall]):
    """The last of these calls, the newest first.

    Args:
        calls: The calls.
    """

    calls: tuple[DirectCall, ...] = field(default=(), repr=False)

    @property
    def _items(self) -> tuple[DirectCall, ...]:
        return self.calls
