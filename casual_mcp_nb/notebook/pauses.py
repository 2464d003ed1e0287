"""Step mode from code: a loop over a turn's pauses, in which each request can be read and changed
before it is sent.

The turn runs on the engine's loop and waits in its gate, see `notebook/step_mode.py`. Only the
`for` loop holds the iterator, and the iterator holds the turn. So when the loop is left early, the
iterator is collected, and that stops the turn.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.base.tool import Catalog
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.conversation.step import ComingRequest, text_of
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.edits import RequestEdit, SystemEdit, ToolsEdit
from casual_mcp_nb.engine.turn_fields import ChatOptions
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.caller import Caller, caller_here
from casual_mcp_nb.notebook.loop import CLEAN_UP_SECONDS, EngineThread
from casual_mcp_nb.notebook.parts import SessionParts
from casual_mcp_nb.notebook.questions import Channel
from casual_mcp_nb.notebook.step_mode import StepAnswer, StepGate, StepTexts, check_text

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.conversation import Prompt

_WAKE_SECONDS = 0.05


class Pause:
    """A pause before a model call. Edit the request, then continue the loop to send it.

    Attributes:
        step: The index in `turn.steps` of the step that follows, from 0. Displays count from 1.
        request: Its request, without your changes.
        texts: The texts that the model has not read yet: your message as "", results by the call's
            id. Assign to change one.
        labels: Their labels.
        system: The system prompt, from this step until the turn ends.
        tools: The tools offered, as `server:tool`, from this step until the turn ends. Remove some,
            or add deferred ones, which loads them. Built-in tools such as `search_tools` are not in
            it.
        runs_on: Whether this is the last pause.
    """

    def __init__(self, step: int, request: Request, catalog: Catalog) -> None:
        self.step = step
        self.request = request
        self._step_texts = StepTexts(request)
        self.texts = dict(self._step_texts.texts)
        self.labels = self._step_texts.labels
        self.system = ""
        if request.messages and request.messages[0].role == "system":
            self.system = text_of(request.messages[0].content)
        self._catalog = catalog
        by_wire_name = {tool.wire_name: str(tool.tool_name) for tool in catalog}
        self.tools: list[str] = []
        for definition in (*request.tools, *request.found):
            name = str(definition["name"])
            if name in by_wire_name:
                self.tools.append(by_wire_name[name])
        self._before = (self.system, list(self.tools))
        self.runs_on = False
        self.answer: Future[StepAnswer] = Future()

    @property
    def tokens(self) -> int:
        """The request's estimated tokens, without your changes."""
        return self.request.tokens.total

    def run(self) -> None:
        """Run the turn to its end without another pause. Changes made here are sent."""
        self.runs_on = True

    def stop(self) -> None:
        """Stop the turn: its steps so far stay in `session.turns`, and the loop ends."""
        with suppress(InvalidStateError):
            self.answer.set_result(StepAnswer("stop"))

    def send(self) -> None:
        """Send the request with its changes, as continuing the loop does."""
        if self.answer.done():
            return
        action: Literal["next", "run"] = "next"
        if self.runs_on:
            action = "run"
        answer = StepAnswer(action, tuple(self._edits()))
        with suppress(InvalidStateError):
            self.answer.set_result(answer)

    def _edits(self) -> Iterator[RequestEdit]:
        """Yield what was changed. A UsageError if that cannot be sent."""
        system, tools = self._before
        yield from self._step_texts.edits(self.texts)
        check_text("The system prompt", self.system)
        if self.system != system:
            yield SystemEdit(self.system)
        old = {self._catalog.resolve(name).tool_name for name in tools}
        # A dict, which keeps the order.
        new = dict.fromkeys(self._catalog.resolve(name).tool_name for name in self.tools)
        off = tuple(sorted(old - new.keys()))
        loaded = tuple(name for name in new if name not in old)
        if off or loaded:
            yield ToolsEdit(off, loaded)

    def __repr__(self) -> str:
        return (
            f"<Pause: before step {self.step + 1}, {self.tokens:,} tokens, {len(self.tools)} tools>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return ComingRequest(self.request)._repr_mimebundle_(include, exclude)


class Pauses:
    """One turn's pauses, for one `for` or `async for` loop, which starts it.

    Leaving the loop early stops the turn.

    Attributes:
        turn: The turn. Complete after the loop.
    """

    def __init__(self, parts: SessionParts, prompt: Prompt, options: ChatOptions) -> None:
        self.turn = Turn(Trace())
        self._parts = parts
        self._prompt = prompt
        self._options = options
        self._started = False

    def __iter__(self) -> Iterator[Pause]:
        if self._parts.engine.is_current:
            raise UsageError("This would block the engine thread.", hint="Use `async for` there.")
        caller = caller_here(blocking=True)
        return _Loop(self._begin("input", caller, caller.end), caller, self._parts.engine)

    def __aiter__(self) -> AsyncIterator[Pause]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The turn can outlive the loop in which its pauses are read.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.set)

        return _AsyncLoop(self._begin(None, caller_here(blocking=False), wake), arrived)

    def _begin(self, channel: Channel | None, caller: Caller, wake: Callable[[], None]) -> _Running:
        if self._started:
            raise UsageError(
                "The pauses of a turn can be iterated over once.", hint="Call session.pauses again."
            )
        running = _Running(self._parts, wake)
        gate = StepGate(running.ask, self._parts.runner.cancel)
        options: ChatOptions = {**self._options, "step": gate}
        work = self._parts.turn_service.paused(self.turn, self._prompt, options, channel)
        self._started = True
        running.prepare(self._parts.engine, work, caller)
        return running

    def __repr__(self) -> str:
        return f"<Pauses: {self.turn!r}>" if len(self.turn.trace) else "<Pauses: not started>"


class _Running:
    """A turn that pauses, and the pause at which it waits.

    The loop holds it, and so does the turn while it runs.
    """

    def __init__(self, parts: SessionParts, wake: Callable[[], None]) -> None:
        self._parts = parts
        self._wake = wake
        self._pause: Pause | None = None
        self._started = False

    def prepare(
        self, engine: EngineThread, work: Coroutine[Any, Any, Turn], caller: Caller
    ) -> None:
        wake = self._wake
        self._handover = engine.hand_over(work, caller)
        self._handover.future.add_done_callback(lambda _: wake())

    def start(self) -> None:
        """Start the turn, if that has not been done."""
        if not self._started:
            self._started = True
            self._handover.start()

    async def ask(self, step: int, request: Request) -> StepAnswer:
        """Pause, and wait for the answer of the loop."""
        pause = self._pause = Pause(step, request, self._parts.chat.catalog)
        self._wake()
        return await asyncio.wrap_future(pause.answer)

    @property
    def waits(self) -> bool:
        """Whether it waits at a pause, or the turn has ended."""
        return self._pause is not None or self._handover.future.done()

    def next_pause(self) -> Pause | None:
        """Take the pause at which the turn waits. None if the turn has ended.

        Raises:
            UsageError: The turn could not begin.
        """
        pause, self._pause = self._pause, None
        if pause is None and not self._handover.future.cancelled():
            self._handover.future.result()
        return pause

    def cancel(self, seconds: float = 0) -> None:
        """Stop the turn, and wait for its end so many seconds at most. Harmless if it has ended."""
        self._handover.cancel(seconds)


class _Loop:
    """Iterates over the pauses. While it waits, its thread runs the notebook's functions."""

    def __init__(self, running: _Running, caller: Caller, engine: EngineThread) -> None:
        self._running = running
        self._caller = caller
        self._pause: Pause | None = None
        # Not `__del__`: an interrupt can come before the object is whole.
        self._close = weakref.finalize(self, _stop, running, engine)
        self._close.atexit = False

    def __iter__(self) -> Iterator[Pause]:
        return self

    def __next__(self) -> Pause:
        try:
            self._running.start()
            if self._pause is not None:
                self._pause.send()
            while not self._running.waits:
                self._caller.serve()
            self._pause = self._running.next_pause()
        except BaseException:
            self._close()
            raise
        if self._pause is None:
            raise StopIteration
        return self._pause


def _stop(running: _Running, engine: EngineThread) -> None:
    """Stop a turn, and wait a moment for its end, unless that would block the engine."""
    seconds = CLEAN_UP_SECONDS
    if engine.is_current:
        seconds = 0
    running.cancel(seconds)


class _AsyncLoop:
    """Iterates over the pauses on the caller's loop, which goes on meanwhile."""

    def __init__(self, running: _Running, arrived: asyncio.Event) -> None:
        self._running = running
        self._arrived = arrived
        self._pause: Pause | None = None
        weakref.finalize(self, running.cancel).atexit = False

    def __aiter__(self) -> AsyncIterator[Pause]:
        return self

    async def __anext__(self) -> Pause:
        try:
            self._running.start()
            if self._pause is not None:
                self._pause.send()
            while not self._running.waits:
                self._arrived.clear()
                # Woken often, so that a notebook interrupt is noticed.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), _WAKE_SECONDS)
            self._pause = self._running.next_pause()
        except BaseException:
            # At once: all threads may be busy.
            self._running.cancel()
            await asyncio.to_thread(self._running.cancel, CLEAN_UP_SECONDS)
            raise
        if self._pause is None:
            raise StopAsyncIteration
        return self._pause
