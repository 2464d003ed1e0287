"""Who may ask: the checks of every request before an application reads it. They hold for any ASGI application."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.serve.problems import INTERNAL, ProblemError
from casual_mcp_nb.types.nesting import MAX_VALUES, ValueCount
from casual_mcp_nb.types.network import is_this_computer
from casual_mcp_nb.types.service import TOKEN_VARIABLE

logger = logging.getLogger(__name__)

MIN_TOKEN = 16
_NEW_TOKEN = "python -c 'import secrets; print(secrets.token_urlsafe())'"
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
BODY_SECONDS = 30.0
"""How long a client may take to send the body of a request."""
OPEN_PATHS = ("/health", "/docs")
"""The paths that need no token, and what lies below them: the page of documentation asks for it."""


def checked_token(token: str | SecretStr | None, host: str | None) -> SecretStr | None:
    """Check the token that clients must send; None for none, which only an address of this computer may have.

    Args:
        token: The token, if there is one.
        host: The address to listen at; None where another server listens.

    Raises:
        UsageError: It is missing or too short.
    """
    secret = SecretStr(token) if isinstance(token, str) else token
    del token
    if secret is None:
        if host is None or is_this_computer(host):
            return None
        raise UsageError(
            f"Serving at {shown(host)} needs a token, since other computers can reach it.",
            hint=f"export {TOKEN_VARIABLE}=$({_NEW_TOKEN}) sets one, which clients send; or leave out host.",
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

    It checks the `Host` (so that a page of another site cannot reach a local service through a name that it controls), the
    `Origin` (so that a page of another site cannot send requests), the token, and the size, values and time of the body.

    Args:
        app: The application; it gets the body as one message.
        token: What clients must send as `Authorization: Bearer`; None for none.
        hosts: The names under which clients may address the service; None for any.
        bound: Whether all clients connect to an address for which `token` and `hosts` are right. Otherwise each is judged by
            the address that it connected to: without a token, only those of this computer are served, by local names or hosts.
        origins: The sites whose pages may send requests, such as `https://example.org`, besides the service's own.
        max_bytes: Maximum size of a body.
        max_values: Maximum number of JSON values in it.
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
            await self._answer(scope, _then(body, receive), send)

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
        host = headers.get(b"host", "").lower()
        hosts = self._hosts if self._bound else self._hosts_at(scope)
        if hosts is not None and _name_of(host) not in hosts:
            raise ProblemError(403, "host_not_allowed", "This service is not addressed by the name in the header Host.")
        origin = headers.get(b"origin", "").lower()
        if origin and origin not in self._origins and urlsplit(origin).netloc != host:
            raise ProblemError(403, "origin_not_allowed", "Pages of the site in the header Origin may not use this service.")
        if self._token is not None and not _is_open(scope):
            scheme, _, given = headers.get(b"authorization", "").partition(" ")
            expected = self._token.get_secret_value().encode()
            if not hmac.compare_digest(given.strip().encode("utf-8", "replace"), expected) or scheme.lower() != "bearer":
                raise ProblemError(
                    401,
                    "token_required",
                    "The header Authorization must be `Bearer` and the token of this service.",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    def _hosts_at(self, scope: Scope) -> frozenset[str] | None:
        """Find the names for the address that a client connected to.

        Raises:
            ProblemError: Other computers can reach it, and there is no token.
        """
        address, port = scope.get("server") or ("", None)
        # A Unix socket has no port.
        if port is None or is_this_computer(address):
            return LOCAL_HOSTS | (self._hosts or frozenset())
        if self._token is None:
            detail = f"This service has no token, so only its own computer may use it. Set {TOKEN_VARIABLE} where it runs."
            raise ProblemError(403, "token_not_set", detail)
        return self._hosts

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read the body; None if the client has gone."""
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if length.isdigit() and int(length) > self._max_bytes:
            raise self._too_large()
        parts, size, count = [], 0, ValueCount()
        try:
            async with asyncio.timeout(BODY_SECONDS):
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
            raise ProblemError(408, "request_timeout", f"The request did not arrive within {BODY_SECONDS:g} s.") from None

    def _too_large(self) -> ProblemError:
        return ProblemError(413, "request_too_large", f"The request has more than {self._max_bytes:,} bytes.")

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
    """Wrap an application in the checks that fit the address at which it is served.

    Args:
        app: The application.
        host: The address to listen at. One of this computer only is addressed by its local names; any other by any name, as it
            needs the token. None where another server listens, see `bound` of `Guard`.
        token: What clients must send.
        hosts: Further names under which clients may address it; with another address than a local one, the only names.
        origins: The sites whose pages may send requests and read the answers.
        max_bytes: Maximum size of a body.
        max_values: Maximum number of JSON values in it.
    """
    names = (LOCAL_HOSTS | {host, *hosts}) if host is not None and is_this_computer(host) else set(hosts) or None
    bound = host is not None
    app = Guard(app, token=token, hosts=names, bound=bound, origins=origins, max_bytes=max_bytes, max_values=max_values)
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


def _name_of(host: str) -> str:
    """Extract the name from a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _then(body: bytes, receive: Receive) -> Receive:
    """Create a `receive` that gives the body, and then the events of the connection."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def whole() -> Message:
        return pending.pop() if pending else await receive()

    return whole
