"""The environment's variables for proxies and certificates, which break every HTTP client that
cannot read them.

HTTP libraries read them when a client is built, and fail with errors that name neither the variable
nor the remedy.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from casual_mcp_nb.base.ip_addresses import is_public
from casual_mcp_nb.base.patient_import import CERTIFICATES, PROXIES
from casual_mcp_nb.errors import ConfigError, shown

_KINDS = ("http", "https", "socks5", "socks5h")
"""The kinds of proxies that httpx and httpx2 know, see
https://www.python-httpx.org/advanced/proxies/ (November 2026).
"""
_ON_THIS_COMPUTER = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1", re.IGNORECASE)


@dataclass(frozen=True)
class OddVariable:
    """A variable of the environment with which HTTP clients cannot be built.

    Args:
        name: Its name.
        fault: What is wrong, after its name.
        remedy: The next step.
    """

    name: str
    fault: str
    remedy: str = "Correct it, or remove it."

    @property
    def problem(self) -> str:
        """What is wrong, with the variable's name."""
        return f"The environment's variable {self.name} {self.fault}"


def odd_variable(*, everywhere: bool = False) -> OddVariable | None:
    """Find a variable that HTTP clients cannot read, or None.

    No part of a value is shown that can hold a password.

    Args:
        everywhere: Only a variable that no HTTP library can read. Entries of NO_PROXY are read by
            httpx2, and not by httpx.
    """
    for name in map(_as_set, PROXIES):
        odd = _odd_proxy(name, os.environ.get(name, "").strip())
        if odd is not None:
            return odd
    name = _as_set("no_proxy")
    odd = None if everywhere else _odd_exceptions(name, os.environ.get(name, ""))
    if odd is not None:
        return odd
    for name in CERTIFICATES:
        path = os.environ.get(name)
        if path and not os.path.exists(path):
            return OddVariable(name, f"names {shown(path, 200)}, which does not exist")
    return None


def _as_set(name: str) -> str:
    """Choose how a variable is written: libraries prefer lower case."""
    return name if name in os.environ else name.upper()


def _odd_proxy(name: str, value: str) -> OddVariable | None:
    if not value:
        return None
    kind = value.partition("://")[0].lower() if "://" in value else "http"
    if kind not in _KINDS:
        return OddVariable(
            name,
            f"names a proxy of the kind {shown(kind, 40)}, which is not supported",
            f"Begin it with {', '.join(f'{each}://' for each in _KINDS[:3])}, or remove it.",
        )
    if kind.startswith("socks") and importlib.util.find_spec("socksio") is None:
        return OddVariable(
            name,
            "names a SOCKS proxy, which needs the package socksio",
            "Run: pip install socksio, or remove the variable.",
        )
    return None if _has_host(value) else OddVariable(name, "is not a proxy's address")


def _has_host(value: str) -> bool:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        return bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError:
        return False


def _odd_exceptions(name: str, value: str) -> OddVariable | None:
    """Find an entry with a colon that is neither an IPv6 address nor `host:port`: httpx takes it
    for the latter.
    """
    for entry in map(str.strip, value.split(",")):
        with_port = entry.count(":") == 1 and entry.rpartition(":")[2].isdigit()
        if ":" not in entry or "://" in entry or with_port:
            continue
        try:
            is_public(entry)
        except ValueError:
            return OddVariable(
                name,
                f"has the entry {shown(entry, 80)}, which HTTP clients cannot read",
                "Write addresses as ::1, without brackets and /, or remove the entry.",
            )
    return None


@contextmanager
def named_variables() -> Iterator[None]:
    """Name the variable at fault, if there is one, when an HTTP client cannot be built in the body.

    Raises:
        ConfigError: In place of the library's error. All others are raised as they are.
    """
    try:
        yield
    except Exception:
        odd = odd_variable()
        if odd is None:
            raise
    else:
        return
    # Raised out here: the library's error could show a proxy's password.
    raise ConfigError(f"{odd.problem}.", hint=odd.remedy)


def connection_advice(url: str, problem: str) -> str:
    """Say what in this computer's environment can be behind a failed connection, with the next
    step.

    Empty if nothing is.

    Args:
        url: The address.
        problem: What the library said.
    """
    if "CERTIFICATE_VERIFY_FAILED" in problem:
        return (
            "If its certificate is your own, set SSL_CERT_FILE to a file that has it and those of"
            " the public authorities"
        )
    return proxy_advice(url)


def proxy_advice(url: str) -> str:
    """Name the variable whose proxy is used for an address, with what to do if it should not.

    Empty if there is none.
    """
    from urllib.request import proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    names = [_as_set(f"{parts.scheme}_proxy"), _as_set("all_proxy")]
    name = next((each for each in names if os.environ.get(each)), None)
    if name is None or not host or proxy_bypass(host):
        return ""
    where = "this computer's own address" if _ON_THIS_COMPUTER.fullmatch(host) else "the address"
    return (
        f"The environment's variable {name} sends requests to {where} through a proxy. To leave it"
        f" out, add {host} to NO_PROXY"
    )
