"""Create the transport to a server for its config, with the filters and monitors that belong to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastmcp.client.transports.base import ClientTransport

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.servers.handlers import PersonToAsk
from casual_mcp_nb.servers.http_transport import ResponseMonitor, http_transport
from casual_mcp_nb.servers.message_limits import MAX_MESSAGE_BYTES, LineLimit
from casual_mcp_nb.servers.process import (
    StderrLog,
    StdioTransport,
    command_of,
    environment_of,
    launched,
    why_not_startable,
)
from casual_mcp_nb.servers.redaction import Redactor

if TYPE_CHECKING:
    from fastmcp import FastMCP


@dataclass(frozen=True)
class Unusable:
    """What a session has of a server whose entry cannot be used: the reason.

    It takes the place of a server in this process.
    """

    reason: str


class NotStartable(Exception):
    """The transport cannot even be tried. The message has the reason."""


# No repr, because the transports' reprs show their full URL.
@dataclass(repr=False)
class TransportContext:
    """A transport to a server, with its filters and monitors.

    `release` is called when it has been closed.
    """

    transport: ClientTransport
    stderr: StderrLog | None = None
    lines: LineLimit | None = None
    http: ResponseMonitor | None = None
    release: Callable[[], None] = ignore
    redact: Redactor = field(default_factory=Redactor)

    def explain(self, reason: str, start: float) -> str:
        """Explain a failure by its reason, or the HTTP error behind it.

        See `ResponseMonitor.explain`.
        """
        if self.http:
            return self.http.explain(reason, start, self.redact)
        return reason


def transport_kind(config: ServerConfig | None) -> str:
    """Classify the transport: `stdio`, `http`, `sse` or `in-process`."""
    if config is None:
        return "in-process"
    if config.url:
        if config.transport == "sse":
            return "sse"
        return "http"
    return config.transport or "stdio"


async def open_transport(
    kind: str,
    config: ServerConfig | None,
    server: FastMCP[Any] | Unusable | None,
    secrets: Collection[str],
    person: PersonToAsk | None = None,
) -> TransportContext:
    """Call `make_transport`, on another thread if it builds a bundled server or loads
    certificates.
    """
    if config is not None and kind != "stdio":
        return await asyncio.to_thread(make_transport, kind, config, server, secrets, person)
    return make_transport(kind, config, server, secrets)


def make_transport(
    kind: str,
    config: ServerConfig | None,
    server: FastMCP[Any] | Unusable | None,
    secrets: Collection[str],
    person: PersonToAsk | None = None,
) -> TransportContext:
    """Create the transport to a server, a new one for each session.

    Raises NotStartable if its command or folder does not exist, or the bundled server cannot be
    built.
    """
    if config is None or kind == "in-process":
        context = _in_process(config, server)
    else:
        context = _stdio(config, secrets) if kind == "stdio" else _http(config, kind, person)
    context.redact = Redactor(secrets)
    return context


def _in_process(
    config: ServerConfig | None, server: FastMCP[Any] | Unusable | None
) -> TransportContext:
    from fastmcp.client.transports import FastMCPTransport

    if isinstance(server, Unusable):
        raise NotStartable(f"its entry cannot be used: {server.reason}")
    if server is not None:
        return TransportContext(FastMCPTransport(server))
    from casual_mcp_nb.bundled import BUNDLED, build

    entry = BUNDLED.get(config.bundled or "") if config else None
    if entry is not None and entry.credentials is not None:
        raise NotStartable(
            f"{entry.name} reads credentials, which only its own process may have: leave out its"
            " transport"
        )
    try:
        built = build(config.bundled or "", list(config.args)) if config else None
    except ValueError as error:
        raise NotStartable(str(error)) from error
    if built is None:
        raise NotStartable("it has neither a config nor a server object")
    return TransportContext(FastMCPTransport(built), release=built.close)


def _stdio(config: ServerConfig, secrets: Collection[str]) -> TransportContext:
    try:
        command = command_of(config)
    except ValueError as error:
        raise NotStartable(str(error)) from error
    reason = why_not_startable(command, config)
    if reason is not None:
        raise NotStartable(reason)
    stderr = StderrLog(secrets)
    lines = LineLimit(MAX_MESSAGE_BYTES)
    transport = StdioTransport(
        launched(command), environment_of(config), config.cwd, stderr.file, lines
    )
    return TransportContext(transport, stderr, lines)


def _http(config: ServerConfig, kind: str, person: PersonToAsk | None) -> TransportContext:
    monitor = ResponseMonitor(sse=kind == "sse")
    return TransportContext(http_transport(config, kind, monitor, person), http=monitor)
