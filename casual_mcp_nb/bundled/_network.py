"""List network interfaces and their addresses, as the system reports them: nothing is sent."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from pathlib import Path
from typing import Any

_SIOCGIFADDR = 0x8915


def interfaces() -> list[dict[str, Any]]:
    """Return name, state, hardware and IP addresses of each interface; unknown values are None or empty."""
    ipv6 = _ipv6_addresses()
    return [
        {
            "name": name,
            "state": _sys_value(name, "operstate"),
            "hardware_address": _sys_value(name, "address"),
            "ipv4": _ipv4_address(name),
            "ipv6": ipv6.get(name, []),
        }
        for _, name in socket.if_nameindex()
    ]


def _sys_value(name: str, value: str) -> str | None:
    try:
        return Path("/sys/class/net", name, value).read_text().strip() or None
    except OSError:
        return None


def _ipv4_address(name: str) -> str | None:
    if sys.platform != "linux":
        return None
    from fcntl import ioctl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _ipv6_addresses() -> dict[str, list[str]]:
    addresses: dict[str, list[str]] = {}
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return addresses
    for words in (line.split() for line in lines):
        address = ipaddress.IPv6Address(bytes.fromhex(words[0]))
        addresses.setdefault(words[5], []).append(str(address))
    return addresses
