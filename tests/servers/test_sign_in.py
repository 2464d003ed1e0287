"""Signing in to a server: pasted from a browser elsewhere, kept in private files, and never
shown.
"""

from __future__ import annotations

import json
import logging
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kit.secrets import assert_nowhere
from kit.sites import OAuthSite

from casual_mcp_nb import Session
from casual_mcp_nb.cli.app import main
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.notebook.questions import Question, SignInQuestion
from casual_mcp_nb.servers.browser_answer import browser_is_here
from casual_mcp_nb.widgets._transcript import give, row_of


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "casual_mcp_nb" / "accounts" / "mcp"


@pytest.fixture
def site(folder: Path) -> Iterator[OAuthSite]:
    with OAuthSite() as site:
        yield site


Answer = Callable[[SignInQuestion], None]


def connected(site: OAuthSite, *answers: Answer, **fields: Any) -> Session:
    """Open a session, and answer its questions as a person in a panel would."""
    session = Session({"servers": {"account": site.config(**fields)}}, quiet=True)
    session.questions.panel_opened()
    connecting = session.parts.engine.submit(session.parts.starter.view())[0]
    for answer in answers:
        question: Question = session.questions.wait(60)
        assert isinstance(question, SignInQuestion)
        answer(question)
    connecting.result(60)
    return session


def paste(question: SignInQuestion) -> None:
    question.answer({"address": OAuthSite.visit(question.address)})


def test_a_person_elsewhere_pastes_the_address_at_which_the_browser_ended(
    site: OAuthSite, folder: Path
) -> None:
    with connected(site, paste) as session:
        assert session.servers["account"].state == "ready", session.servers["account"].error
        assert session.tools.call("account:a").result == "ok"
        (account,) = session.servers.accounts
        assert (account.server, account.issuer, account.scopes) == ("account", site.url, ("read",))
        assert account.expires is not None
        assert account.renewable
    (file,) = folder.iterdir()
    if os.name == "posix":
        assert [oct(path.stat().st_mode & 0o777) for path in (file, folder, folder.parent)] == [
            "0o600",
            "0o700",
            "0o700",
        ]


def test_it_is_remembered_renewed_and_forgotten(
    site: OAuthSite, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(site, paste):
        (file,) = folder.iterdir()
    # Time goes by.
    file.write_text(json.dumps({**json.loads(file.read_text()), "expires_at": 1.0}))
    with connected(site) as session:
        assert session.servers["account"].state == "ready", session.servers["account"].error
        assert site.granted == ["authorization_code", "refresh_token"]
    assert len(site.registered) == 1
    assert main(["accounts", "--json"]) == 0
    assert [row["server"] for row in json.loads(capsys.readouterr().out)] == ["account"]
    assert main(["accounts", "remove", "account"]) == 0
    with connected(site, paste) as session:
        session.servers.accounts.remove("account")
        assert len(session.servers.accounts) == 0
        with pytest.raises(UnknownNameError):
            session.servers.accounts.remove("account")


def test_an_address_of_another_sign_in_is_refused_and_the_question_stays_open(
    site: OAuthSite,
) -> None:
    def mistaken(question: SignInQuestion) -> None:
        right = OAuthSite.visit(question.address)
        for wrong in (
            re.sub("state=[^&]*", "state=other", right),
            right.partition("?")[0],
            "not an address",
            "x" * 20_000,
        ):
            with pytest.raises(UsageError):
                question.answer({"address": wrong})
        question.answer({"address": right})

    with connected(site, mistaken) as session:
        assert session.servers["account"].state == "ready"


def test_the_panel_shows_it_as_a_form(site: OAuthSite) -> None:
    def fill_in(question: SignInQuestion) -> None:
        row = row_of(question, 0)
        assert (row["kind"], [field["name"] for field in row["fields"]]) == ("form", ["address"])
        assert row["address"] == question.address
        give(question, "send", {"address": OAuthSite.visit(question.address)})

    with connected(site, fill_in) as session:
        assert session.servers["account"].state == "ready"


def test_the_code_alone_is_enough(site: OAuthSite) -> None:
    def code_only(question: SignInQuestion) -> None:
        question.answer(
            {"address": parse_qs(urlsplit(OAuthSite.visit(question.address)).query)["code"][0]}
        )

    with connected(site, code_only) as session:
        assert session.servers["account"].state == "ready"


def test_a_code_of_somebody_else_is_useless(site: OAuthSite) -> None:
    with connected(site, lambda question: question.answer({"address": "c0de"})) as session:
        status = session.servers["account"]
        assert status.state == "failed"
        assert site.tokens == {}


def test_a_browser_on_this_computer_needs_nothing_pasted(site: OAuthSite) -> None:
    def browse(question: SignInQuestion) -> None:
        target = OAuthSite.visit(question.address)
        with pytest.raises(urllib.error.HTTPError):
            # A stranger who guesses the port ends nothing.
            urllib.request.urlopen(re.sub("state=[^&]*", "state=other", target), timeout=10)
        assert b"You are signed in" in urllib.request.urlopen(target, timeout=10).read()

    with connected(site, browse) as session:
        assert session.servers["account"].state == "ready"
        assert len(session.questions) == 0


@pytest.mark.parametrize(
    "answer", [lambda question: question.decline(), lambda question: question.expire("x"), paste]
)
def test_a_sign_in_that_is_refused_is_asked_once_and_says_so(
    site: OAuthSite, answer: Answer
) -> None:
    site.refuses = True
    with connected(site, answer) as session:
        status = session.servers["account"]
        assert status.state == "failed"
        assert "Not signed in" in (status.error or "")


def test_where_nobody_can_be_asked_it_fails_without_waiting(site: OAuthSite) -> None:
    with Session({"servers": {"account": site.config()}}, quiet=True) as session:
        status = session.connect()["account"]
        assert status.state == "failed"
        assert "sign-in" in (status.error or "")


def test_a_document_is_the_clients_id_where_that_is_supported(folder: Path) -> None:
    document = "https://notebooks.example/client.json"
    with OAuthSite(client_id_metadata_document_supported=True) as site:
        asked: list[str] = []

        def look(question: SignInQuestion) -> None:
            asked.append(parse_qs(urlsplit(question.address).query)["client_id"][0])
            paste(question)

        with connected(site, look, sign_in={"client_metadata_url": document}) as session:
            assert session.servers["account"].state == "ready"
        assert asked == [document]
        assert site.registered == {}


def test_another_issuer_than_that_of_the_config_gets_nothing(site: OAuthSite) -> None:
    fields = {
        "client_id": "c",
        "client_secret": "a-client-secret-0123",
        "issuer": "https://auth.example",
    }
    with connected(site, sign_in=fields) as session:
        assert session.servers["account"].state == "failed"
    assert [
        request for request in site.seen if request.path.startswith(("/authorize", "/token"))
    ] == []


def test_a_token_that_the_server_repeats_is_masked(site: OAuthSite) -> None:
    site.results["a"] = lambda _arguments: {
        "content": [{"type": "text", "text": f"Bearer {list(site.tokens)[-1]}!"}]
    }
    with connected(site, paste) as session:
        result = session.tools.call("account:a").result
    assert_nowhere([*site.tokens], [result, session.tools.calls])
    assert "!" in str(result)


def test_no_token_is_shown_logged_or_recorded(
    site: OAuthSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with connected(site, paste) as session:
        session.tools.call("account:a")
        shown = [
            session.servers,
            session.servers.accounts,
            session.servers.accounts[0],
            session.servers.wire(),
            session.status,
        ]
        texts = [*map(str, shown), *map(repr, shown), session.servers.wire().to_jsonl()]
        verifiers = [request.body.decode() for request in site.seen if request.path == "/token"]
    secrets = [
        *site.tokens,
        *site.refresh_tokens,
        *(parse_qs(body)["code_verifier"][0] for body in verifiers),
    ]
    assert_nowhere(secrets, [*texts, caplog.text])


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_a_file_that_others_could_read_counts_as_absent(site: OAuthSite, folder: Path) -> None:
    with connected(site, paste):
        (file,) = folder.iterdir()
    file.chmod(0o644)
    with connected(site, paste) as session:
        assert session.servers["account"].state == "ready"
        assert len(session.servers.accounts) == 1
    file.unlink()
    file.symlink_to(folder.parent.parent / "elsewhere.json")
    with connected(site, paste) as session:
        assert session.servers["account"].state == "ready"
        # What was a link is a file again.
        assert not file.is_symlink()


@pytest.mark.parametrize(
    ("choice", "environ", "here"),
    [
        ("here", {"SSH_CONNECTION": "1"}, True),
        ("elsewhere", {"DISPLAY": ":0"}, False),
        ("auto", {"DISPLAY": ":0", "SSH_CONNECTION": "1"}, False),
        ("auto", {"DISPLAY": ":0", "JUPYTERHUB_USER": "ada"}, False),
        ("auto", {"BROWSER": "firefox"}, True),
    ],
)
def test_a_browser_is_opened_only_where_the_person_is(
    choice: str, environ: dict[str, str], here: bool
) -> None:
    assert browser_is_here(choice, environ) is here
