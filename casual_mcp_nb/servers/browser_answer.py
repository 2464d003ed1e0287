"""The browser's answer at the end of a sign-in: whether it can arrive here, and what it says.

See https://www.rfc-editor.org/rfc/rfc8252#section-7.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

MAX_ANSWER = 10_000

HERE = "127.0.0.1"

_ELSEWHERE = (
    "SSH_CONNECTION",
    "SSH_TTY",
    "JUPYTERHUB_USER",
    "JUPYTERHUB_SERVICE_PREFIX",
    "COLAB_RELEASE_TAG",
    "KUBERNETES_SERVICE_HOST",
    "CODESPACES",
    "REMOTE_CONTAINERS",
    "VSCODE_AGENT_FOLDER",
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
    if any(map(variables.get, _ELSEWHERE)) or Path("/.dockerenv").exists():
        return False
    return sys.platform in ("win32", "darwin") or bool(
        variables.get("DISPLAY") or variables.get("WAYLAND_DISPLAY")
    )


def free_port() -> int:
    """Find a port on this computer that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


def query_of(address: str) -> dict[str, str]:
    """Read the query of an address, each parameter once. Empty if it cannot be read."""
    try:
        fields = parse_qs(urlsplit(address.strip()[:MAX_ANSWER]).query, max_num_fields=50)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


def answer_of(text: str, state: str, redirect: str) -> dict[str, str]:
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
    fields = query_of(text if "?" in text else f"?{text}")
    if not hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
        raise ValueError("This address does not belong to this sign-in: its state differs.")
    if not fields.get("code") and not fields.get("error"):
        raise ValueError(f"This address has no code. It begins with {redirect}?")
    return fields


@asynccontextmanager
async def listening(
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
                fields = answer_of(f"http://{HERE}{target}", state, redirect)
        signed_in = bool(fields.get("code"))
        text = "Not signed in."
        if signed_in:
            text = "You are signed in. Return to the notebook."
        page = f"<!doctype html><meta charset=utf-8><title>casual_mcp_nb</title><p>{html.escape(text)}".encode()
        status = "400 Bad Request"
        if fields:
            status = "200 OK"
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
            handle, parts.hostname or HERE, parts.port, limit=32_768
        )
    except (OSError, ValueError):
        yield None
        return
    try:
        yield arrived
    finally:
        listener.close()
        arrived.cancel()
