"""Variables for proxies and certificates that HTTP clients cannot read are named, where a network
is needed at all.
"""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from casual_llm.messages import UserMessage
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply, ScriptedHttp

import casual_mcp_nb
from casual_mcp_nb.base.config import Config, ServerConfig
from casual_mcp_nb.base.proxies import odd_variable, proxy_advice
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import ConnectError, ProviderError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.http_transport import _tls

VARIABLES = {
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
}

ODD = [
    ("ALL_PROXY", "socks://127.0.0.1:9"),
    ("all_proxy", "socks4://127.0.0.1:9"),
    ("HTTPS_PROXY", "socks5://127.0.0.1:9"),
    ("HTTP_PROXY", "http://127.0.0.1:port"),
    ("NO_PROXY", "localhost,[::1]"),
    ("NO_PROXY", "localhost, fe80::/10"),
    ("SSL_CERT_FILE", "/nonexistent/certificates.pem"),
    ("SSL_CERT_DIR", "/nonexistent"),
]
"""Variables with values with which a client of httpx cannot be built, or will not work."""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest_asyncio.fixture
async def opened() -> AsyncIterator[Callable[..., Connection]]:
    """Makes connections to servers that are closed when the test ends."""
    connections: list[Connection] = []

    def make(**fields: Any) -> Connection:
        connections.append(
            Connection("remote", ServerConfig.model_validate({"init_timeout": 10, **fields}))
        )
        return connections[-1]

    yield make
    for connection in connections:
        await connection.close()


@pytest.mark.defect("M2")
@pytest.mark.parametrize(("name", "value"), ODD)
def test_an_odd_variable_is_named_without_what_can_hold_a_password(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value.replace("://127", "://me:hunter2@127"))
    odd = odd_variable()
    assert odd is not None
    assert f" {name} " in odd.problem
    assert "hunter2" not in str(odd)


@pytest.mark.defect("M2")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "http://proxy.example:3128"),
        ("https_proxy", "proxy.example:3128"),
        ("ALL_PROXY", "https://me:pass@[::1]:3128/"),
        ("NO_PROXY", "localhost,127.0.0.1,::1,.corp.example,*,10.0.0.0/8,host:80,http://x"),
        ("NO_PROXY", " , "),
        ("SSL_CERT_FILE", __file__),
        ("HTTP_PROXY", ""),
    ],
)
def test_ordinary_values_are_not_odd(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert odd_variable() is None


@pytest.mark.defect("M2")
def test_the_demo_needs_no_proxy() -> None:
    code = """
import os
from casual_mcp_nb import Session
with Session.demo() as session:
    turn = session.chat("What is 2 plus 3?")
import ollama
print(turn.status, os.environ["ALL_PROXY"], os.environ["SSL_CERT_FILE"])
"""
    odd = {
        "ALL_PROXY": "socks://127.0.0.1:9",
        "NO_PROXY": "localhost,[::1],fe80::/10",
        "SSL_CERT_FILE": "/nonexistent",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **odd},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.split()[-3:] == ["done", odd["ALL_PROXY"], odd["SSL_CERT_FILE"]], done.stderr


PROVIDERS = ["openai", "openai-responses", "anthropic", "ollama", "gemini"]


@pytest.mark.defect("M2")
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("name", "value"),
    [("ALL_PROXY", "socks://me:hunter2@127.0.0.1:9"), ("SSL_CERT_FILE", "/nonexistent")],
)
def test_a_provider_that_cannot_be_reached_for_a_variable_names_it(
    monkeypatch: pytest.MonkeyPatch, provider: str, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    config = Config.model_validate(
        {
            "clients": {
                "c": {"provider": provider, "api_key": "key", "base_url": "http://127.0.0.1:9"}
            },
            "models": {"m": {"client": "c", "model": "some"}},
        }
    )
    with pytest.raises(ProviderError) as caught:
        ModelFactory(config).get_model("m")
    assert name in str(caught.value)
    assert "base_url" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.defect("M2")
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize(
    ("name", "value"), [each for each in ODD if each[0] not in ("NO_PROXY", "SSL_CERT_DIR")]
)
async def test_a_server_that_cannot_be_reached_for_a_variable_names_it(
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[..., Connection],
    transport: str,
    name: str,
    value: str,
) -> None:
    _tls.cache_clear()
    monkeypatch.setenv(name, value)
    connection = opened(url="https://127.0.0.1:9/mcp", transport=transport)
    with pytest.raises(ConnectError) as caught:
        await connection.connect()
    assert f" {name} " in str(caught.value)


@pytest.mark.defect("M2")
@pytest.mark.parametrize("answer", [None, 502, 407, 403])
async def test_a_proxy_before_a_loopback_address_is_named(
    monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Connection], answer: int | None
) -> None:
    with McpHttp() as server, ScriptedHttp(lambda request: Reply(answer or 200, "no")) as proxy:
        monkeypatch.setenv(
            "HTTP_PROXY", proxy.url if answer else f"http://127.0.0.1:{_free_port()}"
        )
        connection = opened(**server.config())
        with pytest.raises(ConnectError, match=r"HTTP_PROXY .*127\.0\.0\.1 to NO_PROXY"):
            await connection.connect()
        assert server.seen == []
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        await connection.reconnect()
        assert connection.status.state == "ready"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.defect("M2")
async def test_a_dead_proxy_before_a_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{_free_port()}")
    config = {
        "clients": {
            "c": {
                "provider": "openai",
                "api_key": "key",
                "base_url": "http://127.0.0.1:9/v1",
                "max_retries": 0,
            }
        },
        "models": {"m": {"client": "c", "model": "some"}},
    }
    chat = McpToolChat.from_config(config)
    with pytest.raises(ProviderError, match=r"HTTP_PROXY .* NO_PROXY"):
        await chat.chat([UserMessage(content="Hello")], model="m")
    await chat.close()


@pytest.mark.defect("M2")
def test_advice_is_given_only_where_a_proxy_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_advice("http://127.0.0.1:8000/mcp") == ""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert proxy_advice("http://127.0.0.1:8000/mcp") == ""
    assert "HTTPS_PROXY" in proxy_advice("https://mcp.example/mcp")
    monkeypatch.setenv("NO_PROXY", "localhost, .example")
    assert proxy_advice("https://mcp.example/mcp") == ""


ROOT = Path(casual_mcp_nb.__file__).parent
BUILDERS = {"AsyncClient", "Client", "create_ssl_context", "_Client"}


@pytest.mark.defect("M2")
def test_every_client_that_is_built_names_the_variable_or_reads_none() -> None:
    unnamed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted(ROOT.rglob("*.py"))
        # What builds a provider's client is called in one place, which names the variable.
        if path.parent.name != "builtin" and "httpx" in path.read_text()
        for node in _builders_outside(ast.parse(path.read_text()))
    ]
    # Called within `http_transport`.
    assert [place for place in unnamed if not place.startswith("servers/http_transport.py")] == []
    assert len(unnamed) <= 1


def _builders_outside(node: ast.AST, named: bool = False) -> list[ast.Call]:
    """Find the calls that build a client, unless they read no variables or are where variables are
    named.
    """
    if isinstance(node, ast.With | ast.AsyncWith):
        named = named or any(_called(item.context_expr) == "named_variables" for item in node.items)
    found: list[ast.Call] = []
    if isinstance(node, ast.Call) and _called(node) in BUILDERS and not named:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        # A client with a transport reads no proxies.
        if given.get("trust_env") != "False" and "transport" not in given:
            found.append(node)
    for child in ast.iter_child_nodes(node):
        found += _builders_outside(child, named)
    return found


def _called(node: ast.AST) -> str:
    """The last part of a called function's name, or empty."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
