"""Sign in to servers with OAuth.

The flow is the SDK's: RFC 9728 and 8414 find the authorization server, RFC 7591 or a metadata
document registers the client, and PKCE protects the code. Here are the person's part and the other
grants; `browser_answer.py` waits for the browser, `accounts.py` keeps the tokens, and `proofs.py`
binds them to a key.
"""

from __future__ import annotations

import asyncio
import json
import webbrowser
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import urljoin

import httpx2
from mcp.client.auth import OAuthTokenError
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
from pydantic import AnyHttpUrl

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig, SignInConfig
from casual_mcp_nb.base.mcp import NobodyToAsk, SignInRequest
from casual_mcp_nb.base.proxies import named_variables
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.accounts import AccountFile, read_as
from casual_mcp_nb.servers.browser_answer import (
    HERE,
    answer_of,
    browser_is_here,
    free_port,
    listening,
    query_of,
)
from casual_mcp_nb.servers.contacts import ClientFactory, Contacts, SignInError
from casual_mcp_nb.servers.handlers import OWN_REQUEST, PersonToAsk
from casual_mcp_nb.servers.proofs import Proofs
from casual_mcp_nb.servers.sdk_privates import AuthorizationFlow, authorization_problem

ANSWER_SECONDS = 900.0
"""How long a sign-in waits for the person, if nothing else limits it."""

UNASKED_SECONDS = 120.0
"""How long it waits for the browser where no one can be asked."""

_CALLBACK = "/callback"

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"

_FORM = "application/x-www-form-urlencoded"

MAX_GRANT = 100_000
"""How many bytes the answer of an identity provider may have."""

MAX_PROOFS = 2
"""How often a request is sent: a server can require a proof with its nonce (RFC 9449, section 8)."""


class SignIn(AuthorizationFlow):
    """Signs in to one server, when it requires that. It is also the SDK's storage of the tokens.

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
        began: Callable[[], None] = ignore,
    ) -> None:
        settings = config.sign_in or SignInConfig()
        url = (config.url or "").rstrip("/")
        self._settings = settings
        self._person = person
        self._contacts = Contacts(config, person, client)
        self._began = began
        self._file = AccountFile(
            person.server, url, settings.client_id or settings.client_metadata_url, person.learn
        )
        self._address = ""
        self._failed: str | None = None
        self._proofs = Proofs()
        with_person = settings.grant == "authorization_code"
        redirect = f"http://{HERE}:{settings.callback_port or free_port()}{_CALLBACK}"
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
            self,
            self._redirect,
            self._answer,
            client_metadata_url=settings.client_metadata_url,
        )

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens of the account's file, and restore what else it has."""
        await self._file.load()
        record, context = self._file.record, self.context
        expires = record.get("expires_at")
        if isinstance(expires, int | float):
            context.token_expiry_time = expires
        context.oauth_metadata = read_as(OAuthMetadata, record.get("metadata"))
        resource = read_as(ProtectedResourceMetadata, record.get("resource"))
        context.protected_resource_metadata = resource
        if resource is not None:
            context.auth_server_url = str(resource.authorization_servers[0])
        self._proofs.restore(record.get("proof_key"))
        return self._file.tokens()

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens, with what renews them after a restart."""
        await self._file.set_tokens(tokens, self._to_remember())

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client of the config, or the one that was registered."""
        settings = self._settings
        if settings.client_id is not None:
            secret = settings.client_secret.get_secret_value() if settings.client_secret else None
            return OAuthClientInformationFull(
                client_id=settings.client_id,
                client_secret=secret,
                redirect_uris=self.context.client_metadata.redirect_uris,
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
            )
        if settings.grant != "authorization_code":
            # Without an id there is no registration either: the assertion says who it is.
            return OAuthClientInformationFull.model_construct(client_id="", redirect_uris=None)
        registered = self._file.client()
        if registered is not None and settings.callback_port is None:
            # Some authorization servers accept exactly the address that was registered.
            self.context.client_metadata.redirect_uris = registered.redirect_uris
        return registered

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registration."""
        await self._file.set_client(client_info)

    def _to_remember(self) -> dict[str, Any]:
        context = self.context
        dumped = {
            "metadata": context.oauth_metadata,
            "resource": context.protected_resource_metadata,
        }
        stored = {}
        for name, value in dumped.items():
            if value is not None:
                stored[name] = value.model_dump(mode="json", exclude_none=True)
        return {**stored, "proof_key": self._proofs.stored}

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the SDK's flow, with a proof on each request that needs one.

        The flow's own requests go to addresses that the server names, so they are not sent by the
        client that sends `request`.
        """
        async with aclosing(super().async_auth_flow(request)) as flow:
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
                    response = await self._own_response(outgoing)
                    continue
                for _ in range(MAX_PROOFS):
                    self._prove_possession(request)
                    response = yield request
                    if not await self._proofs.challenged(request, response):
                        break
                assert response is not None
                if response.status_code in (401, 403):
                    self._proofs.read_challenge(response)
                    if self._settings.grant != "authorization_code":
                        self._failed = self._failed or authorization_problem() or None
                    if self._failed is not None:
                        self._began()
                        raise SignInError(self._failed)

    def _prove_possession(self, request: httpx2.Request) -> None:
        """Add a proof to a request with a bound token."""
        tokens = self.context.current_tokens
        if tokens is not None and self._proofs.bound and "authorization" in request.headers:
            request.headers["authorization"] = f"DPoP {tokens.access_token}"
            request.headers["dpop"] = self._proofs.proof(request, tokens.access_token)

    async def _own_response(self, outgoing: httpx2.Request) -> httpx2.Response:
        """Send a request of the sign-in. Return the response as the SDK can read it."""
        wants_tokens = outgoing.method == "POST" and _has_type(outgoing, _FORM)
        kind = "registration" if _has_type(outgoing, "application/json") else "sign-in"
        outgoing.extensions = {**outgoing.extensions, OWN_REQUEST: kind}
        for _ in range(MAX_PROOFS):
            if wants_tokens and self._proofs.wanted:
                outgoing.headers["dpop"] = self._proofs.proof(outgoing)
            response = await self._contact(outgoing, wants_tokens=wants_tokens)
            if not await self._proofs.challenged(outgoing, response):
                break
        answer = await _object_in(response)
        changed: dict[str, Any] = {}
        if wants_tokens and "token_type" in answer:
            self._proofs.bound = str(answer["token_type"]).lower() == "dpop"
            if self._proofs.bound:
                # The SDK takes no other type.
                changed["token_type"] = "Bearer"
        elif response.status_code == 200:
            self._proofs.read_metadata(answer)
            advertised = answer.get("authorization_servers")
            if isinstance(advertised, list) and advertised and self._settings.issuer is not None:
                # The SDK takes the first.
                changed["authorization_servers"] = [_chosen(advertised, self._settings.issuer)]
        if not changed:
            return response
        return httpx2.Response(
            response.status_code, json={**answer, **changed}, request=response.request
        )

    async def _contact(self, outgoing: httpx2.Request, *, wants_tokens: bool) -> httpx2.Response:
        try:
            if wants_tokens:
                await self._check_credentials(str(outgoing.url))
            return await self._contacts.send(outgoing)
        except SignInError as error:
            # The next request of this session would ask again.
            self._failed = str(error)
            # This is the reason, and not the status with which the sign-in began.
            self._began()
            raise

    async def _check_credentials(self, endpoint: str) -> None:
        confirmed = self.context.oauth_metadata is not None
        await self._contacts.check_credentials(self._audience, endpoint, confirmed=confirmed)

    async def authorize(self) -> httpx2.Request:
        """Begin a sign-in. Return the request for its tokens."""
        self._began()
        context, settings = self.context, self._settings
        wanted = [*(context.client_metadata.scope or "").split(), *settings.scopes]
        context.client_metadata.scope = " ".join(dict.fromkeys(wanted)) or None
        self._choose_client_authentication()
        try:
            await self._check_credentials(self._token_endpoint)
            match settings.grant:
                case "authorization_code":
                    return await super().authorize()
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

    def _choose_client_authentication(self) -> None:
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if self._settings.client_id is None or client is None or client.client_secret is None:
            return
        client.token_endpoint_auth_method = "client_secret_basic"
        methods = metadata.token_endpoint_auth_methods_supported if metadata else None
        if methods and "client_secret_basic" not in methods:
            client.token_endpoint_auth_method = "client_secret_post"

    @property
    def _assertion(self) -> str:
        assertion = self._settings.assertion
        if assertion:
            return assertion.get_secret_value()
        return ""

    def _token_request(self, data: dict[str, str]) -> httpx2.Request:
        client = self.context.client_info
        if client is not None and client.client_id:
            data.setdefault("client_id", client.client_id)
        if self.context.should_include_resource_param(self.context.protocol_version):
            data["resource"] = self.context.get_resource_url()
        if self.context.client_metadata.scope:
            data["scope"] = self.context.client_metadata.scope
        data, headers = self.context.prepare_token_auth(data, {"Content-Type": _FORM})
        return httpx2.Request("POST", self._token_endpoint, data=data, headers=headers)

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
    def _token_endpoint(self) -> str:
        metadata = self.context.oauth_metadata
        if metadata is not None and metadata.token_endpoint:
            return str(metadata.token_endpoint)
        return urljoin(self.context.get_authorization_base_url(self.context.server_url), "/token")

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
        }
        if settings.idp_client_id:
            data["client_id"] = settings.idp_client_id
        with named_variables():
            client = httpx2.AsyncClient(
                verify=await asyncio.to_thread(httpx2.create_ssl_context), timeout=30.0
            )
        async with client:
            response = await client.post(settings.idp_token_url or "", data=data)
        granted: Any = None
        if response.status_code == 200 and len(response.content) < MAX_GRANT:
            granted = (await _object_in(response)).get("access_token")
        if not isinstance(granted, str):
            raise SignInError(
                f"The identity provider refused the token (HTTP {response.status_code})."
            )
        return granted

    async def _redirect(self, address: str) -> None:
        self._began()
        await self._contacts.check_page(address)
        self._address = address

    async def _answer(self) -> AuthorizationCodeResult:
        """Wait for the browser's answer: at the redirect address on this computer, or as the person
        pastes it.
        """
        fields = query_of(self._address)
        state, redirect = fields.get("state", ""), fields.get("redirect_uri", "")
        issuer = self._audience
        here = browser_is_here(self._settings.browser)

        def check(text: str) -> None:
            answer_of(text, state, redirect)

        request = SignInRequest(self._person.server, issuer, self._address, redirect, here, check)
        with self._person.waiting():
            answer = await self._awaited(request, state)
        if refusal := answer.get("error"):
            reason = f"the answer was {shown(refusal)}"
            if refusal == "access_denied":
                reason = "access was not granted"
            raise SignInError(f"Not signed in: {reason}.")
        return AuthorizationCodeResult(
            code=answer["code"], state=answer.get("state"), iss=answer.get("iss")
        )

    async def _awaited(self, request: SignInRequest, state: str) -> dict[str, str]:
        redirect, here = request.redirect, request.opened
        async with listening(redirect, state) as arrived:
            if here and self._address.startswith(
                ("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")
            ):
                await asyncio.to_thread(webbrowser.open, self._address)
            asking = asyncio.ensure_future(
                self._ask_person(request, waits=here and arrived is not None)
            )
            waiting: set[asyncio.Future[Any]] = {asking}
            if arrived is not None:
                waiting.add(arrived)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if arrived is not None and arrived.done():
                    return arrived.result()
                return answer_of(asking.result(), state, redirect)
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


def _has_type(request: httpx2.Request, media_type: str) -> bool:
    return request.headers.get("content-type", "").startswith(media_type)


async def _object_in(response: httpx2.Response) -> dict[str, Any]:
    """Read the JSON object of a response, or an empty one."""
    try:
        answer = json.loads(await response.aread())
    except (ValueError, RecursionError):
        return {}
    if isinstance(answer, dict):
        return answer
    return {}


def _chosen(advertised: list[Any], issuer: str) -> str:
    """Choose the config's issuer among the authorization servers that a server names.

    Raises:
        SignInError: It names others only.
    """
    for each in advertised:
        if isinstance(each, str) and issuers_match(each, issuer):
            return each
    raise SignInError(
        f"The server wants a sign-in at {shown(str(advertised[0]), 200)}, not at the issuer of its"
        " sign_in."
    )
