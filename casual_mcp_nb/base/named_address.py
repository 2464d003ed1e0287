"""Addresses that somebody else than the person names: a server, a catalog, a page or metadata.

One guard judges them all.

Such an address may be followed if it belongs to the public internet, if it has the same origin as
the address that the person gave, or if the person has accepted it. A name is looked up once, and
the connection goes to an address that was judged: a name that leads elsewhere the next time gains
nothing. `guarded_http` has the connections.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from casual_mcp_nb.base.ip_addresses import is_public, is_this_computer

_PORTS = {"http": 80, "https": 443}
_PRIVATE_NAMES = (".home.arpa", ".internal", ".lan", ".local", ".localhost")
"""Endings of names that no public name server knows: RFC 6761, 6762 and 8375, and what routers and
ICANN reserve.
"""
HERE = "it is not on the public internet, but on this computer"
PRIVATE = "it is not on the public internet"
UNENCRYPTED = "it is not encrypted: it begins with http://"


class AddressRefusedError(Exception):
    """An address is not followed. The message has the reason, and begins with `it` or `the`.

    Attributes:
        origin: Its scheme, host and port, or empty if it has none.
        acceptable: Whether the person could accept it: it is on this computer or in a private
            network.
    """

    def __init__(self, reason: str, origin: str = "", *, acceptable: bool = False) -> None:
        super().__init__(reason)
        self.origin = origin
        self.acceptable = acceptable


def without_credentials(url: str) -> str:
    """Leave the credentials and the query out of a URL. Empty if it has no host."""
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    address = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{address}{parts.path}"


def origin_of(url: str) -> str:
    """Build the origin of a URL, such as `https://example.com:8443`, without the port of its
    scheme.

    Empty if it has none.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if not parts.scheme or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname.rstrip(".")
    if port not in (None, _PORTS.get(parts.scheme)):
        host = f"{host}:{port}"
    return f"{parts.scheme}://{host}"


def is_internal_host(host: str) -> bool:
    """Check whether a host is certainly not public: an address of a private network, or a name that
    only such networks have.
    """
    try:
        return not is_public(host)
    except ValueError:
        # Some libraries take a number, as in http://2130706433, for an address.
        numeric = host.replace(".", "").isdigit() or host.startswith("0x")
        return numeric or host.rstrip(".").endswith(_PRIVATE_NAMES)


@dataclass(frozen=True)
class AddressGuard:
    """Decides which addresses may be followed.

    Args:
        home: The address that the person gave, and from which the others were learned, or empty.
            The same origin may be followed, and any port of this computer if it is on this
            computer.
        accepted: Origins that the person has accepted.
        permitted: IP addresses that may be followed although they are not public.
        encrypted: Whether plain http is refused, except at addresses of the person's own.
    """

    home: str = ""
    accepted: Collection[str] = ()
    permitted: Collection[str] = ()
    encrypted: bool = True

    def check(self, url: str) -> bool:
        """Judge an address by its text, and return whether what its name leads to must be judged
        too.

        Raises:
            AddressRefusedError: It may not be followed.
        """
        parts = _parts(url)
        origin, host = origin_of(url), (parts.hostname or "").rstrip(".")
        if origin in (origin_of(self.home), *self.accepted):
            return False
        if is_this_computer(host):
            if self.home and is_this_computer(urlsplit(self.home).hostname or ""):
                return False
            if not self.permitted:
                raise AddressRefusedError(HERE, origin, acceptable=True)
            return True
        if self.encrypted and parts.scheme != "https":
            raise AddressRefusedError(UNENCRYPTED, origin)
        if host not in self.permitted and is_internal_host(host):
            raise AddressRefusedError(PRIVATE, origin, acceptable=True)
        return True

    async def look_up(self, url: str) -> tuple[str, ...]:
        """Judge an address and what its name leads to.

        Return the IP addresses to connect to, or none if it is the person's.

        Raises:
            AddressRefusedError: It may not be followed, or its name is not known.
        """
        import anyio

        if not self.check(url):
            return ()
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            entries = await anyio.getaddrinfo(
                host, parts.port or _PORTS[parts.scheme], type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            raise UnknownHostError(
                f"the host {host[:100]!r} is not known, or there is no network"
            ) from error
        addresses = tuple(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in entries))
        accepted = all(each in self.permitted or is_public(each) for each in addresses)
        if not addresses or not accepted:
            raise AddressRefusedError(PRIVATE, origin_of(url), acceptable=True)
        return addresses


class UnknownHostError(AddressRefusedError):
    """No name server that can be reached knows the host."""


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise AddressRefusedError("it is not valid") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise AddressRefusedError("it does not begin with https:// or http:// and a host")
    if "@" in parts.netloc:
        raise AddressRefusedError("it contains a user name or password")
    return parts
