"""One value or several: a person may give either, and files have the shorter form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def as_tuple(value: T | Iterable[T]) -> tuple[T, ...]:
    """Turn one value or several into a tuple. A text is one value."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(value)
    return (value,)


def shortest(values: Sequence[T]) -> T | Sequence[T]:
    """Return the only value alone, and several or none as they are."""
    if len(values) == 1:
        return values[0]
    return values
