"""An address at which a session is served: an HTTP server on the engine's loop with access checks,
and tools over MCP.
"""

from __future__ import annotations

import asyncio
import contextvars
import hmac
import logging
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Self, get_args

import h11
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import SecretStr
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.limits import MAX_VALUES, TimeLimit, ValueCount
from casual_mcp_nb.base.service import TOKEN_VARIABLE, ServedTools, ServiceStatus, is_this_computer
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import UsageError, brief, shown
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.serve.mcp_server import ToolServer
from casual_mcp_nb.serve.mcp_values import HostApproval
from casual_mcp_nb.serve.turns import INTERNAL, ProblemError

logger = logging.getLogger(__name__)

MIN_TOKEN = 16
_NEW_TOKEN = "python -c 'import secrets; print(secrets.token_urlsafe())'"
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
BODY_SECONDS = 30.0
"""How long a client may take to send a request's body."""
OPEN_PATHS = ("/health", "/docs")
"""Paths that need no token, including those below them: the documentation page asks for it."""


def checked_token(token: str | SecretStr | None, host: str | None) -> SecretStr | None:
    """Check the token that clients must send. None is allowed only for an address on this computer.

    The host is None where another server listens. A UsageError if the token is missing or too
    short.
    """
    secret = SecretStr(token) if isinstance(token, str) else token
    del token
    if secret is None:
        if host is None or is_this_computer(host):
            return None
        raise UsageError(
            f"Serving at {shown(host)} needs a token, since other computers can reach it.",
            hint=(
                f"export {TOKEN_VARIABLE}=$({_NEW_TOKEN}) sets one, which clients send. Or leave"
                " out host."
            ),
        )
    value = secret.get_secret_value()
    if len(value) < MIN_TOKEN or not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError(
            "This token cannot be used.",
            hint=f"It needs at least {MIN_TOKEN} letters, digits or signs: {_NEW_TOKEN} makes one.",
        )
    return secret


class Guard:
    """Lets requests through to an application, or answers them with a problem.

    It checks the `Host` (so that another site's page cannot reach a local service through a name
    that it controls), the `Origin` (so that another site's page cannot send requests), the token,
    and the body's size, values and time. If it is not `bound` to an address for which `token` and
    `hosts` are right, each client is judged by the address that it connected to: without a token,
    only clients on this computer are served, by local names or `hosts`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: SecretStr | None = None,
        hosts: Iterable[str] | None = LOCAL_HOSTS,
        bound: bool = True,
        origins: Collection[str] = (),
        max_bytes: int,
        max_values: int = MAX_VALUES,
    ) -> None:
        self._app = app
        self._bound = bound
        self._token = token
        self._hosts = None if hosts is None else frozenset(map(str.lower, hosts))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._max_bytes = max_bytes
        self._max_values = max_values

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
            body = await self._body(scope, receive)
        except ProblemError as error:
            await error.response()(scope, receive, send)
            return
        if body is not None:
            pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def whole() -> Message:
                return pending.pop() if pending else await receive()

            await self._answer(scope, whole, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            logger.error("A request failed.", exc_info=error)
            if not started:
                await ProblemError(*INTERNAL).response()(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        names = [name for name, _ in scope["headers"]]
        host = headers.get(b"host", "").lower()
        hosts = self._hosts if self._bound else self._hosts_at(scope)
        if (hosts is not None and _name_of(host) not in hosts) or names.count(b"host") > 1:
            raise ProblemError(
                403, "host_not_allowed", "The name in the Host header is not one of this service's."
            )
        origin = headers.get(b"origin", "").lower()
        allowed = origin in self._origins or (
            host and origin in (f"http://{host}", f"https://{host}")
        )
        if (b"origin" in headers and not allowed) or names.count(b"origin") > 1:
            raise ProblemError(
                403,
                "origin_not_allowed",
                "Pages from the site in the Origin header may not use this service.",
            )
        if self._token is not None and not _is_open(scope):
            scheme, _, given = headers.get(b"authorization", "").partition(" ")
            expected = self._token.get_secret_value().encode()
            if (
                not hmac.compare_digest(given.strip().encode("utf-8", "replace"), expected)
                or scheme.lower() != "bearer"
            ):
                raise ProblemError(
                    401,
                    "token_required",
                    "The Authorization header must be `Bearer` and this service's token.",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    def _hosts_at(self, scope: Scope) -> frozenset[str] | None:
        address, port = scope.get("server") or ("", None)
        # A Unix socket has no port.
        if port is None or is_this_computer(address):
            return LOCAL_HOSTS | (self._hosts or frozenset())
        if self._token is None:
            detail = (
                "This service has no token, so only its own computer may use it. Set"
                f" {TOKEN_VARIABLE} where it runs."
            )
            raise ProblemError(403, "token_not_set", detail)
        return self._hosts

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read the body, or None if the client has gone."""
        length = next(
            (value for name, value in scope["headers"] if name == b"content-length"), b"0"
        )
        if length.isdigit() and int(length) > self._max_bytes:
            raise self._too_large()
        parts, size, count = [], 0, ValueCount()
        try:
            with TimeLimit(asyncio.get_running_loop().time() + BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._max_bytes:
                        raise self._too_large()
                    count.feed(parts[-1])
                    if count.values > self._max_values:
                        raise self._too_many()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ProblemError(
                408, "request_timeout", f"The request did not arrive within {BODY_SECONDS:g} s."
            ) from None

    def _too_large(self) -> ProblemError:
        return ProblemError(
            413, "request_too_large", f"The request has more than {self._max_bytes:,} bytes."
        )

    def _too_many(self) -> ProblemError:
        text = f"The request has more than {self._max_values:,} values (objects, lists and commas)."
        return ProblemError(413, "request_too_large", f"{text} Join texts, or send fewer messages.")


def guarded(
    app: ASGIApp,
    *,
    host: str | None,
    token: SecretStr | None,
    hosts: Collection[str],
    origins: Collection[str],
    max_bytes: int,
    max_values: int = MAX_VALUES,
) -> ASGIApp:
    """Wrap an application in those `Guard` checks that fit the address at which it is served.

    An address that only this computer can reach is addressed by its local names, any other by any
    name, as it needs the token. With `hosts`, only these names count. None if another server
    listens.
    """
    names = (
        (LOCAL_HOSTS | {host, *hosts})
        if host is not None and is_this_computer(host)
        else set(hosts) or None
    )
    bound = host is not None
    app = Guard(
        app,
        token=token,
        hosts=names,
        bound=bound,
        origins=origins,
        max_bytes=max_bytes,
        max_values=max_values,
    )
    if not origins:
        return app
    # Outside: a browser asks whether it may ask without a token.
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        # A page that talks MCP sends it back.
        expose_headers=("Mcp-Session-Id",),
    )


def _is_open(scope: Scope) -> bool:
    """Check whether a request needs no token."""
    # It begins with the prefix under which a proxy offers the service.
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return path in OPEN_PATHS or path.startswith(f"{OPEN_PATHS[1]}/")


_HOST = re.compile(r"(?P<name>[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?")


def _name_of(host: str) -> str:
    """Read the name in a `Host` header, or nothing if the header has more than a name and a port,
    such as a user.
    """
    match = _HOST.fullmatch(host)
    return match["name"].strip("[]") if match else ""


HEAD_SECONDS = 20.0
"""How long a client may take to send a request's head."""
READ_BYTES = 8 * 1024
"""How much is read at a time: a body in one-byte chunks takes 20 microseconds each, all in one loop
callback.
"""
READ_SECONDS = 30.0
"""How long a client may go without reading its response."""


class ServiceProtocol(H11Protocol):
    """A uvicorn connection with two more time limits: for a request to arrive, and for a client to
    read the response.

    Whoever exceeds one is disconnected.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger
        self._arrival: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        with suppress(AttributeError):
            # Only asyncio's own transports have it.
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Read on, and wait for the rest if it is not a whole head yet."""
        super().data_received(data)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the waiting."""
        for timer in (self._arrival, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a client that does not read."""
        super().pause_writing()
        self._reading = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Write on."""
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP with a problem like any other."""
        response = ProblemError(400, "invalid_http", msg).response()
        head = h11.Response(
            status_code=400,
            headers=[*response.raw_headers, (b"connection", b"close")],
            reason=b"Bad Request",
        )
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_request(self) -> None:
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._arrival is None:
            self._arrival = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        elif not waiting and self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None


MAX_PORT = 65_535
KEEP_ALIVE_SECONDS = 15
END_SECONDS = 2.0
"""How long responses have to be read when the server ends."""


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to an address. Port 0 is any free one.

    A UsageError if the address does not exist, or is in use.
    """
    # The resolver would accept a larger number, cut.
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= MAX_PORT:
        raise UsageError(
            f"port cannot be {brief(port)}.",
            hint=f"It must be 0 to {MAX_PORT}, and 0 takes a free one.",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"Cannot serve at {shown(host)}: {error}.") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A head and its body are two writes: without it, the second would wait 40 ms for the first
        # to be acknowledged.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "Give another port, or port=0 for a free one."
        raise UsageError(
            f"Cannot serve at {shown(host)}, port {port}: {reason}.", hint=hint
        ) from None
    return bound


class Listener(uvicorn.Server):
    """Serves an application at a socket, and closes it when done. Keeps an owner alive meanwhile.

    Its coroutines run on the engine's loop.
    """

    def __init__(self, app: ASGIApp, bound: socket.socket, owner: object = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=ServiceProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        self._bound = bound
        self._owner = owner
        self._ready = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self._ready.set()

    async def begin(self) -> None:
        """Serve until `end`. Returns as soon as clients can connect."""
        # Not in the caller's context: notebook functions would wait for the cell that began this.
        self._serving = asyncio.create_task(
            self.serve([self._bound]), context=contextvars.Context()
        )
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            self._serving.result()

    async def end(self) -> None:
        """Accept nothing more, let clients read their answers, and close every connection."""
        if self._serving is None:
            self._bound.close()
            return
        self.should_exit = True
        await asyncio.wait({self._serving}, timeout=END_SECONDS)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()
        await asyncio.wait({self._serving}, timeout=END_SECONDS)
        self._serving.cancel()


class Endpoint(Displayable, ABC):
    """An address at which a session is served: a context manager, or call `close`.

    It ends with the session, too.

    `url` is for clients on this computer.
    """

    def __init__(self, engine: EngineThread, host: str, port: int, path: str = "") -> None:
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        self._engine = engine
        self.host = host
        self.port = port
        self.url = f"http://{f'[{name}]' if ':' in name else name}:{port}{path}"
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._ending.is_set()

    @property
    @abstractmethod
    def status(self) -> ServiceStatus | ServedTools:
        """The service's current state."""

    @blocking
    async def close(self) -> None:
        """Accept nothing more, and stop the work for clients. The session stays.

        Closing twice is allowed.
        """
        if not self._engine.inherited:
            await on_engine(self.end)

    close_async = awaited(close)

    @blocking
    async def wait(self) -> None:
        """Wait until it has ended: closed by another thread, or with the session."""
        await on_engine(lambda _: self._ended.wait())

    wait_async = awaited(wait)

    async def begin(self) -> None:
        """Begin to serve, on the engine's loop. Returns as soon as clients can connect."""
        try:
            await self._begin()
        except BaseException:
            await self.end()
            raise

    async def end(self, _: bool = False) -> None:
        """End it, on the engine's loop, see `close`."""
        if self._ending.is_set():
            await self._ended.wait()
            return
        self._ending.set()
        try:
            await self._end()
        finally:
            self._ended.set()

    @abstractmethod
    async def _begin(self) -> None:
        """Accept clients."""

    @abstractmethod
    async def _end(self) -> None:
        """Stop all work, and accept nothing more. Called once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.url}{', closed' if self.closed else ''}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.status._repr_mimebundle_(include, exclude)


PATH = "/mcp"
MAX_CLIENTS = 100
"""How many clients can be connected at a time."""
IDLE_SECONDS = 30 * 60.0
"""How long a client may send nothing before it is forgotten, with its found tools."""
MAX_BYTES = 4 * 1024 * 1024


async def serve_stdio(
    starter: ServerStarter,
    observers: Observers,
    engine: EngineThread,
    options: TurnOptions,
    approval: HostApproval,
    *,
    plain_names: bool = False,
) -> None:
    """Serve one client over standard input and output, until it ends its side.

    Nothing else is written to the output.
    """
    from mcp.server.runner import serve_dual_era_loop
    from mcp.server.stdio import stdio_server

    served = ToolServer(
        starter, observers, engine, options, approval, plain_names=plain_names, single=True
    )
    # The host continues while the servers connect; the first tool list waits for them.
    starting = asyncio.create_task(starter.view())
    starting.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        async with stdio_server() as (received, sent):
            await serve_dual_era_loop(
                served.server,
                received,
                sent,
                lifespan_state={},
            )
    finally:
        starting.cancel()
        served.close()


async def open_endpoint(
    starter: ServerStarter,
    observers: Observers,
    engine: EngineThread,
    options: TurnOptions,
    approval: HostApproval,
    host: str,
    port: int,
    *,
    plain_names: bool,
    token: str | SecretStr | None,
    hosts: Collection[str],
    origins: Collection[str],
    owner: object,
    begin: Callable[[McpEndpoint], object],
) -> McpEndpoint:
    """Serve clients over streamable HTTP. A coroutine on the caller's side, see `on_engine`.

    For the arguments, see `ToolServer` and `McpEndpoint`. `begin` is called with the endpoint
    before the first request.
    """
    if approval not in get_args(HostApproval):
        raise UsageError(
            f"approval cannot be {brief(approval)}.", hint="It must be 'ask' or 'host'."
        )
    secret = checked_token(token, host)
    del token
    await on_engine(lambda _: starter.view())
    served = ToolServer(starter, observers, engine, options, approval, plain_names=plain_names)
    try:
        endpoint = McpEndpoint(
            served, engine, host, port, token=secret, hosts=hosts, origins=origins, owner=owner
        )
        begin(endpoint)
        await on_engine(lambda _: endpoint.begin())
    except BaseException:
        served.close()
        raise
    return endpoint


class McpEndpoint(Endpoint):
    """A session's tools over streamable HTTP: a context manager, or call `close`.

    It ends with the session, too.

    `session.serve.mcp` opens one. `has_token` is whether clients must send a token.
    """

    def __init__(
        self,
        served: ToolServer,
        engine: EngineThread,
        host: str,
        port: int,
        *,
        token: SecretStr | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        owner: object = None,
    ) -> None:
        checked = guarded(
            self._answer, host=host, token=token, hosts=hosts, origins=origins, max_bytes=MAX_BYTES
        )
        bound = bound_socket(host, port)
        super().__init__(engine, host, bound.getsockname()[1], PATH)
        self.has_token = token is not None
        self._served = served
        self._manager = StreamableHTTPSessionManager(
            served.server,
            session_idle_timeout=IDLE_SECONDS,
            max_sessions=MAX_CLIENTS,
            max_request_body_size=MAX_BYTES,
        )
        self._listener = Listener(checked, bound, owner)
        self._running: asyncio.Task[None] | None = None

    @property
    def status(self) -> ServedTools:
        """The endpoint's current state."""
        view = self._served.view()
        return ServedTools(
            self.url,
            len(view.offered),
            len(view.deferred),
            self.has_token,
            self._served.clients,
            self.closed,
        )

    async def _begin(self) -> None:
        ready = asyncio.Event()
        self._running = asyncio.create_task(self._run(ready))
        await ready.wait()
        await self._listener.begin()

    async def _end(self) -> None:
        # The manager is ending by now: responses that stay open would hold the listener up.
        self._served.close()
        await self._listener.end()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _run(self, ready: asyncio.Event) -> None:
        async with self._manager.run():
            ready.set()
            await self._ending.wait()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: Any = scope["path"].rstrip("/")
        if self._ending.is_set():
            await Response(status_code=503)(scope, receive, send)
        elif path == PATH:
            await self._manager.handle_request(scope, receive, send)
        elif path == "/health":
            await JSONResponse({"status": "ok"})(scope, receive, send)
        else:
            await Response(status_code=404)(scope, receive, send)
