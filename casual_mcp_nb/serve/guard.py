"""Who may use a service: checks of the token, the host, the origin, and the size and time of a body."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Collection, Iterable

from pydantic import SecretStr
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from casual_mcp_nb.base.ip_addresses import is_this_computer
from casual_mcp_nb.base.limits import MAX_VALUES, ValueCount
from casual_mcp_nb.base.service import TOKEN_VARIABLE
from casual_mcp_nb.errors import UsageError, shown
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
        # There are no web sockets, and what starts and ends the application is not a request.
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
        is_known = hosts is None or _name_of(host) in hosts
        if not is_known or names.count(b"host") > 1:
            raise ProblemError(
                403, "host_not_allowed", "The name in the Host header is not one of this service's."
            )
        origin = headers.get(b"origin", "").lower()
        own_origins = (f"http://{host}", f"https://{host}") if host else ()
        is_allowed = b"origin" not in headers or origin in (*self._origins, *own_origins)
        if not is_allowed or names.count(b"origin") > 1:
            raise ProblemError(
                403,
                "origin_not_allowed",
                "Pages from the site in the Origin header may not use this service.",
            )
        if self._token is not None and not _is_open(scope):
            scheme, _, given = headers.get(b"authorization", "").partition(" ")
            expected = self._token.get_secret_value().encode()
            is_right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), expected)
            if not is_right or scheme.lower() != "bearer":
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
        length = dict(scope["headers"]).get(b"content-length", b"0")
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
    names: Collection[str] | None = hosts or None
    if host is not None and is_this_computer(host):
        names = LOCAL_HOSTS | {host, *hosts}
    app = Guard(
        app,
        token=token,
        hosts=names,
        bound=host is not None,
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
    if match is None:
        return ""
    return match["name"].strip("[]")
