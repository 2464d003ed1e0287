"""A turn's listeners: one-time notices, throttled bursts, an iterator over a turn, a pause before
each model call.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from casual_mcp_nb.base.selection import Listeners, Selection
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import FINDING, Event, Notice, Request, ServerLog
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.conversation.turn import Trace
    from casual_mcp_nb.engine.tool_view import ToolView


class Observers:
    """One session's listeners.

    Attributes:
        events: Called with a turn and each event in it.
        served: The same for clients' turns, which do not belong to it, see `SessionServe.http`.
        changes: Called after each change to a server, the tools, the turns, the model or a
            question.
        closing: Called once, when the session closes.
    """

    def __init__(self) -> None:
        self.events = Listeners[[Turn, Event]]()
        self.served = Listeners[[Turn, Event]]()
        self.changes = Listeners[[]]()
        self.closing = Listeners[[]]()

    def clear(self) -> None:
        """Remove all listeners, without notifying them."""
        for listeners in (self.events, self.served, self.changes, self.closing):
            listeners.clear()


class Observation:
    """A subscription to a session's events. Closing it calls its ends in order.

    They must tolerate a second call.
    """

    def __init__(self, *ends: Callable[[], object]) -> None:
        self._ends = ends

    def close(self) -> None:
        """End the subscription. Closing twice is harmless."""
        for end in self._ends:
            end()

    __call__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


MAX_LOGS = 1_000
"""How many log messages a turn keeps from its servers."""
MAX_LOG_CHARACTERS = 500_000
"""Their maximum total length in characters."""
_MAX_NAMES = 12


class NoticeHistory:
    """This conversation's notices, so that none appears twice."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._missing: tuple[Notice, ...] = ()

    def new(self, texts: Sequence[str], *, first: bool = False) -> list[str]:
        """Filter out the earlier texts, and remember the new ones."""
        if first:
            self._texts = set()
        if not texts:
            return []
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        self._texts.update(new)
        return new

    def changed(self, missing: tuple[Notice, ...], *, first: bool) -> tuple[Notice, ...]:
        """Filter out the notices on missing tools if the previous turn had the same ones."""
        before, self._missing = self._missing, missing
        return missing if first or missing != before else ()


class ServerLogs:
    """The log messages that servers send during a turn, up to a limit."""

    def __init__(self, emit: Callable[[Event], None], now: Callable[[], float]) -> None:
        self._emit = emit
        self._now = now
        self._count = 0
        self._characters = 0
        self._full = False

    def add(self, server: str, level: str, text: str) -> None:
        """Emit a log message, unless there were too many already."""
        self._count += 1
        self._characters += len(text)
        if self._count <= MAX_LOGS and self._characters <= MAX_LOG_CHARACTERS:
            self._emit(ServerLog(server, level, text, self._now()))
        elif not self._full:
            self._full = True
            limit = f"{MAX_LOGS:,} log messages, or {MAX_LOG_CHARACTERS:,} characters of them"
            self._emit(
                Notice(
                    f"There were more than {limit}. The others are left out.", server, self._now()
                )
            )


def view_changes(before: ToolView, after: ToolView) -> list[Notice]:
    """Build a notice for each server that offers more or fewer tools in one view than in the
    other.
    """
    old, new = _names(before), _names(after)
    return [
        *_by_server("now offers {count} more", new - old),
        *_by_server("no longer offers {count}", old - new),
    ]


def unseen(notices: Sequence[Notice], seen: Iterable[Notice]) -> list[Notice]:
    """Filter out the notices that share server and text with one in `seen`."""
    texts = {(notice.server, notice.text) for notice in seen}
    return [notice for notice in notices if (notice.server, notice.text) not in texts]


def _names(view: ToolView) -> set[ToolName]:
    return {tool.tool_name for tool in (*view.loaded, *view.deferred)}


def _by_server(change: str, names: set[ToolName]) -> list[Notice]:
    by_server: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        by_server[name.server].append(name.tool)
    return [
        Notice(_sentence(server, change, tools), server=server)
        for server, tools in by_server.items()
    ]


def _sentence(server: str, change: str, tools: list[str]) -> str:
    count = "1 tool" if len(tools) == 1 else f"{len(tools):,} tools"
    more = f" and {len(tools) - _MAX_NAMES:,} more" if len(tools) > _MAX_NAMES else ""
    return (
        f"Server {shown(server)} {change.format(count=count)}:"
        f" {', '.join(map(shown, tools[:_MAX_NAMES]))}{more}."
    )


Report = tuple[float, float | None, str | None]

REPORT_SECONDS = 0.1
REPORTS_AT_FULL_RATE = 100
"""After this many reports, and after each further as many, the time between two of them doubles."""
MAX_MESSAGE = 1_000


class LoopThrottle:
    """Calls a function as soon as there is a request and enough time has passed since the last
    call.

    Args:
        interval: The seconds to wait after a call, as a function of the call count.
    """

    def __init__(self, function: Callable[[], None], interval: Callable[[int], float]) -> None:
        self._function = function
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._next = 0.0
        self._requested = False
        self._timer: asyncio.TimerHandle | None = None
        self.calls = 0

    def request(self, immediately: bool = False) -> None:
        """Request a call."""
        self._requested = True
        if immediately or self._loop.time() >= self._next:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._next, self.flush)

    def flush(self) -> None:
        """Make the requested call, if it is still pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._requested:
            return
        self._requested = False
        self.calls += 1
        self._next = self._loop.time() + self._interval(self.calls)
        self._function()


class ProgressThrottle:
    """Passes on the first and the last report of a call's progress, and as many others as a person
    can follow.

    A ten-minute call passes on about 600 reports, a day-long one about 1,300.
    """

    def __init__(self, emit: Callable[[Report], None]) -> None:
        self._emit = emit
        self._last: Report = (0.0, None, None)
        self._throttle: LoopThrottle | None = None
        self.received = 0

    @property
    def left_out(self) -> int:
        """How many reports were dropped."""
        return self.received - (self._throttle.calls if self._throttle else 0)

    def add(self, progress: float, total: float | None, message: str | None) -> None:
        """Add the next report."""
        self.received += 1
        self._last = (progress, total, message[:MAX_MESSAGE] if message else message)
        if self._throttle is None:
            # Few calls report anything.
            self._throttle = LoopThrottle(lambda: self._emit(self._last), _report_interval)
        self._throttle.request()

    def close(self) -> None:
        """Emit the last report, if it is still pending."""
        if self._throttle is not None:
            self._throttle.flush()


def _report_interval(reports: int) -> float:
    return float(REPORT_SECONDS * 2 ** ((reports - 1) // REPORTS_AT_FULL_RATE))


class Follower:
    """Iterates over a trace's events as they arrive.

    Unread events wait in the trace, which stores them anyway.

    It belongs to the event loop that created it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._ended = False

    def on_event(self, event: Event) -> None:
        """Wake the iterator. Called for each event, on whatever thread adds it."""
        # One wake-up is enough for whatever came since the last one.
        if not self._wake.is_set():
            # A turn can outlive the loop of whoever follows it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    def on_end(self, _: object) -> None:
        """Let the iterator end after the last event. Called on the follower's own loop."""
        self._ended = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        count = 0
        while True:
            self._wake.clear()
            ended = self._ended
            for event in self._trace.since(count):
                count += 1
                yield event
            if ended:
                return
            if not self._ended and count == len(self._trace):
                await self._wake.wait()


@dataclass(frozen=True)
class MessageEdit:
    """A new text for something that the model has not read yet.

    Args:
        call_id: The call whose result it replaces, or None for the person's message.
    """

    text: str
    call_id: str | None = None


@dataclass(frozen=True)
class SystemEdit:
    """Another system prompt until the turn ends, or empty for none."""

    text: str


@dataclass(frozen=True)
class ToolsEdit:
    """Other tools until the turn ends.

    Args:
        loaded: Deferred tools to send with their definitions, although no search has found them.
    """

    off: tuple[ToolName, ...] = ()
    loaded: tuple[ToolName, ...] = ()


RequestEdit = MessageEdit | SystemEdit | ToolsEdit
BeforeModelCall = Callable[[int, Request], Awaitable[Sequence[RequestEdit] | None]]
"""Called before each model call with the step and the request.

Returns the edits, or None to send it as it is.
"""


def editable(messages: Sequence[ChatMessage]) -> dict[str | None, int]:
    """Find this turn's texts that the model has not answered yet, so that a person may edit them.

    Leaves out synthetic tools' results, since they list the loaded tools, and messages that are not
    only text.

    Returns:
        Indexes in `messages` by the call's id, and the person's last message by None.
    """
    indexes: dict[str | None, int] = {}
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if (
            message.role == "tool"
            and message.name not in FINDING
            and isinstance(message.content, str)
        ):
            indexes[message.tool_call_id] = index
        elif message.role == "user" and isinstance(message.content, str):
            # Everything before it is of an earlier turn, which may have ended without an answer.
            return {None: index}
        elif message.role != "tool":
            break
    return dict(reversed(indexes.items()))


def index_of(edit: MessageEdit, messages: Sequence[ChatMessage]) -> int:
    """Find the index in `messages` where an edit applies."""
    indexes = editable(messages)
    if edit.call_id not in indexes:
        target = (
            "the message" if edit.call_id is None else f"the result of call {shown(edit.call_id)}"
        )
        raise UsageError(
            f"This cannot be edited: {target}.",
            hint="Only text that the model has not read yet can be edited.",
        )
    return indexes[edit.call_id]


def edited_view(
    edit: ToolsEdit, view: ToolView, select: Callable[[Selection], ToolView]
) -> ToolView:
    """Apply a tools edit to a view."""
    selection = view.selection.snapshot()
    for name in edit.loaded:
        selection.tools_off.discard(str(name))
    for name in edit.off:
        selection.tools_off.add(str(name))
    selection.always_loaded = (*selection.always_loaded, *map(str, edit.loaded))
    edited = select(selection)
    loaded = {tool.tool_name for tool in edited.loaded}
    for name in edit.loaded:
        if name not in loaded:
            raise UnknownNameError(
                "tool",
                str(name),
                [str(tool.tool_name) for tool in (*edited.loaded, *edited.deferred)],
            )
    return edited
