"""How a noun answers Jupyter without knowing how it is drawn."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Displayable:
    """A noun with `text/plain`, `text/markdown` and `text/html` forms, which the display room makes when they are asked for.

    The room is looked up by name at that moment: nouns never import it, and a program without a notebook never loads it.
    """

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        bundle: dict[str, str] = importlib.import_module("casual_mcp_nb.display").mimebundle(self)
        return bundle

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_markdown_(self) -> str:
        return self._repr_mimebundle_()["text/markdown"]

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]


class DisplayableList(Sequence[T], Displayable):
    """A noun that is a sequence of its parts."""

    __slots__ = ()

    @property
    @abstractmethod
    def _items(self) -> tuple[T, ...]:
        """The parts."""

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[T, ...]: ...
    def __getitem__(self, key: int | slice) -> T | tuple[T, ...]:
        return self._items[key]

    def __len__(self) -> int:
        return len(self._items)


class DisplayableMapping(Mapping[str, T], Displayable):
    """A noun that is its parts by name.

    Args:
        items: The parts.
    """

    def __init__(self, items: Mapping[str, T]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
