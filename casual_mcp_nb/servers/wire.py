"""The wire between this client and an MCP server: each JSON-RPC message and HTTP exchange, recorded
cheaply, shown masked.

Records are references or JSON. It is shortened, redacted and grouped into rounds when somebody
reads it.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from casual_mcp_nb.base.iterables import drop_none
from casual_mcp_nb.base.secret import MASK, Mask, Suspects
from casual_mcp_nb.base.wire import (
    Direction,
    HttpExchange,
    Kind,
    Message,
    Messages,
    Wire,
    WireRecord,
)
from casual_mcp_nb.servers.redaction import Redactor, clean

MAX_MESSAGES = 500
"""How many messages and HTTP exchanges are kept per server."""
MAX_MESSAGE_LENGTH = 20_000
MAX_STORED = 4 * 1024 * 1024
"""Maximum total length of a server's messages, without headers."""
MAX_HEADERS = 50
MAX_HEADER_LENGTH = 1_000
_MAX_COPIED = 200
_MAX_VALUES = 1_000
_MAX_DEPTH = 50
_MAX_OPEN = 1_000
_MAX_WAITING = 100
_MAX_NAME = 200
_MAX_TASK_ID = 1_000
_BASE64_KEYS = frozenset({"data", "blob"})
_SHORT = 200
_SCALARS = frozenset({bool, int, float})
_MORE = "…"
_INVISIBLE = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_LISTENING = "subscriptions/listen"
_NEWS = ("/list_changed", "resources/updated")
_groups = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A string's beginning, longer than the part that is shown, and its total length."""

    text: str
    length: int


class _Http(NamedTuple):
    """An HTTP exchange as it was. It is masked when it is read."""

    method: str
    url: str
    status: int | None
    request: Sequence[tuple[bytes, bytes]]
    response: Sequence[tuple[bytes, bytes]]


@dataclass(slots=True, eq=False)
class _Origin:
    """What a message is about, without its body. Pending requests and HTTP requests refer to it."""

    group: int
    id: Any = None
    method: str = ""
    tool: str = ""
    clock: float = 0.0
    http: _Http | None = None
    cancelled: bool = False


class _Stored(NamedTuple):
    at: float
    direction: Direction
    kind: Kind
    origin: _Origin
    request: _Origin | None
    seconds: float | None
    body: Any
    size: int
    weight: int


class _Waiting(NamedTuple):
    """A request that the server answered by questions, until it is sent again with the answers."""

    method: str
    target: Any
    state: Any
    questions: frozenset[str]
    group: int


SENT: ContextVar[_Origin | None] = ContextVar("SENT", default=None)
"""The message being sent in this context: HTTP carries it, and whatever the server sends on its
stream is about it.
"""


_DEPRECATED = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "notifications/message": "logging",
}
"""The messages of servers that MCP 2026-07-28 deprecates, with the names of their features."""


class WireLog:
    """Collects a server's messages across its sessions. Written on one thread, read on any.

    Attributes:
        deprecated: What the server has used that MCP 2026-07-28 deprecates: `logging`, `roots`,
            `sampling`, and dynamic client registration.
    """

    def __init__(self, server: str, secrets: Iterable[str] = ()) -> None:
        self._server = server
        self.redact = Redactor(secrets)
        self._stored: deque[_Stored] = deque()
        self._weight = self._dropped = 0
        self._open: dict[tuple[Direction, Any], _Origin] = {}
        self._waiting: deque[_Waiting] = deque(maxlen=_MAX_WAITING)
        self._tasks: dict[str, tuple[int, str]] = {}
        self.deprecated: set[str] = set()

    def add(self, direction: Direction, message: Any, context: Context | None = None) -> _Origin:
        """Add one of the SDK's four kinds of JSON-RPC messages.

        Args:
            direction: Whether it was sent or received.
            message: The message, of which a copy is kept.
            context: The sender's context, which in-process and HTTP streams have.

        Returns:
            A reference to it for `SENT`.
        """
        fields: dict[str, Any] = vars(message)
        if "error" in fields:
            fields = {**fields, "error": vars(fields["error"])}
        clock = time.monotonic()
        kind, origin, request = self._subject(direction, fields, clock, context)
        # Most messages are short, and nobody reads most of them: as JSON a copy takes a tenth of
        # what a shortened one takes.
        body: Any = b""
        size = 0
        # A large message would be copied only to be shortened, and one of a server in this process
        # can have any size.
        if not _is_large(fields):
            with suppress(ValueError):
                body = to_json(fields, inf_nan_mode="constants")
        weight = len(body)
        if not 0 < weight <= MAX_MESSAGE_LENGTH:
            shortener = self._shortener()
            body, size = shortener.fields(_given(fields)), shortener.size
            weight = min(size, MAX_MESSAGE_LENGTH)
        seconds = None
        if request is not None and kind in ("response", "error"):
            seconds = clock - request.clock
        self._store(
            _Stored(time.time(), direction, kind, origin, request, seconds, body, size, weight)
        )
        return origin

    def add_http(self, carried: _Origin | None, exchange: _Http) -> None:
        """Add an HTTP exchange: to the message that it carried, or as a record without a message.

        A response replaces its request. If several carried a message, as after a redirect, the last
        one stays.
        """
        if carried is not None:
            before, carried.http = carried.http, exchange
            if before is None or before.status is None:
                return
            exchange = before
        origin = _Origin(self._group_of(carried), method=exchange.method, http=exchange)
        self._store(_Stored(time.time(), "sent", "http", origin, None, None, b"", 0, 0))

    def read(self, tool: str | None = None) -> Messages:
        """List the messages, redacted, for one tool or all."""
        stored = []
        for each in tuple(self._stored):
            if each.kind != "http" and tool in (None, (each.request or each.origin).tool):
                stored.append(each)
        messages = []
        for each, masked in zip(stored, self._masked(stored), strict=True):
            text = _json(masked.body, indent=2)
            if len(text) > MAX_MESSAGE_LENGTH:
                text = f"{text[:MAX_MESSAGE_LENGTH]}{_MORE}"
            messages.append(Message(each.at, each.direction, masked.method, masked.tool, text))
        return Messages(self._server, tuple(messages))

    def wire(self) -> Wire:
        """List all messages and HTTP exchanges, redacted."""
        stored, dropped = tuple(self._stored), self._dropped
        records = []
        for each, masked in zip(stored, self._masked(stored), strict=True):
            text = ""
            if each.kind != "http":
                text = _json(masked.body)
            records.append(
                WireRecord(
                    self._server,
                    each.at,
                    each.direction,
                    each.kind,
                    masked.method,
                    masked.id,
                    masked.tool,
                    each.origin.group,
                    each.seconds,
                    masked.size,
                    masked.cut,
                    text,
                    masked.http,
                )
            )
        return Wire(tuple(records), dropped)

    def _store(self, stored: _Stored) -> None:
        self._stored.append(stored)
        self._weight += stored.weight
        while len(self._stored) > MAX_MESSAGES or self._weight > MAX_STORED:
            self._weight -= self._stored.popleft().weight
            self._dropped += 1

    def _subject(
        self, direction: Direction, fields: dict[str, Any], clock: float, context: Context | None
    ) -> tuple[Kind, _Origin, _Origin | None]:
        """Find a message's kind and subject, and for a response the request that it answers."""
        method, request_id, params = fields.get("method"), fields.get("id"), fields.get("params")
        opposite: Direction = "received" if direction == "sent" else "sent"
        if method is None:
            request = self._open.pop((opposite, request_id), None)
            group = self._group_of(request)
            result = fields.get("result")
            if request is not None and isinstance(result, dict):
                # A task asks in the state that it is polled for.
                if questions := result.get("inputRequests"):
                    self._note_questions(questions)
                if result.get("resultType") == "input_required":
                    self._wait(request, result)
                elif result.get("resultType") == "task":
                    self._note_task(result.get("taskId"), request)
            return "error" if "error" in fields else "response", _Origin(group, request_id), request
        values = params if isinstance(params, dict) else {}
        if not isinstance(method, str):
            method = ""
        if direction == "received":
            self._note_method(method)
        if request_id is None:
            about = self._notified(direction, opposite, method, values, context)
            group, tool = (about.group, about.tool) if about is not None else (next(_groups), "")
            return "notification", _Origin(group, None, method, tool), None
        name = values.get("name") if method == "tools/call" else None
        tool = ""
        if isinstance(name, str):
            tool = name
        if direction == "sent" and method.startswith("tasks/"):
            # What is asked about a task belongs to the call that became it.
            group, tool = self._note_task(values.get("taskId"))
        elif direction == "sent":
            group = self._group_of(self._continued(method, values))
        else:
            group = self._group_of(self._cause(context))
        origin = _Origin(group, request_id, method, tool, clock)
        self._open[direction, request_id] = origin
        if len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open)))
        return "request", origin, None

    def _notified(
        self,
        direction: Direction,
        opposite: Direction,
        method: str,
        values: Mapping[str, Any],
        context: Context | None,
    ) -> _Origin | None:
        """Find the request that a notification is about."""
        if method == "notifications/progress":
            return self._pending(opposite, values.get("progressToken"))
        if method == "notifications/cancelled":
            about = self._pending(direction, values.get("requestId"))
            if about is not None:
                about.cancelled = True
            return about
        if direction == "sent" or method.endswith(_NEWS):
            return None
        return self._cause(context)

    def _pending(self, direction: Direction, request_id: object) -> _Origin | None:
        # It may be any JSON value, also one that cannot be looked up.
        if isinstance(request_id, int | str):
            return self._open.get((direction, request_id))
        return None

    def _cause(self, context: Context | None) -> _Origin | None:
        """Find the request during which the server sent something: its stream's, or the only
        pending one.
        """
        sent = context.get(SENT) if context is not None else None
        if sent is not None and sent.id is not None and self._open.get(("sent", sent.id)) is sent:
            return sent
        on_the_way = []
        for (direction, _), origin in self._open.items():
            if direction == "sent" and not origin.cancelled and origin.method != _LISTENING:
                on_the_way.append(origin)
        if len(on_the_way) == 1:
            return on_the_way[0]
        return None

    def _note_questions(self, questions: Any) -> None:
        if not isinstance(questions, dict):
            return
        for question in list(questions.values())[:_MAX_WAITING]:
            if isinstance(question, dict):
                self._note_method(question.get("method"))

    def _note_method(self, method: object) -> None:
        """Note what a server's request uses of the deprecated features."""
        if isinstance(method, str) and method in _DEPRECATED:
            self.deprecated.add(_DEPRECATED[method])

    def _note_task(self, task_id: Any, call: _Origin | None = None) -> tuple[int, str]:
        """Find a task's group and tool, which it has from the call that became it. A task of an
        unknown call begins a group.
        """
        subject = self._tasks.get(task_id) if isinstance(task_id, str) else None
        if subject is None:
            subject = (call.group, call.tool) if call is not None else (next(_groups), "")
            if isinstance(task_id, str) and len(task_id) <= _MAX_TASK_ID:
                if len(self._tasks) >= _MAX_OPEN:
                    self._tasks.pop(next(iter(self._tasks)))
                self._tasks[task_id] = subject
        return subject

    def _wait(self, request: _Origin, result: Mapping[str, Any]) -> None:
        questions = result.get("inputRequests")
        keys = frozenset(questions) if isinstance(questions, dict) else frozenset[str]()
        self._waiting.append(
            _Waiting(request.method, request.tool, result.get("requestState"), keys, request.group)
        )

    def _group_of(self, about: _Waiting | _Origin | None) -> int:
        """Find the group to which another message belongs, or begin one."""
        if about is None:
            return next(_groups)
        return about.group

    def _continued(self, method: str, values: Mapping[str, Any]) -> _Waiting | None:
        """Find the request that this one continues: it returns the server's state and questions."""
        if "inputResponses" not in values and "requestState" not in values:
            return None
        name: Any = ""
        if method == "tools/call":
            name = values.get("name")
        answers = values.get("inputResponses")
        keys = frozenset(answers) if isinstance(answers, dict) else frozenset[str]()
        for waiting in self._waiting:
            if (
                waiting[:2] == (method, name)
                and waiting.state == values.get("requestState")
                and waiting.questions == keys
            ):
                self._waiting.remove(waiting)
                return waiting
        return None

    def _masked(self, stored: Sequence[_Stored]) -> list[_Masked]:
        """Redact messages: secrets from the config, probable secrets, and then whatever was
        recognised in any message.
        """
        suspects = _Suspects()
        drafts = []
        for each in stored:
            about = each.request or each.origin
            body, size, cut = each.body, each.size, each.size > 0
            if isinstance(each.body, bytes) and each.body:
                fields = _given(from_json(each.body))
                shortener = self._shortener()
                body = shortener.fields(fields)
                size, cut = len(_compact(fields).encode()), shortener.cut
            request_id = each.origin.id
            if isinstance(request_id, str):
                request_id = self._name(request_id)
            method, tool = self._name(about.method), self._name(about.tool)
            body, http = suspects.value(self._redacted(body)), None
            carrier = each.request
            if each.direction == "sent":
                carrier = each.origin
            if carrier is not None and carrier.http is not None:
                http = self._exchange(carrier.http, suspects)
            drafts.append(_Masked(method, tool, request_id, size, cut, body, http))
        mask = suspects.collected
        return [
            each._replace(
                body=_finished(each.body, mask), http=each.http and _hidden(each.http, mask)
            )
            for each in drafts
        ]

    def _shortener(self) -> _Shortener:
        return _Shortener(MAX_MESSAGE_LENGTH - 4, self.redact.longest)

    def _name(self, name: str) -> str:
        return clean(self.redact(name))[:_MAX_NAME]

    def _exchange(self, http: _Http, suspects: Suspects) -> HttpExchange:
        def headers(pairs: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
            return tuple(
                (self._name(name.decode("latin-1")), self._header(name, value, suspects))
                for name, value in pairs
            )

        url = suspects.url(
            self.redact.start(http.url, MAX_HEADER_LENGTH, cut=len(http.url) > MAX_HEADER_LENGTH)
        )
        return HttpExchange(
            http.method, clean(url), http.status, headers(http.request), headers(http.response)
        )

    def _header(self, name: bytes, value: bytes, suspects: Suspects) -> str:
        text = value.decode("utf-8", "replace")
        masked = suspects.credential(name.decode("latin-1"), text)
        if masked is None:
            masked = suspects.text(
                self.redact.start(text, MAX_HEADER_LENGTH, cut=len(text) >= MAX_HEADER_LENGTH)
            )
        return clean(self.redact(masked))

    def _redacted(self, value: Any) -> Any:
        match value:
            case str():
                return self.redact(value)
            case _Cut(text, length):
                return _Cut(self.redact.start(text, len(text), cut=True), length)
            case dict():
                return {self.redact(key): self._redacted(item) for key, item in value.items()}
            case list():
                return list(map(self._redacted, value))
            case int() | float() if not isinstance(value, bool) and self.redact(str(value)) == MASK:
                return MASK
        return value


class _Suspects(Suspects):
    """Those in messages that are cut, too."""

    def other(self, value: Any, name: str) -> Any:
        if not isinstance(value, _Cut):
            return value
        text = self.value(value.text, name)
        if text == MASK:
            return MASK
        return _Cut(text, value.length)


class _Masked(NamedTuple):
    method: str
    tool: str
    id: int | str | None
    size: int
    cut: bool
    body: Any
    http: HttpExchange | None


def exchange_of(
    method: str,
    url: str,
    status: int | None,
    request: Sequence[tuple[bytes, bytes]],
    response: Sequence[tuple[bytes, bytes]],
) -> _Http:
    """Record an HTTP exchange, with those headers that are kept."""
    return _Http(
        method, url[: MAX_HEADER_LENGTH + 1], status, _bounded(request), _bounded(response)
    )


def _bounded(headers: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple(
        [(name[:_MAX_NAME], value[:MAX_HEADER_LENGTH]) for name, value in headers[:MAX_HEADERS]]
    )


def _hidden(http: HttpExchange, mask: Mask) -> HttpExchange:
    def headers(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((name, mask(value)) for name, value in pairs)

    return HttpExchange(
        http.method,
        mask(http.url),
        http.status,
        headers(http.request_headers),
        headers(http.response_headers),
    )


def _finished(value: Any, mask: Mask) -> Any:
    """Mask the collected values, and show how long a text is that was cut."""
    match value:
        case str():
            return mask(value)
        case _Cut(text, length):
            text = mask(text)
            if mask.longest:
                # Its end may be half a secret.
                text = text[: len(text) - mask.longest]
            return f"{text}{_MORE} ({length:,} characters)"
        case dict():
            return {mask(key): _finished(item, mask) for key, item in value.items()}
        case list():
            return [_finished(item, mask) for item in value]
    return value


def _is_large(fields: dict[str, Any]) -> bool:
    """Check whether a message has more text or values than are kept of it, in a time independent of
    its size.
    """
    values: list[Any] = [fields]
    for value in values:
        if isinstance(value, str) and len(value) > MAX_MESSAGE_LENGTH:
            return True
        parts: Collection[Any] = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, (list, tuple)):
            parts = value
        if len(values) + len(parts) > _MAX_VALUES:
            return True
        values.extend(parts)
    return False


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave out the fields that the message does not have."""
    return drop_none(fields)


def _compact(value: Any) -> str:
    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        .encode("utf-8", "replace")
        .decode()
    )


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class _Shortener:
    """Copies the first part of a JSON value, in a time independent of its size.

    `cut` tells that something was left out, and `size` estimates the total length.

    From a cut string, `spare` more characters are copied, in case the cut is inside a secret.
    """

    def __init__(self, length: int, spare: int) -> None:
        self._length = self._left = length
        self._spare = spare
        self._left_out = 0

    @property
    def size(self) -> int:
        """The whole value's approximate length as JSON."""
        return max(1, self._length - self._left + self._left_out)

    @property
    def cut(self) -> bool:
        """Whether something was left out."""
        return self._left_out > 0 or self._left < 0

    def short(self, value: Any, key: str = "", depth: int = 0) -> Any:
        self._left -= 4
        if isinstance(value, dict):
            if depth > _MAX_DEPTH:
                return _MORE
            return self.fields(value, depth)
        if isinstance(value, list) and depth > _MAX_DEPTH:
            return _MORE
        if isinstance(value, (list, tuple)):
            items: list[Any] = []
            left = self._left
            for item in value:
                if self._left <= 0:
                    mean = (left - self._left) // max(1, len(items))
                    self._left_out += (len(value) - len(items)) * max(4, mean)
                    items.append(f"{_MORE} {len(value) - len(items):,} more")
                    break
                items.append(self.short(item, key, depth + 1))
            return items
        if isinstance(value, str):
            return self._text(value, key)
        if value is None or isinstance(value, (int, float)):
            return value
        return f"({type(value).__name__})"

    def fields(self, value: dict[Any, Any], depth: int = 0) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for name, item in value.items():
            left = self._left
            if left <= 0:
                remaining = itertools.islice(value.items(), len(copy), len(copy) + _MAX_COPIED)
                for part in itertools.chain.from_iterable(remaining):
                    self._left_out += len(part) if isinstance(part, str) else 8
                copy[_MORE] = f"{len(value) - len(copy):,} more"
                break
            if type(name) is str and len(name) <= _SHORT:
                self._left = left = left - len(name)
            else:
                name = self._key(name)
            kind = type(item)
            # Nearly all items are short: a call for each would take longer than all else.
            if kind is str and len(item) <= _SHORT and len(item) + 4 <= left:
                self._left = left - len(item) - 4
                copy[name] = item
            elif item is None or kind in _SCALARS:
                self._left = left - 4
                copy[name] = item
            elif kind is dict and depth < _MAX_DEPTH:
                self._left = left - 4
                copy[name] = self.fields(item, depth + 1) if item else {}
            else:
                copy[name] = self.short(item, name[:20], depth + 1)
        return copy

    def _text(self, value: str, key: str) -> Any:
        if key in _BASE64_KEYS and len(value) > _SHORT and " " not in value[:_SHORT]:
            self._left_out += len(value)
            return f"({len(value):,} characters of base64)"
        room = max(self._left, 0)
        self._left -= len(value)
        if len(value) <= room:
            return value
        return _Cut(value[: room + self._spare], len(value))

    def _key(self, name: object) -> str:
        key = str(name)
        self._left -= len(key)
        if len(key) <= _SHORT:
            return key
        return f"({len(key):,} characters)"
