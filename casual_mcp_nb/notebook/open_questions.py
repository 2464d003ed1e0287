"""The open questions, and where each is asked: in a panel, or with `input()`."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, overload

from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.base.mcp import (
    AddressRequest,
    NobodyToAsk,
    QuestionAnswer,
    ServerQuestion,
    SignInRequest,
)
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.config.trust import TrustStore
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.engine.consent import ApprovalRequest, Decision, allowed_in_python
from casual_mcp_nb.engine.edits import BeforeModelCall
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.errors import UsageError, brief
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.questions import (
    AddressQuestion,
    ApprovalQuestion,
    Channel,
    Elicitation,
    FormQuestion,
    Question,
    SignInQuestion,
    UrlElicitation,
    not_open,
)
from casual_mcp_nb.notebook.step_mode import StepAnswer, StepGate, StepQuestion
from casual_mcp_nb.notebook.typed_answers import ask_with_input
from casual_mcp_nb.notebook.typed_lines import can_prompt

logger = logging.getLogger(__name__)

CLICKS_ARRIVE_SINCE = (7, 4)
"""The first ipykernel version in which a click arrives while a cell awaits."""


@dataclass(eq=False)
class _Cell:
    """A cell that waits for the engine.

    Attributes:
        channel: Where its questions are asked, or None for where it is usual.
        context: The context variables by which the kernel finds the cell.
        prompts: The questions that are asked in it with `input()` now.
    """

    channel: Channel | None
    context: contextvars.Context
    prompts: set[asyncio.Task[None]] = field(default_factory=set)


class Questions(Sequence[Question]):
    """The open questions, oldest first. Its coroutines run on the engine's loop.

    Attributes:
        limits: How long questions wait, and how many at a time. Callers of `approve` and `elicit`
            enforce it.
        unattended: Whether nobody is there to answer, as in a process that only serves.
        how_to_allow: Returns how whoever started the session can allow a call that was denied
            because nobody could be asked.
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
        self._prompts: dict[str, asyncio.Task[None]] = {}

    @property
    def time_limit(self) -> float | None:
        """How many seconds a question waits for its answer, or None for no limit.

        Then an approval is denied, and a server's question cancelled. Pauses in step mode have no
        limit.
        """
        return self.limits.seconds

    @time_limit.setter
    def time_limit(self, seconds: float | None) -> None:
        self.limits.wait(seconds)

    @property
    def step_mode(self) -> bool:
        """Whether turns pause before each model call.

        Takes effect immediately, even for a turn that is running.
        """
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
        """Find the open question with this id."""
        if name not in self._open:
            raise not_open()
        return self._open[name]

    def wait(self, seconds: float = 60.0) -> Question:
        """Block until a question is open, and return the oldest.

        For code that answers the questions of a turn that `submit` has started.

        Raises:
            UsageError: Nothing is asked within this time.
        """
        self._engine.check_process()
        if self._engine.is_current:
            raise UsageError(
                "This would block the engine thread.", hint="Use session.observe(changes=…) there."
            )
        with self._new_question:
            question = self._new_question.wait_for(self._unanswered, seconds)
        if question is None:
            raise UsageError(f"Nothing was asked within {seconds:g} s.")
        return question

    def panel_opened(self) -> Callable[[], None]:
        """Register that something shows the questions and lets the person answer.

        Return a function that ends it.
        """
        self._panels += 1
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                self._panels -= 1
                ended = True

        return end

    def channel_of_awaited_cells(self) -> Channel:
        """Choose where to ask while a cell awaits.

        That is a panel if its clicks arrive meanwhile, otherwise `input()`.
        """
        version = getattr(sys.modules.get("ipykernel"), "version_info", (0,))
        if self._panels and tuple(version[:2]) >= CLICKS_ARRIVE_SINCE:
            return "panel"
        return "input"

    @property
    def by_input(self) -> bool:
        """Whether a question that comes up now is asked with `input()`.

        It is if there is no panel, or if a cell blocks, so that clicks do not arrive.
        """
        return self._channel() == "input"

    @asynccontextmanager
    async def prompt_on(self, channel: Channel | None = None) -> AsyncIterator[None]:
        """Choose where the questions are asked that come up in the body.

        With `input()`, they are asked in the cell for which the body runs. At the end of the body,
        its open prompts are cancelled, because they would take the next line that is typed.

        Args:
            channel: Where, or None for where it is usual.
        """
        cell = _Cell(channel, contextvars.copy_context())
        self._cells.append(cell)
        try:
            yield
        finally:
            self._cells.remove(cell)
            prompts = tuple(cell.prompts)
            for prompt in prompts:
                prompt.cancel()
            if prompts:
                await asyncio.wait(prompts)

    def can_ask(self) -> bool:
        """Check whether somebody could answer now.

        That can be in a terminal, in a cell whose front end takes input, or in a panel. A script
        that answers questions itself announces that with `panel_opened`.
        """
        if self.unattended:
            return False
        return can_prompt() or (self._panels > 0 and not self.by_input)

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Ask whether a call may run. This is the session's `Approver`."""
        if self.unattended:
            raise NobodyToAsk
        question = ApprovalQuestion(self._channel(), request)
        decision: Decision = await self._answer(question)
        if decision.verdict is True:
            for other in tuple(self._open.values()):
                if isinstance(other, ApprovalQuestion):
                    with suppress(UsageError):
                        other.settle_alike(decision.scope, question)
        return decision

    async def elicit(self, asked: ServerQuestion) -> QuestionAnswer:
        """Ask the person a server's question. This is the session's `AskQuestion`."""
        if self.unattended:
            return QuestionAnswer("decline")
        channel = self._channel()
        if asked.of_task and not self._cells:
            # No cell waits for a task, so there is none to ask in. The question waits for the
            # panel, or for `ask_open`.
            channel = "panel"
        question: Elicitation
        if asked.form is not None:
            question = FormQuestion(channel, asked.server, asked.message, asked.form)
        else:
            question = UrlElicitation(channel, asked.server, asked.message, asked.url)
        question.of_task = asked.of_task
        answer: QuestionAnswer = await self._answer(question)
        return answer

    async def sign_in(self, request: SignInRequest | AddressRequest) -> str:
        """Ask the person to sign in to a server, or to accept the address for it.

        This is the session's `AskToSignIn`.

        Raises:
            NobodyToAsk: There is nobody to ask.
            ConnectionError: They do not answer, or do not accept the address.
        """
        if isinstance(request, AddressRequest):
            return await self._accept_address(request)
        if not self.can_ask():
            raise NobodyToAsk
        answer: QuestionAnswer = await self._answer(SignInQuestion(self._channel(), request))
        if answer.content is None:
            raise ConnectionError("Not signed in: you did not answer.")
        return str(answer.content["address"])

    async def _accept_address(self, request: AddressRequest) -> str:
        store = TrustStore()
        if await asyncio.to_thread(store.accepts_address, request.key):
            return request.named
        if not self.can_ask():
            raise NobodyToAsk
        answer: QuestionAnswer = await self._answer(AddressQuestion(self._channel(), request))
        if answer.action != "accept":
            raise ConnectionError("You did not accept it.")
        try:
            await asyncio.to_thread(store.accept_address, request.key)
        except UsageError as error:
            logger.warning("The answer counts for this session only: %s", error)
        return request.named

    def ask_open(self) -> None:
        """Ask the open questions of tasks with `input()`, if the waiting cell asks in that way."""
        if self._channel() == "panel":
            return
        for question in tuple(self._open.values()):
            if not isinstance(question, Elicitation) or not question.of_task:
                continue
            prompt = self._prompts.get(question.id)
            if prompt is None or prompt.done():
                question.channel = "input"
                self._prompted(question)

    def gate(
        self, step: bool | BeforeModelCall | None, stop: Callable[[], None]
    ) -> BeforeModelCall:
        """Build the function that pauses one turn before each model call.

        Args:
            step: Whether to pause, in place of `step_mode`. A function is awaited in place of the
                person.
            stop: Stops the turn.

        Raises:
            UsageError: `step` is something else.
        """
        if callable(step):
            return step
        if step is not None and not isinstance(step, bool):
            raise UsageError(
                f"step cannot be {brief(step)}.",
                hint="Give True, False, None, or a `BeforeModelCall`.",
            )

        async def ask(number: int, request: Request) -> StepAnswer | None:
            pauses = step
            if pauses is None:
                pauses = self.step_mode
            if not pauses:
                return None
            answer: StepAnswer = await self._answer(StepQuestion(self._channel(), number, request))
            return answer

        return StepGate(ask, stop)

    async def _answer(self, question: Question) -> Any:
        with self._new_question:
            self._open[question.id] = question
            self._new_question.notify_all()
        self._observers.changes.notify()
        if question.channel == "input":
            self._prompted(question)
        waiting = asyncio.wrap_future(question.future)
        try:
            return await waiting
        finally:
            waiting.cancel()
            del self._open[question.id]
            self._observers.changes.notify()
            prompt = self._prompts.pop(question.id, None)
            if prompt is not None:
                prompt.cancel()

    def _prompted(self, question: Question) -> None:
        """Start to ask with `input()`, in the cell that waits."""
        if self._cells:
            cell = self._cells[-1]
        else:
            cell = _Cell(None, contextvars.copy_context())
        prompt = asyncio.create_task(self._by_input(question, cell.context))
        cell.prompts.add(prompt)
        prompt.add_done_callback(cell.prompts.discard)
        self._prompts[question.id] = prompt

    async def _by_input(self, question: Question, context: contextvars.Context) -> None:
        # One at a time: two prompts would get each other's answers.
        async with self._one_input:
            with suppress(UsageError):
                await ask_with_input(question, context)

    def _unanswered(self) -> Question | None:
        for question in tuple(self._open.values()):
            if not question.future.done():
                return question
        return None

    def _channel(self) -> Channel:
        """Choose where to ask now."""
        if self._cells and self._cells[-1].channel is not None:
            return self._cells[-1].channel
        if self._panels and not self._engine.blocked:
            return "panel"
        return "input"
