"""Sign in to servers with OAuth: who is asked, where the browser's answer arrives, and where tokens
are kept.

The flow is the SDK's: RFC 9728 and 8414 find the authorization server, RFC 7591 or a metadata
document registers the client, and PKCE protects the code. Here are the person's part, other grants,
and proofs of possession (DPoP, RFC 9449).

Tokens are in files that nobody else can read, see `write_account_file`. They are never shown,
logged or recorded.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import html
import json
import logging
import os
import secrets
import socket
import sys
import time
import webbrowser
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import SignedJWTParameters
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyHttpUrl, ValidationError

from casual_mcp_nb.base.config import ServerConfig, SignInConfig
from casual_mcp_nb.base.files import (
    NotPrivateError,
    accounts_folder,
    read_account_file,
    write_account_file,
)
from casual_mcp_nb.base.mcp import Account, NobodyToAsk, SignInRequest
from casual_mcp_nb.base.proxies import named_variables
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.contacts import ClientFactory, Contacts, SignInError
from casual_mcp_nb.servers.handlers import OWN_REQUEST, PersonToAsk

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 900.0
"""How long a sign-in waits for the person, if nothing else limits it."""
UNASKED_SECONDS = 120.0
"""How long it waits for the browser where no one can be asked."""
MAX_ANSWER = 10_000
_VERSION = 1
_CALLBACK = "/callback"
_HERE = "127.0.0.1"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ELSEWHERE = (
    *(
        "SSH_CONNECTION",
        "SSH_TTY",
        "JUPYTERHUB_USER",
        "JUPYTERHUB_SERVICE_PREFIX",
        "COLAB_RELEASE_TAG",
    ),
    *("KUBERNETES_SERVICE_HOST", "CODESPACES", "REMOTE_CONTAINERS", "VSCODE_AGENT_FOLDER"),
)
"""Variables of the environments whose browser is on another computer."""


def browser_is_here(choice: str, environ: Mapping[str, str] | None = None) -> bool:
    """Decide whether a browser that is opened here reaches the person: it does not on a hub, over
    ssh, or in a container.
    """
    variables = os.environ if environ is None else environ
    if choice != "auto":
        return choice == "here"
    if variables.get("BROWSER"):
        return True
    if any(variables.get(name) for name in _ELSEWHERE) or Path("/.dockerenv").exists():
        return False
    return sys.platform in ("win32", "darwin") or bool(
        variables.get("DISPLAY") or variables.get("WAYLAND_DISPLAY")
    )


def _folder() -> Path:
    return accounts_folder() / "mcp"


class AccountFile:
    """The tokens of one server, in a file with mode 0600. It is the SDK's token storage.

    Attributes:
        record: The contents, or empty.
    """

    def __init__(self, server: str, url: str, client_id: str | None) -> None:
        digest = hashlib.sha256(json.dumps([url, client_id]).encode()).hexdigest()
        self.path = _folder() / f"{digest[:40]}.json"
        self.record: dict[str, Any] = {}
        self.more: Callable[[], dict[str, Any]] = dict
        self.learn: Callable[[Collection[str]], None] = lambda _secrets: None
        self._server = server
        self._head = {"version": _VERSION, "server": server, "url": url}

    async def load(self) -> None:
        """Read the file. One that others could have read or written counts as absent."""
        self.record = await asyncio.to_thread(_read, self.path)
        self._tell()

    def _tell(self) -> None:
        """Tell the secrets that are to be masked."""
        tokens, client = self.record.get("tokens") or {}, self.record.get("client") or {}
        values = (
            tokens.get("access_token"),
            tokens.get("refresh_token"),
            client.get("client_secret"),
        )
        self.learn({value for value in values if isinstance(value, str) and value})

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens."""
        tokens: OAuthToken | None = _valid(OAuthToken, self.record.get("tokens"))
        return tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the stored registration."""
        client: OAuthClientInformationFull | None = _valid(
            OAuthClientInformationFull, self.record.get("client")
        )
        expires = client.client_secret_expires_at if client else None
        return None if expires and expires <= time.time() else client

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens, with the data to refresh them after a restart."""
        expires = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        self.record |= {
            "tokens": tokens.model_dump(mode="json"),
            "expires_at": expires,
            **self.more(),
        }
        await self._save()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registration."""
        self.record |= {"client": client_info.model_dump(mode="json", exclude_none=True)}
        await self._save()

    async def _save(self) -> None:
        self._tell()
        text = json.dumps({**self.record, **self._head})
        try:
            await asyncio.to_thread(write_account_file, self.path, text)
        except (OSError, NotPrivateError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            logger.warning("The sign-in to %s is not remembered: %s", shown(self._server), reason)


_END_OF_TIME = 1e11
"""In seconds since 1970. No date is later."""


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(read_account_file(path))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(record, dict) or record.get("version") != _VERSION:
        return {}
    # Another program may have written it. What has another type counts as absent.
    return {name: value for name, value in record.items() if _is_readable(name, value)}


def _is_readable(name: str, value: Any) -> bool:
    if name in ("tokens", "client", "metadata", "resource"):
        return isinstance(value, dict)
    if name == "expires_at":
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and abs(value) < _END_OF_TIME
        )
    return isinstance(value, str | int) or value is None


def _valid(kind: Any, value: Any) -> Any:
    try:
        return kind.model_validate(value) if isinstance(value, dict) else None
    except ValidationError:
        return None


def accounts() -> tuple[Account, ...]:
    """List the servers that somebody has signed in to on this computer, without their tokens."""
    folder = _folder()
    records = (
        {path: _read(path) for path in sorted(folder.glob("*.json"))} if folder.is_dir() else {}
    )
    return tuple(_account(record, path) for path, record in records.items() if record.get("tokens"))


def _account(record: Mapping[str, Any], path: Path) -> Account:
    metadata, tokens = record.get("metadata"), record["tokens"]
    expires, scope = record.get("expires_at"), tokens.get("scope")
    return Account(
        server=str(record.get("server", ""))[:100],
        address=str(record.get("url", ""))[:500],
        issuer=str((metadata or {}).get("issuer") or "")[:500],
        scopes=tuple(scope.split()[:50]) if isinstance(scope, str) else (),
        expires=float(expires) if isinstance(expires, int | float) else None,
        renewable=bool(tokens.get("refresh_token")),
        file=path.name,
    )


def remove_account(account: Account) -> None:
    """Delete the tokens of a server, and its registration. The authorization server is not told."""
    (_folder() / Path(account.file).name).unlink(missing_ok=True)


class SignIn(OAuthClientProvider):
    """Signs in to one server, when it requires that.

    Args:
        config: The server's entry, with the settings of the sign-in.
        person: Who is asked.
        client: Creates the client for requests to other addresses than the server's, see
            `Contacts`.
        began: Called when a sign-in begins.
    """

    def __init__(
        self,
        config: ServerConfig,
        person: PersonToAsk,
        client: ClientFactory | None = None,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        settings = config.sign_in or SignInConfig()
        url = (config.url or "").rstrip("/")
        self._settings = settings
        self._person = person
        self._contacts = Contacts(config, person, client)
        self._began = began
        self._file = AccountFile(
            person.server, url, settings.client_id or settings.client_metadata_url
        )
        self._address = ""
        self._failed: str | None = None
        self._proofs = Proofs()
        with_person = settings.grant == "authorization_code"
        redirect = f"http://{_HERE}:{settings.callback_port or _free_port()}{_CALLBACK}"
        super().__init__(
            url,
            OAuthClientMetadata(
                client_name="casual-mcp-nb",
                redirect_uris=[AnyHttpUrl(redirect)] if with_person else None,
                grant_types=(
                    ["authorization_code", "refresh_token"]
                    if with_person
                    else ["client_credentials"]
                ),
                response_types=["code"],
                token_endpoint_auth_method="none",
                scope=" ".join(settings.scopes) or None,
            ),
            self._file,
            self._redirect,
            self._answer,
            client_metadata_url=settings.client_metadata_url,
        )
        self._file.more = self._to_remember
        self._file.learn = person.learn

    async def _initialize(self) -> None:
        await self._file.load()
        await super()._initialize()
        record, settings = self._file.record, self._settings
        expires = record.get("expires_at")
        if isinstance(expires, int | float):
            self.context.token_expiry_time = expires
        self.context.oauth_metadata = _valid(OAuthMetadata, record.get("metadata"))
        self.context.protected_resource_metadata = _valid(
            ProtectedResourceMetadata, record.get("resource")
        )
        if self.context.protected_resource_metadata is not None:
            self.context.auth_server_url = str(
                self.context.protected_resource_metadata.authorization_servers[0]
            )
        self._proofs.restore(record.get("proof_key"))
        if settings.client_id is not None:
            secret = settings.client_secret.get_secret_value() if settings.client_secret else None
            self.context.client_info = OAuthClientInformationFull(
                client_id=settings.client_id,
                client_secret=secret,
                redirect_uris=self.context.client_metadata.redirect_uris,
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
            )
        elif settings.grant != "authorization_code":
            # Without an id there is no registration either: the assertion says who it is.
            self.context.client_info = OAuthClientInformationFull.model_construct(
                client_id="", redirect_uris=None
            )
        elif self.context.client_info is not None and settings.callback_port is None:
            # Some authorization servers accept exactly the address that was registered.
            self.context.client_metadata.redirect_uris = self.context.client_info.redirect_uris

    def _to_remember(self) -> dict[str, Any]:
        context = self.context
        dumped = {
            "metadata": context.oauth_metadata,
            "resource": context.protected_resource_metadata,
        }
        stored = {
            name: value.model_dump(mode="json", exclude_none=True)
            for name, value in dumped.items()
            if value is not None
        }
        return {**stored, "proof_key": self._proofs.stored}

    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self._settings.issuer
        if issuer is None:
            return advertised[0]
        chosen = next((each for each in advertised if issuers_match(each, issuer)), None)
        if chosen is None:
            raise SignInError(
                f"The server wants a sign-in at {shown(advertised[0], 200)}, not at the issuer of"
                " its sign_in."
            )
        return chosen

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the flow.

        Its own requests go to addresses that the server names, so that its client does not send
        them.
        """
        async with aclosing(super().async_auth_flow(request)) as flow:
            response: httpx2.Response | None = None
            while True:
                try:
                    outgoing = await flow.asend(response)  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
                response = (
                    (yield outgoing) if outgoing is request else await self._contact(outgoing)
                )

    async def _contact(self, outgoing: httpx2.Request) -> httpx2.Response:
        try:
            if str(outgoing.url) == self._get_token_endpoint():
                await self._check_credentials()
            return await self._contacts.send(outgoing)
        except SignInError as error:
            # The next request of this session would ask again.
            self._failed = str(error)
            # This is the reason, and not the status with which the sign-in began.
            self._began()
            raise

    async def _check_credentials(self) -> None:
        confirmed = self.context.oauth_metadata is not None
        await self._contacts.check_credentials(
            self._audience, self._get_token_endpoint(), confirmed=confirmed
        )

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the SDK's flow, with a proof on each request that needs one, again with the nonce
        that a server requires.
        """
        async with aclosing(super()._auth_flow(request)) as flow:
            response: httpx2.Response | None = None
            while True:
                try:
                    outgoing = await flow.asend(response)  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
                except OAuthTokenError as error:
                    self._failed = str(error)
                    raise
                if outgoing is not request:
                    registers = outgoing.headers.get("content-type", "").startswith(
                        "application/json"
                    )
                    outgoing.extensions = {
                        **outgoing.extensions,
                        OWN_REQUEST: "registration" if registers else "sign-in",
                    }
                self._prove(outgoing, request)
                response = yield outgoing
                if await self._proofs.challenged(outgoing, response):
                    self._prove(outgoing, request)
                    response = yield outgoing
                if self._takes_tokens(outgoing, request):
                    response = await self._as_bearer(response)
                if outgoing is not request:
                    await self._proofs.read_metadata(outgoing, response)
                elif response.status_code in (401, 403):
                    self._proofs.read_challenge(response)
                    if self._failed is not None:
                        self._began()
                        raise SignInError(self._failed)

    def _takes_tokens(self, outgoing: httpx2.Request, request: httpx2.Request) -> bool:
        return (
            outgoing is not request
            and outgoing.method == "POST"
            and str(outgoing.url) == self._get_token_endpoint()
        )

    def _prove(self, outgoing: httpx2.Request, request: httpx2.Request) -> None:
        if outgoing is request:
            tokens = self.context.current_tokens
            if tokens is not None and self._proofs.bound and "authorization" in outgoing.headers:
                outgoing.headers["authorization"] = f"DPoP {tokens.access_token}"
                outgoing.headers["dpop"] = self._proofs.proof(outgoing, tokens.access_token)
        elif self._takes_tokens(outgoing, request) and self._proofs.wanted:
            outgoing.headers["dpop"] = self._proofs.proof(outgoing)

    async def _perform_authorization(self) -> httpx2.Request:
        self._began()
        context, settings = self.context, self._settings
        wanted = [*(context.client_metadata.scope or "").split(), *settings.scopes]
        context.client_metadata.scope = " ".join(dict.fromkeys(wanted)) or None
        self._choose_client_authentication()
        try:
            await self._check_credentials()
            match settings.grant:
                case "authorization_code":
                    return await super()._perform_authorization()
                case "client_credentials":
                    return await self._client_credentials()
                case "jwt_bearer":
                    return self._token_request(
                        {"grant_type": _JWT_BEARER, "assertion": self._assertion}
                    )
                case "identity_assertion":
                    granted = await self._exchanged_at_identity_provider()
                    return self._token_request({"grant_type": _JWT_BEARER, "assertion": granted})
        except Exception as error:
            # The next request of this session would ask again.
            self._failed = str(error) or type(error).__name__
            raise

    async def _as_bearer(self, response: httpx2.Response) -> httpx2.Response:
        """Note whether the tokens in a response are bound to the key.

        The SDK takes no type of token but Bearer, so it is handed a response that says this.
        """
        try:
            answer = json.loads(await response.aread())
        except ValueError:
            return response
        if not isinstance(answer, dict) or "token_type" not in answer:
            return response
        self._proofs.bound = str(answer["token_type"]).lower() == "dpop"
        if not self._proofs.bound:
            return response
        return httpx2.Response(
            response.status_code, json={**answer, "token_type": "Bearer"}, request=response.request
        )

    def _choose_client_authentication(self) -> None:
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if self._settings.client_id is None or client is None or client.client_secret is None:
            return
        methods = (metadata.token_endpoint_auth_methods_supported if metadata else None) or [
            "client_secret_basic"
        ]
        client.token_endpoint_auth_method = (
            "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        )

    @property
    def _assertion(self) -> str:
        assertion = self._settings.assertion
        return assertion.get_secret_value() if assertion else ""

    def _token_request(self, data: dict[str, str]) -> httpx2.Request:
        client = self.context.client_info
        if client is not None and client.client_id:
            data.setdefault("client_id", client.client_id)
        if self.context.should_include_resource_param(self.context.protocol_version):
            data["resource"] = self.context.get_resource_url()
        if self.context.client_metadata.scope:
            data["scope"] = self.context.client_metadata.scope
        data, headers = self.context.prepare_token_auth(
            data, {"Content-Type": "application/x-www-form-urlencoded"}
        )
        return httpx2.Request("POST", self._get_token_endpoint(), data=data, headers=headers)

    async def _client_credentials(self) -> httpx2.Request:
        settings, data = self._settings, {"grant_type": "client_credentials"}
        if settings.private_key is not None:
            client_id = settings.client_id or ""
            signed = SignedJWTParameters(
                issuer=client_id,
                subject=client_id,
                signing_key=settings.private_key.get_secret_value(),
                signing_algorithm=settings.signing_algorithm,
            )
            data["client_assertion"] = await signed.create_assertion_provider()(self._audience)
            data["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        return self._token_request(data)

    @property
    def _audience(self) -> str:
        metadata = self.context.oauth_metadata
        if metadata is not None:
            return str(metadata.issuer)
        # As the SDK compares it: with the host in lower case and without a default port.
        origin = self.context.get_authorization_base_url(self.context.server_url)
        return self.context.auth_server_url or str(AnyHttpUrl(origin)).rstrip("/")

    async def _exchanged_at_identity_provider(self) -> str:
        """Exchange the person's ID token for an assertion for the server's authorization server,
        see RFC 8693.
        """
        settings = self._settings
        data = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "subject_token": self._assertion,
            "audience": self._audience,
            "resource": self.context.get_resource_url(),
            **({"client_id": settings.idp_client_id} if settings.idp_client_id else {}),
        }
        with named_variables():
            client = httpx2.AsyncClient(
                verify=await asyncio.to_thread(httpx2.create_ssl_context), timeout=30.0
            )
        async with client:
            response = await client.post(settings.idp_token_url or "", data=data)
        answer = (
            response.json()
            if response.status_code == 200 and len(response.content) < 100_000
            else {}
        )
        if not isinstance(answer, dict) or not isinstance(answer.get("access_token"), str):
            raise SignInError(
                f"The identity provider refused the token (HTTP {response.status_code})."
            )
        return str(answer["access_token"])

    async def _redirect(self, address: str) -> None:
        await self._contacts.check_page(address)
        self._address = address

    async def _answer(self) -> AuthorizationCodeResult:
        """Wait for the browser's answer: at the redirect address on this computer, or as the person
        pastes it.
        """
        fields = _query(self._address)
        state, redirect = fields.get("state", ""), fields.get("redirect_uri", "")
        issuer = self._audience
        here = browser_is_here(self._settings.browser)

        def check(text: str) -> None:
            _answer_of(text, state, redirect)

        request = SignInRequest(self._person.server, issuer, self._address, redirect, here, check)
        with self._person.waiting():
            answer = await self._awaited(request, state)
        if refusal := answer.get("error"):
            reason = (
                "access was not granted"
                if refusal == "access_denied"
                else f"the answer was {shown(refusal)}"
            )
            raise SignInError(f"Not signed in: {reason}.")
        return AuthorizationCodeResult(
            code=answer["code"], state=answer.get("state"), iss=answer.get("iss")
        )

    async def _awaited(self, request: SignInRequest, state: str) -> dict[str, str]:
        redirect, here = request.redirect, request.opened
        async with _listening(redirect, state) as arrived:
            if here and self._address.startswith(
                ("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")
            ):
                await asyncio.to_thread(webbrowser.open, self._address)
            asking = asyncio.ensure_future(
                self._ask_person(request, waits=here and arrived is not None)
            )
            waiting: set[asyncio.Future[Any]] = {
                asking,
                *([arrived] if arrived is not None else []),
            }
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if arrived is not None and arrived.done():
                    return arrived.result()
                return _answer_of(asking.result(), state, redirect)
            except TimeoutError:
                raise SignInError(
                    "No one signed in in time. Reconnect the server to try again."
                ) from None
            except ValueError as error:
                raise SignInError(f"Not signed in: {error}") from None
            finally:
                asking.cancel()

    async def _ask_person(self, request: SignInRequest, *, waits: bool) -> str:
        try:
            if self._person.ask is not None:
                return await self._person.ask(request)
        except NobodyToAsk:
            pass
        if waits:
            # Somebody may be at the browser that was opened. Nobody can be told how to end the
            # wait.
            await asyncio.sleep(UNASKED_SECONDS)
        raise SignInError(
            "It requires a sign-in, and no one can be asked here. "
            "Connect it once in a notebook or a terminal. The sign-in is remembered."
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HERE, 0))
        return int(probe.getsockname()[1])


def _query(address: str) -> dict[str, str]:
    try:
        fields = parse_qs(urlsplit(address.strip()[:MAX_ANSWER]).query, max_num_fields=50)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


def _answer_of(text: str, state: str, redirect: str) -> dict[str, str]:
    """Read the address at which a browser ended, or the code alone.

    A ValueError explains what is wrong with it.

    A code alone has no state. It cannot be somebody else's either: it is useless without the secret
    of this sign-in (PKCE).
    """
    text = text.strip()[:MAX_ANSWER]
    if "://" not in text and "?" not in text and "=" not in text:
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("This is not an address or a code.")
        return {"code": text, "state": state}
    fields = _query(text if "?" in text else f"?{text}")
    if not hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
        raise ValueError("This address does not belong to this sign-in: its state differs.")
    if not fields.get("code") and not fields.get("error"):
        raise ValueError(f"This address has no code. It begins with {redirect}?")
    return fields


@asynccontextmanager
async def _listening(
    redirect: str, state: str
) -> AsyncIterator[asyncio.Future[dict[str, str]] | None]:
    """Listen for the browser at the redirect address, or None if that is not possible.

    Only this sign-in's answer counts.
    """
    parts = urlsplit(redirect)
    arrived: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fields: dict[str, str] = {}
        with contextlib.suppress(
            OSError,
            ValueError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, *_ = head.split(" ", 2)
            if method == "GET" and urlsplit(target).path == parts.path:
                fields = _answer_of(f"http://{_HERE}{target}", state, redirect)
        signed_in = bool(fields.get("code"))
        text = "You are signed in. Return to the notebook." if signed_in else "Not signed in."
        page = f"<!doctype html><meta charset=utf-8><title>casual_mcp_nb</title><p>{html.escape(text)}".encode()
        status = "200 OK" if fields else "400 Bad Request"
        headers = (
            "content-type: text/html; charset=utf-8\r\nreferrer-policy: no-referrer\r\nconnection:"
            " close"
        )
        with contextlib.suppress(OSError):
            writer.write(
                f"HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {len(page)}\r\n\r\n".encode()
                + page
            )
            await writer.drain()
            writer.close()
        if fields and not arrived.done():
            arrived.set_result(fields)

    try:
        listener = await asyncio.start_server(
            handle, parts.hostname or _HERE, parts.port, limit=32_768
        )
    except (OSError, ValueError):
        yield None
        return
    try:
        yield arrived
    finally:
        listener.close()
        arrived.cancel()


class Proofs:
    """Proofs that whoever uses a token has the key that it is bound to (DPoP,
    https://www.rfc-editor.org/rfc/rfc9449).

    Attributes:
        wanted: Whether the authorization server binds tokens to keys.
        bound: Whether the current token is bound.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.bound = False
        self._key: Any = None
        self._nonces: dict[str, str] = {}

    @property
    def stored(self) -> str | None:
        """The private key of a bound token, for the account's file."""
        if not self.bound:
            return None
        from cryptography.hazmat.primitives import serialization

        kind = serialization.PrivateFormat.PKCS8
        return str(
            self._pair.private_bytes(
                serialization.Encoding.PEM, kind, serialization.NoEncryption()
            ).decode()
        )

    def restore(self, pem: Any) -> None:
        """Use the key of a stored token."""
        if not isinstance(pem, str):
            return
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        with contextlib.suppress(ValueError):
            self._key = load_pem_private_key(pem.encode(), None)
            self.bound = self.wanted = True

    def proof(self, request: httpx2.Request, token: str | None = None) -> str:
        """Sign a proof for one request."""
        import jwt
        from jwt.algorithms import ECAlgorithm

        url = request.url.copy_with(query=None, fragment=None)
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": request.method,
            "htu": str(url),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = (
                base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest())
                .rstrip(b"=")
                .decode()
            )
        if nonce := self._nonces.get(_origin(request)):
            claims["nonce"] = nonce
        public = ECAlgorithm.to_jwk(self._pair.public_key(), as_dict=True)
        return jwt.encode(
            claims, self._pair, algorithm="ES256", headers={"typ": "dpop+jwt", "jwk": public}
        )

    async def challenged(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        """Note the nonce of a response, and check whether the request has to be sent again with
        it.
        """
        nonce = response.headers.get("dpop-nonce", "")[:1_000]
        if not nonce or "dpop" not in request.headers:
            return False
        before, self._nonces[_origin(request)] = self._nonces.get(_origin(request)), nonce
        if response.status_code not in (400, 401) or before == nonce:
            return False
        named = response.headers.get("www-authenticate", "")
        return "use_dpop_nonce" in named or b"use_dpop_nonce" in await response.aread()

    async def read_metadata(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Note whether the authorization server binds tokens, in its metadata."""
        if response.status_code != 200 or "/.well-known/o" not in request.url.path:
            return
        with contextlib.suppress(ValueError, RecursionError):
            metadata = json.loads(await response.aread())
            algorithms = (
                metadata.get("dpop_signing_alg_values_supported")
                if isinstance(metadata, dict)
                else None
            )
            self.wanted = self.wanted or (isinstance(algorithms, list) and "ES256" in algorithms)

    def read_challenge(self, response: httpx2.Response) -> None:
        """Note whether a server wants bound tokens."""
        self.wanted = self.wanted or response.headers.get(
            "www-authenticate", ""
        ).lower().startswith("dpop")

    @property
    def _pair(self) -> Any:
        if self._key is None:
            from cryptography.hazmat.primitives.asymmetric import ec

            self._key = ec.generate_private_key(ec.SECP256R1())
        return self._key


def _origin(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"
