"""Addresses that a server names for its sign-in: which are contacted, and who gets the credentials
of the config.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx2
import pytest
from casual_llm.messages import ImageContent, UserMessage
from kit.scripted_http import Reply, Request, ScriptedHttp
from kit.sites import OAuthSite
from mcp.server.mcpserver.exceptions import ToolError

from casual_mcp_nb import Session
from casual_mcp_nb.base.guarded_http import GuardedTransport
from casual_mcp_nb.base.named_address import (
    AddressGuard,
    AddressRefusedError,
    origin_of,
    without_credentials,
)
from casual_mcp_nb.bundled.web_server import fetch
from casual_mcp_nb.config.finding import look_up
from casual_mcp_nb.config.registry_entry import FoundServer
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.images import fetched_images
from casual_mcp_nb.notebook.questions import AddressQuestion, Question
from casual_mcp_nb.widgets._transcript import row_of

SECRET = "a-client-secret-0123456789"
CLIENT = {"client_id": "c", "client_secret": SECRET}


class Elsewhere(OAuthSite):
    """An authorization server at another address, which gives everybody a token."""

    @property
    def received(self) -> list[str]:
        """What was sent to it, as text."""
        return [
            f"{request.method} {request.path} {dict(request.headers)} {request.body!r}"
            for request in self.seen
        ]

    def _reply(self, request: Request) -> Reply:
        if (request.method, request.path) == ("POST", "/token"):
            fields = dict(parse_qsl(request.body.decode()))
            if fields["grant_type"] != "authorization_code":
                self.granted.append(fields["grant_type"])
                return self._issued("read")
        return super()._reply(request)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "casual_mcp_nb"


class Naming(OAuthSite):
    """An MCP server that names an authorization server elsewhere."""

    names = ""

    def _reply(self, request: Request) -> Reply:
        if request.path == "/.well-known/oauth-protected-resource/mcp":
            return Reply(
                body={
                    "resource": f"{self.url}/mcp",
                    "authorization_servers": [self.names or self.url],
                }
            )
        return super()._reply(request)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as site:
        yield site


@pytest.fixture
def site(elsewhere: Elsewhere) -> Iterator[Naming]:
    with Naming() as site:
        site.names = elsewhere.url
        site.tokens = elsewhere.tokens
        yield site


def connected(site: OAuthSite, *answers: Callable[[Question], None], **sign_in: Any) -> Session:
    """Open a session, and answer its questions as a person in a panel would."""
    session = Session({"servers": {"account": site.config(sign_in=sign_in)}}, quiet=True)
    if answers:
        session.questions.panel_opened()
    connecting = session.parts.engine.submit(session.parts.starter.view())[0]
    for answer in answers:
        answer(session.questions.wait(60))
    connecting.result(60)
    return session


def accept(question: Question) -> None:
    assert isinstance(question, AddressQuestion)
    # The panel must not say that the server asks, and gets the answer.
    assert row_of(question, 1)["ours"] is True
    question.answer({})


GRANTS = [
    {"grant": "client_credentials", **CLIENT},
    {"grant": "jwt_bearer", "assertion": SECRET},
    {"grant": "jwt_bearer", "assertion": SECRET, **CLIENT},
    CLIENT,
]


@pytest.mark.defect("N1")
@pytest.mark.parametrize("sign_in", GRANTS, ids=lambda sign_in: "-".join(sign_in))
def test_credentials_go_to_no_authorization_server_that_nobody_chose(
    site: Naming, elsewhere: Elsewhere, sign_in: dict[str, Any]
) -> None:
    with connected(site, **sign_in) as session:
        status = session.servers["account"]
    assert status.state == "failed"
    assert f'"issuer": "{elsewhere.url}"' in (status.error or "")
    assert [request.path for request in elsewhere.seen if request.method == "POST"] == []
    assert SECRET not in "".join(elsewhere.received)


@pytest.mark.defect("N1")
def test_the_person_is_asked_once_and_sees_where_the_credentials_go(
    site: Naming, elsewhere: Elsewhere
) -> None:
    texts: list[str] = []

    def look(question: Question) -> None:
        texts.append(question.text)
        accept(question)

    with connected(site, look, **GRANTS[0]) as session:
        assert session.servers["account"].state == "ready", session.servers["account"].error
    assert elsewhere.url in texts[0]
    assert site.url in texts[0]
    session.servers.accounts.remove("account")
    with connected(site, **GRANTS[0]) as session:
        assert session.servers["account"].state == "ready", session.servers["account"].error
    assert elsewhere.granted == ["client_credentials"] * 2


@pytest.mark.defect("N1")
def test_a_refresh_sends_the_secret_to_no_other_issuer_than_that_of_the_config(
    site: Naming, elsewhere: Elsewhere
) -> None:
    with connected(site, accept, **GRANTS[0]) as session:
        assert session.servers["account"].state == "ready", session.servers["account"].error
    elsewhere.tokens.clear()
    before = len(elsewhere.seen)
    with connected(site, **GRANTS[0], issuer="https://auth.example") as session:
        assert session.servers["account"].state == "failed"
    assert SECRET not in "".join(elsewhere.received[before:])
    assert [request.path for request in elsewhere.seen[before:] if request.method == "POST"] == []


@pytest.mark.defect("N1")
def test_without_metadata_the_secret_goes_to_no_fallback_instead_of_the_issuer(
    site: Naming, elsewhere: Elsewhere
) -> None:
    """The SDK's fallback is the MCP server's own `/token`."""
    site.names = "https://auth.example"
    with connected(site, **GRANTS[0], issuer=elsewhere.url) as session:
        assert session.servers["account"].state == "failed"
    assert [request for request in site.seen if request.path == "/token"] == []


@pytest.mark.defect("N1")
@pytest.mark.parametrize("issuer", [True, False])
def test_the_issuer_of_the_config_and_the_servers_own_origin_are_not_asked_about(
    elsewhere: Elsewhere, issuer: bool
) -> None:
    with Naming() as site:
        site.tokens = elsewhere.tokens
        site.names = elsewhere.url
        fields = {"issuer": elsewhere.url} if issuer else {}
        server = site if issuer else elsewhere
        with connected(server, **GRANTS[0], **fields) as session:
            assert session.servers["account"].state == "ready", session.servers["account"].error
    assert elsewhere.granted == ["client_credentials"]


@pytest.mark.defect("N1")
def test_a_person_who_declines_is_asked_once(site: Naming, elsewhere: Elsewhere) -> None:
    def decline(question: Question) -> None:
        assert isinstance(question, AddressQuestion)
        question.decline()

    with connected(site, decline, **GRANTS[0]) as session:
        assert session.servers["account"].state == "failed"
    assert elsewhere.granted == []


class Names:
    """Name servers of the tests: what each name leads to, one answer after another, and the last
    one for ever.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name in self.answers:
            self.asked.append(name)
            answers = self.answers[name]
            name = answers.pop(0) if len(answers) > 1 else answers[0]
        return self._real(name, port, *args, **options)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


@pytest.mark.defect("N2")
@pytest.mark.parametrize("where", ["resource_metadata", "authorization_servers", "endpoints"])
@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example"])
def test_a_sign_in_contacts_no_private_address_before_anybody_is_asked(
    names: Names, where: str, host: str
) -> None:
    """`mcp.example` plays a server elsewhere: by its name, it could be anywhere."""
    names.answers = {"mcp.example": ["127.0.0.1"], "inside.example": ["127.0.0.1"]}
    with Elsewhere() as inside, OAuthSite() as outside:
        port = int(inside.url.rpartition(":")[2])
        scheme = "http" if host == "127.0.0.1" else "https"
        there = f"{scheme}://{host}:{port}"
        address = outside.url.replace("127.0.0.1", "mcp.example")
        outside._answer = _naming(outside, address, there, where)
        with Session(
            {"servers": {"account": {**outside.config(), "url": f"{address}/mcp"}}}, quiet=True
        ) as session:
            status = session.servers["account"]
        assert status.state == "failed"
        assert inside.seen == []
        # A port that speaks no TLS sees no request in any case, so the reason counts too.
        assert "public internet" in (status.error or ""), status.error


def _naming(site: OAuthSite, address: str, there: str, where: str) -> Callable[[Request], Reply]:
    """Answer as a server whose metadata name another address in one place."""
    issuer = there if where == "authorization_servers" else address

    def answer(request: Request) -> Reply:
        if request.path == "/.well-known/oauth-protected-resource/mcp":
            return Reply(body={"resource": f"{address}/mcp", "authorization_servers": [issuer]})
        if request.path == "/.well-known/oauth-authorization-server":
            base = there if where == "endpoints" else address
            endpoints = {
                f"{name}_endpoint": f"{base}/{name}"
                for name in ("authorization", "token", "registration")
            }
            return Reply(
                body={"issuer": address, **endpoints, "code_challenge_methods_supported": ["S256"]}
            )
        named = there if where == "resource_metadata" else address
        challenge = f'Bearer resource_metadata="{named}/.well-known/oauth-protected-resource/mcp"'
        return Reply(401, {"error": "invalid_token"}, headers={"www-authenticate": challenge})

    return answer


@pytest.mark.defect("N2")
def test_a_name_that_leads_elsewhere_the_next_time_gains_nothing(names: Names) -> None:
    """Rebinding: the address that was judged is the one that is contacted."""

    async def get(url: str) -> int:
        guard = AddressGuard(permitted=("127.0.0.1",), encrypted=False)
        async with httpx2.AsyncClient(
            transport=GuardedTransport(guard, httpx2.create_ssl_context())
        ) as client:
            statuses = [(await client.get(url)).status_code for _ in range(3)]
        return statuses[-1]

    with ScriptedHttp(lambda _: Reply(200)) as site:
        names.answers = {"rebinding.example": ["127.0.0.1", "127.0.0.2"]}
        url = site.url.replace("127.0.0.1", "rebinding.example")
        assert asyncio.run(get(url)) == 200
    assert names.asked == ["rebinding.example"]
    assert {request.headers["host"] for request in site.seen} == {url.removeprefix("http://")}


@pytest.mark.defect("N2")
@pytest.mark.parametrize("leads_to", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"])
def test_a_found_server_whose_name_leads_to_a_private_network_is_not_contacted(
    names: Names, leads_to: str
) -> None:
    with ScriptedHttp(lambda _: Reply(200)) as site:
        names.answers = {"weather.example.org": [leads_to]}
        address = site.url.replace("http://127.0.0.1", "https://weather.example.org")
        found = FoundServer(
            "org.example/w", "https://example.org/card", "http", entry={"url": f"{address}/mcp"}
        )
        with Session({"servers": {}}, quiet=True) as session:
            status = session.servers.add("w", found, trust=True)
        assert status.state == "failed"
        assert "public internet" in (status.error or ""), status.error
        assert site.seen == []


REFUSED = [
    *(
        "http://mcp.example/",
        "https://127.0.0.1/",
        "https://localhost:8080/",
        "https://[::1]/",
        "https://10.1.2.3/",
    ),
    *(
        "https://169.254.169.254/latest",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://printer.local/",
    ),
    *(
        "https://db.internal/",
        "https://user@mcp.example/",
        "ftp://mcp.example/",
        "javascript:alert(1)",
        "https://",
        "https://[",
        "",
    ),
    *("https://a.localhost/", "https://10.1.2.3./", "https://[::ffff:10.0.0.1]/"),
]


@pytest.mark.defect("N2")
@pytest.mark.parametrize("url", REFUSED)
def test_what_the_guard_refuses_by_its_text(url: str) -> None:
    with pytest.raises(AddressRefusedError):
        AddressGuard("https://mcp.example/mcp").check(url)
    if origin_of(url) and "@" not in url and not url.startswith("ftp"):
        assert AddressGuard(accepted=[origin_of(url)]).check(url) is False


@pytest.mark.defect("N2")
@pytest.mark.parametrize(
    ("home", "url", "judged"),
    [
        ("https://mcp.example/mcp", "https://mcp.example/register", False),
        ("https://mcp.example/mcp", "https://MCP.example:443/register", False),
        ("https://mcp.example/mcp", "https://auth.example/", True),
        ("http://127.0.0.1:8000/mcp", "http://localhost:9000/", False),
        ("http://10.0.0.5:8000/mcp", "http://10.0.0.5:8000/token", False),
        ("", "https://93.184.216.34/", True),
    ],
)
def test_what_the_guard_lets_through_by_its_text(home: str, url: str, judged: bool) -> None:
    assert AddressGuard(home).check(url) is judged


async def _page(url: str) -> None:
    await fetch(url)


async def _image(url: str) -> None:
    await fetched_images([UserMessage(content=[ImageContent(source=url)])])


async def _catalog(url: str) -> None:
    await look_up(url.replace("http://", "https://"))


async def _registry(url: str) -> None:
    await look_up("io.github.user/weather", url.replace("http://", "https://"))


@pytest.mark.defect("N2")
@pytest.mark.parametrize("read", [_page, _image, _catalog, _registry])
@pytest.mark.parametrize("answers", [["127.0.0.1"], ["10.0.0.1", "127.0.0.1"]])
def test_nobody_who_fetches_reaches_a_private_address_by_a_name(
    names: Names, read: Callable[[str], Awaitable[None]], answers: list[str]
) -> None:
    names.answers = {"inside.example": answers}
    with ScriptedHttp(lambda _: Reply(200)) as inside:
        with pytest.raises((ToolError, UsageError), match="public internet"):
            asyncio.run(read(inside.url.replace("127.0.0.1", "inside.example")))  # type: ignore[arg-type]
        assert inside.seen == []


@pytest.mark.defect("N2")
def test_a_redirect_is_judged_like_the_first_address(names: Names) -> None:
    with ScriptedHttp(lambda _: Reply(200)) as inside:
        there = inside.url.replace("127.0.0.1", "inside.example")
        with ScriptedHttp(lambda _: Reply(302, headers={"location": f"{there}/x"})) as outside:
            # The first is permitted as the tests' own address, and the second leads to another one.
            names.answers = {"inside.example": ["127.0.0.2"]}
            with pytest.raises(ToolError, match="public internet"):
                asyncio.run(fetch(outside.url, allowed=("127.0.0.1",)))
        assert inside.seen == []


@pytest.mark.defect("N2")
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
def test_behind_a_proxy_private_names_are_refused_and_unknown_ones_are_the_proxys(
    names: Names, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    async def get(url: str) -> None:
        transport = GuardedTransport(AddressGuard(), httpx2.create_ssl_context(), proxies=True)
        async with httpx2.AsyncClient(transport=transport) as client:
            await client.get(url)

    with ScriptedHttp(lambda _: Reply(502)) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        names.answers = {"inside.example": ["10.0.0.1"]}
        for url in ("https://inside.example/", "https://10.0.0.1/", "https://db.internal/"):
            with pytest.raises(AddressRefusedError):
                asyncio.run(get(url))
        assert proxy.seen == []
        with pytest.raises(httpx2.ProxyError):
            asyncio.run(get("https://known-to-the-proxy.invalid/"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:key@Example.com:8443/a?key=1#b", "https://example.com:8443/a"),
        ("https://user:key@[::1]:8443/a", "https://[::1]:8443/a"),
        ("http://desk:99999/v1", "http://desk:99999/v1"),
        ("server.py", ""),
    ],
)
def test_an_address_is_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
