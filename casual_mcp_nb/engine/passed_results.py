"""Fill in the large results that a model passes to a tool by their handles: `{"$result": "r_…"}`, or
with a `path` a part of one, anywhere in a call's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.arguments_by_schema import takes
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.passed import RESULT, FilledArguments, PassedResult, handle_in
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.engine.large_results import LargeResults, gone, results_in, unknown
from casual_mcp_nb.isolation.worker import GaveUp

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_PASSED = 5_000_000
"""How much one call can pass, in characters of JSON."""

MAX_PLACES = 20
"""How many results one call can pass."""

_MOST_ALTERNATIVES = 20
_HANDLE = re.compile(r"r_[0-9a-f]{10}")
_UNKNOWN = SchemaReader({})


class CannotPass(ValueError):
    """A result cannot be passed. The message has the reason, for the model."""


@dataclass(frozen=True)
class _Place:
    """A place in arguments with a handle: the object or list, and the key or index in it."""

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

    async def fill(self, tool: ToolSpec, arguments: dict[str, Any]) -> dict[str, Any]:
        """Fill in the results that a call passes.

        Args:
            tool: The tool. Where its schema has a text and nothing else, a value is filled in as
                text.
            arguments: What the model wrote. An object is a handle if it has no other keys, unless
                the schema has `$result` there.

        Returns:
            The same object if there are no handles in it, or else `FilledArguments`.

        Raises:
            CannotPass: A result is not known or too large, or has no such part.
        """
        places: list[_Place] = []
        values = _copied(arguments, SchemaReader(tool.input_schema), places)
        if not places:
            return arguments
        known = results_in(self.messages)
        if not known:
            # Where there are no large results, other texts mean something else.
            places = [place for place in places if _HANDLE.fullmatch(place.handle)]
        if len(places) > MAX_PLACES:
            raise CannotPass(f"a call can pass {MAX_PLACES} results, and this has {len(places):,}")
        passed: list[PassedResult] = []
        left = MAX_PASSED
        for place in places:
            value, result = await self._take(place, known, left)
            place.container[place.key] = value
            passed.append(result)
            left -= result.size
        return FilledArguments(values, arguments, passed) if passed else arguments

    async def _take(
        self, place: _Place, known: Collection[str], left: int
    ) -> tuple[Any, PassedResult]:
        """Get the value for a place, with its description. `left` is how large it may be."""
        handle, path = place.handle, place.path
        if handle not in known:
            raise CannotPass(unknown(handle))
        try:
            taken = await self.large_results.take(handle, path, left, as_text=place.as_text)
        except GaveUp as error:
            raise CannotPass(f"{handle} was not passed: {error}. Pass a part with path") from None
        if taken is None:
            raise CannotPass(gone(handle, self.messages))
        if "error" in taken:
            raise CannotPass(f"{handle} has nothing at the path: {encodable(taken['error'])}")
        size = taken["size"]
        if size > left:
            raise CannotPass(
                f"{handle} was not passed: it has {size:,} characters there, and a call can pass"
                f" {MAX_PASSED:,}. Pass parts with path, or get less at a time"
            )
        what, head = encodable(taken["what"]), encodable(taken["head"])
        return taken["value"], PassedResult(handle, path, taken["server"], what, size, head)


def _copied(value: Any, schema: SchemaReader, places: list[_Place]) -> Any:
    """Copy objects and lists, and collect the places with handles in the copy."""
    copy: Any
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        copy, items = dict(value), value.items()
    else:
        copy, items = list(value), enumerate(value)
    for key, item in items:
        if not isinstance(item, dict | list | str):
            continue
        under, passed = _under(schema, key), handle_in(item)
        if passed is not None and RESULT not in under.properties:
            text_only = not takes(under, "object") and not takes(under, "array")
            places.append(_Place(copy, key, *passed, as_text=text_only and takes(under, "string")))
        elif not isinstance(item, str):
            copy[key] = _copied(item, under, places)
    return copy


def _under(schema: SchemaReader, key: str | int) -> SchemaReader:
    """Find the schema of an object's property or a list's item, an empty one if it is not known."""
    for part in islice(schema.alternatives(), _MOST_ALTERNATIVES):
        found = part.properties.get(key) if isinstance(key, str) else part.items
        if found is not None:
            return found
    return _UNKNOWN
