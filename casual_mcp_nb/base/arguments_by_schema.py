"""A call's arguments beside its tool's schema: what does not match, and what can only have been
meant in one way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from casual_mcp_nb.base.iterables import kept
from casual_mcp_nb.base.limits import is_too_deep, read_json
from casual_mcp_nb.base.mend import Mender
from casual_mcp_nb.base.schema import MAX_STEPS, Schema, SchemaReader, fits_plainly
from casual_mcp_nb.isolation.worker import GaveUp, Worker

CHECK_SECONDS = 2.0
MAX_TEXT = 100_000
"""Longer texts are sent as they are: reading them would hold the event loop."""
_MAX_CHANGES = 10
_MOST_ALTERNATIVES = 20
_CONTAINERS = frozenset({"array", "object"})


def problems(schema: Schema, arguments: Mapping[str, Any], worker: Worker) -> Sequence[str] | None:
    """List the problems with a call's arguments, or None if checking failed.

    Not for an event loop's thread.

    The worker's process checks all but simple schemas: a schema is a server's, and checking can
    take forever.
    """
    plain, value = dict(schema), dict(arguments)
    if fits_plainly(plain, value):
        return ()
    with suppress(GaveUp, TypeError, ValueError, RecursionError):
        mended = json.dumps(Mender().mend(plain))
        errors = worker.run(
            "validate", {"schema": mended, "value": value, "all": True}, CHECK_SECONDS
        )
        return tuple(errors) if isinstance(errors, list) else ()
    return None


def put_right(schema: Schema, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Put arguments right where the schema leaves no doubt about what was meant.

    Null is left out for an optional parameter that cannot be null. An object or a list that was
    sent as JSON text is read, for a parameter that cannot be a text. So it is within objects and
    lists.

    Returns:
        The arguments, the same object if nothing changed, and what was changed, in words.
    """
    if all(map(_is_plain, arguments.values())):
        return arguments, []
    reading = _Reading()
    right = reading.object(arguments, SchemaReader(schema), "")
    return right, reading.changes


_STARTS = frozenset('{[" \n\t\r')


def _is_plain(value: Any) -> bool:
    """Check quickly that nothing has to be put right: most arguments are so, and each call has
    some.
    """
    if isinstance(value, str):
        return value[:1] not in _STARTS
    return value is not None and not isinstance(value, dict | list)


def _looks_like_json(text: str) -> bool:
    return len(text) <= MAX_TEXT and text.lstrip()[:1] in ("{", "[", '"')


class _Reading:
    """Reads arguments with their schema, up to a number of values."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self._left = MAX_STEPS

    def _note(self, path: str, text: str) -> None:
        if len(self.changes) < _MAX_CHANGES:
            self.changes.append(f"{path[:200]} {text}")

    def object(self, value: dict[str, Any], schema: SchemaReader, path: str) -> dict[str, Any]:
        """Put an object's properties right."""
        properties, required = schema.properties, schema.required
        right: dict[str, Any] = {}
        for name, item in value.items():
            part = properties.get(name)
            if part is None or self._left <= 0:
                right[name] = item
                continue
            here = f"{path}.{name}" if path else name
            if item is None and name not in required and not takes(part, "null"):
                self._note(here, "was null, and is left out")
                continue
            right[name] = self._value(item, part, here)
        put_right: dict[str, Any] = kept(value, right)
        return put_right

    def _value(self, value: Any, schema: SchemaReader, path: str) -> Any:
        self._left -= 1
        if isinstance(value, str) and _looks_like_json(value):
            value = self._read(value, schema, path)
        if not isinstance(value, dict | list):
            return value
        kind = "object" if isinstance(value, dict) else "array"
        fitting = [part for part in _alternatives(schema) or () if kind in _kinds(part)]
        if len(fitting) != 1:
            # Which alternative was meant is not known.
            return value
        if isinstance(value, dict):
            return self.object(value, fitting[0], path)
        return self._list(value, fitting[0], path)

    def _list(self, value: list[Any], schema: SchemaReader, path: str) -> list[Any]:
        items = schema.items
        if items is None or len(value) > self._left:
            return value
        right = [self._value(item, items, f"{path}[{number}]") for number, item in enumerate(value)]
        put_right: list[Any] = kept(value, right)
        return put_right

    def _read(self, text: str, schema: SchemaReader, path: str) -> Any:
        """Read JSON text where only an object or a list can be meant."""
        allowed: set[str] = set()
        for part in _alternatives(schema) or ():
            allowed.update(_kinds(part) or ("any",))
        if not allowed or not allowed <= _CONTAINERS | {"null"} or not allowed & _CONTAINERS:
            return text
        value = read_json(text)
        if isinstance(value, str):
            # Some models write the text of a text.
            value = read_json(value)
        if isinstance(value, dict):
            kind = "object"
        elif isinstance(value, list):
            kind = "array"
        else:
            return text
        if kind not in allowed or is_too_deep(value):
            return text
        self._note(path, f"was sent as JSON text, and is read as an {kind}")
        return value


def _alternatives(schema: SchemaReader) -> list[SchemaReader] | None:
    """List what a schema leads to, or None if that is not known."""
    found: list[SchemaReader] = []
    for part in schema.alternatives():
        found.append(part)
        if len(found) > _MOST_ALTERNATIVES:
            return None
    return found or None


def _kinds(schema: SchemaReader) -> tuple[str, ...]:
    if schema.types:
        return schema.types
    if isinstance(schema.schema.get("properties"), Mapping):
        return ("object",)
    return ()


def takes(schema: SchemaReader, kind: str) -> bool:
    """Check whether a schema may take a type: unless every alternative says which types it
    takes.
    """
    parts = _alternatives(schema)
    if parts is None or "allOf" in schema.schema or schema.schema.get("nullable") is True:
        return True
    if schema.types and kind not in schema.types:
        return False
    return any(not _kinds(part) or kind in _kinds(part) for part in parts)
