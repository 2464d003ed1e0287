"""The fields of a streamed answer, joined as in a complete one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from casual_mcp_nb.base.iterables import all_are, present

# Fields that a stream splits into chunks; all others are complete in each chunk.
_IN_PIECES = ("text", "summary", "thinking", "content", "reasoning")


class StreamedFields(dict[str, list[Any]]):
    """A streamed answer's fields, each with its pieces."""

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add one more chunk's fields."""
        for name, value in fields.items():
            self.setdefault(name, []).append(value)

    def whole(self) -> dict[str, Any]:
        """Join the fields as in a complete answer: strings, and list items by their `index`."""
        return {name: _joined(values) for name, values in self.items()}


def _by_name(pieces: Iterable[Mapping[str, Any]]) -> StreamedFields:
    fields = StreamedFields()
    for piece in pieces:
        fields.add(piece)
    return fields


def _joined(values: Sequence[Any]) -> Any:
    """Join the pieces of one field."""
    if all_are(values, str):
        return "".join(values)
    if all_are(values, list):
        return list(map(_item, _groups(chain.from_iterable(values))))
    if all_are(values, dict):
        return {name: _last_or_tree(pieces) for name, pieces in _by_name(values).items()}
    return values[-1]


def _last_or_tree(values: Sequence[Any]) -> Any:
    if all_are(values, dict | list):
        return _joined(values)
    return values[-1]


def _item(pieces: Sequence[Any]) -> Any:
    """Join the pieces of one item in a list."""
    if len(pieces) == 1:
        return pieces[0]
    whole: dict[str, Any] = {}
    for name, given in _by_name(pieces).items():
        values: list[Any] = present(given) or [None]
        whole[name] = _joined(values) if name in _IN_PIECES else values[-1]
    return whole


def _groups(parts: Iterable[Any]) -> list[list[Any]]:
    """Group the pieces in lists by the item that they are of."""
    groups: dict[int | str, list[Any]] = {}
    newest: list[Any] = []
    for part in parts:
        index = part.get("index") if isinstance(part, dict) else None
        if isinstance(index, int):
            group = groups.setdefault(index, [])
        elif newest and _goes_on(newest[-1], part):
            group = newest
        else:
            group = groups.setdefault(f"without an index, {len(groups)}", [])
        if not group:
            newest = group
        group.append(part)
    return list(groups.values())


def _goes_on(last: Any, part: Any) -> bool:
    """Check whether a part without an index continues the previous one: same type, and that one is
    not signed yet.
    """
    if not all_are((part, last), dict) or "index" in last or last.get("signature"):
        return False
    same = last.get("type") == part.get("type") and part.get("id") in (None, last.get("id"))
    return same and any(part.get(name) for name in (*_IN_PIECES, "signature"))
