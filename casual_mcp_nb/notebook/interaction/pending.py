"""The questions that wait for the person, and who puts them."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, overload

from casual_mcp_nb.engine.approval import ApprovalRequest, Decision
from casual_mcp_nb.engine.before_model_call import BeforeModelCall, MessageEdit
from casual_mcp_nb.errors import UsageError, brief
from casual_mcp_nb.notebook.interaction.input_prompts import ask_with_input
from casual_mcp_nb.notebook.interaction.prompt import can_prompt
from casual_mcp_nb.notebook.interaction.questions import (
    ApprovalQuestion,
    Channel,
    FormQuestion,
    Question,
    StepQuestion,
    UrlElicitation,
)
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.observers import Observers
from casual_mcp_nb.types.asking import AnswerLimits
from casual_mcp_nb.types.event import Request

CLICKS_ARRIVE_SINCE = (7, 4)
"""The version of ipykernel since which a click arrives while a cell awaits."""


class Questions(Sequence[Question]):
    """The questions that are open, oldest first. Its coroutines belong to the engine's loop.

    Args:
        engine: Tells whether a cell is blocked.
        observers: Are told when a question comes or goes.

    Attributes:
        limits: How long, and how many at a time, questions wait; kept by those who ask them here.
    """

    def __init__(self, engine: EngineThread, observers: Observers) -> None:
        self.limits = AnswerLimits()
        self._engine = engine
        self._observers = observers
        self._open: dict[str, Question] = {}
        self._came = threading.Condition()
        self._places: list[tuple[Channel | None, contextvars.Context]] = []
        self._panels = 0
        self._step_mode = False
        self._one_input = asyncio.Lock()

    @property
    def time_limit(self) -> float | None:
        """Seconds until a call that nobody approves is denied, and what a server asks is cancelled; None waits for ever. The
        pauses of the step mode are the person's own and have no limit."""
        return self.limits.seconds

    @time_limit.setter
    def time_limit(self, seconds: float | None) -> None:
        self.limits.wait(seconds)

    @property
    def step_mode(self) -> bool:
        """Whether turns pause before each call of the model; it holds at once, also for a turn that is running."""
        return self._step_mode

    @step_mode.setter
    def step_mode(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise UsageError(f"step_mode cannot be {brief(on)}.", hint="It is True or False.")
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
        """The open question of this id.

        Raises:
            UsageError: It is not open any more.
        """
        if name not in self._open:
            raise UsageError("This question is not open any more: it was answered, or its turn has ended.")
        return self._open[name]

    def wait(self, seconds: float = 60.0) -> Question:
        """Block until a question is open, and give the oldest; for code that answers the questions of a turn that it submitted.

        Raises:
            UsageError: None came up in that time, or the caller is on the engine thread, where none could.
        """
        self._engine.check_process()
        if self._engine.is_current:
            raise UsageError("A blocking wait was asked for on the engine thread.", hint="Use session.on_change there.")
        with self._came:
            question = self._came.wait_for(self._unanswered, seconds)
        if question is None:
            raise UsageError(f"Nothing was asked within {seconds:g} s.")
        return question

    def panel_opened(self) -> Callable[[], None]:
        """Note that something shows the questions and lets the person answer; returns what takes the note back."""
        self._panels += 1
        ended: list[None] = []

        def end() -> None:
            if not ended:
                ended.append(None)
                self._panels -= 1

        return end

    def surface_of_awaited_cells(self) -> Channel:
        """Who asks while a cell awaits: a panel, where its clicks arrive by then."""
        version = getattr(sys.modules.get("ipykernel"), "version_info", (0,))
        return "panel" if self._panels and tuple(version[:2]) >= CLICKS_ARRIVE_SINCE else "input"

    @property
    def by_input(self) -> bool:
        """Whether what comes up now is asked with `input()`, so that clicks may arrive only when the cell has ended."""
        return self._surface() == "input"

    @contextmanager
    def prompt_on(self, surface: Channel | None = None) -> Iterator[None]:
        """Have the questions that come up in the body put by `surface`, or by whatever can be answered then; `input()` asks in
        the cell that the body runs for."""
        place = (surface, contextvars.copy_context())
        self._places.append(place)
        try:
            yield
        finally:
            self._places.remove(place)

    def can_ask(self) -> bool:
        """Whether somebody could answer what comes up now: in a terminal, in a cell whose front end takes input, or in a panel.

        Code that answers the questions of `submit` in a script says so by `panel_opened`.
        """
        return can_prompt() or (self._panels > 0 and not self.by_input)

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Ask whether a call may run. An `Approver`."""
        question = ApprovalQuestion(self._surface(), request)
        decision: Decision = await self._answer(question)
        if decision.verdict is True:
            for other in tuple(self._open.values()):
                if isinstance(other, ApprovalQuestion):
                    with suppress(UsageError):
                        other.settle_alike(decision.scope, question)
        return decision

    async def elicit(self, server: str, message: str, _kind: Any, params: Any, _context: Any) -> Any:
        """Ask what a server asks; see `Handlers.elicitation`."""
        from mcp_types import ElicitResult

        address = getattr(params, "url", None)
        question: Question
        if address is not None:
            question = UrlElicitation(self._surface(), server, message, str(address))
        else:
            question = FormQuestion(self._surface(), server, message, getattr(params, "requested_schema", None) or {})
        action, content = await self._answer(question)
        return ElicitResult(action=action, content=content)

    def gate(self, step: bool | BeforeModelCall | None, stop: Callable[[], None]) -> BeforeModelCall:
        """Make what pauses one turn before each call of the model.

        Args:
            step: Whether it pauses, or what is awaited in place of the person; None for `step_mode` as it is then.
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
            word, edits = await self._answer(StepQuestion(self._surface(), number, request))
            run = word == "run"
            if word == "stop":
                stop()
                await asyncio.Event().wait()
            return tuple(edits)

        return pause

    async def _answer(self, question: Question) -> Any:
        with self._came:
            self._open[question.id] = question
            self._came.notify_all()
        self._observers.changes.notify()
        by_input = asyncio.create_task(self._by_input(question)) if question.surface == "input" else None
        waiting = asyncio.wrap_future(question.future)
        try:
            return await waiting
        finally:
            waiting.cancel()
            if by_input is not None:
                by_input.cancel()
            del self._open[question.id]
            self._observers.changes.notify()

    async def _by_input(self, question: Question) -> None:
        # One after the other: two prompts at a time would take each other's answers.
        async with self._one_input:
            with suppress(UsageError):
                await ask_with_input(question, self._places[-1][1] if self._places else contextvars.copy_context())

    def _unanswered(self) -> Question | None:
        return next((question for question in tuple(self._open.values()) if not question.future.done()), None)

    def _surface(self) -> Channel:
        surface = self._places[-1][0] if self._places else None
        if surface is not None:
            return surface
        return "panel" if self._panels and not self._engine.blocked else "input"
