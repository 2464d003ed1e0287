"""Fill in the large results that a model passes to a tool by their handles: `{"$result": "r_…"}`, or
with a `path` a part of one, anywhere in a call's arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.arguments_by_schema import takes
from casual_mcp_nb.base.limits import MAX_DEPTH, encodable, is_too_deep, strict_json
from casual_mcp_nb.base.passed import FilledArguments, PassedResult, handle_in
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.engine.large_results import LargeResults, NoAnswer, NotKept
from casual_mcp_nb.isolation.worker import GaveUp

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_PASSED = 4_000_000
"""How much one call can pass, in characters of JSON."""

MAX_PLACES = 20
"""How many results one call can pass."""

MAX_HEAD = 500
"""How many characters of a passed value a person sees who is asked about it."""

_UNKNOWN = SchemaReader({})


class CannotPass(ValueError):
    """A result cannot be passed. The message has the reason, for the model."""


class Place(NamedTuple):
    """A place in arguments with a handle: the object or list, and the key or index in it.

    Args:
        path: The part of the result, or empty for all.
        as_text: Whether the schema has only a text there.
    """

    container: Any
    key: Any
    handle: str
    path: str
    as_text: bool


@dataclass(frozen=True)
class ResultPasser:
    """Passes the large results of one conversation to tools.

    Args:
        messages: The conversation. Grows.
        large_results: Keeps the results.
    """

    messages: Sequence[ChatMessage]
    large_results: LargeResults

    async def fill(self, schema: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """Fill in the results that a call passes.

        Args:
            schema: The tool's. Where it has a text and nothing else, a value is filled in as text.
            arguments: What the model wrote.

        Returns:
            The same object if there are no handles in it, or else `FilledArguments`.

        Raises:
            CannotPass: A result is not known or too large, or has no such part.
        """
        values, places = places_in(arguments, schema)
        if not places:
            return arguments
        if len(places) > MAX_PLACES:
            raise CannotPass(f"a call can pass {MAX_PLACES} results, not {len(places):,}")
        passed: list[PassedResult] = []
        left = MAX_PASSED
        for place in places:
            value, result = await self._take(place, left)
            place.container[place.key] = value
            passed.append(result)
            left -= result.size
        if await asyncio.to_thread(is_too_deep, values):
            raise CannotPass(
                f"the arguments would be nested more than {MAX_DEPTH} levels deep. Pass a part with"
                " path"
            )
        sendable, _ = await asyncio.to_thread(strict_json, values)
        return FilledArguments(sendable, arguments, passed)

    async def _take(self, place: Place, left: int) -> tuple[Any, PassedResult]:
        """Get the value for a place, with its description. `left` is how large it may be."""
        _, _, handle, path, as_text = place
        question = {
            "path": path,
            "take": left,
            "head": MAX_HEAD,
            "as_text": as_text,
            "as_it_is": as_text and not path,
        }
        try:
            taken = await self.large_results.ask(self.messages, handle, question)
        except NotKept as error:
            raise CannotPass(str(error)) from None
        except (NoAnswer, GaveUp) as error:
            raise CannotPass(f"{handle} cannot be passed like this: {error}") from None
        size = taken["size"]
        if size > left:
            raise CannotPass(
                f"{handle} has {size:,} characters there, and a call can pass {MAX_PASSED:,} in"
                " all. Pass a part with path, or get less at a time"
            )
        what, head = encodable(taken["what"]), encodable(taken["head"])
        return taken["value"], PassedResult(handle, path, taken["server"], what, size, head)


def places_in(arguments: dict[str, Any], schema: object) -> tuple[dict[str, Any], list[Place]]:
    """Copy a call's arguments, and collect the places with handles in the copy.

    The schema is the tool's. A file that was opened can say anything there.
    """
    places: list[Place] = []
    return _copied(arguments, SchemaReader(schema), places), places


def _copied(value: Any, schema: SchemaReader, places: list[Place]) -> Any:
    """Copy objects and lists, and collect the places with handles in the copy."""
    copy = value.copy()
    items: Iterable[tuple[Any, Any]] = enumerate(value)
    if isinstance(value, dict):
        items = value.items()
    for key, item in items:
        if not isinstance(item, dict | list | str):
            continue
        part = _part(schema.without_null(), key)
        if passed := handle_in(item):
            as_text = takes(part, "string") and not (takes(part, "object") or takes(part, "array"))
            places.append(Place(copy, key, *passed, as_text=as_text))
        elif not isinstance(item, str):
            copy[key] = _copied(item, part, places)
    return copy


def _part(schema: SchemaReader, key: str | int) -> SchemaReader:
    """Find the schema of an object's property or a list's item, an empty one if it is not known."""
    if isinstance(key, int):
        return schema.items or _UNKNOWN
    others = SchemaReader(schema.schema.get("additionalProperties"), schema.root)
    return schema.properties.get(key, others)
