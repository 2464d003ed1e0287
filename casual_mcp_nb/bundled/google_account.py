"""The Google account that a person has signed in to: its grants, its token files, sign-in and
sign-out.

One file has the granted permissions, another one the tokens, which only sign-in, sign-out and the
servers' own processes read. Importing this module imports nothing of Google's.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urljoin, urlsplit

from mcp.server.mcpserver.exceptions import ToolError

from casual_mcp_nb.base.files import (
    MAX_ACCOUNT_BYTES,
    NotPrivateError,
    account_file_problem,
    accounts_folder,
    read_account_file,
    write_account_file,
)
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.bundled._mail import decoded_header
from casual_mcp_nb.errors import CasualMcpError, shown

if TYPE_CHECKING:
    from google.oauth2.credentials import Credentials


GRANTS = {
    "gmail-read": "https://www.googleapis.com/auth/gmail.readonly",
    "gmail-send": "https://www.googleapis.com/auth/gmail.send",
    "calendar-read": "https://www.googleapis.com/auth/calendar.events.readonly",
    "calendar": "https://www.googleapis.com/auth/calendar.events",
}
"""The permissions of an account, and Google's scope for each:
https://developers.google.com/identity/protocols/oauth2/scopes.
"""

_IDENTITY = ("openid", "https://www.googleapis.com/auth/userinfo.email")
_SECONDS = 30
_VERSION = 1
"""The version of the account's files."""
_TALKATIVE = {"requests_oauthlib", "oauthlib", "urllib3", "google_auth_oauthlib"}
"""Libraries that log tokens, codes or addresses with them at the level DEBUG."""


class SignInError(CasualMcpError):
    """A sign-in that did not succeed. Its text has nothing secret in it."""


@dataclass(frozen=True)
class Account:
    """An account that was signed in to, and the permissions that the person granted: keys of
    `GRANTS`.
    """

    email: str
    grants: tuple[str, ...]


def folder() -> Path:
    """Locate the folder of the account's files."""
    return accounts_folder() / "google"


def client_file() -> Path:
    """Locate the file of the person's own Google client."""
    return folder() / "client.json"


def account() -> Account | None:
    """Look up the signed-in account, or None if there is none. The tokens are not read."""
    try:
        fields = _read(_grants_file())
        grants = tuple(name for name in GRANTS if name in fields["grants"])
        if not _tokens_file().is_file() or account_file_problem(_tokens_file()):
            return None
        return Account(str(fields["email"])[:320], grants)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def missing(*one_of: str) -> str:
    """Explain why a server that needs one of these grants cannot run, or empty if it can."""
    signed_in = account()
    if signed_in is None:
        for file in (_grants_file(), _tokens_file()):
            if problem := account_file_problem(file):
                return problem
        # That of the tokens is the same.
        return _version_problem(_grants_file()) or "no Google account is signed in"
    if set(one_of).isdisjoint(signed_in.grants):
        return f"the Google account has not granted {' or '.join(one_of)}"
    return ""


def credentials() -> Credentials:
    """Load the credentials of the account, which refresh their access token when needed."""
    from google.oauth2.credentials import Credentials

    try:
        tokens = _read(_tokens_file())
        return Credentials(  # type: ignore[no-untyped-call]
            None,
            refresh_token=tokens["refresh_token"],
            token_uri=tokens["token_uri"],
            client_id=tokens["client_id"],
            client_secret=tokens["client_secret"],
        )
    except NotPrivateError as error:
        raise SignInError(f"the sign-in to Google is not used: {error}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SignInError(f"not signed in to Google ({type(error).__name__})") from None


class SignIn:
    """A sign-in: the address that a browser opens, and the exchange once Google redirects back.

    It is OAuth 2.0 for native apps (RFC 8252): the browser is sent to an address of this computer,
    with PKCE and a state.

    Args:
        client: The file of the person's own client, as Google's console offers it for download.
        grants: Keys of `GRANTS`: all that is requested, besides the account's address.
        redirect: The address on this computer that the browser is sent to,
            `http://127.0.0.1:PORT/`.

    Attributes:
        address: The address to open in a browser.

    Raises:
        SignInError: The file cannot be used.
    """

    def __init__(self, client: Path, grants: Sequence[str], redirect: str) -> None:
        from google_auth_oauthlib.flow import Flow

        self._grants = tuple(grants)
        try:
            config = _read(client, own=client == client_file())
            if "installed" not in config:
                raise SignInError(
                    f"{client} is not of a client for desktop apps: create one of that type."
                )
            scopes = [*_IDENTITY, *(GRANTS[name] for name in grants)]
            self._flow = Flow.from_client_config(config, scopes, redirect_uri=redirect)
            self.address, self._state = self._flow.authorization_url(prompt="consent")
        except OSError as error:
            raise SignInError(
                f"{client} cannot be read: {error.strerror or type(error).__name__}."
            ) from None
        except NotPrivateError as error:
            raise SignInError(f"The client's file is not used: {error}.") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SignInError(f"{client} is not a client file of Google.") from None

    def expects(self, redirected: str) -> bool:
        """Check whether an address is the one that this sign-in waits for: it has the state that
        only Google knows.
        """
        return hmac.compare_digest(_field(redirected, "state").encode(), self._state.encode())

    def finish(self, redirected: str) -> Account:
        """Exchange the code in the address of Google's redirect for tokens, and save them.

        The granted permissions can be fewer than requested.
        """
        import requests
        from oauthlib.oauth2 import OAuth2Error

        if not self.expects(redirected):
            raise SignInError(
                "The address does not belong to this sign-in (its state differs). Nothing was"
                " saved."
            )
        if refusal := _field(redirected, "error"):
            reason = f"Google says {_plain(refusal)}"
            if refusal == "access_denied":
                reason = "you did not allow it"
            raise SignInError(f"Not signed in: {reason}.")
        code = _field(redirected, "code")
        if not code:
            raise SignInError(
                "The address has no code from Google: copy all of it from the address bar."
            )
        try:
            with _nothing_logged():
                self._fetch(code)
        except OAuth2Error as error:
            raise SignInError(
                f"Google refused the sign-in: {_plain(error.error or type(error).__name__)}. Try"
                " again."
            ) from None
        except requests.RequestException as error:
            raise SignInError(f"Google cannot be reached: {type(error).__name__}.") from None
        return self._saved()

    def _fetch(self, code: str) -> None:
        session: Any = self._flow.oauth2session
        try:
            self._flow.fetch_token(code=code, timeout=_SECONDS)
        except Warning as changed:
            # oauthlib's way to say that the granted scopes are not the requested ones: the person
            # ticked some of them.
            session.token = getattr(changed, "token")  # noqa: B009

    def _saved(self) -> Account:
        token: Any = self._flow.oauth2session.token
        config = self._flow.client_config
        granted = token.get("scope") or ()
        if isinstance(granted, str):
            granted = granted.split()
        grants = tuple(name for name in self._grants if GRANTS[name] in granted)
        if not token.get("refresh_token"):
            raise SignInError(
                "Google gave no lasting access. Remove the app at"
                " https://myaccount.google.com/connections first."
            )
        if not grants:
            raise SignInError(
                "Nothing was granted, so nothing was saved. Tick the permissions for the servers on"
                " Google's page."
            )
        signed_in = Account(_email(token.get("id_token")), grants)
        tokens = {name: config[name] for name in ("client_id", "client_secret", "token_uri")}
        tokens["refresh_token"] = token["refresh_token"]
        granted_to = {"email": signed_in.email, "grants": grants}
        try:
            for file, fields in ((_tokens_file(), tokens), (_grants_file(), granted_to)):
                write_account_file(file, json.dumps({"version": _VERSION, **fields}))
        except NotPrivateError as error:
            raise SignInError(f"{error}.") from None
        return signed_in


def sign_out() -> bool:
    """Revoke the account's tokens at Google and delete the files in any case; return whether Google
    confirmed it.
    """
    import requests

    if account() is None and not _tokens_file().exists():
        raise SignInError("No one is signed in to Google.")
    try:
        tokens = _read(_tokens_file())
        with _nothing_logged():
            # https://developers.google.com/identity/protocols/oauth2/native-app#tokenrevoke
            answer = requests.post(
                urljoin(tokens["token_uri"], "revoke"),
                data={"token": tokens["refresh_token"]},
                timeout=_SECONDS,
                allow_redirects=False,
            )
        return answer.status_code == 200 or (
            answer.status_code == 400 and "invalid_token" in answer.text[:1000]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
    finally:
        for file in (_tokens_file(), _grants_file()):
            file.unlink(missing_ok=True)


def _grants_file() -> Path:
    return folder() / "account.json"


def _tokens_file() -> Path:
    return folder() / "token.json"


def _read(path: Path, own: bool = True) -> dict[str, Any]:
    """Read a JSON object from a file of the account, or from one that the person names."""
    fields = json.loads(read_account_file(path) if own else path.read_bytes()[:MAX_ACCOUNT_BYTES])
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    # The first files have no version.
    if own and fields.get("version", _VERSION) != _VERSION:
        raise ValueError("another version")
    return fields


def _version_problem(path: Path) -> str:
    """Explain that a later version of the package wrote a file, or return an empty text."""
    try:
        version = json.loads(read_account_file(path)).get("version", _VERSION)
    except (OSError, ValueError, AttributeError):
        return ""
    if version == _VERSION:
        return ""
    return (
        f"another version of casual_mcp_nb wrote {shown(path)}: update the package, or sign in"
        " again"
    )


def _field(address: str, name: str) -> str:
    try:
        query = urlsplit(address.strip()[:10_000]).query
        return parse_qs(query, max_num_fields=50).get(name, [""])[0]
    except ValueError:
        return ""


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "_-. " else "?" for c in text[:80])


def _email(id_token: Any) -> str:
    """Read the address in an ID token.

    Its signature need not be checked, since it came from Google's own server.
    """
    from google.auth import jwt

    try:
        claims = jwt.decode(id_token, verify=False)  # type: ignore[no-untyped-call]
        return str(claims["email"])[:320]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


@contextmanager
def _nothing_logged() -> Iterator[None]:
    """Silence the loggers of libraries that log secrets."""
    silenced = []
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] not in _TALKATIVE:
            continue
        logger = logging.getLogger(name)
        if not logger.disabled:
            logger.disabled = True
            silenced.append(logger)
    try:
        yield
    finally:
        for logger in silenced:
            logger.disabled = False


RETRIES = 2
"""How often a request is repeated after 429, 5xx, or 403 because of a limit, each time after a
longer random pause.
"""
_SIGN_IN = "Run `casual-mcp-nb sign-in google`, then reconnect this server"


class GoogleApi:
    """One of Google's APIs, for the account that was signed in to."""

    def __init__(self, name: str, version: str, endpoint: str | None = None) -> None:
        self._name, self._version, self._endpoint = name, version, endpoint

    @cached_property
    def service(self) -> Any:
        """The methods of the API, made from the discovery document that Google's client ships with:
        nothing is downloaded.
        """
        import httplib2
        from googleapiclient.discovery import build

        options = {"api_endpoint": self._endpoint} if self._endpoint else None
        http = httplib2.Http()
        return build(
            self._name, self._version, http=http, static_discovery=True, client_options=options
        )

    @cached_property
    def _credentials(self) -> Any:
        return credentials()

    def run(self, request: Any) -> dict[str, Any]:
        """Send a request that a method of `service` made.

        The text of a ToolError has the remedy, and nothing secret.
        """
        import httplib2
        from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError
        from google_auth_httplib2 import AuthorizedHttp
        from googleapiclient.errors import HttpError

        try:
            # A connection is for one thread only, and calls run on several.
            http = AuthorizedHttp(self._credentials, httplib2.Http(timeout=_SECONDS))
            answer = request.execute(http=http, num_retries=RETRIES)
        except SignInError as error:
            raise ToolError(f"{str(error).capitalize()}. {_SIGN_IN}.") from None
        except HttpError as error:
            raise ToolError(
                _advice(error.status_code, decoded_header(str(error.reason))[:200])
            ) from None
        except RefreshError:
            raise ToolError(
                f"Google no longer accepts the sign-in: it was revoked, or has expired. {_SIGN_IN}."
            ) from None
        except (TransportError, GoogleAuthError, httplib2.HttpLib2Error, OSError) as error:
            raise ToolError(
                f"Google cannot be reached: {type(error).__name__}. Try again later."
            ) from None
        if not isinstance(answer, dict):
            raise ToolError("Google's answer is not JSON. Try again later.")
        return answer


def rows(answer: dict[str, Any], name: str, limit: int) -> list[dict[str, Any]]:
    """Collect the objects in a list of a response, at most `limit` of them."""
    values = answer.get(name)
    if not isinstance(values, list):
        return []
    return of_type(values[:limit], dict)


def _advice(status: int, reason: str) -> str:
    detail = f" Google says: {reason}" if reason else ""
    match status:
        case 401:
            return f"Google refuses the sign-in (401). {_SIGN_IN}.{detail}"
        case 403:
            return (
                "Google does not allow this (403): the account has not granted it, the API is not"
                f" enabled in the console for your client, or a limit is reached.{detail}"
            )
        case 404 | 410:
            return f"There is nothing with this id, or it was deleted ({status}).{detail}"
        case 429:
            return (
                f"Too many requests (429), even after {RETRIES} more attempts. Wait a"
                f" minute.{detail}"
            )
        case _ if status >= 500:
            return (
                f"Google has a problem ({status}), even after {RETRIES} more attempts. Try again"
                f" later.{detail}"
            )
        case _:
            return f"Google refused the request ({status}).{detail}"
