"""Find what is usable of a server's message, where the SDK would refuse the message as a whole.

The SDK's own models say which fields there are, which of them are required, and what fits. An
optional field that does not fit is left out, and so is an item of a list. Few required ones have a
replacement. Everything else of the message is used as the server sent it.
"""

from __future__ import annotations

import json
import math
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
from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

from casual_mcp_nb.servers._errors import first_problem
from casual_mcp_nb.servers.convert import UNKNOWN_TYPE

HANDSHAKE_VERSION = "2025-11-25"
MAX_ITEMS = 2_000
"""A list or an object with more items than this is not walked."""
MAX_PROBLEMS = 5_000
MAX_IGNORED = 100
"""How many fields of one message are noted."""
_MAX_PLACE = 200
_MISSING = "Field required"
_NEVER_LEFT_OUT = {
    # A tool would lose its parameters.
    ("InputSchema", "properties"),
    ("InputSchema", "required"),
    # A question that is left out would be asked again and again.
    ("InputRequiredResult", "inputRequests"),
}
_LEVELS = {
    "warn": "warning",
    "err": "error",
    "fatal": "critical",
    "trace": "debug",
    "panic": "emergency",
}
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


class Exhausted(Unusable):
    """So much of a message is not valid that the rest is not looked at."""


class Budget:
    """How many problems are looked for in one message or page, so that walking it cannot hold the
    event loop.
    """

    def __init__(self) -> None:
        self.left = MAX_PROBLEMS

    def spend(self, place: str) -> None:
        """Count a problem. Raises Exhausted."""
        self.left -= 1
        if self.left < 0:
            raise Exhausted(place, "too much of the message is not valid")


def usable(
    kinds: Iterable[Any], value: Any, place: str = "", budget: Budget | None = None
) -> tuple[Any, dict[str, str]]:
    """Find what is usable of a JSON value.

    Args:
        kinds: The types that it has to fit, one after another.
        value: The value. It is not changed.
        place: How the value is called in what is noted.
        budget: Shared by all values of one message, or None for its own.

    Returns:
        The value itself, or a copy without what does not fit, and why each part of it was ignored,
        by its place.

    Raises:
        Unusable: A required part does not fit, or too much does not.
    """
    reading = _Reading(budget or Budget())
    for kind in kinds:
        value = reading.read(kind, value, place)
    return value, reading.ignored


def result_kinds(method: str, version: str | None, raw: Any) -> list[Any]:
    """List the types that the answer to a request has to fit: that of the protocol version, and the
    SDK's own.

    Before a version is agreed, the answer to `server/discover` has only the second.
    """
    return _result_kinds(method, version or HANDSHAKE_VERSION, is_input_required(raw))


@cache
def _result_kinds(method: str, version: str, asks: bool) -> list[Any]:
    kinds = [SERVER_RESULTS.get((method, version)), MONOLITH_RESULTS.get(method)]
    return [_arm(kind, asks) for kind in kinds if kind is not None]


def request_kinds(method: str, version: str | None) -> list[Any]:
    """List the types that the parameters of a server's request have to fit."""
    return _params_of(
        SERVER_REQUESTS.get((method, version or HANDSHAKE_VERSION)), MONOLITH_REQUESTS.get(method)
    )


def notification_kinds(method: str, version: str | None) -> list[Any]:
    """List the types that the parameters of a server's notification have to fit."""
    kind = SERVER_NOTIFICATIONS.get((method, version or HANDSHAKE_VERSION))
    return _params_of(kind, MONOLITH_NOTIFICATIONS.get(method))


def item_kinds(method: str, version: str | None, key: str) -> list[Any]:
    """List the types that one item in a page of a listing has to fit."""
    pages = (
        SERVER_RESULTS.get((method, version or HANDSHAKE_VERSION)),
        MONOLITH_RESULTS.get(method),
    )
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
    if chosen:
        return chosen[0]
    return kind


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _annotation(field: Any) -> Any:
    """Build a field's type with its limits."""
    if field.metadata:
        return Annotated[(field.annotation, *field.metadata)]
    return field.annotation


def fits_all(kinds: Iterable[Any], value: Any) -> bool:
    """Check whether a value fits each of some types."""
    return fitted(kinds, value) is not None


def fitted(kinds: Iterable[Any], value: Any) -> list[Any] | None:
    """Read a value as each of some types, or return None if it does not fit them all."""
    try:
        return [_adapter(kind).validate_python(value, by_name=False) for kind in kinds]
    except ValidationError:
        return None


def check_whole(kinds: Iterable[Any], value: Any, place: str) -> None:
    """Check what only a value as a whole can break, such as two fields that belong together.

    Raises:
        Unusable: It does not fit, with the first reason.
    """
    for kind in kinds:
        try:
            _adapter(kind).validate_python(value, by_name=False)
        except ValidationError as error:
            raise Unusable(place, first_problem(error)) from None


class _Reading:
    """Walks a value from the outside in, and notes what it ignores."""

    def __init__(self, budget: Budget) -> None:
        self.ignored: dict[str, str] = {}
        self._budget = budget

    def read(self, kind: Any, value: Any, place: str) -> Any:
        """Find what is usable of a value: the value itself where nothing of it is odd.

        Raises Unusable.
        """
        plain, form, inner = _shape(kind)
        if value is None and plain is not kind:
            return value
        if form == "model":
            return self._model(plain, value, place)
        if form == "list":
            return self._list(kind, inner[0], value, place)
        if form == "dict":
            return self._dict(inner[1], value, place)
        if form == "models":
            member = _member(inner, value)
            if member is None:
                raise self._problem(place, "it has none of the known forms")
            return self.read(member, value, place)
        try:
            _adapter(kind).validate_python(value, by_name=False)
        except ValidationError as error:
            raise self._problem(place, first_problem(error)) from None
        return value

    def _problem(self, place: str, reason: str) -> Unusable:
        self._budget.spend(place)
        return Unusable(place, reason)

    def _model(self, kind: type[BaseModel], value: Any, place: str) -> Any:
        given = self._as_object(value, place)
        result = dict(given)
        for key, field_kind, required in _fields(kind):
            if key not in given and not required:
                continue
            inner = f"{place}.{key}" if place else key
            try:
                if key not in given:
                    raise self._problem(inner, _MISSING)
                result[key] = self.read(field_kind, given[key], inner)
            except Exhausted:
                raise
            except Unusable as problem:
                stand_in = _stand_in(kind, key, given)
                if stand_in is not None:
                    result[key] = stand_in
                elif required or (kind.__name__, key) in _NEVER_LEFT_OUT:
                    raise
                else:
                    del result[key]
                if given.get(key) is not None or stand_in is not None:
                    self._note(inner, problem)
        if _differs(result, given):
            return result
        return given

    def _list(self, kind: Any, item_kind: Any, value: Any, place: str) -> Any:
        value = [] if value == {} else value
        if not isinstance(value, list):
            raise self._problem(place, "it is not a list")
        if len(value) > MAX_ITEMS:
            raise self._problem(place, "it has too many items")
        items = []
        problems = []
        inner = f"{place}[]"
        for item in value:
            try:
                items.append(self.read(item_kind, item, inner))
            except Exhausted:
                raise
            except Unusable as problem:
                problems.append(problem)
        if problems and not items:
            raise problems[0]
        for each in problems:
            self._note(inner, each)
        if len(items) > (most := _max_length(kind)):
            self._note(inner, Unusable(inner, f"at most {most} are used"))
            items = items[: int(most)]
        if len(items) != len(value) or any(map(_is_other, items, value)):
            return items
        return value

    def _dict(self, kind: Any, value: Any, place: str) -> Any:
        given = self._as_object(value, place)
        if kind is Any:
            return given
        if len(given) > MAX_ITEMS:
            if fits_all([dict[str, kind]], given):
                return given
            raise self._problem(place, "it has too many members")
        result = {}
        for key, item in given.items():
            inner = f"{place}.{key}"
            try:
                result[key] = self.read(kind, item, inner)
            except Exhausted:
                raise
            except Unusable as problem:
                if _is_model(_without_none(kind)) or get_origin(kind) in (Union, UnionType):
                    raise
                self._note(inner, problem)
        if _differs(result, given):
            return result
        return given

    def _as_object(self, value: Any, place: str) -> dict[str, Any]:
        # PHP writes an empty object like an empty list.
        value = {} if value == [] else value
        if not isinstance(value, dict):
            raise self._problem(place, "it is not an object")
        return value

    def _note(self, place: str, problem: Unusable) -> None:
        if len(self.ignored) >= MAX_IGNORED:
            return
        within, reason = problem.place.removeprefix(place).lstrip("."), problem.reason
        if within:
            reason = f"{within}: {reason}"
        self.ignored[place[:_MAX_PLACE]] = reason


@cache
def _fields(kind: type[BaseModel]) -> tuple[tuple[str, Any, bool], ...]:
    """List a model's fields: the key in the message, the type, and whether it is required."""
    fields = kind.model_fields.items()
    return tuple(
        (field.alias or name, _annotation(field), field.is_required()) for name, field in fields
    )


def _is_other(one: Any, other: Any) -> bool:
    return one is not other


def _differs(result: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    return result.keys() != given.keys() or any(result[key] is not given[key] for key in given)


def _max_length(kind: Any) -> float:
    """Find how many items a type allows."""
    limits = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return min(
        (limit.max_length for limit in limits if getattr(limit, "max_length", None)),
        default=math.inf,
    )


def _is_model(kind: Any) -> bool:
    """Check whether a type is a model with fields. A root model has the form of its one value."""
    return (
        isinstance(kind, type) and issubclass(kind, BaseModel) and not issubclass(kind, RootModel)
    )


@cache
def _shape(
    kind: Any,
) -> tuple[Any, Literal["model", "models", "list", "dict", "plain"], tuple[Any, ...]]:
    """Find a type without None and its limits, its form, and the types in it.

    Returns:
        The type. Its form: `model` has fields, `models` is a union with some of those, `list` and
        `dict` hold others, `plain` is none of these. And the types in it.
    """
    plain = _without_none(kind)
    origin, inner = get_origin(plain), get_args(plain)
    if _is_model(plain):
        return plain, "model", ()
    if origin is list:
        return plain, "list", inner
    if origin is dict:
        return plain, "dict", inner
    if origin in (Union, UnionType) and any(map(_is_model, inner)):
        return plain, "models", inner
    return plain, "plain", inner


@cache
def _without_none(kind: Any) -> Any:
    """Take None and limits, such as a greatest length, away from a type."""
    if get_origin(kind) is Annotated:
        return _without_none(get_args(kind)[0])
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    others = tuple(member for member in members if member is not NoneType)
    if not others or len(others) == len(members):
        return kind
    if len(others) == 1:
        return _without_none(others[0])
    return Union[others]  # noqa: UP007 (made at run time)


def _member(members: Iterable[Any], value: Any) -> Any:
    """Choose the type in a union that a value is meant to have, or None if that is not certain."""
    if not isinstance(value, dict):
        return None
    named = [each for each in members if _is_model(each) and _is_named(each, value)]
    present = [len(_required(each).intersection(value)) for each in named]
    best = [each for each, count in zip(named, present, strict=True) if count == max(present)]
    if len(best) == 1 or (best and "type" in value):
        return best[0]
    return None


@cache
def _choices(kind: type[BaseModel]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """List the values of the fields that name a type."""
    named = []
    for name, field in kind.model_fields.items():
        if name in ("type", "method", "mode"):
            named.append((name, field))
    return tuple(
        (name, get_args(field.annotation))
        for name, field in named
        if get_origin(field.annotation) is Literal
    )


def _is_named(kind: type[BaseModel], value: Mapping[str, Any]) -> bool:
    """Check whether a value does not name another type by its `type`, `method` or `mode`."""
    return all(value.get(key, choices[0]) in choices for key, choices in _choices(kind))


@cache
def _required(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(key for key, _, required in _fields(kind) if required)


def _stand_in(kind: type[BaseModel], key: str, given: Mapping[str, Any]) -> Any:
    """Find the replacement for a field that is missing or does not fit, or None if there is
    none.
    """
    value = given.get(key)
    choices = get_args(kind.model_fields[key].annotation) if key in kind.model_fields else ()
    if key not in given and key in ("type", "mode") and len(choices) == 1:
        return choices[0]
    if kind.__name__ == "ServerCapabilities":
        if value is True:
            return {}
        return None
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
            if isinstance(given.get("uri"), str):
                return given["uri"]
            return None
        case "ResourceTemplate", "name":
            if isinstance(given.get("uriTemplate"), str):
                return given["uriTemplate"]
            return None
        case (("TextResourceContents" | "BlobResourceContents"), "uri"):
            return ""
        case (("ImageContent" | "AudioContent"), "mimeType"):
            return UNKNOWN_TYPE
        case "PromptMessage", "role":
            return "user"
        case "LoggingMessageNotificationParams", "level":
            word = ""
            if isinstance(value, str):
                word = value.lower()
            level = _LEVELS.get(word, word)
            if level in choices:
                return level
            return "info"
    return None


def _number_as_text(value: Any) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number:
        return str(value)
    return None


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
    rest = {}
    for key, value in given.items():
        if key not in ("_meta", "content", "isError", "resultType"):
            rest[key] = value
    if rest:
        return [as_text_block(rest)]
    return []


def as_text_block(value: Any) -> dict[str, Any]:
    """Build a text block with a value as JSON."""
    return {"type": "text", "text": json.dumps(value, ensure_ascii=False)}
