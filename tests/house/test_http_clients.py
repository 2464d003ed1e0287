"""Everything in the package that opens a connection: either the guard of addresses is in it, or the
address is the person's.

An address that a server, a catalog, a page or metadata names is followed through
`base/guarded_http.py` alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "casual_mcp_nb"
OPENS = re.compile(
    r"(?:Async)?(?:HTTP|Http)?Client|(?:Async)?HTTP\w*Transport|SSETransport|StreamableHttpTransport|GuardedTransport|ProxyHandler"
    r"|HTTPS?Connection|urlopen|urlretrieve|build_opener|create_connection|open_connection|connect_tcp|create_tcp_connection"
    r"|create_mcp_http_client|streamable_http_client|sse_client|websocket_client|connect_session|FTP|SMTP|ClientSession"
    r"|(?:Async)?(?:OpenAI|Anthropic|AzureOpenAI)|(?:OpenAI|Anthropic|Ollama)Client|InferenceClient"
    r"|AuthorizedHttp|AuthorizedSession|Http|fetch_token|refresh_token|snapshot_download|acompletion|create_client|open"
)
"""Names of what connects, or makes something that does: standard library, httpx, anyio, the SDKs of
MCP and of providers.
"""
OWNERS = {"open": "webbrowser", "ClientSession": "aiohttp"}
"""Names that are common elsewhere too: they count only as attributes of these."""

GUARDED = "a guard judges every address, and the connection goes to the IP address that it judged"
OWN = "the address is that of the person's config or argument"
FIXED = "the host is written in the code"
REASONS = {
    ("base/guarded_http.py", "httpx2.AsyncHTTPTransport"): GUARDED,
    ("bundled/web_server.py", "GuardedTransport"): GUARDED,
    ("bundled/web_server.py", "httpx2.AsyncClient"): f"its transport is the guarded one; {GUARDED}",
    ("servers/contacts.py", "GuardedTransport"): GUARDED,
    ("servers/contacts.py", "httpx2.AsyncClient"): f"its transport is the guarded one; {GUARDED}",
    ("servers/http_transport.py", "GuardedTransport"): GUARDED,
    (
        "servers/http_transport.py",
        "httpx2.AsyncClient",
    ): f"{OWN}; guarded for a server that was found, and for sign-ins",
    ("servers/http_transport.py", "SSETransport"): f"{OWN}; its client is the one above",
    ("servers/http_transport.py", "StreamableHttpTransport"): f"{OWN}; its client is the one above",
    ("servers/http_transport.py", "streamable_http_client"): f"{OWN}; its client is the one above",
    (
        "servers/mcp_session.py",
        "transport.connect_session",
    ): f"a transport of servers/transport.py; {OWN}",
    ("servers/sign_in.py", "httpx2.AsyncClient"): f"idp_token_url: {OWN}",
    ("servers/sign_in.py", "webbrowser.open"): "the page is judged by the guard before",
    (
        "config/finding.py",
        "httpx2.AsyncClient",
    ): "it sends nothing: it is made so that later ones are quick",
    ("compat/_clients.py", "fastmcp.Client"): OWN,
    (
        "compat/_own_clients.py",
        "Client",
    ): "its methods are compared with those of the person's own client: none is made",
    ("bundled/anthropic_usage_server.py", "httpx2.AsyncClient"): FIXED,
    ("bundled/linkedin_server.py", "httpx2.AsyncClient"): FIXED,
    ("bundled/google_account.py", "httplib2.Http"): FIXED,
    ("bundled/google_account.py", "AuthorizedHttp"): FIXED,
    ("bundled/google_account.py", "self._flow.fetch_token"): FIXED,
    (
        "bundled/google_account.py",
        "requests.post",
    ): f"{FIXED}: it is that of the account's own file",
    (
        "discovery/meaning.py",
        "snapshot_download",
    ): f"Hugging Face, for the model that the person's config names; {FIXED}",
    ("providers/registry.py", "http.client.HTTPConnection"): FIXED,
}
"""What opens connections, and why that is right.

In `providers`, the address is the provider's own, or that of the config.
"""


def opens(name: str) -> bool:
    """Check whether a name, as it is written, is one of what connects."""
    owner, _, last = name.rpartition(".")
    if owner == "requests":
        return last in ("get", "post", "put", "request", "Session")
    return OPENS.fullmatch(last) is not None and (last not in OWNERS or owner == OWNERS[last])


def connections() -> Iterator[tuple[str, str]]:
    """Find what opens connections: the file, and the name wherever it is used as a value, except in
    annotations.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        annotations = {id(inner) for outer in annotations_of(tree) for inner in ast.walk(outer)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Name | ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and id(node) not in annotations
            ):
                name = ast.unparse(node)
                if opens(name):
                    yield path.relative_to(PACKAGE).as_posix(), name


def annotations_of(tree: ast.AST) -> Iterator[ast.AST]:
    """Find the annotations of parameters, results and variables."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            annotation = getattr(node, field, None)
            if annotation is not None:
                yield annotation


@pytest.mark.defect("N2")
def test_whatever_opens_connections_is_guarded_or_has_a_reason() -> None:
    found = set(connections())
    unlisted = {each for each in found - REASONS.keys() if not each[0].startswith("providers/")}
    assert unlisted == set(), (
        f"Use base/guarded_http.py for addresses that others name, or give a reason in {__file__}."
    )
    assert REASONS.keys() - found == set(), "These are gone."


@pytest.mark.defect("N2")
def test_only_the_guard_looks_names_up() -> None:
    """What is looked up before a connection is looked up again by it, unless the connection goes to
    the result.
    """
    looking = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "getaddrinfo" in path.read_text("utf-8")
    ]
    # The second listens, and connects to nothing.
    assert sorted(looking) == ["base/named_address.py", "serve/listener.py"]


@pytest.mark.parametrize(
    "name",
    [
        "httpx2.AsyncClient",
        "requests.post",
        "urllib.request.urlopen",
        "Client",
        "aiohttp.ClientSession",
    ],
)
def test_what_counts_as_a_connection(name: str) -> None:
    assert opens(name)
    assert not opens("path.open")
