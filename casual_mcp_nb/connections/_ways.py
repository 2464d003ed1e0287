"""How a server is reached, and how the protocol version is agreed on: as its config says, or in an older way."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from casual_mcp_nb.connections._transport import transport_kind
from casual_mcp_nb.types.server import Protocol, ServerConfig

if TYPE_CHECKING:
    from casual_mcp_nb.connections._mcp_session import McpSession

NOT_STREAMABLE = (400, 404, 405)
"""After these a client tries the older transport: MCP specification, Transports, "Backwards Compatibility"."""
FIRST_WITHOUT_HANDSHAKE = "2026-07-28"
"""Since this version a server answers with what it needs to know, and can no longer send a request of its own."""
_CANNOT_ASK = re.compile(r"server-initiated requests?\b|\bno back-?channel\b", re.IGNORECASE)


@dataclass(frozen=True)
class Way:
    """One way to a server.

    Args:
        transport: `stdio`, `http`, `sse` or `in-process`.
        protocol: As in `ServerConfig`.
        note: Why it is not the way of the config; empty where it is.
    """

    transport: str
    protocol: Protocol = "auto"
    note: str = ""


def first_way(config: ServerConfig | None) -> Way:
    """The way that a config asks for."""
    return Way(transport_kind(config), config.protocol if config else "auto")


def older_way(way: Way, config: ServerConfig | None, name: str, link: McpSession, start: float) -> Way | None:
    """The way to try after a start that failed, or None where no other would help.

    Args:
        way: The way that failed.
        config: The server's config.
        name: The server's name.
        link: The session that could not be opened.
        start: When the start began, on the loop's clock.
    """
    if way.transport == "http" and config is not None and config.transport is None and link.route.http is not None:
        status = link.route.http.status_since(start)
        if status in NOT_STREAMABLE:
            note = f"Its address does not take streamable HTTP (HTTP {status}), so the older SSE transport is used."
            return replace(way, transport="sse", note=f"{note} Set servers.{name}.transport to sse to skip the attempt.")
    if way.transport == "stdio" and way.protocol == "auto" and link.undiscovered == "ended":
        note = "It ended when it was asked for its protocol versions, so it was started again with the older handshake."
        return legacy_way(way, config, name, note)
    return None


def legacy_way(way: Way, config: ServerConfig | None, name: str, why: str) -> Way:
    """The same way with the older handshake."""
    return replace(way, protocol="legacy", note=why + _advice(config, name))


def cannot_ask(texts: Iterable[str], version: str | None) -> bool:
    """Whether a call failed because the server wanted to ask something and could not on a connection of this version."""
    return version is not None and version >= FIRST_WITHOUT_HANDSHAKE and any(map(_CANNOT_ASK.search, texts))


def notes_of(way: Way, config: ServerConfig | None, name: str, link: McpSession | None) -> tuple[str, ...]:
    """What is worth knowing of how a server was connected."""
    notes = [way.note] if way.note else []
    version = link.greeting.protocol_version if link else None
    if link is not None and link.undiscovered == "silent" and version and version < FIRST_WITHOUT_HANDSHAKE:
        wait = "It did not answer when it was asked for its protocol versions, so it was connected by the older handshake."
        notes.append(wait + _advice(config, name))
    return tuple(notes)


def _advice(config: ServerConfig | None, name: str) -> str:
    return f" Set servers.{name}.protocol to legacy to begin with that." if config is not None else ""
