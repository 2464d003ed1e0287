"""The addresses of a sign-in: which ones are contacted, and which authorization server gets the
config's credentials.

All of them are named by the MCP server: where its metadata is, its authorization server, and
through that server where clients register and get tokens. `AddressGuard` says which ones are
contacted without a question. About any other, the person is asked once.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urljoin

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import issuers_match

from casual_mcp_nb.base.config import ServerConfig, SignInConfig
from casual_mcp_nb.base.mcp import AddressRequest, NobodyToAsk
from casual_mcp_nb.base.named_address import AddressGuard, AddressRefusedError, origin_of
from casual_mcp_nb.base.proxies import named_variables
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.handlers import PersonToAsk

_MAX_SHOWN = 200
_CREDENTIALS = {
    "client_secret": "the client secret",
    "private_key": "an assertion signed with the private key",
    "assertion": "the token in assertion",
}
"""The settings of a sign-in that prove who the person or their program is, and what is sent of
each.
"""


class SignInError(OAuthFlowError):
    """The sign-in failed. The message has the reason and the next step."""


ClientFactory = Callable[[AddressGuard], httpx2.AsyncClient]
"""Creates a client that keeps to a guard."""


def _plain_client(guard: AddressGuard) -> httpx2.AsyncClient:
    from casual_mcp_nb.base.guarded_http import GuardedTransport

    with named_variables():
        return httpx2.AsyncClient(
            transport=GuardedTransport(guard, httpx2.create_ssl_context(), proxies=True)
        )


class Contacts:
    """Sends the requests of one server's sign-in.

    Args:
        config: The server's entry.
        person: Who is asked.
        client: Creates the client for requests to other addresses than the server's.
    """

    def __init__(
        self, config: ServerConfig, person: PersonToAsk, client: ClientFactory | None = None
    ) -> None:
        self._address = config.url or ""
        self._settings = config.sign_in or SignInConfig()
        self._person = person
        self._client = client or _plain_client
        self._origins = {origin_of(self._settings.issuer)} if self._settings.issuer else set()
        self._trusted: set[tuple[str, str]] = set()
        # The address of a server that was found is judged like those that it names itself.
        self._guard = AddressGuard("" if config.is_found else self._address, self._origins)

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to an address that was named, once the person has accepted it where that
        is needed.

        No redirects.

        Raises:
            SignInError: The address is not contacted. The message has the reason.
        """
        try:
            return await self._sent(request)
        except AddressRefusedError as refusal:
            await self._accept(refusal)
        return await self._sent(request)

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        async with self._client(self._guard) as client:
            return await client.send(request, follow_redirects=False)

    async def check_page(self, address: str) -> None:
        """Check the page at which the person would sign in, before a browser is opened there.

        Raises:
            SignInError: It is not to be opened.
        """
        try:
            self._guard.check(address)
        except AddressRefusedError as refusal:
            await self._accept(refusal)

    async def check_credentials(self, issuer: str, endpoint: str, *, confirmed: bool) -> None:
        """Check that the config's credentials belong to an authorization server, before they are
        sent to it.

        They belong to the `issuer` of the config, to the origin of the MCP server, or to whom the
        person says.

        Args:
            issuer: The authorization server.
            endpoint: The address to which they would be sent.
            confirmed: Whether the metadata at the authorization server's own address confirms that
                it is this issuer.

        Raises:
            SignInError: They are not sent.
        """
        sent = [words for name, words in _CREDENTIALS.items() if getattr(self._settings, name)]
        wanted, there = self._settings.issuer, origin_of(endpoint)
        if wanted is not None:
            if (confirmed and issuers_match(issuer, wanted)) or there == origin_of(wanted):
                return
            raise SignInError(
                f"The server wants a sign-in at {_shown(issuer)}, not at the issuer of its sign_in."
            )
        if not sent or there == origin_of(self._address) or (issuer, there) in self._trusted:
            return
        what = " and ".join(sent)
        place = "" if endpoint == urljoin(issuer, "/token") else f", at {_shown(endpoint)}"
        await self._ask(f"{issuer} {there}", issuer, f"It would get {what} from the config{place}.")
        self._trusted.add((issuer, there))

    async def _accept(self, refusal: AddressRefusedError) -> None:
        if not refusal.acceptable:
            raise SignInError(
                f"Its sign-in names {_shown(refusal.origin)}, which is not contacted: {refusal}."
            ) from refusal
        await self._ask(refusal.origin, refusal.origin, f"I{str(refusal)[1:]}.")
        self._origins.add(refusal.origin)

    async def _ask(self, key: str, named: str, why: str) -> None:
        """Ask the person, unless they have accepted it before.

        Raises:
            SignInError: They do not accept it, or nobody can be asked.
        """
        request = AddressRequest(
            self._person.server, origin_of(self._address), named, why, f"{self._address} {key}"
        )
        try:
            if self._person.ask is None:
                raise NobodyToAsk
            with self._person.waiting():
                await self._person.ask(request)
        except ConnectionError:
            raise SignInError(f"Not signed in: you did not accept {_shown(named)}.") from None
        except NobodyToAsk:
            raise SignInError(
                f"Its sign-in names {_shown(named)}. {why} No one can be asked here whether that is"
                " right. If it is, "
                f'set "issuer": "{_shown(named)}" in its sign_in, or connect it once in a notebook'
                " or a terminal."
            ) from None


def _shown(address: str) -> str:
    return shown(address, _MAX_SHOWN)[1:-1]
