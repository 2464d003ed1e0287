"""A service at an address: its limits, its offer, and its status."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.tool import Denial
from casual_mcp_nb.errors import UsageError, brief


@dataclass(frozen=True)
class ServedTools(Displayable):
    """A session's tools as one MCP server, as they were at a moment.

    A client lists the offered ones before it has searched, those that search among them, and can find the deferred ones.
    """

    url: str
    offered: int
    deferred: int
    has_token: bool
    clients: int
    closed: bool = False

    @property
    def host_config(self) -> dict[str, Any]:
        """The entry for another MCP host's config. The token is left for the person to fill in."""
        headers = {"headers": {"Authorization": "Bearer …"}} if self.has_token else {}
        return {"mcpServers": {"casual-mcp-nb": {"type": "http", "url": self.url, **headers}}}


TOKEN_VARIABLE = "MCP_SERVE_TOKEN"
"""The environment variable with the token that clients of a service must send."""
CONFIG_VARIABLE = "MCP_SERVE_CONFIG"
ALLOW_VARIABLE = "MCP_SERVE_ALLOW"
HOSTS_VARIABLE = "MCP_SERVE_HOSTS"
ORIGINS_VARIABLE = "MCP_SERVE_ORIGINS"
"""What `casual-mcp-nb serve` has options for, where another server runs `casual_mcp_nb.main:app`: its config file, the servers
whose tools run without asking, further names and sites, each separated by commas."""


@dataclass(frozen=True)
class ServeLimits:
    """The limits of a service.

    Args:
        max_turns: How many turns run at the same time. Further ones are refused with status 503.
        turn_seconds: How long a turn may take.
        max_messages: How many messages a request may have.
        max_bytes: How large a request may be.
        max_values: How many values the JSON of a request may have: objects, lists and commas.

    Raises:
        UsageError: One is not a positive number.
    """

    max_turns: int = 64
    turn_seconds: float = 600.0
    max_messages: int = 1_000
    max_bytes: int = 10_000_000
    max_values: int = 50_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            kinds = int | float if each.name == "turn_seconds" else int
            if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value) or value <= 0:
                raise UsageError(f"{each.name} cannot be {brief(value)}.", hint="It must be a positive number.")


@dataclass(frozen=True)
class ServiceStatus(Displayable):
    """The status of a service at an address.

    Clients find the token in `token_variable`. The token itself is nowhere. Calls of `denied` tools are denied, since nobody
    can be asked.
    """

    url: str
    running: bool
    token_variable: str | None
    models: tuple[str, ...]
    tool_sets: tuple[str, ...]
    turns: int = 0
    denied: tuple[Denial, ...] = ()


@dataclass(frozen=True)
class ServedAddresses(DisplayableList["ServiceStatus | ServedTools"], items="services"):
    """The addresses at which a session is served."""

    services: tuple[ServiceStatus | ServedTools, ...] = ()
