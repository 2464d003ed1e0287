"""What is served at an address, with its limits and status."""

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

    Before it searches, a client lists the offered tools, search tools included. It can find the
    deferred ones.
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
"""In place of options for `casual-mcp-nb serve`, where another server runs
`casual_mcp_nb.main:app`: the config file, servers whose tools run without asking, and further names
and sites, separated by commas.
"""


@dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """A service's limits.

    Args:
        max_turns: How many turns run at the same time. Further ones are refused with status 503.
        turn_seconds: How long a turn may take.
        max_messages: How many messages a request may have.
        max_bytes: How large a request may be.
        max_values: How many values a request's JSON may have: objects, lists and commas.

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
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not math.isfinite(value)
                or value <= 0
            ):
                raise UsageError(
                    f"{each.name} cannot be {brief(value)}.", hint="It must be a positive number."
                )


@dataclass(frozen=True)
class ServiceStatus(Displayable):
    """A service's status at an address.

    Clients find the token in `token_variable`. The token itself is not here. Calls to `denied`
    tools are denied, since nobody can be asked.
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
