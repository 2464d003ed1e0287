"""Records of a server: its log, and the messages to and from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from casual_mcp_nb.types.displayable import DisplayableList

Direction = Literal["sent", "received"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a server's log.

    Args:
        at: When it arrived, in seconds since 1970.
        level: `stderr`, or the server's level: `debug` to `emergency`.
        text: The line, cleaned and cut, secrets masked.
    """

    at: float
    level: str
    text: str


@dataclass(frozen=True)
class ServerLog(DisplayableList[LogLine]):
    """The end of a server's log: its stderr and the log messages that it sent, newest last.

    Args:
        server: The server.
        lines: The lines.
        dropped: How many earlier lines were dropped.
    """

    server: str
    lines: tuple[LogLine, ...] = field(default=(), repr=False)
    dropped: int = 0

    @property
    def _items(self) -> tuple[LogLine, ...]:
        return self.lines


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON-RPC message; see https://www.jsonrpc.org/specification.

    Args:
        at: When it was sent or received, in seconds since 1970.
        direction: `sent` to the server, or `received` from it.
        method: Its method; for a response, that of the request.
        tool: Name of the tool concerned; empty for none.
        text: The message as JSON, cut, with secrets masked and image data left out.
    """

    at: float
    direction: Direction
    method: str
    tool: str
    text: str


@dataclass(frozen=True)
class Messages(DisplayableList[Message]):
    """The most recent messages to and from a server, newest last.

    Args:
        server: The server.
        messages: The messages.
    """

    server: str
    messages: tuple[Message, ...] = field(default=(), repr=False)

    @property
    def _items(self) -> tuple[Message, ...]:
        return self.messages
