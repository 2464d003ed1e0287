"""Events, messages and turns as JSON and back: the only module that knows how.

A saved conversation has a `format`, a `version`, `messages` and `tools` (each distinct one once)
and `turns`, each with its `events`. Events refer to messages and tools by spans of indices into
those lists. Fields and events that this version does not know are preserved. Programs that follow a
turn get the same events with the same fields, see `followed`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

from casual_mcp_nb.base.iterables import all_are, field_names
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.secret import MASK, Failure, Mask, mask_of
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import (
    AppCalled,
    Event,
    Request,
    StepFinished,
    StepStarted,
    TaskEnded,
    TaskStarted,
    ToolFinished,
    ToolProgress,
    TurnFinished,
    TurnStarted,
    as_in_a_file,
)
from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage
    from pydantic import BaseModel, TypeAdapter


Span = list[int]
"""A half-open range of numbers: from the first up to, but not including, the second."""


class NumberedValues:
    """Numbers values. Equal values get the same number."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows: list[Mapping[str, Any]] = list(rows)
        self._by_text = {_text(row): number for number, row in enumerate(self.rows)}
        self._by_object: dict[int, int] = {}
        # Keeps the objects alive, because ids are reused after collection.
        self._values: list[Any] = []

    def number(self, value: Any) -> int:
        """Number a message or a definition. Add it if it is new."""
        number = self._by_object.get(id(value))
        if number is None:
            row = value if isinstance(value, Mapping) else value.model_dump(mode="json")
            text = _text(row)
            number = self._by_text.setdefault(text, len(self.rows))
            if number == len(self.rows):
                self.rows.append(row)
            self._by_object[id(value)] = number
            self._values.append(value)
        return number

    def spans(self, values: Iterable[Any]) -> list[Span]:
        """Number values, as spans. Even a long history needs only a few."""
        spans: list[Span] = []
        numbers = self._by_object
        for value in values:
            # Each request has all messages again.
            number = numbers.get(id(value))
            if number is None:
                number = self.number(value)
            if spans and spans[-1][1] == number:
                spans[-1][1] += 1
            else:
                spans.append([number, number + 1])
        return spans


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def spread(spans: Sequence[Any], rows: Sequence[Any]) -> Iterator[Any]:
    """Yield the rows that spans refer to, or raise a ValueError.

    Inline rows, as in older files, are yielded unchanged.
    """
    for span in spans:
        if isinstance(span, Mapping):
            yield span
            continue
        start, end = span
        if not 0 <= start <= end <= len(rows):
            raise ValueError("A span outside of its table.")
        yield from rows[start:end]


def read_message(row: Any) -> ChatMessage:
    """Parse a message from a JSON object, or raise a ValueError. Unknown fields are kept on it."""
    kinds = _kinds().get(row["role"], ())
    kind = next((kind for kind in kinds if _required(kind) <= row.keys()), None)
    if kind is None:
        raise ValueError("Not a message.")
    if not row.keys() <= _model_fields(kind):
        kind = _open(kind)
    message: Any = kind.model_validate(row)
    return message  # type: ignore[no-any-return]


def message_fields(message: ChatMessage) -> dict[str, Any]:
    """Convert a message to its role's fields, without those that only its provider or this package
    reads.
    """
    return message.model_dump(mode="json", include=set(_model_fields(_kinds()[message.role][-1])))


@cache
def _kinds() -> Mapping[str, tuple[type[BaseModel], ...]]:
    """List the message classes by role, those with more required fields first."""
    from casual_llm.messages import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage

    from casual_mcp_nb.conversation.messages import (
        StatefulAssistantMessage,
        TaskReportMessage,
        ToolOutcomeMessage,
    )

    return {
        "system": (SystemMessage,),
        "user": (TaskReportMessage, UserMessage),
        "assistant": (StatefulAssistantMessage, AssistantMessage),
        "tool": (ToolOutcomeMessage, ToolResultMessage),
    }


@cache
def _required(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in kind.model_fields.items() if field.is_required())


@cache
def _model_fields(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(kind.model_fields)


@cache
def _open(kind: type[BaseModel]) -> type[BaseModel]:
    """Subclass a message class so that it keeps unknown fields."""
    from pydantic import ConfigDict

    return type(
        kind.__name__,
        (kind,),
        {"model_config": ConfigDict(extra="allow"), "__module__": kind.__module__},
    )


@dataclass(frozen=True)
class Format:
    """A file format: its name in the file, and the version that this package writes.

    It reads all earlier ones.

    Each format has its own version. All contain events, which this module writes. Adding an event
    field needs no new version.
    """

    name: str
    version: int

    @property
    def head(self) -> dict[str, Any]:
        """The fields with which a file begins."""
        return {"format": self.name, "version": self.version}

    def problem(self, name: str, version: Any) -> str:
        """Explain why this version cannot be read, or return an empty string if it can."""
        if type(version) is int and version <= self.version:
            return ""
        return (
            f"{name} has version {shown(str(version))}, and this package reads versions up to"
            f" {self.version}."
        )


CONVERSATION = Format("casual-mcp-nb conversation", 2)
CASSETTE = Format("casual-mcp-nb cassette", 1)
PLAYER = Format("casual-mcp-nb player", 1)
STORE = Format("SQLite", 1)
"""The tables that hold saved conversations. Their version is SQLite's `user_version`."""
NEWER = "A later version of casual_mcp_nb wrote it: update the package."

MAX_DEPTH = 100
"""How deeply lists and objects may nest in an event. Deeper values are written as text."""
TOO_DEEP = "[nested too deeply]"

_KINDS: Mapping[str, Any] = {kind.__name__: kind for kind in get_args(Event)}
_PARTS = {"format", "version", "messages", "tools", "turns"}
_APART: Mapping[type[Any], Any] = {
    StepStarted: {"request": {"messages", "tools", "found"}},
    TurnStarted: {"messages"},
    StepFinished: {"message"},
    # They stay in the kernel.
    ToolFinished: {
        "result": {"payload", "rows", "returned", "meta", "whole"},
        "large": {"source"},
    },
}
"""Event fields that are written as indices, or not at all."""


@dataclass(frozen=True)
class PlainLimits:
    """How much of a value is converted: text length, list length, nesting depth, integer size."""

    text: float = math.inf
    items: int | None = None
    depth: int = 2 * MAX_DEPTH
    number: float = math.inf


UNLIMITED = PlainLimits()


def plain(value: Any, limits: PlainLimits = UNLIMITED, secrets: Iterable[str] = ()) -> Any:
    """Reduce a value to strict JSON in UTF-8, with secrets masked.

    A tool becomes its name `server:tool`.

    Parts beyond the limits are cut or replaced by a note.
    """
    return _plain(value, limits, mask_of(secrets), limits.depth)


def _plain(value: Any, limits: PlainLimits, mask: Mask, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case int() | float() if str(value) in mask.plain:
            return MASK
        case str() | ToolName():
            text = mask(str(value))
            if len(text) > limits.text:
                text = f"{text[: int(limits.text)]}…"
            return encodable(text, "replace")
        case int():
            return value if abs(value) < limits.number else "[a large number]"
        case float():
            return value if math.isfinite(value) else str(value)
    if depth == 0:
        return TOO_DEEP
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name), limits, mask, depth - 1)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        items = islice(value.items(), limits.items)
        return {
            str(_plain(key, limits, mask, 1)): _plain(item, limits, mask, depth - 1)
            for key, item in items
        }
    if isinstance(value, list | tuple):
        return [_plain(item, limits, mask, depth - 1) for item in value[: limits.items]]
    return f"[{type(value).__name__}]"


def followed(event: Event, limits: PlainLimits = UNLIMITED) -> dict[str, Any]:
    """Convert an event to plain values for a program that follows a turn, over HTTP or as JSON
    lines.

    They are its class's fields, without those that such a program has already, must not see, or has
    no use for.
    """
    conversions = _FOLLOWED.get(type(event), {})
    fields: dict[str, Any] = {}
    if isinstance(event, TurnStarted):
        fields["version"] = CONVERSATION.version
    for each in dataclasses.fields(event):
        value = getattr(event, each.name)
        if each.name in conversions:
            convert = conversions[each.name]
            if convert is None:
                continue
            value = convert(value)
        fields[each.name] = plain(value, limits)
    return fields


def _size(request: Request) -> dict[str, Any]:
    return {
        "messages": len(request.messages),
        "tools": len(request.tools) + len(request.found),
        "tokens": request.tokens.total,
        "delivery": request.delivery,
    }


def _given(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else failure.given()


_FOLLOWED: Mapping[type[Any], Mapping[str, Callable[[Any], Any] | None]] = {
    TurnStarted: dict.fromkeys(("messages", "price", "began", "recorded", "agent")),
    # With its id, anybody may ask the server for a task.
    TaskStarted: {"task_id": None},
    TaskEnded: {"result": None},
    AppCalled: {"result": None},
    # It has the system prompt and all definitions.
    StepStarted: {"request": _size},
    StepFinished: {"message": message_fields},
    # The model reads the text, not the result.
    ToolFinished: dict.fromkeys(("result", "large")),
    TurnFinished: {"failure": _given},
}
"""Event fields that `followed` leaves out (None) or converts."""


@dataclass
class Unread:
    """Parts in a saved turn that this version does not know. Saving preserves them.

    Unknown events are listed by the index of the event that they precede, unknown event fields by
    index.
    """

    events: dict[int, list[Any]] = field(default_factory=dict)
    event_fields: dict[int, dict[str, Any]] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)


class Recorded(Protocol):
    """A trace, as saving and loading see it."""

    unread: Unread

    def __iter__(self) -> Iterator[Event]: ...
    def __len__(self) -> int: ...
    def append(self, event: Event, /) -> None:
        """Add the next event."""


R = TypeVar("R", bound=Recorded)
V = TypeVar("V")


def dump_traces(traces: Iterable[Recorded], more: Mapping[str, Any] | None = None) -> str:
    """Format traces as JSON. Bytes become base64.

    Numbers that JSON lacks become strings such as `"NaN"`.
    """
    messages, tools = NumberedValues(), NumberedValues()
    turns = [
        {"events": list(_events(trace, messages, tools)), **trace.unread.fields} for trace in traces
    ]
    document = {**CONVERSATION.head, **(more or {}), "messages": messages.rows, "tools": tools.rows}
    return _json({**document, "turns": turns}, indent=1)


class EventWriter:
    """Writes a conversation event by event, in the format of `dump_traces`."""

    def __init__(
        self, messages: Iterable[Mapping[str, Any]] = (), tools: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self._messages, self._tools = NumberedValues(messages), NumberedValues(tools)

    def write(self, event: Event) -> tuple[str, list[tuple[int, str]], list[tuple[int, str]]]:
        """Format an event as JSON, and the messages and definitions that are new in it, each with
        its number.
        """
        messages, tools = self._messages, self._tools
        counts = len(messages.rows), len(tools.rows)
        text = _json(_written(event, messages, tools))
        return text, _new_rows(messages, counts[0]), _new_rows(tools, counts[1])


def _new_rows(table: NumberedValues, start: int) -> list[tuple[int, str]]:
    return [(number, _json(dict(row))) for number, row in enumerate(table.rows[start:], start)]


def document_of(
    messages: Iterable[str], tools: Iterable[str], turns: Iterable[tuple[Iterable[str], str]]
) -> str:
    """Build a document like that of `dump_traces` from its parts as JSON."""
    # "events" is the last field, and its list is still open.
    rows = []
    for events, fields in turns:
        head_of_row = json.dumps({**json.loads(fields), "events": []})[:-2]
        rows.append(f"{head_of_row}{','.join(events)}]}}")
    head = json.dumps(CONVERSATION.head)[1:-1]
    return (
        f'{{{head}, "messages": [{",".join(messages)}], "tools": [{",".join(tools)}], "turns":'
        f" [{','.join(rows)}]}}"
    )


def load_traces(text: str | bytes, new_trace: Callable[[], R]) -> tuple[list[R], dict[str, Any]]:
    """Load the traces written by `dump_traces`, and the document's other fields.

    A UsageError if it is not a saved conversation, or is damaged or from a later version.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError("This is not JSON.", hint=_HINT) from None
    if not isinstance(document, dict) or document.get("format") != CONVERSATION.name:
        raise UsageError("This is not a saved conversation.", hint=_HINT)
    if problem := CONVERSATION.problem("This conversation", document.get("version")):
        raise UsageError(problem, hint=NEWER)
    try:
        if _SURROGATE.search(text if isinstance(text, str) else text.decode("latin-1")):
            # A lone surrogate, which no provider takes.
            document = plain(document)
        messages = [read_message(row) for row in document.get("messages", ())]
        tools = list(document.get("tools", ()))
        if not all_are(tools, Mapping):
            raise TypeError("A definition that is not an object.")
        traces = [_trace(new_trace(), turn, messages, tools) for turn in document["turns"]]
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ):
        raise UsageError("This saved conversation is damaged.", hint=_HINT) from None
    return traces, {name: value for name, value in document.items() if name not in _PARTS}


_SURROGATE = re.compile(r"(?i)\\ud[89a-f]")
_HINT = "Use a .json file written by session.export."


def _events(
    trace: Recorded, messages: NumberedValues, tools: NumberedValues
) -> Iterator[dict[str, Any]]:
    unread = dict(trace.unread.events)
    for index, event in enumerate(trace):
        if index in unread:
            yield from unread[index]
        yield {**_written(event, messages, tools), **trace.unread.event_fields.get(index, {})}
    yield from unread.get(len(trace), ())


def _written(event: Event, messages: NumberedValues, tools: NumberedValues) -> dict[str, Any]:
    fields = _fields(as_in_a_file(event))
    match event:
        case StepStarted(request=request):
            fields["request"]["messages"] = messages.spans(request.messages)
            fields["request"]["tools"] = tools.spans(request.tools)
            fields["request"]["found"] = tools.spans(request.found)
        case TurnStarted():
            fields["messages"] = messages.spans(event.messages)
        case StepFinished():
            fields["message"] = messages.spans([event.message])
    return {"event": type(event).__name__, **fields}


_OLD_NAMES: Mapping[tuple[type[Any], str], str] = {(ToolProgress, "message"): "text"}
"""Event fields that earlier versions wrote under another name."""


def _fields(event: Event) -> dict[str, Any]:
    kind: Any = type(event)
    shared = _APART.get(kind)
    return _dumped(event, {0: shared} if shared else None)


def _trace(trace: R, turn: Mapping[str, Any], messages: list[Any], tools: list[Any]) -> R:
    has_start = False
    for raw in turn["events"]:
        kind = _KINDS.get(raw["event"])
        if kind is None:
            trace.unread.events.setdefault(len(trace), []).append(raw)
            continue
        raw = {_OLD_NAMES.get((kind, name), name): value for name, value in raw.items()}
        fields = {name: raw.pop(name) for name in _dataclass_fields(kind) & raw.keys()}
        del raw["event"]
        if raw:
            trace.unread.event_fields[len(trace)] = raw
        trace.append(_read(kind, fields, messages, tools))
        has_start = has_start or kind is TurnStarted
    if not has_start:
        raise ValueError("A turn without a start.")
    trace.unread.fields.update({name: value for name, value in turn.items() if name != "events"})
    return trace


def _read(kind: Any, fields: dict[str, Any], messages: list[Any], tools: list[Any]) -> Event:
    if kind is StepStarted:
        fields["request"] = _request(fields["request"], messages, tools)
    elif kind is TurnStarted:
        fields["messages"] = tuple(_messages(fields["messages"], messages))
    elif kind is StepFinished:
        written = fields["message"]
        spans = [written] if isinstance(written, Mapping) else written
        (message,) = _messages(spans, messages)
        if message.role != "assistant":
            raise ValueError("The answer of a model that is another's message.")
        fields["message"] = message
    event: Event
    (event,) = _adapter(kind).validate_python((fields,))
    return event


def _request(fields: Mapping[str, Any], messages: list[Any], tools: list[Any]) -> Request:
    request: Request
    (request,) = _adapter(Request).validate_python(
        ({**fields, "messages": (), "tools": (), "found": ()},)
    )
    # Inserted afterwards, because validation would copy the messages that requests share.
    return dataclasses.replace(
        request,
        messages=tuple(_messages(fields["messages"], messages)),
        tools=tuple(spread(fields["tools"], tools)),
        found=tuple(spread(fields.get("found", ()), tools)),
    )


def _messages(spans: Any, messages: list[Any]) -> Iterator[Any]:
    for row in spread(spans, messages):
        yield read_message(row) if isinstance(row, Mapping) else row


@cache
def _dataclass_fields(kind: Any) -> frozenset[str]:
    return frozenset(field_names(kind))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    # A TypeAdapter for a dataclass accepts no config, hence the tuple.
    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", defer_build=True)
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[kind], config=config)
    # Messages are read and written through their table.
    adapter.rebuild(_types_namespace={"AssistantMessage": Any, "ChatMessage": Any})
    return adapter


def dump_value(value: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Convert a value's fields to plain values, without defaults. Bytes become base64."""
    return _dumped(value, {0: set(without)}, exclude_defaults=True)


def load_value(kind: type[V], fields: Any) -> V:
    """Build a value from its fields, or raise a ValueError. Unknown ones are ignored."""
    if not isinstance(fields, Mapping):
        raise ValueError("Not an object.")
    any_kind: Any = kind
    value: V
    given = {name: each for name, each in fields.items() if name in _dataclass_fields(any_kind)}
    (value,) = _adapter(any_kind).validate_python((given,))
    return value


def _dumped(value: Any, exclude: Any, exclude_defaults: bool = False) -> dict[str, Any]:
    kind: Any = type(value)
    dump = partial(
        _adapter(kind).dump_python, mode="json", exclude=exclude, exclude_defaults=exclude_defaults
    )
    try:
        (fields,) = dump((value,))
    except ValueError:
        # Nested deeper than pydantic writes, or with a lone surrogate.
        (fields,) = dump((bounded(value),))
    return dict(fields)


def bounded(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Convert parts of `value` that nest deeper than `depth` to text, and replace characters that
    UTF-8 cannot represent.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in dataclasses.fields(value):
            if field.init:
                changed[field.name] = bounded(getattr(value, field.name))
        return dataclasses.replace(value, **changed)
    if isinstance(value, str):
        return encodable(value, "replace")
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not depth:
        return TOO_DEEP
    if isinstance(value, Mapping):
        return {bounded(key): bounded(item, depth - 1) for key, item in value.items()}
    return type(value)(bounded(item, depth - 1) for item in value)


def _json(value: Any, indent: int | None = None) -> str:
    from pydantic_core import to_json

    # Ten times as fast as `json`, whose indenting encoder is in Python.
    try:
        text: bytes = to_json(value, indent=indent)
        if not any(number in text for number in _NOT_JSON):
            return text.decode()
    except ValueError:
        # Unknown fields can hold a lone surrogate, or nest deeper than pydantic writes.
        pass
    return to_json(plain(value), indent=indent).decode()


_NOT_JSON = (b"NaN", b"Infinity")
"""How numbers that JSON lacks are written."""
