"""What passed between this client and its servers: messages, HTTP exchanges and logs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.iterables import attributes, grouped, labelled

Direction = Literal["sent", "received"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line in a server's log, cleaned and cut, secrets masked.

    The level is `stderr`, or the server's.
    """

    at: float
    level: str
    text: str


@dataclass(frozen=True)
class ServerLog(DisplayableList[LogLine], items="lines"):
    """A server's last log lines: its stderr and the log messages that it sent, newest last."""

    server: str
    lines: tuple[LogLine, ...] = field(default=(), repr=False)
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON-RPC message, cut, with secrets masked and image data left out.

    See https://www.jsonrpc.org/specification.

    A response has its request's method.
    """

    at: float
    direction: Direction
    method: str
    tool: str
    text: str


@dataclass(frozen=True)
class Messages(DisplayableList[Message], items="messages"):
    """The most recent messages to and from a server, newest last."""

    server: str
    messages: tuple[Message, ...] = field(default=(), repr=False)


Kind = Literal["request", "response", "error", "notification", "http"]
"""A record's kind: JSON-RPC's, or an HTTP exchange without a message, such as the one that ends a
session.
"""

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HttpExchange:
    """The HTTP request that carried a message, and its response, with secrets masked.

    Without a response the status is None.
    """

    method: str
    url: str
    status: int | None
    request_headers: Headers
    response_headers: Headers

    def as_dict(self) -> dict[str, Any]:
        """Convert the exchange to plain values, for JSON."""
        return {
            **asdict(self),
            "request_headers": _joined(self.request_headers),
            "response_headers": _joined(self.response_headers),
        }


def _joined(headers: Headers) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


@dataclass(frozen=True, slots=True)
class WireRecord(Displayable):
    """A message between this client and a server, with secrets masked and image data left out.

    Attributes:
        server: The server's name.
        at: Its time in seconds since 1970.
        direction: Whether it was `sent` or `received`.
        kind: Its kind.
        method: Its method. A response has its request's.
        id: The request id, or None for a notification.
        tool: The tool that it is about, or empty.
        group: Its group's number. A group is a request with its progress, the server's questions
            and their answers, and the response, over all rounds.
        seconds: For a response, the time since its request.
        size: Its length in bytes as JSON. An estimate if it was cut.
        cut: Whether the text is only its beginning.
        text: It as JSON on one line.
        http: The HTTP exchange that carried it, if there was one.
    """

    server: str
    at: float
    direction: Direction
    kind: Kind
    method: str
    id: int | str | None
    tool: str
    group: int
    seconds: float | None
    size: int
    cut: bool
    text: str
    http: HttpExchange | None = None

    @property
    def message(self) -> Any:
        """The message as a JSON value, or None for an HTTP exchange without one."""
        return json.loads(self.text) if self.text else None

    def as_dict(self) -> dict[str, Any]:
        """Convert the record to plain values, for JSON."""
        names = ("server", "direction", "kind", "method", "id", "tool", "group", "size", "cut")
        return {
            "time": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds"),
            **attributes(self, names),
            "seconds": None if self.seconds is None else round(self.seconds, 6),
            "message": self.message,
            "http": self.http.as_dict() if self.http else None,
        }


@dataclass(frozen=True)
class Wire(DisplayableList[WireRecord], items="records"):
    """The most recent messages between this client and servers, the newest last.

    `dropped` counts the earlier ones.
    """

    records: tuple[WireRecord, ...] = field(default=(), repr=False)
    dropped: int = 0

    @property
    def groups(self) -> tuple[tuple[WireRecord, ...], ...]:
        """The records by group, in the order in which the groups began."""
        return tuple(map(tuple, grouped(self.records, "group").values()))

    def matching(self, method: str | None = None, text: str | None = None) -> Wire:
        """Select the groups in which a message has this method and this text.

        Args:
            method: A method, with `*` for any characters, such as `tools/*`. None for any.
            text: A text that the message or its headers contain, in any case. None for any.
        """
        if method is None and text is None:
            return self
        wanted = (text or "").casefold()
        groups: set[int] = set()
        for record in self.records:
            has_method = method is None or fnmatchcase(record.method, method)
            if has_method and (not wanted or wanted in _searched(record)):
                groups.add(record.group)
        matching = tuple(record for record in self.records if record.group in groups)
        return Wire(matching, self.dropped)

    def to_jsonl(self) -> str:
        """Format the records as JSON, one per line."""
        return "".join(f"{json.dumps(record.as_dict())}\n" for record in self.records)

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the records to a file as JSON, one per line, whole or not at all, and return the
        file.

        Args:
            path: The file.
            overwrite: Replace a file that exists.

        Raises:
            UsageError: The file exists, or cannot be written.
        """
        file = Path(path).expanduser()
        write_text(file, self.to_jsonl(), overwrite=overwrite)
        return file


def _searched(record: WireRecord) -> str:
    parts = [record.text, record.method, record.tool]
    if record.http:
        headers = (*record.http.request_headers, *record.http.response_headers)
        parts.append(record.http.url)
        parts += labelled(headers)
    return "\n".join(parts).casefold()
