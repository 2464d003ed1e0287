"""HTTP connections to addresses that somebody else than the person named: each goes to an IP
address that was judged.
"""

from __future__ import annotations

import ssl
import urllib.request
from contextlib import suppress
from typing import Any

import httpx2

from casual_mcp_nb.base.named_address import AddressGuard, UnknownHostError, origin_of
from casual_mcp_nb.base.proxies import named_variables


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects to addresses that a guard allows, at the IP address that was looked up.

    For `httpx2.AsyncClient(transport=…)`.

    A redirect is a request like any other, and judged too. What was looked up for an origin is kept
    until a connection fails. Requests raise AddressRefusedError, and httpx2's own errors.

    Args:
        guard: What may be followed.
        verify: The SSL context.
        proxies: Whether the proxies of the environment are used. A proxy looks names up itself, so
            that a name is judged as far as it is known here, but cannot be pinned.
    """

    def __init__(
        self, guard: AddressGuard, verify: ssl.SSLContext, *, proxies: bool = False
    ) -> None:
        self._guard = guard
        self._verify = verify
        self._proxies = proxies
        self._known: dict[str, tuple[str, ...]] = {}
        # Names at the same IP address must not share connections: the certificate was checked for
        # one of them.
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Judge the request's address, and send it."""
        origin = origin_of(str(request.url))
        proxy = proxy_of(request.url) if self._proxies else None
        if proxy is not None:
            await self._judge_for_proxy(request)
            return await self._transport(origin, proxy).handle_async_request(request)
        addresses = self._known.get(origin)
        if addresses is None:
            addresses = self._known[origin] = await self._guard.look_up(str(request.url))
        transport = self._transport(origin)
        if not addresses:
            return await transport.handle_async_request(request)
        error: httpx2.ConnectError | httpx2.ConnectTimeout | None = None
        for address in addresses:
            try:
                return await transport.handle_async_request(_pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as failure:
                error = failure
        del self._known[origin]
        assert error is not None
        raise error

    async def _judge_for_proxy(self, request: httpx2.Request) -> None:
        # Behind a proxy, names of the internet are often known to the proxy alone.
        with suppress(UnknownHostError):
            await self._guard.look_up(str(request.url))

    def _transport(self, origin: str, proxy: str | None = None) -> httpx2.AsyncHTTPTransport:
        if origin not in self._transports:
            with named_variables():
                self._transports[origin] = httpx2.AsyncHTTPTransport(
                    verify=self._verify, trust_env=False, proxy=proxy
                )
        return self._transports[origin]

    async def aclose(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            await transport.aclose()


def _pinned(request: httpx2.Request, address: str) -> httpx2.Request:
    """Address a request to an IP address.

    Its `Host`, and the name for the certificate, stay those of the URL.
    """
    extensions: dict[str, Any] = {**request.extensions, "sni_hostname": request.url.host}
    url = request.url.copy_with(host=address)
    return httpx2.Request(
        request.method, url, headers=request.headers, stream=request.stream, extensions=extensions
    )


def proxy_of(url: httpx2.URL) -> str | None:
    """Find the proxy of the environment for an address, or None."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
