"""A server's information about itself from the handshake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastmcp import Client

from casual_mcp_nb.connections._redactor import clean

MAX_EXTENSIONS = 20


@dataclass(frozen=True)
class ServerInfo:
    """A server's information about itself from the handshake, redacted.

    See https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization.
    """

    protocol_version: str | None = None
    version: str | None = None
    instructions: str = ""
    capabilities: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    @classmethod
    def of(cls, client: Client[Any], redact: Callable[[str], str]) -> ServerInfo:
        """Read it from a client after the handshake."""
        info, capabilities = client.server_info, client.server_capabilities
        extensions = list((capabilities.extensions if capabilities else None) or ())[:MAX_EXTENSIONS]
        return cls(
            protocol_version=client.protocol_version,
            version=clean(redact(f"{info.name} {info.version}".strip()))[:200] if info else None,
            instructions=redact(client.instructions or ""),
            capabilities=_names(capabilities),
            extensions=tuple(clean(redact(str(name)))[:100] for name in extensions),
        )


def _names(capabilities: Any) -> tuple[str, ...]:
    """List the names of the declared capabilities, without extensions, whose names servers invent."""
    fields = type(capabilities).model_fields if capabilities is not None else ()
    names = (name for name in fields if name not in ("experimental", "extensions"))
    return tuple(name for name in names if getattr(capabilities, name) is not None)
