"""The open questions, and where each is asked."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, overload

from casual_mcp_nb.engine.approval import ApprovalRequest, Decision, NoOneToAsk
from casual_mcp_nb.engine.before_model_call import BeforeModelCall, MessageEdit
from casual_mcp_nb.engine.consent import allowed_in_python
from casual_mcp_nb.errors import UsageError, brief
from casual_mcp_nb.notebook.interaction.elicitation import FormQuestion, UrlElicitation
from casual_mcp_nb.notebook.interaction.input_prompts import ask_with_input
from casual_mcp_nb.notebook.interaction.prompt import can_prompt
from casual_mcp_nb.notebook.interaction.questions import ApprovalQuestion, Channel, Question, StepQuestion, not_open
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.observers import Observers
from casual_mcp_nb.types.asking import AnswerLimits
from casual_mcp_nb.types.event import Request
from casual_mcp_nb.types.tool import ToolSpec

CLICKS_ARRIVE_SINCE = (7, 4)
"""The version of ipykernel since which a click arrives while a cell awaits."""


@dataclass(eq=False)
class _Cell:
    """A cell that waits for an answer: where to ask, the variables by which its kernel finds it, and its open prompts."""

    channel: Channel | None
    context: contextvars.Context
    prompts: set[asyncio.Task[None]] = field(default_factory=set)


class Questions(Sequence[Question]):
    """The open questions, oldest first. Its coroutines run on the engine's loop.

    Args:
        engine: Tells whether a cell is blocked.
        observers: Told when a question is asked or settled.

    Attributes:
        limits: How long questions wait, and how many at a time; enforced by the callers of `approve` and `elicit`.
        unattended: Whether nobody is there to answer, as in a process that only serves.
        how_to_allow: Returns how a call that is denied because nobody can be asked is allowed, for whoever started the session.
    """

    def __init__(self, engine: EngineThread, observers: Observers) -> None:
        self.limits = AnswerLimits()
        self.unattended = False
        self.how_to_allow: Callable[[ToolSpec], str] = allowed_in_python
        self._engine = engine
        self._observers = observers
        self._open: dict[str, Question] = {}
        self._new_question = threading.Condition()
        self._cells: list[_Cell] = []
        self._panels = 0
        self._step_mode = False
        self._one_input = asyncio.Lock()

    @property
    def time_limit(self) -> float | None:
        """Seconds after which an unanswered approval is denied and a server's question cancelled; None for no limit.

        Pauses of the step mode have no limit.
        """
        return self.limits.seconds

    @time_limit.setter
    def time_limit(self, seconds: float | None) -> None:
        self.limits.wait(seconds)

    @property
    def step_mode(self) -> bool:
        """Whether turns pause before each model call; takes effect immediately, also for a turn that is running."""
        return self._step_mode

    @step_mode.setter
    def step_mode(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise UsageError(f"step_mode cannot be {brief(on)}.", hint="It must be True or False.")
        self._step_mode = on
        self._observers.changes.notify()

    @overload
    def __getitem__(self, key: int) -> Question: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Question]: ...
    def __getitem__(self, key: int | slice) -> Question | Sequence[Question]:
        return tuple(self._open.values())[key]

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self)) or "<Questions: none>"

    def by_id(self, name: str) -> Question:
        """Find the open question with this id.

        Raises:
            UsageError: It is no longer open.
        """
        if name not in self._open:
            raise not_open()
        return self._open[name]

    def wait(self, seconds: float = 60.0) -> Question:
        """Block until a question is open, and return the oldest; for code that answers the questions of `submit`.

        Args:
            seconds: How long to wait.

        Raises:
            UsageError: Nothing was asked in that time, or the caller is on the engine thread, where it would wait in vain.
        """
        self._engine.check_process()
        if self._engine.is_current:
            raise UsageError("This would block the engine thread.", hint="Use session.on_change there.")
        with self._new_question:
            question = self._new_question.wait_for(self._unanswered, seconds)
        if question is None:
            raise UsageError(f"Nothing was asked within {seconds:g} s.")
        return question

    def panel_opened(self) -> Callable[[], None]:
        """Register that something shows the questions and lets the person answer.

        Returns:
            A function that ends it.
        """
        self._panels += 1
        ended = False

        def end() -> None:
            nonlocal ended
            self._panels -= not ended
            ended = True

        return end

    def channel_of_awaited_cells(self) -> Channel:
        """Choose where to ask while a cell awaits: in a panel if its clicks arrive meanwhile, otherwise with `input()`."""
        version = getattr(sys.modules.get("ipykernel"), "version_info", (0,))
        return "panel" if self._panels and tuple(version[:2]) >= CLICKS_ARRIVE_SINCE else "input"

    @property
    def by_input(self) -> bool:
        """Whether a question is asked with `input()` now, because clicks may not arrive before the cell has ended."""
        return self._channel() == "input"

    @asynccontextmanager
    async def prompt_on(self, channel: Channel | None = None) -> AsyncIterator[None]:
        """Ask the questions that come up in the body at `channel`; `input()` asks in the cell that the body runs for.

        Prompts that are open at its end are given up, before whoever waits for the body goes on: they would take the line that
        is typed next.

        Args:
            channel: Where to ask; None for whichever the person can answer then.
        """
        cell = _Cell(channel, contextvars.copy_context())
        self._cells.append(cell)
        try:
            yield
        finally:
            self._cells.remove(cell)
            if prompts := tuple(cell.prompts):
                for prompt in prompts:
                    prompt.cancel()
                await asyncio.wait(prompts)

    def can_ask(self) -> bool:
        """Check whether somebody could answer now: in a terminal, in a cell whose front end takes input, or in a panel.

        A script that answers the questions of `submit` announces that with `panel_opened`.
        """
        if self.unattended:
            return False
        return can_prompt() or (self._panels > 0 and not self.by_input)

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Ask whether a call may run; an `Approver`."""
        if self.unattended:
            raise NoOneToAsk
        question = ApprovalQuestion(self._channel(), request)
        decision: Decision = await self._answer(question)
        if decision.verdict is True:
            for other in tuple(self._open.values()):
                if isinstance(other, ApprovalQuestion):
                    with suppress(UsageError):
                        other.settle_alike(decision.scope, question)
        return decision

    async def elicit(self, server: str, message: str, _kind: Any, params: Any, _context: Any) -> Any:
        """Ask the person a server's question, see `Handlers.elicitation`."""
        from mcp_types import ElicitResult

        if self.unattended:
            return ElicitResult(action="decline")
        address = getattr(params, "url", None)
        question: Question
        if address is not None:
            question = UrlElicitation(self._channel(), server, message, str(address))
        else:
            question = FormQuestion(self._channel(), server, message, getattr(params, "requested_schema", None) or {})
        action, content = await self._answer(question)
        return ElicitResult(action=action, content=content)

    def gate(self, step: bool | BeforeModelCall | None, stop: Callable[[], None]) -> BeforeModelCall:
        """Build the function that pauses one turn before each model call.

        Args:
            step: Whether to pause, or what to await instead of the person; None for `step_mode` as it is at that moment.
            stop: Stops the turn.

        Raises:
            UsageError: `step` is something else.
        """
        if callable(step):
            return step
        if step is not None and not isinstance(step, bool):
            raise UsageError(f"step cannot be {brief(step)}.", hint="Give True, False, None, or a `BeforeModelCall`.")
        run = False

        async def pause(number: int, request: Request) -> Sequence[MessageEdit] | None:
            nonlocal run
            if run or not (self.step_mode if step is None else step):
                return None
            answer, edits = await self._answer(StepQuestion(self._channel(), number, request))
            run = answer == "run"
            if answer == "stop":
                stop()
                await asyncio.Event().wait()
            return tuple(edits)

        return pause

    async def _answer(self, question: Question) -> Any:
        with self._new_question:
            self._open[question.id] = question
            self._new_question.notify_all()
        self._observers.changes.notify()
        by_input = self._prompted(question) if question.channel == "input" else None
        waiting = asyncio.wrap_future(question.future)
        try:
            return await waiting
        finally:
            waiting.cancel()
            del self._open[question.id]
            self._observers.changes.notify()
            if by_input is not None:
                by_input.cancel()

    def _prompted(self, question: Question) -> asyncio.Task[None]:
        """Start to ask with `input()`, in the cell that waits."""
        cell = self._cells[-1] if self._cells else _Cell(None, contextvars.copy_context())
        prompt = asyncio.create_task(self._by_input(question, cell.context))
        cell.prompts.add(prompt)
        prompt.add_done_callback(cell.prompts.discard)
        return prompt

    async def _by_input(self, question: Question, context: contextvars.Context) -> None:
        # One at a time: two prompts would get each other's answers.
        async with self._one_input:
            with suppress(UsageError):
                await ask_with_input(question, context)

    def _unanswered(self) -> Question | None:
        return next((question for question in tuple(self._open.values()) if not question.future.done()), None)

    def _channel(self) -> Channel:
        channel = self._cells[-1].channel if self._cells else None
        if channel is not None:
            return channel
        return "panel" if self._panels and not self._engine.blocked else "input"
