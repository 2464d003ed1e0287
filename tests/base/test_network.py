"""Which addresses are public: the rows of IANA's registries, whatever this Python knows of them."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from casual_mcp_nb.base.ip_addresses import is_public, is_this_computer

ROOT = Path(__file__).resolve().parents[2] / "casual_mcp_nb"

PUBLIC = [
    "93.184.216.34",
    "1.1.1.1",
    "100.128.0.1",
    "192.0.1.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "2620:4f:8000::1",
]
# Each row that is not globally reachable, or has an IPv4 address in it.
SPECIAL = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
192.0.0.8/32 192.0.0.170/31
192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
255.255.255.255/32 168.63.129.16/32
::/128 ::1/128 ::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:2::/48 2001:10::/28
2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8 4000::/3
"""


@pytest.mark.defect("F10")
def test_no_special_purpose_address_is_public() -> None:
    for row in SPECIAL.split():
        network = ipaddress.ip_network(row)
        addresses = [network[0], network[-1], network[network.num_addresses // 2]]
        if network.version == 4:
            addresses += [ipaddress.ip_address(f"::ffff:{address}") for address in addresses]
        assert [str(address) for address in addresses if is_public(str(address))] == [], row


@pytest.mark.defect("F10")
def test_an_address_with_another_one_in_it_is_judged_by_that_one_or_refused() -> None:
    for address in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "192.0.0.192"):
        mapped = ipaddress.ip_address(f"::ffff:{address}")
        number = int(ipaddress.ip_address(address))
        six_to_four = ipaddress.IPv6Address((0x2002 << 112) | (number << 80))
        nat64 = ipaddress.IPv6Address((0x64FF9B << 96) | number)
        teredo = ipaddress.IPv6Address((0x20010000 << 96) | (number ^ 0xFFFFFFFF))
        for embedding in (mapped, six_to_four, nat64, teredo, ipaddress.IPv6Address(number)):
            assert not is_public(str(embedding)), embedding
    assert is_public("::ffff:93.184.216.34")


def test_ordinary_addresses_are_public() -> None:
    assert [address for address in PUBLIC if not is_public(address)] == []


def test_a_text_that_is_not_an_address_is_refused() -> None:
    for text in ("", "localhost", "1.2.3", "fe80::1::"):
        with pytest.raises(ValueError, match=r"."):
            is_public(text)
    assert not is_public("fe80::1%eth0")


def test_this_computer_is_known_by_name_and_by_address() -> None:
    here = ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]
    assert [host for host in here if not is_this_computer(host)] == []
    assert not any(
        map(
            is_this_computer,
            ["", "0.0.0.0", "::", "localhost.example.com", "10.0.0.1", "::ffff:10.0.0.1"],
        )
    )


@pytest.mark.defect("F10")
def test_one_place_judges_addresses() -> None:
    words = ("is_global", "is_private", "is_loopback", "is_link_local", "is_reserved", "ipaddress")
    judging = {
        path.name
        for path in ROOT.rglob("*.py")
        if any(word in path.read_text("utf-8") for word in words)
    }
    assert judging == {"ip_addresses.py"}
