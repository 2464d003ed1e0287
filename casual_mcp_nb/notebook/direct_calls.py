"""The record of the calls that a person makes, bounded in number and in size."""

from __future__ import annotations

import threading
from itertools import count

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.types.direct_call import DirectCall, DirectCalls
from casual_mcp_nb.types.step import ToolCall
from casual_mcp_nb.types.tool import ToolName

MAX_CALLS = 200
MAX_SIZE = 32 * 1024 * 1024
"""What the results of all recorded calls may take, in characters and bytes; the last one is kept whatever it takes."""


class RecordedCalls:
    """The last calls; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._calls: tuple[tuple[DirectCall, int], ...] = ()

    def add(self, at: float, call: ToolCall) -> DirectCall:
        """Record a call that began at `at`, in seconds since 1970."""
        with self._lock:
            added = DirectCall(str(next(self._numbers)), at, call)
            calls = [*self._calls, (added, _size(call))][-MAX_CALLS:]
            size = sum(each for _, each in calls)
            while len(calls) > 1 and size > MAX_SIZE:
                size -= calls.pop(0)[1]
            self._calls = tuple(calls)
        return added

    def list(self, tool: ToolName | None = None) -> DirectCalls:
        """List the calls, the newest first.

        Args:
            tool: Only those of this tool; None for all.
        """
        return DirectCalls(tuple(each for each, _ in reversed(self._calls) if tool is None or each.call.tool == tool))

    def by_id(self, id: str) -> DirectCall:
        """Find the call with this id.

        Raises:
            UnknownNameError: It is not recorded, or not any more.
        """
        calls = {each.id: each for each, _ in self._calls}
        if id not in calls:
            raise UnknownNameError("call", id, calls)
        return calls[id]


def _size(call: ToolCall) -> int:
    # Structured content is in the text too, in some form.
    parts = sum(len(part.text) + len(part.data or b"") for part in call.content)
    return len(call.result) * (2 if call.structured is not None else 1) + parts
