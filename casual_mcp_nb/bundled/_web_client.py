"""Fetch a page of the public web: only public addresses, within limits on time, size and redirects."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Collection
from typing import NamedTuple

import anyio
import httpx2
from mcp.server.mcpserver.exceptions import ToolError

from casual_mcp_nb.base.network import is_public

SECONDS = 20.0
MAX_BYTES = 2_000_000
_MAX_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_HEADERS = {
    "user-agent": "casual-mcp-nb (fetch_page)",
    "accept": "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5",
    "accept-encoding": "gzip",
}


class Page(NamedTuple):
    """The response of an address: `url` after redirects, `cut` if the body was longer than allowed."""

    url: str
    media_type: str
    charset: str
    body: bytes
    cut: bool


async def fetch(url: str, allowed: Collection[str] = (), max_bytes: int = MAX_BYTES) -> Page:
    """Fetch a page, following redirects.

    A name is resolved once for each request and the connection goes to the address that was checked, so a name that resolves
    to another address the next time gains nothing.

    Args:
        url: The address, of the scheme http or https.
        allowed: IP addresses that are permitted although they are not public.
        max_bytes: Where the body is cut.

    Raises:
        ToolError: The address is refused, cannot be reached, or answers with an error.
    """
    try:
        # No proxies of the environment: they would connect to addresses that nobody checked.
        with anyio.fail_after(SECONDS):
            async with httpx2.AsyncClient(trust_env=False, timeout=SECONDS, follow_redirects=False) as client:
                target = _parsed(url)
                for _ in range(_MAX_REDIRECTS + 1):
                    answer = await _request(client, target, allowed, max_bytes)
                    if isinstance(answer, Page):
                        return answer
                    target = _parsed(str(target.join(answer)))
    except TimeoutError as error:
        raise ToolError(f"The page took longer than {SECONDS:g} seconds.") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError, ValueError) as error:
        raise ToolError(f"The page cannot be fetched: {str(error)[:200] or type(error).__name__}.") from error
    raise ToolError(f"The page was redirected more than {_MAX_REDIRECTS} times.")


def _parsed(url: str) -> httpx2.URL:
    target = httpx2.URL(url.strip())
    if target.scheme not in ("http", "https") or not target.host:
        raise ToolError("Only addresses that begin with https:// or http:// can be fetched.")
    if target.userinfo:
        raise ToolError("An address with a user name or password in it is refused.")
    return target


async def _address(target: httpx2.URL, allowed: Collection[str]) -> str:
    port = target.port or (443 if target.scheme == "https" else 80)
    try:
        entries = await anyio.getaddrinfo(target.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"The host {target.host[:100]!r} is not known, or there is no network.") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in entries]
    if not addresses or not all(address in allowed or is_public(address) for address in addresses):
        raise ToolError("The address is refused: it is not on the public internet.")
    return addresses[0]


async def _request(client: httpx2.AsyncClient, target: httpx2.URL, allowed: Collection[str], max_bytes: int) -> Page | str:
    """Request an address: a page, or the target of a redirect."""
    address = await _address(target, allowed)
    request = client.build_request(
        "GET",
        target.copy_with(host=address),
        headers={**_HEADERS, "host": target.netloc.decode("ascii")},
        # The certificate must be for the name, although the connection goes to the address.
        extensions={"sni_hostname": target.host},
    )
    # Cookies of one host are not for another.
    client.cookies.clear()
    response = await client.send(request, stream=True)
    try:
        if response.status_code in _REDIRECTS and "location" in response.headers:
            return response.headers["location"]
        if response.status_code >= 400:
            raise ToolError(f"The server answers {response.status_code} {response.reason_phrase[:60]}.")
        body, cut = await _body(response, max_bytes)
    finally:
        await response.aclose()
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Page(str(target), media_type, response.charset_encoding or "", body, cut)


async def _body(response: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    """Read the body, cut before and after it is unpacked: a small response can unpack to gigabytes."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        raise ToolError(f"The server sends the page packed as {encoding[:40]!r}, which was not requested.")
    raw = bytearray()
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > max_bytes:
            break
    data = bytes(raw)
    if "gzip" in encoding:
        try:
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, max_bytes + 1)
        except zlib.error as error:
            raise ToolError("The page is damaged: it cannot be unpacked.") from error
    return data[:max_bytes], len(raw) > max_bytes or len(data) > max_bytes
