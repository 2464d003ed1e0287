"""Addresses that a server names for its sign-in: which are contacted, and who gets the credentials of the config."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from kit.scripted_http import Reply, Request, ScriptedHttp
from kit.sites import OAuthSite

from casual_mcp_nb import Session
from casual_mcp_nb.notebook.questions import AddressQuestion, Question

SECRET = "a-client-secret-0123456789"
CLIENT = {"client_id": "c", "client_secret": SECRET}


class Elsewhere(OAuthSite):
    """An authorization server at another address, which gives everybody a token."""

    @property
    def received(self) -> list[str]:
        """What was sent to it, as text."""
        return [f"{request.method} {request.path} {dict(request.headers)} {request.body!r}" for request in self.seen]

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
            return Reply(body={"resource": f"{self.url}/mcp", "authorization_servers": [self.names or self.url]})
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
def test_the_person_is_asked_once_and_sees_where_the_credentials_go(site: Naming, elsewhere: Elsewhere) -> None:
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
