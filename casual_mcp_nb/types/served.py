"""The parts of a session that are served to other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.types.displayable import Displayable


@dataclass(frozen=True)
class ServedTools(Displayable):
    """The tools of a session as one MCP server, as they were at a moment.

    Args:
        url: The address for other programs.
        offered: How many tools a client lists before it has searched, those that search among them.
        deferred: How many tools it can find.
        has_token: Whether clients must send a token.
        clients: How many were connected.
        closed: Whether it has ended.
    """

    url: str
    offered: int
    deferred: int
    has_token: bool
    clients: int
    closed: bool = False

    @property
    def host_config(self) -> dict[str, Any]:
        """The entry for the config of another MCP host; the token is left for the person to fill in."""
        headers = {"headers": {"Authorization": "Bearer …"}} if self.has_token else {}
        return {"mcpServers": {"casual-mcp-nb": {"type": "http", "url": self.url, **headers}}}
