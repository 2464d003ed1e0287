"""Calls that servers run: whose they are, and their deadlines, which progress extends and questions pause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.limits import TimeLimit
from casual_mcp_nb.base.mcp import MAX_SAMPLES
from casual_mcp_nb.errors import shown

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult

    from casual_mcp_nb.servers._errors import Redactor


OnProgress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True)
class CallLimits:
    """Time limits in seconds: for start, handshake and listing; for a call since its last progress; for a whole call."""

    init: float = 20.0
    call: float = 60.0
    total: float = 600.0

    @classmethod
    def of(cls, config: ServerConfig | None) -> CallLimits:
        """Read a config's limits, with defaults for missing ones."""
        return cls(config.init_timeout, config.call_timeout, config.total_timeout) if config else cls()


class CallTimeout(Exception):
    """A call reached a time limit, with the seconds and the config field that sets it."""

    def __init__(self, seconds: float, field: str) -> None:
        super().__init__(f"no result in {seconds:.3g} s")
        self.seconds = seconds
        self.field = field


class CallDeadline(TimeLimit):
    """The deadline of one running call: a context manager around it, which raises CallTimeout at a limit.

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
        """Restart the time of a call, within the limit of the whole call."""
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
    """The deadlines of the running calls of one server."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0
        self._until_empty: list[asyncio.Future[None]] = []

    def discard(self, deadline: object, /) -> None:
        """Remove the deadline of a call that has ended."""
        super().discard(deadline)
        if not self:
            for future in self._until_empty:
                if not future.done():
                    future.set_result(None)
            self._until_empty.clear()

    def take_sample(self) -> bool:
        """Count a server's request for an answer of the model; return whether its running calls leave room for one."""
        # It is unknown which call it belongs to.
        call = min(self, key=lambda call: call.samples, default=None)
        if call is None or call.samples >= MAX_SAMPLES:
            return False
        call.samples += 1
        return True

    def until_empty(self) -> asyncio.Future[None]:
        """Create a future that is done when the last running call has ended; never done if none is running."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self:
            self._until_empty.append(future)
        return future

    @contextmanager
    def waiting_for_a_person(self) -> Iterator[None]:
        """Pause all deadlines in the body, because it is unknown which call a server's question belongs to."""
        self._waiting += 1
        for deadline in self:
            deadline.pause()
        try:
            yield
        finally:
            self._waiting -= 1
            for deadline in () if self._waiting else self:
                deadline.resume()


MAX_ASKED = 100_000
"""Maximum number of characters of a server's questions in answer to a request."""


class Asker(Protocol):
    """Who made a call that did not come from the session itself, and can pass on a question."""

    @property
    def client(self) -> object:
        """The client that made the call. Its calls have the same one."""

    @property
    def forwarded(self) -> ForwardedRequest | None:
        """The request as it is sent on to a server of the version without a handshake, or None where it is not."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta` for servers of the version without a handshake: capabilities, and the log level."""

    async def elicit(self, server: str, message: str, params: Any) -> Any:
        """Pass on a server's question during the call, and return the answer, an `ElicitResult`."""

    async def sample(self, server: str, params: Any) -> Any:
        """Pass on a request for an answer of a model, and return it, a `CreateMessageResult` or `ErrorData`."""

    async def roots(self) -> list[Any]:
        """List the client's roots, or empty if it has none."""


@dataclass(eq=False)
class ForwardedRequest:
    """A round of a host's request, which a server of the version without a handshake gets and answers as if it came from there.

    See https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.

    Args:
        responses: The host's answers to the server's questions.

    Attributes:
        asked: The server's questions before it answers.
        error: The error that it returned instead of a result, which a client of this version has to see.
    """

    server: str
    name: str
    responses: Mapping[str, Any] | None = None
    state: str | None = None
    asked: InputRequiredResult | None = None
    error: Exception | None = None

    async def send(self, request: Callable[..., Awaitable[Any]], redact: Redactor, **arguments: Any) -> Any:
        """Send it with a method of the client's session, and return the result, or None if the server asks something first."""
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, InputRequiredResult

        given = {"input_responses": self.responses, "request_state": self.state}
        try:
            result = await request(**arguments, **given, allow_input_required=True)
        except MCPError as error:
            follows = self.state is not None or self.responses is not None
            if error.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY or (follows and error.error.code == INVALID_PARAMS):
                self.error = MCPError(error.error.code, redact(error.error.message)[:1_000], redact.value(error.error.data))
            raise
        if not isinstance(result, InputRequiredResult):
            return result
        plain = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        requests = redact.value(plain.get("inputRequests") or {})
        for each in requests.values():
            if "message" in (each.get("params") or {}):
                # The person at the host sees one server, and has to know which of those behind it asks.
                each["params"]["message"] = asked_by(self.server, each["params"]["message"])
        if len(json.dumps(requests)) + len(result.request_state or "") > MAX_ASKED:
            raise ValueError(f"it asks for more than {MAX_ASKED:,} characters at a time")
        self.asked = InputRequiredResult.model_validate({**plain, "inputRequests": requests or None}, by_name=False)
        return None


def asked_by(server: str, message: str) -> str:
    """Prefix a server's question with the server's name."""
    return f"The server {shown(server)} asks:\n{message}"


ASKER: ContextVar[Asker | None] = ContextVar("casual_mcp_asker", default=None)
"""Who makes the calls of this task, or None for the session."""


def forwarded_to(server: str, name: str) -> ForwardedRequest | None:
    """Find the request of this task if it is sent on as it is to this server for this tool, prompt or URI; else None."""
    asker = ASKER.get()
    forwarded = asker.forwarded if asker is not None else None
    return forwarded if forwarded is not None and (forwarded.server, forwarded.name) == (server, name) else None


class SeveralClients(Exception):
    """A server asks something while it runs calls of several clients: it is not known whose call it belongs to."""


class RunningCalls:
    """The calls that run now, by server."""

    def __init__(self) -> None:
        self._askers: dict[str, list[Asker | None]] = {}

    def begin(self, server: str) -> Asker | None:
        """Note a call of this task at a server until `end`; return who makes it."""
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
        """Note a call of this task at a server while the body runs."""
        asker = self.begin(server)
        try:
            yield
        finally:
            self.end(server, asker)

    def asker(self, server: str) -> Asker | None:
        """Find the caller to whom a server's messages and questions belong now, or None for the session."""
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
