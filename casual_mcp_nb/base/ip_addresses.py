"""Whether the public internet, or only this computer, reaches an address."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

# https://www.iana.org/assignments/iana-ipv4-special-registry. Python's own table depends on its
# version: https://docs.python.org/3/library/ipaddress.html#ipaddress.IPv4Address.is_global.
_SPECIAL_IPV4 = [
    ipaddress.IPv4Network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        # Multicast, reserved, broadcast.
        "224.0.0.0/4",
        "240.0.0.0/4",
        # Not in a registry: Azure's platform, as its virtual machines see it.
        "168.63.129.16/32",
    )
]
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
"""All that IANA has given to the global internet:
https://www.iana.org/assignments/ipv6-unicast-address-assignments.

Outside lie private, link-local, site-local (fec0::/10), multicast and unspecified addresses,
segment identifiers (5f00::/16), and most that embed an IPv4 address (::/96, 64:ff9b::/96,
64:ff9b:1::/48).
"""
# https://www.iana.org/assignments/iana-ipv6-special-registry: protocols, among them Teredo, with an
# IPv4 address in it; documentation; 6to4, with an IPv4 address in it; documentation.
_SPECIAL_IPV6 = [
    ipaddress.IPv6Network(each) for each in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
]
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


def host_in(url: str | None) -> str:
    """Read the host in a URL, or return an empty text if there is none."""
    try:
        return urlsplit(url or "").hostname or ""
    except ValueError:
        return ""


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
