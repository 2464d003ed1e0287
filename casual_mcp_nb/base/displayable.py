"""Values that Jupyter can display, without a dependency on the rendering code. Counts in words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, cast, overload


def count(value: int, singular: str) -> str:
    """Format a count: `1 tool`, `2 tools`, `3 searches`."""
    ending = "es" if singular.endswith(("ch", "s")) else "s"
    return f"{value:,} {singular}{'' if value == 1 else ending}"


T = TypeVar("T")

Detail = Literal["text", "output", "all"]
"""How much detail a turn shows."""


class Display(Protocol):
    """Renders displayable values.

    The module `casual_mcp_nb.views` is the only one. Rooms have this in its place, because they may
    not import what draws their values.
    """

    def mimebundle(self, value: Any, /, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Render a value as `text/plain`, `text/markdown` and `text/html`, or only those that are
        requested.
        """
        ...

    def page(self, value: Any, title: str, /) -> str:
        """Render a value as a whole HTML document."""
        ...

    def frame_of(self, value: Any, /) -> Any:
        """Convert a tabular value to a pandas DataFrame."""
        ...

    def figure_of(self, stats: Any, /) -> Any:
        """Plot stats as a matplotlib figure."""
        ...

    def live_bundle(self, turn: Any, detail: Detail, now: float | None = None, /) -> dict[str, str]:
        """Draw a running turn, which is drawn often: its HTML, and one line as `text/plain`."""
        ...

    def turn_bundle(self, turn: Any, detail: Detail, /) -> dict[str, str]:
        """Draw a turn in all formats, in the detail that the person wants."""
        ...

    def document(
        self,
        conversation: Any,
        form: Literal["html", "markdown"],
        title: str,
        programs: Sequence[Any] = (),
        /,
    ) -> str:
        """Draw a whole conversation as one text, with the programs that models wrote for cells
        meanwhile.
        """
        ...


_load: Callable[[], Display] | None = None


def draw_with(load: Callable[[], Display]) -> None:
    """Set the renderer.

    `load` is called on first display, so that a program without a notebook never loads it.
    """
    global _load
    _load = load


def display() -> Display:
    """Get the renderer, which the package sets on import."""
    assert _load is not None
    return _load()


_load_widgets: Callable[[], Callable[[Any], Any]] | None = None


def show_with(load: Callable[[], Callable[[Any], Any]]) -> None:
    """Set the function that makes widgets for values that have one.

    `load` is called for the first widget.
    """
    global _load_widgets
    _load_widgets = load


def widget_of(value: Any) -> Any:
    """Make a widget that shows a value."""
    assert _load_widgets is not None
    return _load_widgets()(value)


class Displayable:
    """A value with `text/plain`, `text/markdown` and `text/html` forms, generated on demand."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return display().mimebundle(self, include, exclude)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_({"text/html"})["text/html"]

    def _repr_markdown_(self) -> str:
        return self._repr_mimebundle_({"text/markdown"})["text/markdown"]

    def __str__(self) -> str:
        return self._repr_mimebundle_({"text/plain"})["text/plain"]


@dataclass(frozen=True)
class Done(Displayable):
    """What a command changed, in one line, where a list of everything would say no more.

    Args:
        text: The line.
    """

    text: str


class DisplayableList(Sequence[T], Displayable):
    """A displayable sequence. A subclass names the attribute with its parts: `items="hits"`."""

    __slots__ = ()
    _attribute: ClassVar[str]

    def __init_subclass__(cls, items: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Without it, a subclass of one that has said it.
        if items:
            cls._attribute = items

    @property
    def _items(self) -> tuple[T, ...]:
        return cast("tuple[T, ...]", getattr(self, self._attribute))

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[T, ...]: ...
    def __getitem__(self, key: int | slice) -> T | tuple[T, ...]:
        return self._items[key]

    def __len__(self) -> int:
        return len(self._items)


class DisplayableMapping(Mapping[str, T], Displayable):
    """A displayable mapping."""

    def __init__(self, items: Mapping[str, T]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Checked:
    """Has only the attributes that its class knows: a misspelt one cannot be assigned, once
    `_complete` is set.
    """

    _complete = False

    if not TYPE_CHECKING:  # Type checkers only report wrong names if they do not see this method.

        def __setattr__(self, name: str, value: Any) -> None:
            if (
                self._complete
                and not name.startswith("_")
                and name not in self.__dict__
                and not hasattr(type(self), name)
            ):
                settable = []
                for each in dir(type(self)):
                    if getattr(getattr(type(self), each), "fset", None):
                        settable.append(each)
                from casual_mcp_nb.errors import UnknownNameError

                raise UnknownNameError(f"attribute of {self._kind}", name, settable)
            super().__setattr__(name, value)

    @property
    def _kind(self) -> str:
        return f"a {type(self).__name__.lower()}"


class Namespace(Checked, Displayable):
    """A part of a session for one kind of thing. It displays its current state."""

    @property
    @abstractmethod
    def now(self) -> Displayable:
        """The current state as a value that no longer changes."""

    @property
    def _kind(self) -> str:
        return f"session.{type(self).__name__.removeprefix('Session').lower()}"

    def __repr__(self) -> str:
        return repr(self.now)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has no session: it gets the present state.
        return _itself, (self.now,)


def _itself(value: T) -> T:
    return value


class NamespaceList(Namespace, Sequence[T]):
    """A session's list of something."""

    @property
    @abstractmethod
    def now(self) -> DisplayableList[T]:
        """The current list as a value that no longer changes."""

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[T]: ...
    def __getitem__(self, key: int | slice) -> T | Sequence[T]:
        return self.now[key]

    def __iter__(self) -> Iterator[T]:
        return iter(self.now)

    def __len__(self) -> int:
        return len(self.now)


class NamespaceMapping(Namespace, Mapping[str, T]):
    """A session's mapping from names to something."""

    @property
    @abstractmethod
    def now(self) -> DisplayableMapping[T]:
        """The current mapping as a value that no longer changes."""

    def __getitem__(self, name: str) -> T:
        return self.now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.now)

    def __len__(self) -> int:
        return len(self.now)
