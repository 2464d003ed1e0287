"""The private parts of the MCP SDK that this package uses. Only this file knows their names.

A later release of the SDK can rename them. Then each feature is lost with a message, and everything
else works on:

`OAuthClientProvider._perform_authorization`
    gives: sign-ins of programs (client credentials, assertions), the scopes of the config, and a
    question about the person's credentials before the browser opens.
    without it: a program's sign-in fails with an error that names the release. A person signs in
    with the scopes that the server asks for, and the question comes after the browser.

`ServerSession._connection`
    gives: the MCP server that this package serves recognizes a client at its next request.
    without it: each request is answered like one without a connection, so that tools which a search
    finds are called through `call_tool`, and no client is told of changes. A warning names the
    release.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth import OAuthClientProvider

if TYPE_CHECKING:
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession

logger = logging.getLogger(__name__)


class AuthorizationFlow(OAuthClientProvider):
    """The SDK's OAuth flow, in which a subclass can replace the step that asks for tokens."""

    async def authorize(self) -> httpx2.Request:
        """Authorize this client. Return the request for its tokens."""
        return await super()._perform_authorization()

    async def _perform_authorization(self) -> httpx2.Request:
        return await self.authorize()


def authorization_problem() -> str:
    """Explain why the SDK does not call `AuthorizationFlow.authorize`, or return an empty text if it
    does.
    """
    if hasattr(OAuthClientProvider, "_perform_authorization"):
        return ""
    return f"With mcp {version('mcp')}, a program cannot sign in. Install another version of mcp."


def connection_of(session: ServerSession) -> Connection | None:
    """Find the connection that brought a request, or None if the SDK does not tell."""
    connection: Connection | None = getattr(session, "_connection", None)
    if connection is None:
        _warn_of_unknown_clients()
    return connection


@cache
def _warn_of_unknown_clients() -> None:
    logger.warning(
        "With mcp %s, this server does not recognize a client at its next request: tools that a"
        " search finds are called through call_tool, and changes are not told. Install another"
        " version of mcp.",
        version("mcp"),
    )
