"""Spans of OpenTelemetry as JSON: OTLP, or as an SDK's exporter for consoles and files writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.conversation.foreign.lines import object_in, objects_in, seconds_of, text_in

_MAX_DEPTH = 30
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_YEAR_5138 = 1e11
_NO_SPAN = "AAAAAAAAAAA="
"""An id of zeros in base64: there is no span."""


@dataclass(slots=True)
class Span:
    """A span.

    Args:
        trace: The trace's id.
        id: The span's id.
        parent: The id of the span around it, or empty.
        name: Its name.
        began: When it began, in seconds since 1970.
        ended: When it ended.
        error: What failed, empty if it did not say, or None if nothing failed.
        attributes: Its attributes by name.
        events: Its events: each one's name and attributes.
    """

    trace: str
    id: str
    parent: str
    name: str
    began: float | None
    ended: float | None
    error: str | None
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]


def is_spans(record: dict[str, Any]) -> bool:
    """Check whether an object is a span, or has some."""
    if isinstance(record.get("resourceSpans", record.get("resource_spans")), list):
        return True
    trace, id = _ids(record)
    return bool(trace and id) and "attributes" in record


def spans_in(record: dict[str, Any]) -> Iterator[Span]:
    """Yield the spans in an object: itself, or those that it has by resource and scope."""
    resources = record.get("resourceSpans", record.get("resource_spans"))
    if resources is None:
        yield _span(record)
        return
    for resource in objects_in(resources):
        for scope in objects_in(resource.get("scopeSpans", resource.get("scope_spans"))):
            for span in objects_in(scope.get("spans")):
                yield _span(span)


def _ids(span: dict[str, Any]) -> tuple[str, str]:
    context = object_in(span, "context") or object_in(span, "spanContext") or span
    return _id(context, "traceId", "trace_id"), _id(context, "spanId", "span_id")


def _id(fields: dict[str, Any], *names: str) -> str:
    id = text_in(fields, *names).removeprefix("0x")
    return "" if id == _NO_SPAN or not id.strip("0") else id


def _span(span: dict[str, Any]) -> Span:
    trace, id = _ids(span)
    status = object_in(span, "status")
    error = None
    code = status.get("code", status.get("status_code"))
    if code == 2 or str(code).upper().endswith("ERROR"):
        error = text_in(status, "message", "description")
    events: list[tuple[str, dict[str, Any]]] = []
    for event in objects_in(span.get("events")):
        events.append((text_in(event, "name"), _attributes(event.get("attributes"))))
    return Span(
        trace,
        id,
        _id(span, "parentSpanId", "parent_span_id", "parent_id"),
        text_in(span, "name"),
        _time(span, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
        _time(span, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
        error,
        _attributes(span.get("attributes")),
        events,
    )


def _time(fields: dict[str, Any], *names: str) -> float | None:
    """Read a time: ISO 8601, or a number of seconds or of a fraction of it since 1970."""
    value = next((fields[name] for name in names if name in fields), None)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return seconds_of(value)
    while _YEAR_5138 < number < 1e30:
        number /= 1000
    return number if 0 <= number <= _YEAR_5138 else None


def _attributes(value: Any) -> dict[str, Any]:
    """Read attributes: a list of keys and values, or an object."""
    if isinstance(value, dict):
        return value
    attributes: dict[str, Any] = {}
    for each in objects_in(value):
        attributes[text_in(each, "key")] = _plain(each.get("value"), _MAX_DEPTH)
    return attributes


def _plain(value: Any, depth: int) -> Any:
    """Read a value of OTLP: an object with one field, whose name is the value's type."""
    if not isinstance(value, dict) or len(value) != 1 or not depth:
        return None
    ((kind, inner),) = value.items()
    match kind.replace("_v", "V"):
        case "intValue":
            # OTLP's JSON writes integers of 64 bits as strings.
            return int(inner) if _INTEGER.fullmatch(str(inner)) else None
        case "doubleValue" if isinstance(inner, float) and inner.is_integer():
            return int(inner)
        case "arrayValue":
            items = objects_in(object_in(value, kind).get("values"))
            return [_plain(each, depth - 1) for each in items]
        case "kvlistValue":
            fields: dict[str, Any] = {}
            for each in objects_in(object_in(value, kind).get("values")):
                fields[text_in(each, "key")] = _plain(each.get("value"), depth - 1)
            return fields
    return inner
