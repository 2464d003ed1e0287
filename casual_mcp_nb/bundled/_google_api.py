"""Requests to Google's APIs through Google's own client, with advice for each error."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from casual_mcp_nb.bundled import google_account
from casual_mcp_nb.bundled._server import ToolError
from casual_mcp_nb.extract.mail import decoded_header

RETRIES = 2
"""How often a request is repeated after 429, 5xx, or 403 because of a limit, each time after a longer random pause."""
_SECONDS = 30
_SIGN_IN = "Run `casual-mcp-nb sign-in google`, then reconnect this server"


class GoogleApi:
    """One of Google's APIs, for the account that was signed in to.

    Args:
        name: Its name in the discovery documents, such as `gmail`.
        version: Its version there.
        endpoint: Its address; None for the one in the discovery document.
    """

    def __init__(self, name: str, version: str, endpoint: str | None = None) -> None:
        self._name, self._version, self._endpoint = name, version, endpoint

    @cached_property
    def service(self) -> Any:
        """The methods of the API, made from the discovery document that Google's client ships with: nothing is downloaded."""
        import httplib2
        from googleapiclient.discovery import build

        options = {"api_endpoint": self._endpoint} if self._endpoint else None
        http = httplib2.Http()
        return build(self._name, self._version, http=http, static_discovery=True, client_options=options)

    @cached_property
    def _credentials(self) -> Any:
        return google_account.credentials()

    def run(self, request: Any) -> dict[str, Any]:
        """Send a request to Google.

        Args:
            request: What a method of `service` returns.

        Raises:
            ToolError: It failed; the text says what to do, and has nothing secret in it.
        """
        import httplib2
        from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError
        from google_auth_httplib2 import AuthorizedHttp
        from googleapiclient.errors import HttpError

        try:
            # A connection is for one thread only, and calls run on several.
            http = AuthorizedHttp(self._credentials, httplib2.Http(timeout=_SECONDS))
            answer = request.execute(http=http, num_retries=RETRIES)
        except google_account.SignInError as error:
            raise ToolError(f"{str(error).capitalize()}. {_SIGN_IN}.") from None
        except HttpError as error:
            raise ToolError(_advice(error.status_code, decoded_header(str(error.reason))[:200])) from None
        except RefreshError:
            raise ToolError(f"Google no longer accepts the sign-in: it was revoked, or has expired. {_SIGN_IN}.") from None
        except (TransportError, GoogleAuthError, httplib2.HttpLib2Error, OSError) as error:
            raise ToolError(f"Google cannot be reached: {type(error).__name__}. Try again later.") from None
        if not isinstance(answer, dict):
            raise ToolError("Google's answer is not JSON. Try again later.")
        return answer


def rows(answer: dict[str, Any], name: str, limit: int) -> list[dict[str, Any]]:
    """Collect the objects in a list of a response, at most `limit` of them."""
    values = answer.get(name)
    return [each for each in values[:limit] if isinstance(each, dict)] if isinstance(values, list) else []


def _advice(status: int, reason: str) -> str:
    detail = f" Google says: {reason}" if reason else ""
    match status:
        case 401:
            return f"Google refuses the sign-in (401). {_SIGN_IN}.{detail}"
        case 403:
            return (
                "Google does not allow this (403): the account has not granted it, the API is not enabled in the console for "
                f"your client, or a limit is reached.{detail}"
            )
        case 404 | 410:
            return f"There is nothing with this id, or it was deleted ({status}).{detail}"
        case 429:
            return f"Too many requests (429), also after {RETRIES} more attempts. Wait a minute.{detail}"
        case _ if status >= 500:
            return f"Google has a problem ({status}), also after {RETRIES} more attempts. Try again later.{detail}"
        case _:
            return f"Google refused the request ({status}).{detail}"
