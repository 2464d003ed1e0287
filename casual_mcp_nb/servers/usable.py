"""Find what is usable of a server's message, where the SDK would refuse the message as a whole.

The SDK's own models say which fields there are, which of them are required, and what fits. An optional field that does not
fit is left out, and so is an item of a list. Few required ones have a value that stands in for them. Everything else of the
message is used as the server sent it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from mcp_types.methods import (
    MONOLITH_NOTIFICATIONS,
    MONOLITH_REQUESTS,
    MONOLITH_RESULTS,
    SERVER_NOTIFICATIONS,
    SERVER_REQUESTS,
    SERVER_RESULTS,
    is_input_required,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from casual_mcp_nb.servers._errors import first_problem
from casual_mcp_nb.servers.convert import UNKNOWN_TYPE

HANDSHAKE_VERSION = "2025-11-25"
MAX_ITEMS = 2_000
"""A list or an object with more items than this is not walked."""
MAX_IGNORED = 100
"""How many fields of one message are noted."""
_MAX_PLACE = 200
_MISSING = "Field required"
_NEVER_LEFT_OUT = {
    # A tool would lose its parameters.
    ("InputSchema", "properties"),
    ("InputSchema", "required"),
    # A question that is left out would be asked again for ever.
    ("InputRequiredResult", "inputRequests"),
}
_LEVELS = {"warn": "warning", "err": "error", "fatal": "critical", "trace": "debug", "panic": "emergency"}
"""Words of other logging libraries for the levels of the protocol."""


class Unusable(ValueError):
    """A value cannot be used, because a required part of it does not fit.

    Attributes:
        place: Where that part is.
        reason: What is wrong with it.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.place = place
        self.reason = reason


def usable(kinds: Iterable[Any], value: Any, place: str = "") -> tuple[Any, dict[str, str]]:
    """Find what is usable of a JSON value.

    Args:
        kinds: The types that it has to fit, one after another.
        value: The value. It is not changed.
        place: How the value is called in what is noted.

    Returns:
        The value, or a copy without what does not fit, and why each part of it was ignored, by its place.

    Raises:
        Unusable: A required part does not fit.
    """
    reading = _Reading()
    for kind in kinds:
        value = reading.read(kind, value, place)
    return value, reading.ignored


def result_kinds(method: str, version: str | None, raw: Any) -> list[Any]:
    """List the types that the answer to a request has to fit: that of the protocol version, and the SDK's own.

    Before a version is agreed, the answer to `server/discover` has only the second.
    """
    asks = is_input_required(raw)
    kinds = [SERVER_RESULTS.get((method, version or HANDSHAKE_VERSION)), MONOLITH_RESULTS.get(method)]
    return [_arm(kind, asks) for kind in kinds if kind is not None]


def request_kinds(method: str, version: str | None) -> list[Any]:
    """List the types that the parameters of a server's request have to fit."""
    return _params_of(SERVER_REQUESTS.get((method, version or HANDSHAKE_VERSION)), MONOLITH_REQUESTS.get(method))


def notification_kinds(method: str, version: str | None) -> list[Any]:
    """List the types that the parameters of a server's notification have to fit."""
    kind = SERVER_NOTIFICATIONS.get((method, version or HANDSHAKE_VERSION))
    return _params_of(kind, MONOLITH_NOTIFICATIONS.get(method))


def item_kinds(method: str, version: str | None, key: str) -> list[Any]:
    """List the types that one item in a page of a listing has to fit."""
    pages = (SERVER_RESULTS.get((method, version or HANDSHAKE_VERSION)), MONOLITH_RESULTS.get(method))
    fields = [_field(_arm(page, False), key) for page in pages if page is not None]
    return [get_args(field.annotation)[0] for field in fields]


def block_kinds(version: str | None) -> list[Any]:
    """List the types that one part of a result or of a prompt has to fit."""
    return item_kinds("tools/call", version, "content")


def _params_of(surface: Any, own: Any) -> list[Any]:
    if surface is None or own is None:
        return []
    return [_annotation(_field(kind, "params")) for kind in (surface, own)]


def _field(kind: Any, key: str) -> Any:
    return next(field for name, field in kind.model_fields.items() if (field.alias or name) == key)


def _arm(kind: Any, asks: bool) -> Any:
    """Choose between a result and a question in place of it."""
    arms = get_args(kind) if isinstance(kind, UnionType) else ()
    chosen = [arm for arm in arms if (arm.__name__ == "InputRequiredResult") is asks]
    return chosen[0] if chosen else kind


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _annotation(field: Any) -> Any:
    """Build a field's type with its limits."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def fits(kind: Any, value: Any) -> bool:
    """Check whether a value fits a type."""
    try:
        _adapter(kind).validate_python(value, by_name=False)
    except ValidationError:
        return False
    return True


class _Reading:
    """Walks a value that does not fit, and notes what it ignores."""

    def __init__(self) -> None:
        self.ignored: dict[str, str] = {}

    def read(self, kind: Any, value: Any, place: str) -> Any:
        """Find what is usable of a value. Raises Unusable."""
        if fits(kind, value):
            return value
        plain = _without_none(kind)
        if _is_model(plain):
            return self._model(plain, value, place)
        if (origin := get_origin(plain)) is list:
            return self._list(get_args(plain)[0], value, place)
        if origin is dict:
            return self._dict(get_args(plain)[1], value, place)
        if origin in (Union, UnionType) and (member := _member(get_args(plain), value)) is not None:
            return self.read(member, value, place)
        raise Unusable(place, _reason(kind, value))

    def _model(self, kind: type[BaseModel], value: Any, place: str) -> Any:
        given = _as_object(value, place)
        result = dict(given)
        for name, field in kind.model_fields.items():
            key = field.alias or name
            inner = f"{place}.{key}" if place else key
            if key not in given and not field.is_required():
                continue
            try:
                if key not in given:
                    raise Unusable(inner, _MISSING)
                result[key] = self.read(_annotation(field), given[key], inner)
            except Unusable as problem:
                stand_in = _stand_in(kind, key, given)
                if stand_in is not None:
                    result[key] = stand_in
                elif field.is_required() or (kind.__name__, key) in _NEVER_LEFT_OUT:
                    raise
                else:
                    del result[key]
                if given.get(key) is not None or stand_in is not None:
                    self._note(inner, problem)
        if not fits(kind, result):
            raise Unusable(place, _reason(kind, result))
        return result

    def _list(self, kind: Any, value: Any, place: str) -> Any:
        value = [] if value == {} else value
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            raise Unusable(place, "it is not a list" if not isinstance(value, list) else "it has too many items")
        items = []
        problems = []
        inner = f"{place}[]"
        for item in value:
            try:
                items.append(self.read(kind, item, inner))
            except Unusable as problem:
                problems.append(problem)
        if problems and not items:
            raise problems[0]
        for problem in problems:
            self._note(inner, problem)
        return items

    def _dict(self, kind: Any, value: Any, place: str) -> Any:
        given = _as_object(value, place)
        result = {}
        for key, item in given.items():
            inner = f"{place}.{key}"
            try:
                result[key] = self.read(kind, item, inner)
            except Unusable as problem:
                if _is_model(_without_none(kind)) or get_origin(kind) in (Union, UnionType):
                    raise
                self._note(inner, problem)
        return result

    def _note(self, place: str, problem: Unusable) -> None:
        if len(self.ignored) >= MAX_IGNORED:
            return
        within = problem.place.removeprefix(place).lstrip(".")
        self.ignored[place[:_MAX_PLACE]] = f"{within}: {problem.reason}" if within else problem.reason


def _as_object(value: Any, place: str) -> dict[str, Any]:
    # PHP writes an empty object like an empty list.
    value = {} if value == [] else value
    if not isinstance(value, dict):
        raise Unusable(place, "it is not an object")
    if len(value) > MAX_ITEMS:
        raise Unusable(place, "it has too many members")
    return value


def _reason(kind: Any, value: Any) -> str:
    try:
        _adapter(kind).validate_python(value, by_name=False)
    except ValidationError as error:
        return first_problem(error)
    return "it does not fit"


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _without_none(kind: Any) -> Any:
    """Reduce a type to what it is besides None and its limits."""
    if get_origin(kind) is Annotated:
        return _without_none(get_args(kind)[0])
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    others = tuple(member for member in members if member is not NoneType)
    if not others or len(others) == len(members):
        return kind
    return _without_none(others[0]) if len(others) == 1 else Union[others]  # noqa: UP007 (made at run time)


def _member(members: Iterable[Any], value: Any) -> Any:
    """Choose the type in a union that a value is meant to have, or None if that is not certain."""
    if not isinstance(value, dict):
        return None
    named = [each for each in members if _is_model(each) and _is_named(each, value)]
    present = [len(_required(each).intersection(value)) for each in named]
    best = [each for each, count in zip(named, present, strict=True) if count == max(present)]
    return best[0] if len(best) == 1 or (best and "type" in value) else None


def _is_named(kind: type[BaseModel], value: Mapping[str, Any]) -> bool:
    """Check whether a value does not name another type by its `type`, `method` or `mode`."""
    for name, field in kind.model_fields.items():
        key = field.alias or name
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        if key in ("type", "method", "mode") and key in value and choices and value[key] not in choices:
            return False
    return True


def _required(kind: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in kind.model_fields.items() if field.is_required()}


def _stand_in(kind: type[BaseModel], key: str, given: Mapping[str, Any]) -> Any:
    """Find what stands in for a field that is missing or does not fit, or None if nothing does."""
    value = given.get(key)
    choices = get_args(kind.model_fields[key].annotation) if key in kind.model_fields else ()
    if key not in given and key in ("type", "mode") and len(choices) == 1:
        return choices[0]
    if kind.__name__ == "ServerCapabilities":
        return {} if value is True else None
    match kind.__name__, key:
        case _, "nextCursor":
            return _number_as_text(value)
        case "Implementation", ("name" | "version"):
            return _number_as_text(value) or ""
        case "InitializeResult", "serverInfo":
            return {"name": "", "version": ""}
        case (("InitializeResult" | "DiscoverResult"), "capabilities"):
            return {}
        case _, "resultType":
            return "complete"
        case _, "ttlMs":
            return 0
        case _, "cacheScope":
            return "private"
        case "CallToolResult", "content":
            return _content_of(given)
        case (("Resource" | "ResourceLink"), "name"):
            return given["uri"] if isinstance(given.get("uri"), str) else None
        case "ResourceTemplate", "name":
            return given["uriTemplate"] if isinstance(given.get("uriTemplate"), str) else None
        case (("TextResourceContents" | "BlobResourceContents"), "uri"):
            return ""
        case (("ImageContent" | "AudioContent"), "mimeType"):
            return UNKNOWN_TYPE
        case "PromptMessage", "role":
            return "user"
        case "LoggingMessageNotificationParams", "level":
            word = value.lower() if isinstance(value, str) else ""
            level = _LEVELS.get(word, word)
            return level if level in choices else "info"
    return None


def _number_as_text(value: Any) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else None


def _content_of(given: Mapping[str, Any]) -> list[Any]:
    """Make the content of a result that has none, or something else in its place."""
    content = given.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, dict) and "type" in content:
        return [content]
    if isinstance(content, dict | int | float) and not isinstance(content, bool):
        return [as_text_block(content)]
    if "structuredContent" in given:
        return []
    # It has another form, such as a bare value: the model gets to know what came.
    rest = {key: value for key, value in given.items() if key not in ("_meta", "content", "isError", "resultType")}
    return [as_text_block(rest)] if rest else []


def as_text_block(value: Any) -> dict[str, Any]:
    """Build a text block with a value as JSON."""
    return {"type": "text", "text": json.dumps(value, ensure_ascii=False)}
