"""From a server's config to a fastmcp transport, with what is needed beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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


# No repr: the transports' own show their whole address.
@dataclass(repr=False)
class TransportContext:
    """How a server is reached.

    Args:
        transport: The fastmcp transport.
        stderr: The log of its stderr, where it is a process.
        lines: What its stdout passes through, where it is a process.
        http: The watch over its HTTP answers, where it is remote.
        release: Called when the transport has been closed.
        mask: Hides secrets in what the server sends.
    """

    transport: ClientTransport
    stderr: StderrLog | None = None
    lines: LineLimit | None = None
    http: ResponseMonitor | None = None
    release: Callable[[], None] = lambda: None
    mask: Redactor = field(default_factory=Redactor)

    def better(self, reason: str, start: float) -> str:
        """What HTTP says of a failure since a time on the loop's clock, where it says more than `reason` does."""
        return self.http.better(reason, start, self.mask) if self.http else reason


def transport_kind(config: ServerConfig | None) -> str:
    """`stdio`, `http`, `sse` or `in-process`."""
    if config is None:
        return "in-process"
    if config.url:
        return "sse" if config.transport == "sse" else "http"
    return config.transport or "stdio"


async def open_route(
    kind: str, config: ServerConfig | None, server: FastMCP[Any] | None, secrets: Collection[str]
) -> TransportContext:
    """As `make_route`, without holding the loop: to build a bundled server takes a moment."""
    if config is not None and kind == "in-process":
        return await asyncio.to_thread(make_route, kind, config, server, secrets)
    return make_route(kind, config, server, secrets)


def make_route(
    kind: str, config: ServerConfig | None, server: FastMCP[Any] | None, secrets: Collection[str]
) -> TransportContext:
    """The way to a server; a new one for each connection.

    Args:
        kind: The transport; see `transport_kind`.
        config: The server's config; None for one that is handed in.
        server: The server itself, where it lives in this process.
        secrets: What is masked in its stderr, and by the route's `mask`.

    Raises:
        NotStartable: Its command or folder does not exist, or the bundled server cannot be built.
    """
    if config is None or kind == "in-process":
        route = _in_process(config, server)
    else:
        route = _stdio(config, secrets) if kind == "stdio" else _http(config, kind)
    route.mask = Redactor(secrets)
    return route


def _in_process(config: ServerConfig | None, server: FastMCP[Any] | None) -> TransportContext:
    from fastmcp.client.transports import FastMCPTransport

    if server is not None:
        return TransportContext(FastMCPTransport(server))
    from casual_mcp_nb.bundled import build

    try:
        built = build(config.bundled or "", list(config.args)) if config else None
    except ValueError as error:
        raise NotStartable(str(error)) from error
    if built is None:
        raise NotStartable("it has neither a config nor a server object")
    return TransportContext(FastMCPTransport(built), release=built.close)


def _stdio(config: ServerConfig, secrets: Collection[str]) -> TransportContext:
    from casual_mcp_nb.connections._session import StdioTransport

    try:
        command = command_of(config)
    except ValueError as error:
        raise NotStartable(str(error)) from error
    reason = why_not_startable(command, config)
    if reason is not None:
        raise NotStartable(reason)
    stderr = StderrLog(secrets)
    lines = LineLimit(MAX_MESSAGE_BYTES)
    transport = StdioTransport(launched(command), environment_of(config), config.cwd, stderr.file, lines)
    return TransportContext(transport, stderr, lines)


def _http(config: ServerConfig, kind: str) -> TransportContext:
    from casual_mcp_nb.connections._http import ResponseMonitor, http_transport

    watch = ResponseMonitor(sse=kind == "sse")
    return TransportContext(http_transport(config, kind, watch), http=watch)
