"""Google on the loopback: OAuth 2.0 with PKCE, Gmail and Calendar, as the discovery documents
describe them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import googleapiclient
from kit.scripted_http import Reply, Request, ScriptedHttp

CLIENT_SECRET = "GOCSPX-client-secret-9f2c"
_DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"

Answer = Callable[[dict[str, str], Any], Any]


@cache
def methods() -> tuple[
    tuple[str, str, re.Pattern[str], frozenset[str], frozenset[str], frozenset[str]], ...
]:
    """Name, HTTP method, path, parameters, required parameters and scopes of each method of Gmail's
    and Calendar's API.
    """
    rows = []
    for name in ("gmail.v1", "calendar.v3"):
        document = json.loads((_DOCUMENTS / f"{name}.json").read_text())
        common = set(document["parameters"])

        def walk(resource: Mapping[str, Any], prefix: str, base: str, common: set[str]) -> None:
            for key, method in resource.get("methods", {}).items():
                pattern = re.compile(
                    "/"
                    + base
                    + re.sub(
                        r"\{(\w+)\}", r"(?P<\1>[^/?]+)", method.get("flatPath", method["path"])
                    )
                )
                parameters = method.get("parameters", {})
                required = {each for each, facts in parameters.items() if facts.get("required")}
                scopes = frozenset(method.get("scopes", ()))
                rows.append(
                    (
                        prefix + key,
                        method["httpMethod"],
                        pattern,
                        frozenset({*parameters, *common}),
                        required,
                        scopes,
                    )
                )
            for key, child in resource.get("resources", {}).items():
                walk(child, f"{prefix}{key}.", base, common)

        walk(document, f"{name.partition('.')[0]}.", document["servicePath"], common)
    return tuple(rows)


class Google(ScriptedHttp):
    """A Google with one account. Use it as a context manager.

    Args:
        answers: By method, such as `gmail.users.messages.list`: what it answers, from the
            parameters and the body.

    Attributes:
        calls: The method, parameters and body of each call of an API that was let in.
        allowed: Whether the person allows what a sign-in asks for.
        ticked: The scopes that the person ticks; None for all.
        faults: Replies to the next calls of a method, instead of its answers.
        refresh_tokens: Those that are valid.
        granted: The scopes of the account.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        super().__init__(self._reply)
        self.answers = dict(answers or {})
        self.calls: list[tuple[str, dict[str, str], Any]] = []
        self.allowed = True
        self.ticked: set[str] | None = None
        self.faults: dict[str, list[Reply]] = {}
        self.refresh_tokens: set[str] = set()
        self.granted: set[str] = set()
        self.issued: list[str] = []
        self.refreshes = 0
        self._valid = ""
        self._requests: dict[str, dict[str, str]] = {}

    def client_file(self, path: Path) -> Path:
        """Write the file that Google's console offers for a desktop client, with this server's
        addresses.
        """
        fields = {
            "client_id": "1234.apps.googleusercontent.com",
            "client_secret": CLIENT_SECRET,
            "auth_uri": f"{self.url}/auth",
            "token_uri": f"{self.url}/token",
            "redirect_uris": ["http://localhost"],
        }
        path.write_text(json.dumps({"installed": fields}))
        return path

    def expire(self) -> None:
        """Make the access token that is in use invalid, as happens after an hour."""
        self._valid = ""

    def _reply(self, request: Request) -> Reply:
        parts = urlsplit(request.path)
        if parts.path == "/auth":
            return self._consent(dict(parse_qsl(parts.query)))
        if parts.path in ("/token", "/revoke"):
            form = {
                name: values[0] for name, values in parse_qs((request.body or b"").decode()).items()
            }
            return self._token(form) if parts.path == "/token" else self._revoke(form)
        return self._api(request, parts.path, dict(parse_qsl(parts.query)))

    def _consent(self, asked: dict[str, str]) -> Reply:
        back = urlsplit(asked["redirect_uri"])
        assert (back.scheme, back.hostname) == ("http", "127.0.0.1")
        assert (asked["response_type"], asked["code_challenge_method"], asked["access_type"]) == (
            "code",
            "S256",
            "offline",
        )
        if not self.allowed:
            answer = {"error": "access_denied", "state": asked["state"]}
        else:
            code = self._issue("4/code")
            self._requests[code] = asked
            answer = {"state": asked["state"], "code": code, "scope": asked["scope"]}
        return Reply(302, headers={"location": f"{asked['redirect_uri']}?{urlencode(answer)}"})

    def _token(self, form: dict[str, str]) -> Reply:
        if form["grant_type"] == "refresh_token":
            self.refreshes += 1
            if (
                form["refresh_token"] not in self.refresh_tokens
                or form["client_secret"] != CLIENT_SECRET
            ):
                return Reply(
                    400,
                    {
                        "error": "invalid_grant",
                        "error_description": "Token has been expired or revoked.",
                    },
                )
            return Reply(body=self._tokens())
        asked = self._requests.pop(form["code"], None)
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
            .decode()
            .rstrip("=")
        )
        if (
            asked is None
            or challenge != asked["code_challenge"]
            or form["redirect_uri"] != asked["redirect_uri"]
        ):
            return Reply(
                400, {"error": "invalid_grant", "error_description": "Malformed auth code."}
            )
        scopes = set(asked["scope"].split())
        self.granted = scopes if self.ticked is None else scopes & {*self.ticked, "openid"}
        refresh = self._issue("1//refresh")
        self.refresh_tokens.add(refresh)
        claims = (
            base64.urlsafe_b64encode(json.dumps({"email": "ada@example.com"}).encode())
            .decode()
            .rstrip("=")
        )
        return Reply(
            body={**self._tokens(), "refresh_token": refresh, "id_token": f"e30.{claims}.c2ln"}
        )

    def _tokens(self) -> dict[str, Any]:
        self._valid = self._issue("ya29.access")
        scopes = " ".join(sorted(self.granted))
        return {
            "access_token": self._valid,
            "expires_in": 3599,
            "scope": scopes,
            "token_type": "Bearer",
        }

    def _revoke(self, form: dict[str, str]) -> Reply:
        if form["token"] not in self.refresh_tokens:
            return Reply(400, {"error": "invalid_token"})
        self.refresh_tokens.remove(form["token"])
        self._valid = ""
        return Reply(body={})

    def _issue(self, kind: str) -> str:
        self.issued.append(f"{kind}-{len(self.issued)}-secret-7d1b")
        return self.issued[-1]

    def _api(self, request: Request, path: str, params: dict[str, str]) -> Reply:
        row = next(
            (row for row in methods() if row[1] == request.method and row[2].fullmatch(path)), None
        )
        if row is None:
            return problem(404, "notFound", "Not Found")
        name, _, pattern, parameters, required, scopes = row
        match = pattern.fullmatch(path)
        params = {**params, **(match.groupdict() if match else {})}
        assert set(params) <= parameters, (name, params)
        assert required <= set(params), (name, params)
        if not self._valid or request.headers.get("authorization") != f"Bearer {self._valid}":
            return problem(401, "authError", "Invalid Credentials")
        if not scopes & self.granted:
            return problem(
                403, "insufficientPermissions", "Request had insufficient authentication scopes."
            )
        if self.faults.get(name):
            return self.faults[name].pop(0)
        self.calls.append((name, params, request.body))
        return Reply(body=self.answers[name](params, request.body))


def problem(status: int, reason: str, message: str) -> Reply:
    """An error in the form of Google's APIs."""
    errors = [{"domain": "global", "reason": reason, "message": message}]
    return Reply(status, {"error": {"code": status, "message": message, "errors": errors}})
