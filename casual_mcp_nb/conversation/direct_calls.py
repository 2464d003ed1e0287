"""The calls that the person made, or an app in which they clicked."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import count

from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.audit import Caller
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.errors import UnknownNameError


@dataclass(frozen=True)
class DirectCall(Displayable):
    """One call made by the person, with a number from 1 as its id.

    If the server failed, the result shows how.

    Attributes:
        caller: Who made it: the `person`, or an `app` in which the person clicked.
        result: The result as it came, for an app. Not kept in lists.
    """

    id: str
    at: float
    call: ToolCall
    caller: Caller = "person"
    result: ToolResult | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class DirectCalls(DisplayableList[DirectCall], items="calls"):
    """The most recent calls, newest first."""

    calls: tuple[DirectCall, ...] = field(default=(), repr=False)


MAX_CALLS = 200
MAX_SIZE = 32 * 1024 * 1024
"""Maximum size for all recorded results together, in characters and bytes.

The last one is always kept.
"""


class RecordedCalls:
    """The last calls. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._calls: tuple[tuple[DirectCall, int], ...] = ()

    def add(self, at: float, call: ToolCall, caller: Caller = "person") -> DirectCall:
        """Record a call that began at `at`, in seconds since 1970."""
        with self._lock:
            added = DirectCall(str(next(self._numbers)), at, call, caller)
            calls = [*self._calls, (added, _size(call))][-MAX_CALLS:]
            size = sum(each for _, each in calls)
            while len(calls) > 1 and size > MAX_SIZE:
                size -= calls.pop(0)[1]
            self._calls = tuple(calls)
        return added

    def list(self, tool: ToolName | None = None) -> DirectCalls:
        """List the calls, the newest first."""
        calls = [each for each, _ in reversed(self._calls)]
        if tool is not None:
            calls = [each for each in calls if each.call.tool == tool]
        return DirectCalls(tuple(calls))

    def by_id(self, id: str) -> DirectCall:
        """Find the call with this id."""
        calls = {each.id: each for each, _ in self._calls}
        if id not in calls:
            raise UnknownNameError("call", id, calls)
        return calls[id]


def _size(call: ToolCall) -> int:
    # Structured content is in the text too, in some form.
    parts = sum(len(part.text) + len(part.data or b"") for part in call.content)
    copies = 1 if call.structured is None else 2
    return copies * len(call.result) + parts
