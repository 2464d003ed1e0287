"""Addresses: whether the public internet, or only this computer, reaches them; what is served at
one, its limits and status.
"""

from __future__ import annotations

import ipaddress
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


@dataclass(frozen=True)
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


_SPECIAL_IPV4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            # https://www.iana.org/assignments/iana-ipv4-special-registry. Python's own table
            # depends on its version:
            # https://docs.python.org/3/library/ipaddress.html#ipaddress.IPv4Address.is_global.
            *(
                "0.0.0.0/8",
                "10.0.0.0/8",
                "100.64.0.0/10",
                "127.0.0.0/8",
                "169.254.0.0/16",
                "172.16.0.0/12",
                "192.0.0.0/24",
            ),
            *(
                "192.0.2.0/24",
                "192.88.99.0/24",
                "192.168.0.0/16",
                "198.18.0.0/15",
                "198.51.100.0/24",
                "203.0.113.0/24",
            ),
            # Multicast, reserved, broadcast.
            *("224.0.0.0/4", "240.0.0.0/4"),
            # Not in a registry: Azure's platform, as its virtual machines see it.
            "168.63.129.16/32",
        ),
    )
)
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
"""All that IANA has given to the global internet:
https://www.iana.org/assignments/ipv6-unicast-address-assignments.

Outside lie private, link-local, site-local (fec0::/10), multicast and unspecified addresses,
segment identifiers (5f00::/16), and most that embed an IPv4 address (::/96, 64:ff9b::/96,
64:ff9b:1::/48).
"""
_SPECIAL_IPV6 = tuple(
    # https://www.iana.org/assignments/iana-ipv6-special-registry: protocols, among them Teredo,
    # with an IPv4 address in it; documentation; 6to4, with an IPv4 address in it; documentation.
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
_LOOPBACK = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))


def is_public(address: str) -> bool:
    """Check whether an IP address, even with a zone (`%eth0`), belongs to the public internet,
    whatever this Python knows.
    """
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        special: bool = any(parsed in network for network in _SPECIAL_IPV4)
    else:
        special = parsed not in _GLOBAL_IPV6 or any(parsed in network for network in _SPECIAL_IPV6)
    return not special and parsed.is_global


def is_this_computer(host: str) -> bool:
    """Check whether a host is `localhost` or a loopback address, which no other computer can
    reach.
    """
    try:
        parsed = _parsed(host)
    except ValueError:
        return host.lower() == "localhost"
    return any(parsed in network for network in _LOOPBACK if network.version == parsed.version)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address. An IPv4 address in IPv6 form (`::ffff:10.0.0.1`) becomes plain IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed
