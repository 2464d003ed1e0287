"""The page of an app: whether it can be shown, and the policy under which it runs.

See https://github.com/modelcontextprotocol/ext-apps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from casual_mcp_nb.base.mcp import (
    APP_MIME_TYPE,
    AppContents,
)
from casual_mcp_nb.base.named_address import AddressGuard, AddressRefusedError
from casual_mcp_nb.errors import UsageError, shown

MAX_HTML = 10_000_000
"""How many characters the page of an app may have."""
MAX_DOMAINS = 50
_HOST = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(
    rf"(?P<scheme>https|wss|http|ws)://(?P<wildcard>\*\.)?(?P<host>{_HOST}(?:\.{_HOST}){{0,10}})(?::(?:[0-9]{{1,5}}|\*))?/?",
    re.ASCII | re.IGNORECASE,
)
_ON_THIS_COMPUTER = ("localhost", "127.0.0.1")


def is_domain(text: object) -> bool:
    """Check whether a server may name this as an origin of its app: `https://host`,
    `https://*.host.org`, `wss://host:443`.

    Nothing else can become part of a policy. Plain HTTP is for servers on this computer.
    """
    match = _DOMAIN.fullmatch(text) if isinstance(text, str) and len(text) <= 300 else None
    if match is None:
        return False
    host = match["host"].lower()
    if match["scheme"].lower() in ("http", "ws") and host not in _ON_THIS_COMPUTER:
        return False
    # `https://*.org` would be nearly everything.
    return not match["wildcard"] or "." in host


_THIS_COMPUTER = "http://localhost"


def may_name(domain: str, home: str) -> bool:
    """Check whether an app of a server may reach an origin: a public one, that of the server, or
    one on the server's computer.

    Args:
        domain: An origin, see `is_domain`.
        home: The server's address.
    """
    address = re.sub(r"^ws", "http", domain.lower().replace("*.", "", 1).removesuffix(":*"))
    try:
        AddressGuard(home).check(address)
    except AddressRefusedError:
        return False
    return True


def _declared_domains(declared: object, name: str) -> list[object]:
    values = declared.get(name) if isinstance(declared, Mapping) else None
    if isinstance(values, list):
        return values[:MAX_DOMAINS]
    return []


def app_policy(declared: object, home: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Build the content security policy of an app, and list the declared domains that it leaves
    out.

    It allows inline code and data, and only declared network access. See
    https://www.w3.org/TR/CSP3/.

    Args:
        declared: The resource's `_meta.ui.csp`.
        home: The server's address, or None for a program on this computer.
    """
    left_out: list[str] = []

    def domains(name: str) -> str:
        allowed: list[str] = []
        for value in _declared_domains(declared, name):
            if is_domain(value) and may_name(str(value), home or _THIS_COMPUTER):
                allowed.append(str(value).lower().rstrip("/"))
            else:
                left_out.append(str(value)[:100])
        return " ".join(dict.fromkeys(allowed))

    connect, resources = domains("connectDomains"), domains("resourceDomains")
    frames, bases = domains("frameDomains"), domains("baseUriDomains")
    policy = {
        "default-src": "'none'",
        "script-src": f"'unsafe-inline' 'unsafe-eval' blob: data: {resources}",
        "style-src": f"'unsafe-inline' blob: data: {resources}",
        "img-src": f"blob: data: {resources}",
        "font-src": f"blob: data: {resources}",
        "media-src": f"blob: data: {resources}",
        "worker-src": "blob: data:",
        "connect-src": f"blob: data: {connect}",
        "frame-src": frames or "'none'",
        "base-uri": bases or "'none'",
        "object-src": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value.strip()}" for name, value in policy.items()), tuple(left_out)


@dataclass(frozen=True)
class AppPage:
    """The page of an app as its server gave it, with the policy under which it runs."""

    html: str = field(repr=False)
    policy: str
    border: bool | None = None
    left_out: tuple[str, ...] = ()


def app_page(server: str, uri: str, contents: AppContents, home: str | None = None) -> AppPage:
    """Check the page of an app, and build the policy under which it runs.

    `home` is the address of a remote server.

    Raises:
        UsageError: It is not a page that can be shown.
    """
    part, declared = contents.part, contents.interface
    text = part.text if part.data is None else part.data.decode("utf-8", "replace")
    problem = ""
    if (part.mime_type or "").replace(" ", "").lower() != APP_MIME_TYPE:
        problem = f"is declared as {shown(part.mime_type or 'nothing')}, not as {APP_MIME_TYPE}"
    elif not text.strip():
        problem = "is empty"
    elif len(text) > MAX_HTML:
        problem = f"has {len(text):,} characters, and at most {MAX_HTML:,} are shown"
    if problem:
        raise UsageError(f"The resource {shown(uri)} of the app {problem}.", server=server)
    border = declared.get("prefersBorder")
    policy, left_out = app_policy(declared.get("csp"), home)
    return AppPage(text, policy, border if isinstance(border, bool) else None, left_out)
