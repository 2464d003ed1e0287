"""Client turns: each with its own history, beside the session's conversation, within limits.

All HTTP errors are problem details (RFC 9457), with the error's `kind`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import Receive

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Policies, ToolSetConfig
from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.secret import Failure, Secrets, failure_of, masked_error
from casual_mcp_nb.base.service import ServeLimits
from casual_mcp_nb.base.tool import Denial
from casual_mcp_nb.conversation.event import Event, ToolFinished
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.options import TurnOptions, split_messages
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.errors import (
    CasualMcpError,
    ClosedError,
    ContextOverflowError,
    ProviderError,
    ProviderTimeoutError,
    ServerError,
    TrustRequiredError,
    UsageError,
)
from casual_mcp_nb.notebook.images import fetched_images

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 2_000
"""How many characters of an error message a client reads."""
INTERNAL = 500, "internal", "The request failed. The service's log has the reason."
MAX_FIELDS = 20
"""How many wrong fields are named."""


class WrongField(BaseModel):
    """A request field that is not valid."""

    field: str = Field(description="Its location, such as `messages.0.content`.")
    message: str = Field(description="The problem.")


class Problem(BaseModel):
    """An error as problem details (RFC 9457)."""

    type: str = "about:blank"
    title: str = Field(description="The status by name.")
    status: int
    # Always a text, as clients of casual-mcp read it. FastAPI's own errors have a list or an object.
    detail: str = Field(description="The failure, its cause, and the next step.")
    kind: str = Field(description="The error's kind, for programs, such as `unknown_name`.")
    errors: list[WrongField] = Field(
        default_factory=list, description="With status 422: the fields that are not valid."
    )
    failure: Failure | None = Field(
        default=None, description="Details on a server's or a provider's error."
    )

    @classmethod
    def of(
        cls, status: int, kind: str, detail: str, errors: Collection[WrongField] = ()
    ) -> Problem:
        """Build a status's problem, its text cut."""
        # A client reads it as UTF-8, which has no lone surrogates.
        text = detail.encode("utf-8", "replace").decode()
        if len(text) > MAX_DETAIL:
            text = f"{text[:MAX_DETAIL]}…"
        return cls(
            title=HTTPStatus(status).phrase,
            status=status,
            detail=text,
            kind=kind,
            errors=list(errors)[:MAX_FIELDS],
        )


class ProblemError(Exception):
    """A request that cannot be answered."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Collection[WrongField] = (),
        failure: Failure | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem.of(status, kind, detail, errors)
        self.problem.failure = failure
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Build the response, which is an ASGI application."""
        content = self.problem.model_dump_json()
        return Response(
            content, self.problem.status, {**self.headers, "Cache-Control": "no-store"}, MEDIA_TYPE
        )


def problem_of(error: BaseException, secrets: Collection[str] = ()) -> ProblemError:
    """Convert an error to the problem that a client reads.

    For other errors than this package's, only that it happened.
    """
    if isinstance(error, ProblemError):
        return error
    if not isinstance(error, CasualMcpError):
        logger.error("A request failed.", exc_info=error)
        return ProblemError(*INTERNAL)
    status, headers = _status_of(error)
    error = masked_error(error, secrets)
    failure = failure_of(error) if isinstance(error, ProviderError | ServerError) else None
    return ProblemError(status, error.kind, error.text_at("http"), headers=headers, failure=failure)


def _status_of(error: CasualMcpError) -> tuple[int, Mapping[str, str]]:
    match error:
        case ClosedError() | TrustRequiredError():
            return 503, {}
        case UsageError() | ContextOverflowError():
            return 400, {}
        case ProviderTimeoutError():
            return 504, {}
        case ProviderError(retryable=True):
            return 503, retry_after(error.retry_after or 1)
        case ProviderError() | ServerError():
            return 502, {}
    return 500, {}


def retry_after(seconds: float) -> dict[str, str]:
    """Build the header that tells when to try again."""
    return {"Retry-After": str(max(1, math.ceil(min(seconds, 3_600))))}


T = TypeVar("T")


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do some work as long as the client is connected.

    Then it is cancelled, with a problem that nobody will read.
    """
    task = asyncio.current_task()
    assert task is not None
    has_gone = False

    async def watch() -> None:
        nonlocal has_gone
        await disconnected(receive)
        has_gone = True
        task.cancel()

    # The work itself needs no task: each task switch is another loop round, in which others come in
    # between.
    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if has_gone and not task.uncancel():
            raise ProblemError(408, "disconnected", "The client has gone.") from None
        raise
    finally:
        watching.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


STOP_SECONDS = 5.0
"""How long to wait for turns that are being stopped."""


class ServedTurns:
    """Clients' turns, on the engine's loop. Their messages never join the session's conversation.

    `approval` replaces config policies by server. `admit` is awaited before each turn, and raises
    if the servers may not start. `notify` is called with each turn and event.
    """

    def __init__(
        self,
        chat: McpToolChat,
        limits: ServeLimits,
        approval: Mapping[str, Policies],
        secrets: Secrets,
        *,
        admit: Callable[[], Awaitable[None]] | None = None,
        notify: Callable[[Turn, Event], None] = ignore,
    ) -> None:
        self.limits = limits
        self._chat = chat
        self._admit = admit
        self._notify = notify
        self._approval = approval
        self._secrets = secrets
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False

    @property
    def max_steps(self) -> int:
        """How many model calls a turn may make."""
        return self._chat.limits.max_steps

    @property
    def tool_sets(self) -> Mapping[str, ToolSetConfig]:
        """The toolsets by name."""
        return self._chat.tool_sets

    @property
    def running(self) -> int:
        """How many turns are running."""
        return len(self._running)

    async def run(
        self,
        turn: Turn,
        messages: Sequence[ChatMessage],
        options: TurnOptions,
        on_event: Callable[[Event], None] = ignore,
    ) -> list[ChatMessage]:
        """Run a turn in a separate task, and return the messages that it adds to the client's.

        A ProblemError if it could not begin, failed, took too long, or was stopped because the
        service ends.
        """
        if self._closed:
            raise _ended()
        if len(self._running) >= self.limits.max_turns:
            raise ProblemError(
                503,
                "busy",
                f"{len(self._running)} turns are running, which is the limit here.",
                headers=retry_after(1),
            )
        task: asyncio.Task[object] | None = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        limit = asyncio.timeout(self.limits.turn_seconds)
        try:
            async with limit:
                return await self._run(turn, messages, options, on_event)
        except asyncio.CancelledError:
            if self._closed:
                raise _ended() from None
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise problem_of(error) from error
            text = f"The turn took longer than {self.limits.turn_seconds:g} s and was stopped."
            raise ProblemError(504, "turn_timeout", text) from None
        except Exception as error:
            raise problem_of(error, self._secrets) from error
        finally:
            self._running.discard(task)

    async def _run(
        self,
        turn: Turn,
        messages: Sequence[ChatMessage],
        options: TurnOptions,
        on_event: Callable[[Event], None],
    ) -> list[ChatMessage]:
        def notify(event: Event) -> None:
            self._notify(turn, event)
            on_event(event)

        most, steps = self.max_steps, options.given.get("max_steps")
        if steps is not None and steps > most:
            raise UsageError(
                f"max_steps cannot be {steps}: the service makes at most {most} calls of a model in"
                " a turn."
            )
        messages = await fetched_images(messages)
        if self._admit is not None:
            await self._admit()
        history, new, options = split_messages(messages, options)
        # The model's answers are streamed even if nobody reads along. In one piece, the client's
        # timeout would have to last for a whole answer, and a proxy ends a silent connection.
        setup = TurnSetup(
            messages=new, options=options, history=history, turn=turn, on_event=notify
        )
        await self._chat.apart(self._consent(), private=True).take_turn(setup)
        turn.raise_for_status()
        return turn.messages[len(turn.prompt_messages) :]

    def denials(self) -> tuple[Denial, ...]:
        """List the known tools that clients are denied, with the reasons."""
        consent, view = self._consent(), self._chat.current_view()
        return tuple(present(map(consent.denial, view.included)))

    def denied_in(self, turn: Turn) -> tuple[Denial, ...]:
        """List the tools that were called in a turn and denied, with the reasons, each once."""
        finished = turn.trace.of(ToolFinished)
        calls = {event.tool: event for event in finished if event.status == "denied"}
        if not calls:
            return ()
        consent = self._consent()
        denied = []
        for name, event in calls.items():
            tool = self._chat.catalog.get(name)
            denial = consent.denial(tool) if tool is not None else None
            if denial is None:
                # It could run by now: it was changed while the turn ran.
                reason = event.permission.reason if event.permission else ""
                denial = Denial(name, reason, "")
            denied.append(denial)
        return tuple(denied)

    def _consent(self) -> Consent:
        consent = self._chat.consent.apart()
        consent.overrides.update(self._approval)
        if not self._chat.tape.replays:
            consent.approver, consent.can_ask = None, _nobody_can_be_asked
        return consent

    async def close(self) -> None:
        """Refuse further turns, and stop those that run."""
        self._closed = True
        running = tuple(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_SECONDS)


def _nobody_can_be_asked() -> bool:
    return False


def _ended() -> ProblemError:
    return ProblemError(503, "closed", "This service is ending.", headers=retry_after(1))
