"""Running calls, with deadlines that progress extends and questions pause, and servers' messages
meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.limits import AnswerLimits, TimeLimit
from casual_mcp_nb.base.mcp import (
    MAX_SAMPLE_TOKENS,
    MAX_SAMPLES,
    AddressRequest,
    SamplingAnswer,
    SamplingRefused,
    SamplingRequest,
    SignInRequest,
)
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers._errors import Redactor
from casual_mcp_nb.servers.convert import has_few_values
from casual_mcp_nb.servers.logs import logger
from casual_mcp_nb.servers.wire import WireLog

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult, InputRequiredResult


@dataclass(frozen=True)
class CallLimits:
    """Time limits in seconds: for start, handshake and listing, for a call since its last progress,
    and for a whole call.

    `task_wait` is how long a call waits for the task that it became.
    """

    init: float = 20.0
    call: float = 60.0
    total: float = 600.0
    task_wait: float = 5.0

    @classmethod
    def of(cls, config: ServerConfig | None) -> CallLimits:
        """Read a config's limits, with defaults for missing ones."""
        if config is None:
            return cls()
        return cls(config.init_timeout, config.call_timeout, config.total_timeout, config.task_wait)


class CallTimeout(Exception):
    """A call reached a time limit, with the seconds and the config field that sets it."""

    def __init__(self, seconds: float, field: str) -> None:
        super().__init__(f"no result in {seconds:.3g} s")
        self.seconds = seconds
        self.field = field


class CallDeadline(TimeLimit):
    """One running call's deadline: a context manager around it, which raises CallTimeout at a
    limit.

    The server is notified then, and when the caller is cancelled.
    """

    def __init__(self, limits: CallLimits, running: CallDeadlines) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._running = running
        self.start = self._loop.time()
        self._end = self.start + limits.total
        self._paused_at: float | None = None
        self.samples = 0
        super().__init__(min(self.start + limits.call, self._end))

    def __enter__(self) -> Self:
        self._running.add(self)
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._running.discard(self)
        try:
            super().__exit__(*exc_info)
        except TimeoutError:
            raise CallTimeout(self._loop.time() - self.start, self.field) from None

    @property
    def field(self) -> str:
        """The config field whose limit is reached first."""
        return "total_timeout" if self.deadline == self._end else "call_timeout"

    def reset(self) -> None:
        """Restart a call's time limit, within the limit for the whole call."""
        if self._paused_at is None and not self.expired:
            self.move(min(self._loop.time() + self._limits.call, self._end))

    def pause(self) -> None:
        """Stop counting."""
        if self._paused_at is None and not self.expired:
            self._paused_at = self._loop.time()
            self.move(None)

    def resume(self) -> None:
        """Resume counting. The pause does not count."""
        if self._paused_at is not None:
            self._end += self._loop.time() - self._paused_at
            self._paused_at = None
            self.reset()


class CallDeadlines(set[CallDeadline]):
    """The deadlines for a server's running calls."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0
        self._until_empty: list[asyncio.Future[None]] = []
        self._timeouts: dict[asyncio.Timeout, float] = {}

    def discard(self, deadline: object, /) -> None:
        """Remove a call's deadline after it has ended."""
        super().discard(deadline)
        if not self:
            for future in self._until_empty:
                if not future.done():
                    future.set_result(None)
            self._until_empty.clear()

    def take_sample(self) -> bool:
        """Count a server's request for a model's answer.

        Return whether its running calls leave room for one.
        """
        # It is unknown which call it belongs to.
        call = min(self, key=lambda call: call.samples, default=None)
        if call is None or call.samples >= MAX_SAMPLES:
            return False
        call.samples += 1
        return True

    def until_empty(self) -> asyncio.Future[None]:
        """Create a future that is done when the last running call has ended.

        Never done if none is running.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self:
            self._until_empty.append(future)
        return future

    @asynccontextmanager
    async def within(self, end: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit the body to a time on the loop's clock, which is paused with the others.

        TimeoutError when it is over.
        """
        async with asyncio.timeout_at(end) as timeout:
            self._timeouts[timeout] = end
            if self._waiting:
                self._pause(timeout)
            try:
                yield timeout
            finally:
                del self._timeouts[timeout]

    @contextmanager
    def waiting_for_a_person(self) -> Iterator[None]:
        """Pause all deadlines in the body, because it is unknown which call a server's question
        belongs to.
        """
        self._waiting += 1
        for deadline in self:
            deadline.pause()
        for timeout in self._timeouts if self._waiting == 1 else ():
            self._pause(timeout)
        try:
            yield
        finally:
            self._waiting -= 1
            for deadline in () if self._waiting else self:
                deadline.resume()
            for timeout, left in () if self._waiting else tuple(self._timeouts.items()):
                if not timeout.expired():
                    timeout.reschedule(asyncio.get_running_loop().time() + left)

    def _pause(self, timeout: asyncio.Timeout) -> None:
        end = timeout.when()
        if end is not None and not timeout.expired():
            self._timeouts[timeout] = end - asyncio.get_running_loop().time()
            timeout.reschedule(None)


MAX_ASKED = 100_000
"""How many characters a server's questions may have in answer to a request."""


class Asker(Protocol):
    """Who made a call that did not come from the session itself, and can pass on a question."""

    @property
    def client(self) -> object:
        """The client that made the call. It is the same for all its calls."""

    @property
    def forwarded(self) -> ForwardedRequest | None:
        """The request as forwarded to a server in the version without a handshake, or None if it is
        not forwarded.
        """

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta` for servers in the version without a handshake: capabilities, and
        the log level.
        """

    async def elicit(self, server: str, message: str, params: Any) -> Any:
        """Pass on a server's question during the call, and return the answer, an `ElicitResult`."""

    async def sample(self, server: str, params: Any) -> Any:
        """Pass on a request for a model's answer, and return it, a `CreateMessageResult` or
        `ErrorData`.
        """

    async def roots(self) -> list[Any]:
        """List the client's roots, or empty if it has none."""


@dataclass(eq=False)
class ForwardedRequest:
    """A round in a host's request, forwarded to a server in the version without a handshake.

    See https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.

    Args:
        responses: The host's answers to the server's questions.

    Attributes:
        asked: The server's questions before it answers.
        error: The error that it returned instead of a result, which the host's client has to see.
    """

    server: str
    name: str
    responses: Mapping[str, Any] | None = None
    state: str | None = None
    asked: InputRequiredResult | None = None
    error: Exception | None = None

    async def send(
        self, request: Callable[..., Awaitable[Any]], redact: Redactor, **arguments: Any
    ) -> Any:
        """Send it with a method on the client's session, and return the result, or None if the
        server asks something first.
        """
        from mcp import MCPError
        from mcp_types import (
            INVALID_PARAMS,
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            InputRequiredResult,
        )

        given = {"input_responses": self.responses, "request_state": self.state}
        try:
            result = await request(**arguments, **given, allow_input_required=True)
        except MCPError as error:
            follows = self.state is not None or self.responses is not None
            if error.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY or (
                follows and error.error.code == INVALID_PARAMS
            ):
                self.error = MCPError(
                    error.error.code,
                    redact(error.error.message)[:1_000],
                    redact.value(error.error.data),
                )
            raise
        if not isinstance(result, InputRequiredResult):
            return result
        plain = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        requests = redact.value(plain.get("inputRequests") or {})
        for each in requests.values():
            if "message" in (each.get("params") or {}):
                # The person at the host sees one server, and has to know which one behind it asks.
                each["params"]["message"] = asked_by(self.server, each["params"]["message"])
        if len(json.dumps(requests)) + len(result.request_state or "") > MAX_ASKED:
            raise ValueError(f"it asks for more than {MAX_ASKED:,} characters at a time")
        self.asked = InputRequiredResult.model_validate(
            {**plain, "inputRequests": requests or None}, by_name=False
        )
        return None


def asked_by(server: str, message: str) -> str:
    """Prefix a server's question with the server's name."""
    return f"The server {shown(server)} asks:\n{message}"


ASKER: ContextVar[Asker | None] = ContextVar("casual_mcp_asker", default=None)
"""Who makes this task's calls, or None for the session."""


def forwarded_to(server: str, name: str) -> ForwardedRequest | None:
    """Find this task's request if it is forwarded unchanged to this server for this tool, prompt or
    URI.

    Otherwise, None.
    """
    asker = ASKER.get()
    forwarded = asker.forwarded if asker is not None else None
    return (
        forwarded
        if forwarded is not None and (forwarded.server, forwarded.name) == (server, name)
        else None
    )


class SeveralClients(Exception):
    """A server asks something while it runs calls for several clients: it is not known whose call
    it belongs to.
    """


class RunningCalls:
    """Running calls, by server."""

    def __init__(self) -> None:
        self._askers: dict[str, list[Asker | None]] = {}

    def begin(self, server: str) -> Asker | None:
        """Note this task's call at a server until `end`. Return who makes it."""
        asker = ASKER.get()
        self._askers.setdefault(server, []).append(asker)
        return asker

    def end(self, server: str, asker: Asker | None) -> None:
        """End a call that `begin` has noted."""
        askers = self._askers[server]
        askers.remove(asker)
        if not askers:
            del self._askers[server]

    @contextmanager
    def noted(self, server: str) -> Iterator[None]:
        """Note this task's call at a server while the body runs."""
        asker = self.begin(server)
        try:
            yield
        finally:
            self.end(server, asker)

    def asker(self, server: str) -> Asker | None:
        """Find the caller to whom a server's messages and questions belong now, or None for the
        session.
        """
        running = self._askers.get(server, ())
        current = ASKER.get()
        if current is not None and current in running:
            return current
        # Each client once, by its last call.
        by_client = {asker and asker.client: asker for asker in running}
        if len(by_client) > 1:
            raise SeveralClients
        return next(iter(by_client.values()), None)

    def is_running(self, server: str) -> bool:
        """Check whether a server runs a call."""
        return server in self._askers


MAX_MESSAGES = 50
MAX_CHARACTERS = 20_000
"""A request's maximum length: the person reads all of it."""


def request_of(params: Any, redact: Callable[[str], str]) -> SamplingRequest:
    """Convert a request, or raise SamplingRefused if it is too long, or more than texts."""
    messages = tuple(
        (str(message.role), text) for message in params.messages for text in _texts(message.content)
    )
    system = params.system_prompt or ""
    if (
        len(messages) > MAX_MESSAGES
        or len(system) + sum(len(text) for _, text in messages) > MAX_CHARACTERS
    ):
        raise SamplingRefused(
            f"at most {MAX_MESSAGES} messages with {MAX_CHARACTERS:,} characters together are"
            " answered"
        )
    if not messages or params.tools:
        raise SamplingRefused("only messages without tools are answered")
    # The system prompt and the texts are shown and sent alike.
    redacted = tuple((role, redact(text)) for role, text in messages)
    return SamplingRequest(
        redacted, redact(system), max(1, min(params.max_tokens, MAX_SAMPLE_TOKENS))
    )


def _texts(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else [content]:
        if block.type != "text":
            raise SamplingRefused("only texts are answered")
        yield block.text


def result_of(answer: SamplingAnswer) -> CreateMessageResult:
    """Convert an answer."""
    from mcp_types import CreateMessageResult, TextContent

    reason = "maxTokens" if answer.cut else "endTurn"
    content = TextContent(type="text", text=answer.text)
    return CreateMessageResult(
        role="assistant", model=answer.model, content=content, stop_reason=reason
    )


T = TypeVar("T")

MAX_LOG = 10_000
REFUSED = -1
"""The code for the person's refusal, see
https://modelcontextprotocol.io/specification/2025-11-25/client/sampling.
"""


class OpenRequests:
    """Counts the servers' requests that wait for the person."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._refused: set[str] = set()

    def room_for(self, server: str, limits: AnswerLimits) -> bool:
        """Check whether a server may ask the person one more question."""
        return self._counts[server] < limits.per_server and self._counts.total() < limits.in_all

    def first_refused(self, server: str) -> bool:
        """Check whether this is a server's first refused request since it last had none open."""
        first = server not in self._refused
        self._refused.add(server)
        return first

    @contextmanager
    def counted(self, server: str) -> Iterator[None]:
        """Count a request as open while the body runs."""
        self._counts[server] += 1
        try:
            yield
        finally:
            self._counts[server] -= 1
            if not self._counts[server]:
                self._refused.discard(server)


AskToSignIn = Callable[[SignInRequest | AddressRequest], Awaitable[str]]
"""Asks the person, and gives the address at which their browser ended, or the code, or for an
address that it is accepted.

It raises ConnectionError if they decline, and `NobodyToAsk`.
"""


@dataclass(frozen=True)
class Handlers:
    """Callbacks, all called on the engine's loop.

    A capability is declared to servers only when its handler is set.

    A handshake declares roots if the server's config has some, and sampling if it allows that. In
    the version without a handshake, only another program's own capabilities are declared. See
    https://modelcontextprotocol.io/specification/2025-11-25/client for elicitation, sampling and
    roots.

    Args:
        asker: Returns the call that a server's question belongs to, see `RunningCalls.asker`.
        log: Called with server, level and text when a server sends a log message.
        elicitation: Called with server, message, response type, parameters and context. Gives the
            answer as fastmcp's elicitation handlers do.
        person: Called with server, message and parameters of a question that belongs to no call,
            but to a task. Likewise.
        sampling: Called with server and request. Gives the answer, or raises `SamplingRefused`.
        sign_in: Called with a request that belongs to a sign-in, see `AskToSignIn`.
        changed: Called without arguments whenever a status or a tool list changed.
        listed_late: Called without arguments when a server has listed its tools after its start was
            over.
        notice: Called with server and text to tell the person how a server's request ended.
        answer_limits: How long requests to the person wait for an answer, and how many at a time.
        open_requests: Open requests, over all servers that share these handlers.
        apps: Whether apps are declared and read, for servers without their own setting.
    """

    asker: Callable[[str], Asker | None] = lambda server: None
    log: Callable[[str, str, str], None] | None = None
    elicitation: Callable[..., Awaitable[Any]] | None = None
    person: Callable[[str, str, Any], Awaitable[Any]] | None = None
    sampling: Callable[[str, SamplingRequest], Awaitable[SamplingAnswer]] | None = None
    sign_in: AskToSignIn | None = None
    changed: Callable[[], None] | None = None
    listed_late: Callable[[], Awaitable[None]] | None = None
    notice: Callable[[str, str], None] | None = None
    answer_limits: AnswerLimits = field(default_factory=AnswerLimits)
    open_requests: OpenRequests = field(default_factory=OpenRequests, repr=False)
    apps: bool = True

    def shows_apps(self, config: ServerConfig | None) -> bool:
        """Check whether a server's apps are shown."""
        return self.apps if config is None or config.apps is None else config.apps

    def warn(self, server: str, text: str) -> None:
        """Add a warning about a server to its log."""
        if self.log is not None:
            self.log(server, "warning", text)
        logger.warning("Server %s: %s", shown(server), text)

    def notify(self, server: str, text: str) -> None:
        """Tell the person how a server's request ended."""
        if self.notice is not None:
            self.notice(server, text)
        logger.warning("Server %s: %s", shown(server), text)


OWN_REQUEST = "casual_mcp_sign_in"
"""The extension that marks the requests of a sign-in, which carry no message to the server:
`registration` or `sign-in`.
"""


@dataclass(frozen=True)
class PersonToAsk:
    """Who signs in to a server: its name in the config, how to ask, and a pause of the deadlines
    meanwhile.

    `learn` is called with the secrets of the sign-in, which are masked from then on.
    """

    server: str
    ask: AskToSignIn | None = None
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    learn: Callable[[Collection[str]], None] = lambda _secrets: None


@dataclass(frozen=True)
class Hooks:
    """Lifecycle callbacks. `ignored` gets what is told to the person of a field that is not valid.

    `opened` is called after the handshake with the start's deadline on the loop's clock, and may
    take until then. `stderr` returns the callback for chunks on a process's stderr, see
    `LogBuffer.stderr`.
    """

    client_options: dict[str, Any]
    opened: Callable[[float], Awaitable[None]]
    changed: Callable[[], None]
    tools_changed: Callable[[], Awaitable[None]]
    offers_changed: Callable[[], None]
    resource_updated: Callable[[str], None]
    refused: Callable[[str], None]
    wire: WireLog
    stderr: Callable[[], Callable[[bytes], None]]
    deadlines: CallDeadlines
    sign_in: AskToSignIn | None = None
    redactors: tuple[Redactor, ...] = ()
    apps: bool = True
    ignored: Callable[[str], None] = lambda _text: None


def client_options(
    handlers: Handlers,
    server: str,
    config: ServerConfig | None,
    redact: Redactor,
    deadlines: CallDeadlines,
) -> dict[str, Any]:
    """Convert the handlers to keyword arguments for fastmcp's client, bound to the server's name.

    Unset ones are left out.
    """
    options: dict[str, Any] = {"log_handler": partial(_on_log, handlers, server, redact)}
    if handlers.elicitation is not None:
        options["elicitation_handler"] = partial(_elicit, handlers, deadlines, redact, server)
    # Other programs' clients may have what the config does not allow or name; the session declares
    # what holds.
    if handlers.sampling is not None:
        allowed = config is not None and config.sampling
        options["sampling_handler"] = partial(_sample, handlers, deadlines, redact, server, allowed)
    options["roots"] = partial(_share, handlers, server, config.roots if config is not None else ())
    return options


async def _elicit(
    handlers: Handlers,
    deadlines: CallDeadlines,
    redact: Redactor,
    server: str,
    message: str,
    *request: Any,
) -> Any:
    from mcp_types import ElicitResult

    response_type, params, context = request
    limits = handlers.answer_limits
    if not _has_room(handlers, server):
        return ElicitResult(action="cancel")
    message, params = _redacted_question(redact, message, params)
    assert handlers.elicitation is not None
    answer = asyncio.ensure_future(
        handlers.elicitation(server, message, response_type, params, context)
    )
    calls_ended = deadlines.until_empty()
    with handlers.open_requests.counted(server), deadlines.waiting_for_a_person():
        try:
            # Not `wait_for`: a handler that ignores its cancellation must not pause the deadlines
            # for longer.
            await asyncio.wait(
                {answer, calls_ended}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            answered = answer.done()
            answer.cancel()
    if answered:
        return answer.result()
    if not calls_ended.done():
        handlers.notify(server, f"{limits.nobody_answered} The server's question was cancelled.")
    return ElicitResult(action="cancel")


async def elicit_for_task(handlers: Handlers, redact: Redactor, server: str, params: Any) -> Any:
    """Ask the person a question of a server's task, until it is answered, cancelled or takes too
    long.
    """
    from mcp_types import ElicitResult

    if handlers.person is None or not _has_room(handlers, server):
        return ElicitResult(action="cancel")
    if not has_few_values(getattr(params, "requested_schema", None)):
        handlers.notify(
            server, "The form of a task is too large to be shown, so its question was cancelled."
        )
        return ElicitResult(action="cancel")
    message, params = _redacted_question(redact, params.message, params)
    limits = handlers.answer_limits
    try:
        with handlers.open_requests.counted(server):
            async with asyncio.timeout(limits.seconds):
                return await handlers.person(server, message, params)
    except TimeoutError:
        handlers.notify(server, f"{limits.nobody_answered} The question of a task was cancelled.")
    return ElicitResult(action="cancel")


def _has_room(handlers: Handlers, server: str) -> bool:
    """Check whether a server may ask one more question. If not, notify the person once."""
    if handlers.open_requests.room_for(server, handlers.answer_limits):
        return True
    if handlers.open_requests.first_refused(server):
        text = (
            "The server asked too many questions at a time, so its further requests to the person"
            " were cancelled."
        )
        handlers.notify(server, text)
    return False


def _redacted_question(redact: Redactor, message: str, params: Any) -> tuple[str, Any]:
    # A link is not redacted, because it could then not be opened.
    changes = {"message": redact(message)}
    if hasattr(params, "requested_schema"):
        changes["requested_schema"] = redact.schema(params.requested_schema)
    return changes["message"], params.model_copy(update=changes)


async def _sample(
    handlers: Handlers,
    deadlines: CallDeadlines,
    redact: Redactor,
    server: str,
    allowed: bool,
    _messages: Any,
    params: Any,
    _context: Any,
) -> Any:
    """Answer a server's request for a model's answer.

    Only during calls, and only so often in each.
    """
    from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData

    try:
        asker = handlers.asker(server)
    except SeveralClients:
        handlers.notify(
            server,
            "The server requested a model's answer while it ran calls for several clients, and was"
            " refused.",
        )
        return ErrorData(code=REFUSED, message="calls for several clients are running")
    if asker is None and not allowed:
        return ErrorData(code=INVALID_REQUEST, message="sampling is not supported")
    if not (
        deadlines.take_sample() and handlers.open_requests.room_for(server, handlers.answer_limits)
    ):
        if handlers.open_requests.first_refused(server):
            handlers.notify(
                server,
                "The server requested too many answers from the model, or some outside a call, and"
                " was refused.",
            )
        return ErrorData(
            code=REFUSED, message=f"at most {MAX_SAMPLES} requests during a call are answered"
        )
    try:
        if asker is not None:
            passed = type(params).model_validate(
                redact.value(params.model_dump(by_alias=True, mode="json", exclude_none=True))
            )
            # What is too long for a person here is too long for one there.
            request_of(passed, redact)
            return await _sampled(handlers, deadlines, server, asker.sample(server, passed))
        assert handlers.sampling is not None
        request = request_of(params, redact)
        answer = await _sampled(handlers, deadlines, server, handlers.sampling(server, request))
    except SamplingRefused as refused:
        handlers.notify(
            server,
            "The server requested the model's answer and was refused:"
            f" {redact(shown(refused.details))}",
        )
        return ErrorData(code=REFUSED, message=str(refused))
    except Exception as error:
        logger.exception("A request for the model's answer failed.")
        handlers.notify(
            server,
            f"The server requested the model's answer, which failed ({type(error).__name__}).",
        )
        return ErrorData(code=INTERNAL_ERROR, message="the model could not answer")
    handlers.notify(server, answer.note)
    if handlers.log is not None:
        handlers.log(server, "notice", answer.note)
    return result_of(answer)


async def _sampled(
    handlers: Handlers, deadlines: CallDeadlines, server: str, answering: Awaitable[T]
) -> T:
    answer = asyncio.ensure_future(answering)
    either: set[asyncio.Future[Any]] = {answer, deadlines.until_empty()}
    with handlers.open_requests.counted(server), deadlines.waiting_for_a_person():
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered = answer.done()
            answer.cancel()
    if not answered:
        raise SamplingRefused("the call has ended")
    return answer.result()


async def _share(handlers: Handlers, server: str, roots: Sequence[str], _context: Any) -> list[Any]:
    """List the roots that are existing folders, as URIs. If the config names none, the caller's."""
    if not roots:
        asker = handlers.asker(server)
        if asker is None:
            raise ValueError("roots are not supported")
        return await asker.roots()
    existing = await asyncio.to_thread(_addresses, roots)
    if len(existing) < len(roots):
        handlers.warn(
            server,
            f"{len(roots) - len(existing)} of its roots are not existing folders, so it was not"
            " told them.",
        )
    return existing


def _addresses(folders: Sequence[str]) -> list[str]:
    return [Path(os.path.abspath(folder)).as_uri() for folder in folders if os.path.isdir(folder)]


async def _on_log(handlers: Handlers, server: str, redact: Redactor, message: Any) -> None:
    data = message.data
    if isinstance(data, dict) and isinstance(data.get("msg"), str) and not data.get("extra"):
        data = data["msg"]
    text = redact(
        data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
    )[:MAX_LOG]
    if handlers.log is not None:
        handlers.log(server, str(message.level), text)
    logger.debug("Server %s: %s: %s", shown(server), message.level, shown(text))
