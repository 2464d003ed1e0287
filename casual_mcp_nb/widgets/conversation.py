"""The state behind the chat panel: the turns, the running one, the open questions, and the commands for all of them."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Unpack

from casual_mcp_nb.display import mimebundle
from casual_mcp_nb.engine.turn_fields import ChatOptions
from casual_mcp_nb.errors import CasualMcpError, UsageError
from casual_mcp_nb.notebook.throttle import Throttle
from casual_mcp_nb.types.event import Event, TurnStarted
from casual_mcp_nb.types.trace import Turn
from casual_mcp_nb.widgets._asked import give, row_of
from casual_mcp_nb.widgets._transcript import SECONDS_BETWEEN_DRAWINGS, Transcript
from casual_mcp_nb.widgets.state import SessionParts, State, command


class ConversationState(State):
    """The transcript, the running turn, the questions, and the choice of model and toolset.

    Once a front end has shown it, turns of awaited cells ask there, if clicks arrive while such a cell runs.

    Args:
        session: The session.
        options: For its turns, as of `Session.chat`; a model given here is the only one to choose.
    """

    def __init__(self, session: SessionParts, **options: Unpack[ChatOptions]) -> None:
        super().__init__(session)
        self._turns = session.turn_service
        self._options = options
        # The time that a running call has taken moves on without any event.
        self._redraw = Throttle(session.engine, self.changed, SECONDS_BETWEEN_DRAWINGS, lambda: self._turns.runner.busy)
        self._transcript = Transcript(again=self._redraw)
        self._pending: str | None = None
        self._seen = False
        for cancel in (
            session.observers.events.add(self._on_event),
            session.observers.changes.add(self.changed),
            session.tool_service.selection.watch(self.changed),
            self._redraw.end,
        ):
            self.follow(cancel)
        if self._turns.runner.busy:
            self._redraw()

    def snapshot(self) -> dict[str, Any]:
        """Return all that the panel shows."""
        session, turns = self.session, self._turns.runner.turns
        rows = self._transcript.rows(turns)
        tool_set, fixed = session.tool_service.selection.tool_set, self._options.get("model")
        name = fixed if isinstance(fixed, str | None) else fixed.name
        return {
            "turns": rows,
            "earlier": len(turns) - len(rows),
            "pending": self._pending,
            "busy": self._turns.runner.busy,
            "in_cell": self._turns.runner.busy and session.questions.by_input,
            "doing": self._transcript.doing,
            "said": self._transcript.said,
            "models": [name] if name else list(session.config.models),
            "model": name or self._turns.model,
            "tool_sets": list(session.tool_service.tool_sets),
            "tool_set": tool_set if isinstance(tool_set, str) else None,
            "custom": tool_set is not None and not isinstance(tool_set, str),
            "step_mode": session.questions.step_mode,
            "questions": {question.id: row_of(question, order) for order, question in enumerate(session.questions)},
        }

    @command
    def seen(self) -> None:
        """Note that a person sees the panel and can answer there; connects the servers that are not connected yet."""
        if not self._seen:
            self._seen = True
            self.follow(self.session.questions.panel_opened())
            self.session.engine.submit(self._connect())

    async def _connect(self) -> None:
        # Failures are shown where they matter: in the status of a server, or when a turn cannot start.
        with suppress(CasualMcpError):
            await self.session.tool_service.start()

    @command
    async def send(self, prompt: str) -> None:
        """Send a message; returns when the turn has started.

        Raises:
            UsageError: There is nothing to send, or a turn is running. Other errors that keep a turn of `Session.chat` from
                starting are raised too.
        """
        if not prompt.strip():
            raise UsageError("There is nothing to send: write a message first.")
        await self._begin(lambda: self._turns.submit(prompt, self._options), prompt)

    @command
    async def rerun(self, turn: str, prompt: str | None = None) -> None:
        """Run a turn again, which removes those after it; returns when the new turn has started.

        Args:
            turn: Its key in the transcript.
            prompt: Another text; None sends the same.

        Raises:
            UsageError: The turn is no longer there, or one is running.
        """
        if prompt is not None and not prompt.strip():
            raise UsageError("There is nothing to send: write a message first.")
        index = self._index(turn)
        pending = self._turns.runner.turns[index].prompt if prompt is None else prompt
        await self._begin(lambda: self._turns.submit_rerun(index, prompt, self._options), pending)

    @command
    async def request(self, turn: str, step: int) -> str:
        """Return exactly what a step sent to the model, as HTML. In Python: `session.turns[i].steps[j].request`.

        Args:
            turn: The turn's key in the transcript.
            step: The step, from 1.

        Raises:
            UsageError: There is no such turn or step.
        """
        steps = self._turns.runner.turns[self._index(turn)].steps
        if not 1 <= step <= len(steps):
            raise UsageError(f"This turn has no step {step}.")
        return (await asyncio.to_thread(mimebundle, steps[step - 1].request))["text/html"]

    @command
    def stop(self) -> None:
        """Stop the running turn."""
        self._turns.stop()

    @command
    def undo(self) -> str:
        """Remove the last turn, and return its prompt.

        Raises:
            UsageError: There is none, or it is running.
        """
        turn = self._turns.runner.undo()
        if turn is None:
            raise UsageError("There is no turn to undo.")
        return turn.prompt

    @command
    def clear(self) -> None:
        """Start a new conversation.

        Raises:
            UsageError: A turn is running.
        """
        if self._turns.runner.busy:
            raise UsageError("A turn is running: stop it first.")
        self._turns.new_conversation()

    @command
    def set_model(self, name: str) -> None:
        """Choose the model for the turns to come."""
        if self._options.get("model") is not None:
            raise UsageError("This panel was opened for one model.", hint="Open another panel with session.panel().")
        self._turns.model = name

    @command
    def set_tool_set(self, name: str | None = None) -> None:
        """Choose the toolset for the turns to come; None for all tools."""
        self.session.tool_service.selection.tool_set = name

    @command
    def set_step_mode(self, on: bool) -> None:
        """Pause before each model call, or not."""
        self.session.questions.step_mode = on

    @command
    def answer(self, question: str, answer: str, values: dict[str, Any] | None = None) -> None:
        """Answer a question by its id, see `give`.

        Raises:
            UsageError: It is no longer open, or the answer is not valid.
        """
        open_question = self.session.questions.by_id(question)
        if open_question.channel != "panel":
            raise UsageError("This question is asked in the running cell: answer it there.")
        give(open_question, answer, values or {})

    def _index(self, turn: str) -> int:
        keys = [self._transcript.key(each) for each in self._turns.runner.turns]
        if turn not in keys:
            raise UsageError("This turn is no longer part of the conversation.")
        return keys.index(turn)

    async def _begin(self, start: Callable[[], Future[Turn]], prompt: str) -> None:
        """Start a turn and wait until it has started; raise the error that keeps it from starting."""
        loop = asyncio.get_running_loop()
        started = asyncio.Event()
        cancel = self.session.observers.events.add(lambda _, event: started.set() if isinstance(event, TurnStarted) else None)
        self._pending = prompt
        self.changed()
        try:
            # It imports every SDK, which takes a second or more and would block the loop.
            await asyncio.to_thread(importlib.import_module, "casual_llm")
            future = start()
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(started.set))
            # Its session is not collected before it has ended, though nobody else holds it.
            future.add_done_callback(lambda _: self.session and None)
            await started.wait()
        finally:
            cancel()
            self._pending = None
            self.changed()
        if future.done():
            future.result()

    def _on_event(self, turn: Turn, event: Event) -> None:
        self._transcript.note(turn, event, len(self._turns.runner.turns))
        self._redraw()
