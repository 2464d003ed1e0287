"""From a server's config to a fastmcp transport, with what is needed beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.connections._mask import secrets_of
from casual_mcp_nb.connections._process import command_of, environment_of, launched, why_not_startable
from casual_mcp_nb.connections._stderr import StderrLog
from casual_mcp_nb.connections.convert import says_nothing, status_text
from casual_mcp_nb.types.config import ServerConfig

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.client.transports.base import ClientTransport

CONNECT_SECONDS = 30.0


class NotStartable(Exception):
    """The transport cannot even be tried; the message says why."""


@dataclass
class HttpWatch:
    """Remembers the last HTTP answer that was an error, which the SDK reports without its status.

    Args:
        failure: The last status of 400 or more, and the time on the loop's clock.
    """

    failure: tuple[int, float] | None = None

    async def __call__(self, response: Any) -> None:
        """Look at an answer."""
        if response.status_code >= 400:
            self.failure = (response.status_code, asyncio.get_running_loop().time())

    def better(self, reason: str, start: float) -> str:
        """The last HTTP error since a time on the loop's clock, in words, where it says more than `reason` does."""
        if self.failure is None or self.failure[1] < start:
            return reason
        status = self.failure[0]
        return status_text(status) if status in (401, 403) or says_nothing(reason) else reason


@dataclass
class Route:
    """How a server is reached.

    Args:
        transport: The fastmcp transport.
        stderr: The log of its stderr, where it is a process.
        http: The watch over its HTTP answers.
        release: Called when the transport has been closed.
    """

    transport: ClientTransport
    stderr: StderrLog | None = None
    http: HttpWatch = field(default_factory=HttpWatch)
    release: Callable[[], None] = lambda: None


def transport_kind(config: ServerConfig | None) -> str:
    """`stdio`, `http`, `sse` or `in-process`."""
    if config is None:
        return "in-process"
    if config.url:
        return "sse" if config.transport == "sse" else "http"
    return config.transport or "stdio"


def make_route(config: ServerConfig | None, server: FastMCP[Any] | None) -> Route:
    """The way to a server; a new one for each connection.

    Args:
        config: The server's config; None for one that is handed in.
        server: The server itself, where it lives in this process.

    Raises:
        NotStartable: Its command or folder does not exist, or the bundled server cannot be built.
    """
    kind = transport_kind(config)
    if config is None or kind == "in-process":
        return _in_process(config, server)
    return _stdio(config) if kind == "stdio" else _http(config, kind)


def _in_process(config: ServerConfig | None, server: FastMCP[Any] | None) -> Route:
    from fastmcp.client.transports import FastMCPTransport

    if server is not None:
        return Route(FastMCPTransport(server))
    from casual_mcp_nb.bundled import build

    try:
        built = build(config.bundled or "", list(config.args)) if config else None
    except ValueError as error:
        raise NotStartable(str(error)) from error
    if built is None:
        raise NotStartable("it has neither a config nor a server object")
    return Route(FastMCPTransport(built), release=built.close)


def _stdio(config: ServerConfig) -> Route:
    from casual_mcp_nb.connections._session import StdioTransport

    try:
        command = command_of(config)
    except ValueError as error:
        raise NotStartable(str(error)) from error
    reason = why_not_startable(command, config)
    if reason is not None:
        raise NotStartable(reason)
    stderr = StderrLog(secrets_of(config))
    return Route(StdioTransport(launched(command), environment_of(config), config.cwd, stderr.file), stderr)


def _http(config: ServerConfig, kind: str) -> Route:
    import httpx2
    from fastmcp.client.transports import SSETransport, StreamableHttpTransport

    watch = HttpWatch()

    def make_client(headers: Any = None, timeout: Any = None, auth: Any = None, **_: Any) -> httpx2.AsyncClient:
        # A silent stream is cut by the limit of its call; the client's own limit only frees what was forgotten.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=config.total_timeout)
        return httpx2.AsyncClient(
            headers=headers, timeout=timeout, auth=auth, follow_redirects=True, event_hooks={"response": [watch]}
        )

    make = SSETransport if kind == "sse" else StreamableHttpTransport
    headers = {key: value.get_secret_value() for key, value in config.headers.items()}
    auth = config.auth.get_secret_value() if config.auth else None
    return Route(make(config.url or "", headers=headers, auth=auth, httpx_client_factory=make_client), http=watch)
