from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.exposed import EXPOSED
from kit.google import CLIENT_SECRET, Google
from kit.secrets import assert_nowhere

from casual_mcp_nb.base.files import write_account_file
from casual_mcp_nb.bundled import google_account
from casual_mcp_nb.bundled.google_account import GRANTS, Account, SignIn, SignInError

REDIRECT = "http://127.0.0.1:1/"


def _flow(google: Google, tmp_path: Path, *grants: str) -> tuple[SignIn, str]:
    """A sign-in, and where the browser ends."""
    flow = SignIn(google.client_file(tmp_path / "client.json"), grants or ("gmail-read",), REDIRECT)
    return flow, httpx2.get(flow.address).headers["location"]


def test_a_sign_in_requests_only_the_given_grants_and_saves_tokens_privately(
    google, sign_in
) -> None:
    account = sign_in("gmail-read", "calendar")

    assert (
        account
        == google_account.account()
        == Account("ada@example.com", ("gmail-read", "calendar"))
    )
    identity = {"openid", "https://www.googleapis.com/auth/userinfo.email"}
    assert google.granted == {GRANTS["gmail-read"], GRANTS["calendar"], *identity}
    folder = google_account.folder()
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {
        "token.json": 0o600,
        "account.json": 0o600,
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert_nowhere(google.issued, folder / "account.json", account)
    # An access token is never on disk.
    assert_nowhere([token for token in google.issued if token.startswith("ya29")], folder)


def test_unticked_permissions_are_not_granted(google, sign_in) -> None:
    google.ticked = {GRANTS["gmail-read"]}
    assert sign_in("gmail-read", "gmail-send").grants == ("gmail-read",)
    assert google_account.missing("gmail-read") == ""
    assert "gmail-send" in google_account.missing("gmail-send")

    google.ticked = set()
    with pytest.raises(SignInError, match=r"[Nn]othing"):
        sign_in("gmail-read")


def test_a_refusal_saves_nothing(google: Google, tmp_path: Path) -> None:
    google.allowed = False
    flow, redirected = _flow(google, tmp_path)
    with pytest.raises(SignInError):
        flow.finish(redirected)
    assert google_account.account() is None
    assert not google_account.folder().exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda address: address.replace("state=", "state=x"),
        lambda address: address.replace("state=", "other="),
        lambda address: "http://127.0.0.1:1/?code=4/abc",
        lambda address: "nonsense",
        lambda address: "http://[",
    ],
)
def test_an_address_with_another_state_is_refused_before_google_is_asked(
    google: Google, tmp_path: Path, change: Any
) -> None:
    flow, redirected = _flow(google, tmp_path)
    before = len(google.seen)
    with pytest.raises(SignInError, match="state"):
        flow.finish(change(redirected))
    assert len(google.seen) == before
    assert google_account.account() is None


def test_a_code_is_of_use_to_the_sign_in_that_began_only(google: Google, tmp_path: Path) -> None:
    _, redirected = _flow(google, tmp_path)
    other = SignIn(tmp_path / "client.json", ("gmail-read",), REDIRECT)
    state = dict(httpx2.URL(other.address).params)["state"]
    with pytest.raises(SignInError, match="invalid_grant"):
        other.finish(str(httpx2.URL(redirected).copy_set_param("state", state)))
    assert google_account.account() is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"web": {}}', '{"installed": {}}', '{"installed": []}', "\xff"]
)
def test_a_file_that_is_not_of_a_desktop_client_is_refused(
    user_folder: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "client.json").write_text(text, encoding="latin-1")
    with pytest.raises(SignInError):
        SignIn(tmp_path / "client.json", ("gmail-read",), REDIRECT)


def test_signing_out_revokes_the_tokens_and_deletes_them(google, sign_in) -> None:
    sign_in("gmail-read")
    assert google_account.sign_out() is True
    assert not google.refresh_tokens
    assert google_account.account() is None
    assert list(google_account.folder().iterdir()) == []
    with pytest.raises(SignInError):
        google_account.sign_out()


def test_signing_out_deletes_the_tokens_also_where_google_cannot_be_asked(google, sign_in) -> None:
    sign_in("gmail-read")
    google.stop()
    assert google_account.sign_out() is False
    assert google_account.account() is None


def test_signing_out_succeeds_if_access_was_revoked_elsewhere(google, sign_in) -> None:
    sign_in("gmail-read")
    google.refresh_tokens.clear()
    assert google_account.sign_out() is True


def test_nothing_secret_is_logged_or_shown(
    google, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("requests_oauthlib.oauth2_session", "oauthlib", "urllib3.connectionpool"):
        caplog.set_level(logging.DEBUG, logger=name)
    flow, redirected = _flow(google, tmp_path)
    caplog.clear()
    account = flow.finish(redirected)
    credentials = google_account.credentials()
    google_account.sign_out()
    assert_nowhere(
        [*google.issued, CLIENT_SECRET], caplog.records, account, repr(flow), repr(credentials)
    )


@pytest.mark.parametrize("text", ["", "[]", '{"grants": 3}', '{"email": "x"}'])
def test_a_damaged_file_is_as_if_nobody_had_signed_in(user_folder: Path, text: str) -> None:
    write_account_file(google_account.folder() / "account.json", text)
    write_account_file(google_account.folder() / "token.json", "{}")
    assert google_account.account() is None
    with pytest.raises(SignInError):
        google_account.credentials()


def test_files_have_a_version_and_those_of_a_later_one_are_refused(google, sign_in) -> None:
    sign_in("gmail-read")
    files = [google_account.folder() / name for name in ("token.json", "account.json")]

    def set_version(version: dict[str, int]) -> None:
        for file in files:
            fields = json.loads(file.read_text())
            fields.pop("version", None)
            write_account_file(file, json.dumps({**fields, **version}))

    assert [json.loads(file.read_text())["version"] for file in files] == [1, 1]
    # The first files have none.
    set_version({})
    assert google_account.missing("gmail-read") == ""
    google_account.credentials()
    set_version({"version": 2})
    assert "update the package" in google_account.missing("gmail-read")
    with pytest.raises(SignInError):
        google_account.credentials()
    assert sign_in("gmail-read") == google_account.account()


@pytest.mark.defect("F9")
@pytest.mark.parametrize("exposed", EXPOSED)
@pytest.mark.parametrize("name", ["token.json", "account.json"])
def test_tokens_that_others_can_read_or_replace_are_not_used(
    google, sign_in, name: str, exposed: str
) -> None:
    sign_in("gmail-read")
    EXPOSED[exposed](google_account.folder() / name)
    assert google_account.account() is None
    reason = google_account.missing("gmail-read")
    assert "no Google account" not in reason
    if name == "token.json":
        with pytest.raises(SignInError, match="not used"):
            google_account.credentials()


@pytest.mark.defect("F9")
def test_signing_in_again_repairs_the_modes_and_refuses_links(
    google, sign_in, tmp_path: Path
) -> None:
    sign_in("gmail-read")
    folder = google_account.folder()
    (folder / "token.json").chmod(0o644)
    folder.chmod(0o777)
    folder.parent.chmod(0o777)
    assert sign_in("gmail-read") == google_account.account()
    assert google_account.missing("gmail-read") == ""
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SignInError, match="symbolic link"):
        sign_in("gmail-read")


@pytest.mark.defect("F9")
def test_a_saved_client_that_others_can_replace_is_not_used(
    google: Google, user_folder: Path, tmp_path: Path
) -> None:
    given = google.client_file(tmp_path / "client.json")
    # Where the person downloaded it to, its mode is as it is.
    given.chmod(0o644)
    assert SignIn(given, ("gmail-read",), REDIRECT).address
    write_account_file(google_account.client_file(), given.read_text())
    assert SignIn(google_account.client_file(), ("gmail-read",), REDIRECT).address
    google_account.client_file().chmod(0o666)
    with pytest.raises(SignInError, match="chmod 600"):
        SignIn(google_account.client_file(), ("gmail-read",), REDIRECT)
