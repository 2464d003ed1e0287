"""How to connect to a server: the configured transport and handshake, or an older one as a fallback."""

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
"""HTTP statuses after which a client tries the older transport, see
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility."""
FIRST_WITHOUT_HANDSHAKE = "2026-07-28"
"""Since this version, a server answers a call with its questions, and can no longer send requests."""
_CANNOT_ASK = re.compile(r"server-initiated requests?\b|\bno back-?channel\b", re.IGNORECASE)


@dataclass(frozen=True)
class ConnectMode:
    """A transport and a handshake.

    Args:
        transport: `stdio`, `http`, `sse` or `in-process`.
        protocol: As in `ServerConfig`.
        note: Why it differs from the config; empty if it does not.
    """

    transport: str
    protocol: Protocol = "auto"
    note: str = ""


def initial_mode(config: ServerConfig | None) -> ConnectMode:
    """Choose the mode that a config specifies."""
    return ConnectMode(transport_kind(config), config.protocol if config else "auto")


def fallback_mode(
    mode: ConnectMode, config: ServerConfig | None, name: str, session: McpSession, start: float
) -> ConnectMode | None:
    """Choose the mode to try after a failed start; None if no other mode would help.

    Args:
        mode: The mode that failed.
        config: The server's config.
        name: The server's name.
        session: The session that could not be opened.
        start: The start time, on the loop's clock.
    """
    if mode.transport == "http" and config is not None and config.transport is None and session.context.http is not None:
        status = session.context.http.status_since(start)
        if status in NOT_STREAMABLE:
            note = f"Its address does not take streamable HTTP (HTTP {status}), so the older SSE transport is used."
            return replace(mode, transport="sse", note=f"{note} Set servers.{name}.transport to sse to skip the attempt.")
    if mode.transport == "stdio" and mode.protocol == "auto" and session.discover_failure == "ended":
        note = "It exited on the request for its protocol versions, so it was restarted with the older handshake."
        return legacy_mode(mode, config, name, note)
    return None


def legacy_mode(mode: ConnectMode, config: ServerConfig | None, name: str, reason: str) -> ConnectMode:
    """Convert a mode to the same one with the older handshake."""
    return replace(mode, protocol="legacy", note=reason + _advice(config, name))


def cannot_ask(texts: Iterable[str], version: str | None) -> bool:
    """Check whether a call failed because the server cannot ask questions on a connection of this version."""
    return version is not None and version >= FIRST_WITHOUT_HANDSHAKE and any(map(_CANNOT_ASK.search, texts))


def connect_notes(mode: ConnectMode, config: ServerConfig | None, name: str, session: McpSession | None) -> tuple[str, ...]:
    """Write a note for the user about how a server was connected."""
    notes = [mode.note] if mode.note else []
    version = session.server_info.protocol_version if session else None
    if session is not None and session.discover_failure == "silent" and version and version < FIRST_WITHOUT_HANDSHAKE:
        waited = "It did not answer the request for its protocol versions, so the older handshake was used."
        notes.append(waited + _advice(config, name))
    return tuple(notes)


def _advice(config: ServerConfig | None, name: str) -> str:
    return f" Set servers.{name}.protocol to legacy to start with that." if config is not None else ""
