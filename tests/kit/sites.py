"""Sites on the loopback: one with an AI catalog, server cards and a registry, and one that requires
a sign-in.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from kit.mcp_http import McpHttp
from kit.scripted_http import Reply, Request

CARD_TYPE = "application/mcp-server-card+json"
CATALOG = "/.well-known/ai-catalog.json"


class Site(McpHttp):
    """The site; use it as a context manager. Its MCP server is at `/mcp`.

    Attributes:
        documents: What is answered at a path: JSON, or a `Reply`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.documents: dict[str, Any] = {}

    @property
    def host(self) -> str:
        """The host with its port, as a person types it."""
        return self.url.removeprefix("http://")

    @property
    def asked(self) -> list[str]:
        """The paths that were asked for, in order."""
        return [request.path for request in self.seen]

    def list_card(
        self, name: str = "com.example/weather", *, remotes: list[Any] | None = None, **fields: Any
    ) -> None:
        """Put a card into the catalog, by default of the server here."""
        path = f"/{name.rpartition('/')[2]}/server-card"
        remotes = (
            [{"type": "streamable-http", "url": f"{self.url}/mcp"}] if remotes is None else remotes
        )
        self.documents[path] = {
            "name": name,
            "description": "Weather.",
            "version": "1.0.0",
            "remotes": remotes,
            **fields,
        }
        entries = self.documents.setdefault(CATALOG, {"specVersion": "0.9", "entries": []})[
            "entries"
        ]
        entries.append(
            {
                "identifier": f"urn:air:example.com:{name}",
                "displayName": name,
                "type": CARD_TYPE,
                "url": path,
            }
        )

    def register(
        self, name: str = "io.github.user/weather", version: str = "latest", **fields: Any
    ) -> None:
        """Put a server into the registry."""
        server = {"name": name, "description": "Weather.", "version": "1.2.0", **fields}
        self.documents[f"/v0/servers/{quote(name, safe='')}/versions/{version}"] = {
            "server": server,
            "_meta": {},
        }

    def _reply(self, request: Request) -> Reply:
        if request.method != "GET" or request.path == "/mcp":
            return super()._reply(request)
        document = self.documents.get(request.path)
        if isinstance(document, Reply):
            return document
        return Reply(404, {"error": "not found"}) if document is None else Reply(body=document)


def package(kind: str, identifier: str, **fields: Any) -> dict[str, Any]:
    """A package of a registry's entry."""
    return {
        "registryType": kind,
        "identifier": identifier,
        "version": "1.2.0",
        "transport": {"type": "stdio"},
        **fields,
    }


class OAuthSite(McpHttp):
    """An MCP server that requires a sign-in, and its authorization server, at one address.

    Attributes:
        registered: The redirect addresses of each client that registered.
        tokens: The access tokens that are valid, with their scopes.
        refresh_tokens: The refresh tokens that are valid.
        lifetime: Seconds until a token expires.
        metadata: More metadata of the authorization server.
        granted: The grants that were used, in order.
        refuses: Whether the person does not allow access.
    """

    def __init__(self, **metadata: Any) -> None:
        super().__init__()
        self.registered: dict[str, list[str]] = {}
        self.tokens: dict[str, str] = {}
        self.refresh_tokens: set[str] = set()
        self.lifetime = 3600
        self.metadata = metadata
        self.granted: list[str] = []
        self.refuses = False
        self._codes: dict[str, dict[str, str]] = {}

    def config(self, **fields: Any) -> dict[str, Any]:
        """The fields of a server's config that reach this server with a sign-in in a browser
        elsewhere.
        """
        sign_in = {"browser": "elsewhere", **fields.pop("sign_in", {})}
        return super().config(
            **{"auth": "oauth", "sign_in": sign_in, "init_timeout": 30.0, **fields}
        )

    @staticmethod
    def visit(address: str) -> str:
        """Open the page as a person elsewhere, who allows everything; return the address at which
        the browser ends.
        """

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                """Do not follow."""

        try:
            urllib.request.build_opener(Stay).open(address, timeout=10)
        except urllib.error.HTTPError as answer:
            return str(answer.headers["location"])
        raise AssertionError("The browser was not sent on.")

    def _reply(self, request: Request) -> Reply:
        path = urlsplit(request.path).path
        match request.method, path:
            case "GET", "/.well-known/oauth-protected-resource/mcp":
                return Reply(
                    body={"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
                )
            case "GET", "/.well-known/oauth-authorization-server":
                return Reply(body=self._described())
            case "POST", "/register" | "/clients":
                client = f"client-{len(self.registered) + 1}"
                self.registered[client] = request.body["redirect_uris"]
                return Reply(201, {**request.body, "client_id": client})
            case "GET", "/authorize":
                return self._authorized(dict(parse_qsl(urlsplit(request.path).query)))
            case "POST", "/token":
                return self._token(dict(parse_qsl(request.body.decode())))
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            challenge = (
                f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp",'
                ' scope="read"'
            )
            return Reply(401, {"error": "invalid_token"}, headers={"www-authenticate": challenge})
        return super()._reply(request)

    def _described(self) -> dict[str, Any]:
        endpoints = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in _ENDPOINTS.items()}
        methods = {
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
        }
        return {"issuer": self.url, **endpoints, **methods, **self.metadata}

    def _authorized(self, fields: dict[str, str]) -> Reply:
        answer = {"state": fields["state"], "iss": self.url}
        if self.refuses:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_hex(8)
            self._codes[answer["code"]] = fields
        return Reply(302, headers={"location": f"{fields['redirect_uri']}?{urlencode(answer)}"})

    def _token(self, fields: dict[str, str]) -> Reply:
        self.granted.append(fields["grant_type"])
        if fields["grant_type"] == "refresh_token":
            if fields["refresh_token"] not in self.refresh_tokens:
                return Reply(400, {"error": "invalid_grant"})
            return self._issued("read")
        asked = self._codes.pop(fields.get("code", ""), None)
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            asked is None
            or proof != asked["code_challenge"]
            or fields["redirect_uri"] != asked["redirect_uri"]
        ):
            return Reply(400, {"error": "invalid_grant"})
        return self._issued(asked.get("scope", ""))

    def _issued(self, scope: str) -> Reply:
        token, refresh = f"access-{secrets.token_hex(12)}", f"refresh-{secrets.token_hex(12)}"
        self.tokens[token] = scope
        self.refresh_tokens.add(refresh)
        more = {"expires_in": self.lifetime, "refresh_token": refresh, "scope": scope}
        return Reply(body={"access_token": token, "token_type": "Bearer", **more})


_ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}
