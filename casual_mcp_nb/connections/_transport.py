"""Create the fastmcp transport for a server's config, with its filters and monitors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.connections._fork import fork_server_for
from casual_mcp_nb.connections._log import route_library_logs
from casual_mcp_nb.connections._messages import MAX_MESSAGE_BYTES, LineLimit
from casual_mcp_nb.connections._process import command_of, environment_of, launched, why_not_startable
from casual_mcp_nb.connections._redactor import Redactor
from casual_mcp_nb.connections._stderr import StderrLog
from casual_mcp_nb.types.server import ServerConfig

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.client.transports.base import ClientTransport

    from casual_mcp_nb.connections._http import ResponseMonitor


class NotStartable(Exception):
    """The transport cannot even be tried; the message says why."""


# No repr, because the transports' reprs show their full URL.
@dataclass(repr=False)
class TransportContext:
    """A transport to a server, with its filters and monitors.

    Args:
        transport: The fastmcp transport.
        stderr: The log of its stderr, if it is a process.
        lines: The filter for its stdout, if it is a process.
        http: The monitor of its HTTP responses, if it is remote.
        release: Called when the transport has been closed.
        redact: Hides secrets in what the server sends.
    """

    transport: ClientTransport
    stderr: StderrLog | None = None
    lines: LineLimit | None = None
    http: ResponseMonitor | None = None
    release: Callable[[], None] = lambda: None
    redact: Redactor = field(default_factory=Redactor)

    def explain(self, reason: str, start: float) -> str:
        """Explain a failure by its reason, or the HTTP error behind it; see `ResponseMonitor.explain`."""
        return self.http.explain(reason, start, self.redact) if self.http else reason


def transport_kind(config: ServerConfig | None) -> str:
    """Classify the transport: `stdio`, `http`, `sse` or `in-process`."""
    if config is None:
        return "in-process"
    if config.url:
        return "sse" if config.transport == "sse" else "http"
    return config.transport or "stdio"


async def open_transport(
    kind: str, config: ServerConfig | None, server: FastMCP[Any] | None, secrets: Collection[str]
) -> TransportContext:
    """Call `make_transport`, on another thread if it builds a bundled server or loads certificates."""
    if config is not None and kind != "stdio":
        return await asyncio.to_thread(make_transport, kind, config, server, secrets)
    return make_transport(kind, config, server, secrets)


def make_transport(
    kind: str, config: ServerConfig | None, server: FastMCP[Any] | None, secrets: Collection[str]
) -> TransportContext:
    """Create the transport to a server, a new one for each session.

    Args:
        kind: The transport; see `transport_kind`.
        config: The server's config; None for an in-process server.
        server: The server itself, if it is in this process.
        secrets: Values to redact in its stderr, and by the context's `redact`.

    Raises:
        NotStartable: Its command or folder does not exist, or the bundled server cannot be built.
    """
    if config is None or kind == "in-process":
        context = _in_process(config, server)
    else:
        context = _stdio(config, secrets) if kind == "stdio" else _http(config, kind)
    context.redact = Redactor(secrets)
    return context


def _in_process(config: ServerConfig | None, server: FastMCP[Any] | None) -> TransportContext:
    from fastmcp.client.transports import FastMCPTransport

    if server is not None:
        return TransportContext(FastMCPTransport(server))
    from casual_mcp_nb.bundled import BUNDLED, build

    entry = BUNDLED.get(config.bundled or "") if config else None
    if entry is not None and entry.credentials is not None:
        raise NotStartable(f"{entry.name} reads credentials, which only its own process may have: leave out its transport")
    try:
        built = build(config.bundled or "", list(config.args)) if config else None
    except ValueError as error:
        raise NotStartable(str(error)) from error
    if built is None:
        raise NotStartable("it has neither a config nor a server object")
    return TransportContext(FastMCPTransport(built), release=built.close)


def _stdio(config: ServerConfig, secrets: Collection[str]) -> TransportContext:
    from casual_mcp_nb.connections._stdio import StdioTransport

    try:
        command = command_of(config)
    except ValueError as error:
        raise NotStartable(str(error)) from error
    reason = why_not_startable(command, config)
    if reason is not None:
        raise NotStartable(reason)
    stderr = StderrLog(secrets)
    lines = LineLimit(MAX_MESSAGE_BYTES)
    launch = launched(command, fork_server_for(config))
    transport = StdioTransport(launch, environment_of(config), config.cwd, stderr.file, lines)
    return TransportContext(transport, stderr, lines)


def _http(config: ServerConfig, kind: str) -> TransportContext:
    from casual_mcp_nb.connections._http import ResponseMonitor, http_transport

    monitor = ResponseMonitor(sse=kind == "sse")
    return TransportContext(http_transport(config, kind, monitor), http=monitor)


def import_sdks(in_process: bool = False) -> None:
    """Import the SDKs that a session needs; the first call takes up to two seconds, so run it on a worker thread.

    Args:
        in_process: Whether the server is in this process, which also needs fastmcp's server side.
    """
    from casual_mcp_nb.connections import _http, _session, _stdio  # noqa: F401

    if in_process:
        import fastmcp.server.server  # noqa: F401

    route_library_logs()
