"""Spans of OpenTelemetry as JSON: OTLP, or as an SDK's exporter for consoles and files writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.conversation.foreign.draft import DraftCall, DraftStep
from casual_mcp_nb.conversation.foreign.lines import (
    Fields,
    object_in,
    objects_in,
    seconds_of,
    text_in,
)
from casual_mcp_nb.conversation.foreign.messages import Result

_MAX_DEPTH = 30
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_YEAR_5138 = 1e11
_NO_SPAN = "AAAAAAAAAAA="
"""An id of zeros in base64: there is no span."""


Kind = Literal["agent", "model", "tool", "other"]


@dataclass(slots=True, eq=False)
class Span:
    """A span, and what was read of it.

    Args:
        id: The hash of the ids of the span and its trace.
        parent: The same of the span around it, or 0.
        name: Its name.
        began: When it began, in seconds since 1970.
        ended: When it ended.
        error: What failed, empty if it did not say, or None if nothing failed.
        attributes: Its attributes by name, and those of its events. Dropped once they were read.
        events: The attributes of its events, with the event's name as `event.name`. Dropped, too.
        kind: What it is about.
        conversation: The id of the conversation that it belongs to, or empty.
        stopped: Whether the person stopped it.
        prompt: What the person wrote last, if it is about a model or an agent.
        continues: Whether the model was asked about results of tools instead.
        is_new: Whether its request has no earlier messages.
        results: The results of tools in its request, after the last answer.
        answer: What the model or the agent answered.
        call: The call of a tool.
        around: The spans around it. The last one is its turn: the outermost span of an agent, or of
            all.
    """

    id: int
    parent: int
    name: str
    began: float | None
    ended: float | None
    error: str | None
    attributes: Fields
    events: list[Fields]
    kind: Kind = "other"
    conversation: str = ""
    stopped: bool = False
    prompt: str = ""
    continues: bool = False
    is_new: bool = False
    results: tuple[Result, ...] = ()
    answer: DraftStep | None = None
    call: DraftCall | None = None
    around: Sequence[Span] = ()

    @property
    def root(self) -> Span:
        """The span that is its turn."""
        return [self, *self.around][-1]


def has_spans(record: Fields) -> bool:
    """Check whether an object is a span, or has some."""
    if isinstance(record.get("resourceSpans"), list):
        return True
    return "attributes" in record and all(_ids(record))


def spans_in(record: Fields) -> Iterator[Span]:
    """Yield the spans in an object: itself, or those that it has by resource and scope."""
    if "resourceSpans" not in record:
        yield _span(record)
    for resource in objects_in(record.get("resourceSpans")):
        for scope in objects_in(resource.get("scopeSpans")):
            yield from map(_span, objects_in(scope.get("spans")))


def _ids(span: Fields) -> tuple[str, str]:
    context = object_in(span, "context") or span
    return _id(context, "traceId", "trace_id"), _id(context, "spanId", "span_id")


def _id(fields: Fields, *names: str) -> str:
    id = text_in(fields, *names)
    if id == _NO_SPAN or not id.strip("0x"):
        return ""
    return id


def _span(span: Fields) -> Span:
    trace, id = _ids(span)
    parent = _id(span, "parentSpanId", "parent_id")
    status = object_in(span, "status")
    code, error = str(status.get("code", status.get("status_code"))), None
    if code == "2" or code.upper().endswith("ERROR"):
        error = text_in(status, "message", "description")[:1_000]
    attributes: Fields = {}
    events: list[Fields] = []
    for event in objects_in(span.get("events")):
        fields = _attributes(event.get("attributes"))
        events.append({"event.name": text_in(event, "name"), **fields})
        # Content can be in events, so that it can be stored elsewhere.
        attributes |= fields
    return Span(
        hash((trace, id)),
        hash((trace, parent)) if parent else 0,
        text_in(span, "name"),
        _time(span.get("startTimeUnixNano", span.get("start_time"))),
        _time(span.get("endTimeUnixNano", span.get("end_time"))),
        error,
        attributes | _attributes(span.get("attributes")),
        events,
    )


def _time(value: Any) -> float | None:
    """Read a time: ISO 8601, or a number of seconds or of a fraction of it since 1970."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return seconds_of(value)
    while _YEAR_5138 < number < 1e30:
        number /= 1000
    return number if 0 <= number <= _YEAR_5138 else None


def _attributes(value: Any, depth: int = _MAX_DEPTH) -> Fields:
    """Read attributes: a list of keys and values, or an object."""
    if isinstance(value, dict):
        return value
    pairs = objects_in(value)
    return {text_in(each, "key"): _plain(each.get("value"), depth) for each in pairs}


def _plain(value: Any, depth: int) -> Any:
    """Read a value of OTLP: an object with one field, whose name is the value's type."""
    match value:
        case {"intValue": number}:
            # OTLP's JSON writes integers of 64 bits as strings.
            return int(number) if _INTEGER.fullmatch(str(number)) else None
        case {"arrayValue": {"values": [*items]}} if depth:
            return [_plain(each, depth - 1) for each in items]
        case {"kvlistValue": {"values": pairs}} if depth:
            return _attributes(pairs, depth - 1)
        case {"stringValue": inner} | {"boolValue": inner} | {"doubleValue": inner}:
            return inner
    return None
