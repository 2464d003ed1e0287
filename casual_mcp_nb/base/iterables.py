"""What is in a list, a mapping or an object: without None, of one type, by name or id."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Protocol, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=_Named)
D = TypeVar("D", bound=_Identified)


def present(values: Iterable[T | None]) -> list[T]:
    """List the values that are not None."""
    return [value for value in values if value is not None]


def drop_none(fields: Mapping[K, T | None]) -> dict[K, T]:
    """Copy the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def of_type(values: Iterable[object], kind: type[T]) -> list[T]:
    """List the values of one type."""
    return [value for value in values if isinstance(value, kind)]


def all_are(values: Iterable[object], kind: type | UnionType) -> bool:
    """Check whether all values are of one type."""
    return all(isinstance(value, kind) for value in values)


def are_texts(values: Iterable[object]) -> bool:
    """Check whether all values are texts, none of them empty."""
    return all(isinstance(value, str) and value for value in values)


def kept(old: Any, new: Any) -> Any:
    """Return the old list or mapping if the new one has the very same parts, otherwise the new
    one.
    """
    if len(old) != len(new):
        return new
    if isinstance(old, Mapping):
        same = all(name in new and new[name] is part for name, part in old.items())
    else:
        same = all(map(operator.is_, old, new))
    return old if same else new


def attributes(value: object, names: Iterable[str]) -> dict[str, Any]:
    """Read some of a value's attributes, by name."""
    return {name: getattr(value, name) for name in names}


def field_names(dataclass: Any) -> tuple[str, ...]:
    """List the names of the fields of a dataclass, or of one of its instances."""
    return tuple(field.name for field in dataclasses.fields(dataclass))


def labelled(values: Iterable[tuple[object, object]]) -> list[str]:
    """Write each value after its name: `name: value`."""
    return [f"{name}: {value}" for name, value in values]


def grouped(items: Iterable[T], attribute: str) -> dict[Any, list[T]]:
    """Group the items by one of their attributes, in the order given."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(getattr(item, attribute), []).append(item)
    return groups


def by_name(items: Iterable[N]) -> dict[str, N]:
    """Index the items by name. The last one counts if several have it."""
    return {item.name: item for item in items}


def by_id(items: Iterable[D]) -> dict[str, D]:
    """Index the items by id. The last one counts if several have it."""
    return {item.id: item for item in items}
