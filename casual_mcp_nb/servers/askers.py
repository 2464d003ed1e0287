"""Who makes the calls that run at servers, and whom a server's question belongs to."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.redaction import Redactor

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult

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

    async def elicit(self, question: ServerQuestion) -> QuestionAnswer:
        """Pass on a server's question during the call, and return the answer."""

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
    if forwarded is not None and (forwarded.server, forwarded.name) == (server, name):
        return forwarded
    return None


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
