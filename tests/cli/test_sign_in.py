"""`casual-mcp-nb sign-in` and `sign-out`, against a Google on the loopback."""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from kit.google import CLIENT_SECRET, Google
from kit.secrets import assert_nowhere

from casual_mcp_nb.bundled import anthropic_usage_server, google_account
from casual_mcp_nb.cli.app import main

Browser = Callable[[str], str | None]


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    with Google() as server:
        server.client_file(tmp_path / "client.json")
        yield server


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Run `sign-in google` with a person who opens the address in a browser, and types the text
    that `browser` returns.
    """
    typed, keyboard = os.pipe()
    terminal = os.fdopen(typed)
    monkeypatch.setattr(sys, "stdin", terminal)

    class Screen:
        """The printed output; the person acts as soon as there is an address."""

        def __init__(self, browser: Browser) -> None:
            self.text = ""
            self.encoding = "utf-8"
            self._browser: Browser | None = browser

        def write(self, text: str) -> int:
            self.text += text
            address = re.search(r"http://\S+/auth\S+", self.text)
            if address and self._browser is not None:
                browser, self._browser = self._browser, None
                threading.Thread(target=lambda: self._act(browser, address[0])).start()
            return len(text)

        def _act(self, browser: Browser, address: str) -> None:
            line = browser(address)
            if line is not None:
                os.write(keyboard, line.encode())

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

    def sign_in(browser: Browser, *words: str) -> tuple[int, str]:
        screen = Screen(browser)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", screen)
            code = main(["sign-in", "google", *words, "--client", str(tmp_path / "client.json")])
        return code, screen.text

    yield sign_in
    os.close(keyboard)
    terminal.close()


def _back(address: str) -> str:
    """Where Google sends the browser."""
    return httpx2.get(address).headers["location"]


def test_a_browser_on_this_computer_ends_the_sign_in_by_itself(
    google: Google, run: Callable[..., tuple[int, str]]
) -> None:
    pages: list[int] = []

    def browser(address: str) -> None:
        back = _back(address)
        # Other requests, and other sign-ins, are turned away.
        stray = [
            httpx2.URL(back).copy_with(path="/favicon.ico", query=b""),
            httpx2.URL(back).copy_set_param("state", "other"),
        ]
        pages.extend(httpx2.get(url).status_code for url in [*stray, back])

    code, printed = run(browser, "gmail-read", "calendar")

    assert (code, pages) == (0, [400, 400, 200])
    assert "ada@example.com" in printed
    account = google_account.account()
    assert account is not None
    assert account.grants == ("gmail-read", "calendar")
    assert_nowhere([*google.issued, CLIENT_SECRET], printed)
    # The file of the client is kept for the next time, as private as the tokens.
    assert stat.S_IMODE(google_account.client_file().stat().st_mode) == 0o600


def test_without_a_browser_here_the_address_is_pasted(
    google: Google, run: Callable[..., tuple[int, str]]
) -> None:
    code, _ = run(lambda address: f"\n  {_back(address)} \n")
    assert code == 0
    account = google_account.account()
    assert account is not None
    assert account.grants == ("gmail-read", "gmail-send", "calendar")


@pytest.mark.parametrize("line", ["http://127.0.0.1/?state=other&code=4/x\n", "4/just-a-code\n"])
def test_a_pasted_address_of_another_sign_in_is_refused(
    google: Google,
    run: Callable[..., tuple[int, str]],
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _ = run(lambda address: line)
    assert code == 1
    assert "state" in capsys.readouterr().err
    assert google_account.account() is None


def test_a_person_who_refuses_is_not_signed_in(
    google: Google, run: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    google.allowed = False
    code, _ = run(lambda address: f"{_back(address)}\n")
    assert (code, google_account.account()) == (1, None)
    assert "not allow" in capsys.readouterr().err


def test_unticked_permissions_are_reported(
    google: Google, run: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    google.ticked = {google_account.GRANTS["gmail-read"]}
    code, _ = run(lambda address: f"{_back(address)}\n", "gmail-read", "gmail-send")
    assert code == 0
    assert "gmail-send" in capsys.readouterr().err


def test_signing_out_revokes_and_deletes(
    google: Google, run: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    run(lambda address: f"{_back(address)}\n")
    assert main(["sign-out", "google"]) == 0
    assert "ada@example.com" in capsys.readouterr().out
    assert (google.refresh_tokens, google_account.account()) == (set(), None)
    assert main(["sign-out", "google"]) == 1


def test_without_a_client_file_it_says_how_to_make_one(
    google: Google, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sign-in", "google"]) == 1
    assert "--client" in capsys.readouterr().err


def test_an_admin_key_is_saved_and_deleted(
    google: Google, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("getpass.getpass", lambda _: "sk-ant-admin01-abcdefghijkl")
    assert main(["sign-in", "anthropic"]) == 0
    assert stat.S_IMODE(anthropic_usage_server.key_file().stat().st_mode) == 0o600
    assert main(["sign-out", "anthropic"]) == 0
    assert main(["sign-out", "anthropic"]) == 1
    monkeypatch.setattr("getpass.getpass", lambda _: "another-secret-key")
    assert main(["sign-in", "anthropic"]) == 1
    assert_nowhere(["sk-ant-admin01-abcdefghijkl", "another-secret-key"], capsys.readouterr().out)
