"""Open questions, where each is asked, and `input()` prompts that can be cancelled."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import ctypes
import logging
import os
import selectors
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import Any, overload

from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.base.mcp import AddressRequest, NobodyToAsk, SignInRequest
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.config.trust import TrustStore
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.display.words import first
from casual_mcp_nb.engine.consent import (
    ONE_BY_ONE,
    ApprovalRequest,
    Decision,
    NoOneToAsk,
    allowed_in_python,
)
from casual_mcp_nb.engine.edits import BeforeModelCall
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.errors import UsageError, brief
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.forms import FORMATS, FormField
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


def can_prompt() -> bool:
    """Check whether somebody could answer a prompt now: in a kernel whose front end takes input, or
    in a terminal.
    """
    shell = notebook_shell()
    if shell is not None:
        # The front end tells with each cell; the kernel's `raw_input` looks at the same flag.
        return bool(getattr(shell.kernel, "_allow_stdin", True))
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):
        return False


async def prompted(text: str, context: contextvars.Context) -> str:
    """Show a prompt and return the line that is typed.

    It is read on a thread, since nobody may ever answer. Cancelling it ends the read: the next
    prompt gets the next line, and nothing is held that the interpreter needs at its shutdown, as
    the lock of `sys.stdin` in a blocked `input()` would be. The context has the variables with
    which a kernel finds the prompt's cell.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    reader = _descriptor_reader(text) or _InputReader(text)

    def settle(line: str, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(line)

    def read() -> None:
        line, error = "", None
        try:
            line = reader.read()
        except _Cancelled:
            return
        except Exception as failure:
            error = failure
        # The line can come when nobody waits for it any more: after the loop has ended, or together
        # with the interrupt.
        with suppress(RuntimeError, KeyboardInterrupt):
            loop.call_soon_threadsafe(settle, line, error)

    thread = threading.Thread(
        target=context.copy().run, args=(read,), name="casual-mcp-input", daemon=True
    )
    thread.start()
    try:
        return await answer
    finally:
        reader.cancel(thread)


class _Cancelled(Exception):
    """The read was cancelled: nobody waits for this line any more."""


class _DescriptorReader:
    """Reads a line from a terminal, a pipe or a file, byte by byte from its descriptor."""

    def __init__(self, text: str, descriptor: int) -> None:
        self._text = text
        self._descriptor = descriptor
        self._woken, self._wake = os.pipe()

    def read(self) -> str:
        """Read the line, without its line end."""
        try:
            if sys.stdout is not None:
                sys.stdout.write(self._text)
                sys.stdout.flush()
            line = bytearray(_left_in_buffer(self._descriptor))
            with (
                selectors.SelectSelector() if sys.platform == "darwin" else selectors.PollSelector()
            ) as selector:
                selector.register(self._descriptor, selectors.EVENT_READ)
                selector.register(self._woken, selectors.EVENT_READ)
                while not line.endswith(b"\n"):
                    if any(key.fd == self._woken for key, _ in selector.select()):
                        raise _Cancelled
                    # No more than the line, since what follows belongs to whoever reads next.
                    byte = os.read(self._descriptor, 1)
                    if not byte:
                        break
                    line += byte
        finally:
            os.close(self._woken)
        if not line:
            raise EOFError
        return line.decode(errors="replace").removesuffix("\n").removesuffix("\r")

    def cancel(self, _thread: threading.Thread) -> None:
        """End the read. Harmless if it has ended."""
        os.close(self._wake)


class _InputReader:
    """Reads a line with `input()`, where a front end has replaced Python's own."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ended = threading.Event()

    def read(self) -> str:
        try:
            return input(self._text)
        except KeyboardInterrupt:
            raise _Cancelled from None
        finally:
            self._ended.set()

    def cancel(self, thread: threading.Thread) -> None:
        """End the read, by an interrupt, for which a kernel looks all the time.

        Otherwise it would take the answer to the next prompt.
        """
        if thread.ident is not None and not self._ended.is_set():
            interrupt = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), interrupt)


def _descriptor_reader(text: str) -> _DescriptorReader | None:
    """Create a reader for standard input if that is Python's own and can be waited for, else
    None.
    """
    if sys.platform == "win32" or not isinstance(builtins.input, BuiltinFunctionType):
        return None
    try:
        return _DescriptorReader(text, sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_buffer(descriptor: int) -> bytes:
    """Read up to one line that an earlier `sys.stdin` read took from a pipe or file beyond its own
    line.

    There is no way to look into that buffer without a read that can block, so the read meets the
    end of the input behind it.
    """
    if os.isatty(descriptor):
        return b""
    real, empty = os.dup(descriptor), os.open(os.devnull, os.O_RDONLY)
    inheritable = os.get_inheritable(descriptor)
    try:
        os.dup2(empty, descriptor, inheritable)
        return sys.stdin.readline().encode(errors="surrogateescape")
    finally:
        os.dup2(real, descriptor, inheritable)
        os.close(real)
        os.close(empty)


logger = logging.getLogger(__name__)

_YES = ("y", "yes")
_KEYS = {
    "approve_for_server": "s",
    "approve": "y",
    "approve_for_conversation": "a",
    "deny": "Enter",
}
Ask = Callable[[str], Awaitable[str]]


async def ask_with_input(question: Question, context: contextvars.Context) -> None:
    """Ask with `input()` and settle the question. It expires if nobody can be asked."""

    async def ask(text: str) -> str:
        return (await prompted(text, context)).strip()

    try:
        match question:
            case ApprovalQuestion():
                await _approval(question, ask)
            case SignInQuestion():
                await _sign_in(question, ask)
            case AddressQuestion():
                reply = (await ask(f"{question.text}\n[y] yes  [Enter] no: ")).lower()
                if reply in _YES:
                    question.answer({})
                else:
                    question.decline()
            case FormQuestion():
                await _form(question, ask)
            case UrlElicitation():
                reply = (
                    await ask(
                        f"{question.text}\nHave you done so? (y: yes, d: decline, Enter: no answer)"
                        " [y/d] "
                    )
                ).lower()
                if reply in _YES:
                    question.accept()
                elif reply in ("d", "decline"):
                    question.decline()
                else:
                    question.cancel()
            case StepQuestion():
                await _step(question, ask)
    except UsageError:
        raise
    except NotImplementedError:
        question.no_one_to_ask()
    except Exception as error:
        if not isinstance(error, EOFError | OSError | RuntimeError | ValueError):
            logger.error("Asking with input() failed.", exc_info=error)
        if can_prompt():
            # Ctrl-D approves nothing.
            question.expire("No one is available to answer.")
        else:
            question.no_one_to_ask()


async def _approval(question: ApprovalQuestion, ask: Ask) -> None:
    choices = "  ".join(f"[{_KEYS[answer]}] {words}" for answer, words in question.choices)
    reply = await ask(f"{question.text}\n{choices}, or type why: ")
    match reply.lower():
        case "y" | "yes":
            question.approve()
        case "a" | "always" if question.reason not in ONE_BY_ONE:
            question.approve(for_conversation=True)
        case "s" | "server" if question.reason == "unannotated":
            question.approve_for_server()
        case "n" | "no" | "d" | "deny":
            question.deny()
        case _:
            question.deny(reply)


async def _sign_in(question: SignInQuestion, ask: Ask) -> None:
    text = question.text
    while not question.future.done():
        reply = await ask(
            f"{text}\nAddress of the last page, or the code (Enter: do not sign in): "
        )
        if not reply:
            return question.decline()
        try:
            return question.answer({"address": reply})
        except UsageError as error:
            text = str(error)


async def _form(question: FormQuestion, ask: Ask) -> None:
    reply = (
        await ask(
            f"{question.text}\nFill in the form? (y: yes, d: decline, Enter: no answer) [y/d] "
        )
    ).lower()
    if reply not in _YES:
        return question.decline() if reply in ("d", "decline") else question.cancel()
    mistake = ""
    while True:
        typed = {field.name: await ask(f"{mistake}{_prompt(field)}") for field in question.fields}
        try:
            return question.answer({name: text for name, text in typed.items() if text})
        except UsageError as error:
            mistake = f"{error}\n"
            if question.future.done():
                return None


def _prompt(field: FormField) -> str:
    kinds = {"boolean": "yes or no", "number": "a number", "integer": "a whole number"}
    hints = [
        FORMATS[field.format][0] if field.format else kinds.get(field.kind, ""),
        ", ".join(label for _, label in field.choices),
    ]
    default = first(
        ", ".join(field.default) if isinstance(field.default, list) else str(field.default), 100
    )
    hints += [
        f"Enter: {default}" if field.default is not None else "",
        "" if field.required else "optional",
    ]
    about = f" - {field.description}" if field.description else ""
    return f"{field.title}{about} ({'; '.join(filter(None, hints)) or 'text'}): "


async def _step(question: StepQuestion, ask: Ask) -> None:
    edit = "e: edit, " if question.texts else ""
    reply = (
        await ask(f"{question.text}\n(Enter: next, r: run to the end, {edit}s: stop) ")
    ).lower()
    if reply in ("s", "stop"):
        question.stop()
    elif reply in ("r", "run"):
        question.run()
    elif reply in ("e", "edit") and question.texts:
        changes = {}
        for key, text in question.texts.items():
            changes[key] = (
                await ask(f"{text}\nNew text for {question.labels[key]} (Enter: keep it): ") or text
            )
        question.edit(changes)
    else:
        question.next()


CLICKS_ARRIVE_SINCE = (7, 4)
"""The first ipykernel version in which a click arrives while a cell awaits."""


@dataclass(eq=False)
class _Cell:
    """A cell that waits for an answer: where to ask, the variables by which its kernel finds it,
    and its open prompts.
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
        """Seconds after which an unanswered approval is denied and a server's question cancelled,
        or None for no limit.

        Pauses in step mode have no limit.
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

        For code that answers questions from `submit`.
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
            self._panels -= not ended
            ended = True

        return end

    def channel_of_awaited_cells(self) -> Channel:
        """Choose where to ask while a cell awaits: in a panel if its clicks arrive meanwhile,
        otherwise with `input()`.
        """
        version = getattr(sys.modules.get("ipykernel"), "version_info", (0,))
        return "panel" if self._panels and tuple(version[:2]) >= CLICKS_ARRIVE_SINCE else "input"

    @property
    def by_input(self) -> bool:
        """Whether a question is asked with `input()` now, because clicks may not arrive before the
        cell has ended.
        """
        return self._channel() == "input"

    @asynccontextmanager
    async def prompt_on(self, channel: Channel | None = None) -> AsyncIterator[None]:
        """Ask the questions that come up in the body at `channel`; `input()` asks in the cell that
        the body runs for.

        Prompts that are still open at its end are cancelled first: they would take the next line
        typed.
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
        """Check whether somebody could answer now: in a terminal, in a cell whose front end takes
        input, or in a panel.

        A script that answers questions from `submit` announces that with `panel_opened`.
        """
        if self.unattended:
            return False
        return can_prompt() or (self._panels > 0 and not self.by_input)

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Ask whether a call may run. An `Approver`."""
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

    async def elicit(self, server: str, message: str, _kind: Any, params: Any, context: Any) -> Any:
        """Ask the person a server's question, see `Handlers.elicitation`.

        One without a context is that of a task.
        """
        from mcp_types import ElicitResult

        if self.unattended:
            return ElicitResult(action="decline")
        address = getattr(params, "url", None)
        question: Elicitation
        # Where no cell waits for a task, nothing is prompted: the question waits for the panel, or
        # for a cell.
        channel = "panel" if context is None and not self._cells else self._channel()
        if address is not None:
            question = UrlElicitation(channel, server, message, str(address))
        else:
            question = FormQuestion(
                channel, server, message, getattr(params, "requested_schema", None) or {}
            )
        question.of_task = context is None
        action, content = await self._answer(question)
        return ElicitResult(action=action, content=content)

    async def sign_in(self, request: SignInRequest | AddressRequest) -> str:
        """Ask the person to sign in to a server, or to accept an address for that, see
        `AskToSignIn`.
        """
        if isinstance(request, AddressRequest):
            return await self._accept_address(request)
        if not self.can_ask():
            raise NobodyToAsk
        action, values = await self._answer(SignInQuestion(self._channel(), request))
        if action != "accept":
            raise ConnectionError("Not signed in: you did not answer.")
        return str(values["address"])

    async def _accept_address(self, request: AddressRequest) -> str:
        store = TrustStore()
        if await asyncio.to_thread(store.accepts_address, request.key):
            return request.named
        if not self.can_ask():
            raise NobodyToAsk
        action, _ = await self._answer(AddressQuestion(self._channel(), request))
        if action != "accept":
            raise ConnectionError("You did not accept it.")
        try:
            await asyncio.to_thread(store.accept_address, request.key)
        except UsageError as error:
            logger.warning("The answer counts for this session only: %s", error)
        return request.named

    def ask_open(self) -> None:
        """Ask the open questions of tasks in the cell that waits now, if that is where it asks."""
        if self._channel() == "panel":
            return
        for question in tuple(self._open.values()):
            prompt = self._prompts.get(question.id)
            if (
                isinstance(question, Elicitation)
                and question.of_task
                and (prompt is None or prompt.done())
            ):
                question.channel = "input"
                self._prompted(question)

    def gate(
        self, step: bool | BeforeModelCall | None, stop: Callable[[], None]
    ) -> BeforeModelCall:
        """Build the function that pauses one turn before each model call.

        `step` replaces `step_mode`, or is awaited in place of the person. `stop` stops the turn.
        """
        if callable(step):
            return step
        if step is not None and not isinstance(step, bool):
            raise UsageError(
                f"step cannot be {brief(step)}.",
                hint="Give True, False, None, or a `BeforeModelCall`.",
            )

        async def ask(number: int, request: Request) -> StepAnswer | None:
            if not (self.step_mode if step is None else step):
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
            if (by_input := self._prompts.pop(question.id, None)) is not None:
                by_input.cancel()

    def _prompted(self, question: Question) -> None:
        """Start to ask with `input()`, in the cell that waits."""
        cell = self._cells[-1] if self._cells else _Cell(None, contextvars.copy_context())
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
        return next(
            (question for question in tuple(self._open.values()) if not question.future.done()),
            None,
        )

    def _channel(self) -> Channel:
        channel = self._cells[-1].channel if self._cells else None
        if channel is not None:
            return channel
        return "panel" if self._panels and not self._engine.blocked else "input"
