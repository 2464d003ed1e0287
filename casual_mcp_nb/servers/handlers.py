"""Handlers of servers' requests and notifications."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.base.mcp import MAX_SAMPLE_TOKENS, MAX_SAMPLES, Direction, SamplingAnswer, SamplingRefused, SamplingRequest
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers._errors import Redactor
from casual_mcp_nb.servers.logs import logger
from casual_mcp_nb.servers.running_calls import Asker, CallDeadlines, SeveralClients

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult


MAX_MESSAGES = 50
MAX_CHARACTERS = 20_000
"""Maximum length of a request: the person reads all of it."""


def request_of(params: Any, redact: Redactor) -> SamplingRequest:
    """Convert a request, or raise SamplingRefused if it is too long, or more than texts."""
    messages = tuple((str(message.role), text) for message in params.messages for text in _texts(message.content))
    system = params.system_prompt or ""
    if len(messages) > MAX_MESSAGES or len(system) + sum(len(text) for _, text in messages) > MAX_CHARACTERS:
        raise SamplingRefused(f"at most {MAX_MESSAGES} messages with {MAX_CHARACTERS:,} characters together are answered")
    if not messages or params.tools:
        raise SamplingRefused("only messages without tools are answered")
    # The system prompt and the texts are shown and sent alike.
    redacted = tuple((role, redact(text)) for role, text in messages)
    return SamplingRequest(redacted, redact(system), max(1, min(params.max_tokens, MAX_SAMPLE_TOKENS)))


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
    return CreateMessageResult(role="assistant", model=answer.model, content=content, stop_reason=reason)


T = TypeVar("T")

MAX_LOG = 10_000
REFUSED = -1
"""The code of a refusal by the person, see https://modelcontextprotocol.io/specification/2025-11-25/client/sampling."""


class OpenRequests:
    """Counts the servers' requests that wait for the person."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._refused: set[str] = set()

    def room_for(self, server: str, limits: AnswerLimits) -> bool:
        """Check whether a server may ask the person one more question."""
        return self._counts[server] < limits.per_server and self._counts.total() < limits.in_all

    def first_refused(self, server: str) -> bool:
        """Check whether this is the first refused request of a server since it last had none open."""
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


@dataclass(frozen=True)
class Handlers:
    """Callbacks, all called on the engine's loop. A capability is declared to servers only when its handler is set.

    In a handshake, roots are declared where the server's config has some, sampling where it allows that. To servers of the
    version without a handshake, nothing of both is declared but what the caller of another program has.
    See https://modelcontextprotocol.io/specification/2025-11-25/client for elicitation, sampling and roots.

    Args:
        asker: Returns the call that a server's question belongs to, see `RunningCalls.asker`.
        log: Called with server, level and text when a server sends a log message.
        elicitation: Called with server, message, response type, parameters and context; gives the answer as fastmcp's
            elicitation handlers do.
        sampling: Called with server and request; gives the answer, or raises `SamplingRefused`.
        changed: Called without arguments whenever a status or a list of tools changed.
        notice: Called with server and text to tell the person the outcome of a server's request.
        answer_limits: How long requests to the person wait for an answer, and how many at a time.
        open_requests: The open requests of all servers that share these handlers.
    """

    asker: Callable[[str], Asker | None] = lambda server: None
    log: Callable[[str, str, str], None] | None = None
    elicitation: Callable[..., Awaitable[Any]] | None = None
    sampling: Callable[[str, SamplingRequest], Awaitable[SamplingAnswer]] | None = None
    changed: Callable[[], None] | None = None
    notice: Callable[[str, str], None] | None = None
    answer_limits: AnswerLimits = field(default_factory=AnswerLimits)
    open_requests: OpenRequests = field(default_factory=OpenRequests, repr=False)

    def warn(self, server: str, text: str) -> None:
        """Add a warning about a server to its log."""
        if self.log is not None:
            self.log(server, "warning", text)
        logger.warning("Server %s: %s", shown(server), text)

    def notify(self, server: str, text: str) -> None:
        """Notify the person about the outcome of a server's request."""
        if self.notice is not None:
            self.notice(server, text)
        logger.warning("Server %s: %s", shown(server), text)


@dataclass(frozen=True)
class Hooks:
    """Callbacks of a lifecycle.

    `opened` is called after the handshake with the deadline of the start on the loop's clock, and may take until then. `stderr`
    returns the callback for chunks of a process's stderr, see `LogBuffer.stderr`.
    """

    client_options: dict[str, Any]
    opened: Callable[[float], Awaitable[None]]
    changed: Callable[[], None]
    tools_changed: Callable[[], Awaitable[None]]
    offers_changed: Callable[[], None]
    resource_updated: Callable[[str], None]
    refused: Callable[[str], None]
    record: Callable[[Direction, Any], None]
    stderr: Callable[[], Callable[[bytes], None]]


def client_options(
    handlers: Handlers, server: str, config: ServerConfig | None, redact: Redactor, deadlines: CallDeadlines
) -> dict[str, Any]:
    """Convert the handlers to keyword arguments of fastmcp's client, bound to the server's name; unset ones are left out."""
    options: dict[str, Any] = {"log_handler": partial(_on_log, handlers, server, redact)}
    if handlers.elicitation is not None:
        options["elicitation_handler"] = partial(_elicit, handlers, deadlines, redact, server)
    # Clients of other programs may have what the config does not allow or name; the session declares what holds.
    if handlers.sampling is not None:
        allowed = config is not None and config.sampling
        options["sampling_handler"] = partial(_sample, handlers, deadlines, redact, server, allowed)
    options["roots"] = partial(_share, handlers, server, config.roots if config is not None else ())
    return options


async def _elicit(
    handlers: Handlers, deadlines: CallDeadlines, redact: Redactor, server: str, message: str, *request: Any
) -> Any:
    from mcp_types import ElicitResult

    response_type, params, context = request
    limits = handlers.answer_limits
    if not handlers.open_requests.room_for(server, limits):
        if handlers.open_requests.first_refused(server):
            text = "The server asked too many questions at a time, so its further requests to the person were cancelled."
            handlers.notify(server, text)
        return ElicitResult(action="cancel")
    # A link is not redacted, because it could then not be opened.
    changes = {"message": redact(message)}
    if hasattr(params, "requested_schema"):
        changes["requested_schema"] = redact.schema(params.requested_schema)
    assert handlers.elicitation is not None
    answer = asyncio.ensure_future(
        handlers.elicitation(server, changes["message"], response_type, params.model_copy(update=changes), context)
    )
    calls_ended = deadlines.until_empty()
    with handlers.open_requests.counted(server), deadlines.waiting_for_a_person():
        try:
            # Not `wait_for`: a handler that ignores its cancellation must not pause the deadlines for longer.
            await asyncio.wait({answer, calls_ended}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered = answer.done()
            answer.cancel()
    if answered:
        return answer.result()
    if not calls_ended.done():
        handlers.notify(server, f"{limits.nobody_answered} The server's question was cancelled.")
    return ElicitResult(action="cancel")


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
    """Answer a request for an answer of the model. Only during calls, and only so often during each."""
    from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData

    try:
        asker = handlers.asker(server)
    except SeveralClients:
        handlers.notify(
            server, "The server requested an answer of a model while it ran calls of several clients, and was refused."
        )
        return ErrorData(code=REFUSED, message="calls of several clients are running")
    if asker is None and not allowed:
        return ErrorData(code=INVALID_REQUEST, message="sampling is not supported")
    if not (deadlines.take_sample() and handlers.open_requests.room_for(server, handlers.answer_limits)):
        if handlers.open_requests.first_refused(server):
            handlers.notify(
                server, "The server requested too many answers of the model, or some outside a call, and was refused."
            )
        return ErrorData(code=REFUSED, message=f"at most {MAX_SAMPLES} requests during a call are answered")
    try:
        if asker is not None:
            passed = type(params).model_validate(redact.value(params.model_dump(by_alias=True, mode="json", exclude_none=True)))
            # What is too long for a person here is too long for one there.
            request_of(passed, redact)
            return await _sampled(handlers, deadlines, server, asker.sample(server, passed))
        assert handlers.sampling is not None
        request = request_of(params, redact)
        answer = await _sampled(handlers, deadlines, server, handlers.sampling(server, request))
    except SamplingRefused as refused:
        handlers.notify(
            server, f"The server requested an answer of the model and was refused: {redact(shown(refused.details))}"
        )
        return ErrorData(code=REFUSED, message=str(refused))
    except Exception as error:
        logger.exception("A request for an answer of the model failed.")
        handlers.notify(server, f"The server requested an answer of the model, which failed ({type(error).__name__}).")
        return ErrorData(code=INTERNAL_ERROR, message="the model could not answer")
    handlers.notify(server, answer.note)
    if handlers.log is not None:
        handlers.log(server, "notice", answer.note)
    return result_of(answer)


async def _sampled(handlers: Handlers, deadlines: CallDeadlines, server: str, answering: Awaitable[T]) -> T:
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
    """List the addresses of those roots that are existing folders. Where the config names none, those of the caller."""
    if not roots:
        asker = handlers.asker(server)
        if asker is None:
            raise ValueError("roots are not supported")
        return await asker.roots()
    existing = await asyncio.to_thread(_addresses, roots)
    if len(existing) < len(roots):
        handlers.warn(server, f"{len(roots) - len(existing)} of its roots are not existing folders, so it was not told them.")
    return existing


def _addresses(folders: Sequence[str]) -> list[str]:
    return [Path(os.path.abspath(folder)).as_uri() for folder in folders if os.path.isdir(folder)]


async def _on_log(handlers: Handlers, server: str, redact: Redactor, message: Any) -> None:
    data = message.data
    if isinstance(data, dict) and isinstance(data.get("msg"), str) and not data.get("extra"):
        data = data["msg"]
    text = redact(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str))[:MAX_LOG]
    if handlers.log is not None:
        handlers.log(server, str(message.level), text)
    logger.debug("Server %s: %s: %s", shown(server), message.level, shown(text))
