"""What a session of a server needs of the connection that it belongs to, and what the SDK's session
needs of the `McpSession` around it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import ServerConfig
    from casual_mcp_nb.servers.deadlines import CallDeadlines
    from casual_mcp_nb.servers.handlers import AskToSignIn
    from casual_mcp_nb.servers.logs import LogBuffer
    from casual_mcp_nb.servers.server_requests import ServerRequests
    from casual_mcp_nb.servers.transport import TransportContext
    from casual_mcp_nb.servers.wire import WireLog


class SessionConnection(Protocol):
    """The connection that a server's sessions belong to. All methods are called on the engine's loop.

    Attributes:
        deadlines: Those of the running calls and listings, which a sign-in pauses.
        sign_in: Asks the person to sign in, or None if nobody can be asked.
        shows_apps: Whether apps are declared to the server.
    """

    log: LogBuffer
    wire: WireLog
    deadlines: CallDeadlines
    server_requests: ServerRequests
    sign_in: AskToSignIn | None
    shows_apps: bool

    async def session_opened(self, deadline: float) -> None:
        """Continue after the handshake, at most until the start's deadline on the loop's clock."""

    def changed(self) -> None:
        """Note that the state of the server changed."""

    async def tools_changed(self) -> None:
        """Note that the server reported a changed list of tools."""

    def offers_changed(self) -> None:
        """Note that the server reported changed lists of resources or prompts."""

    def resource_updated(self, uri: str) -> None:
        """Note that the server reported a changed resource."""

    def request_refused(self, method: str) -> None:
        """Note that a request of the server was answered with an error."""

    def field_ignored(self, text: str) -> None:
        """Note what is told to the person of a field that is not valid."""

    def learn(self, secrets: Collection[str]) -> None:
        """Mask the secrets of a sign-in, which a server could repeat."""


class SessionOpener(Protocol):
    """What an SDK session needs of the `McpSession` that opened it."""

    name: str
    config: ServerConfig | None
    context: TransportContext
    connection: SessionConnection

    async def unreadable(self, error: Exception) -> None:
        """Note that the server's stream brought something that is no message."""

    def stream_ended(self) -> None:
        """End the session, because its message stream has ended."""
