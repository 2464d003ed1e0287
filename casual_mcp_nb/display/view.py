"""A display's contents, as small frozen values: one view, three formats.

A value becomes a `View`. `fit` shortens and cleans every text in it; `html`, `markdown` and `plain`
draw it. Nothing is drawn that has not passed `fit`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache
from itertools import chain, islice, repeat
from typing import Any, ClassVar, Literal, TypeVar

from casual_mcp_nb.base.iterables import field_names
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.display.words import UNKNOWN, clean, cut, one_line

T = TypeVar("T")

Tone = Literal["good", "bad", "busy", "quiet"]
Fold = Literal["open", "closed"]
Data = tuple[tuple[str, str], ...]
"""Attributes `data-NAME` by which a page finds a part."""


@dataclass(frozen=True, slots=True)
class DisplayLimits:
    """How much a display shows: table rows and parts such as steps, and characters in cells, texts
    and documents.

    A document is a text that the display is about, such as the manifest. `images` limits all images
    together, in bytes. Step requests can be left out.
    """

    rows: int = 50
    cell: int = 160
    text: int = 2_000
    document: int = 16_000
    images: int = 24_000
    requests: bool = False


SIZE_TIERS = (
    DisplayLimits(requests=True),
    DisplayLimits(),
    DisplayLimits(36, 120, 800, 8_000, 12_000),
    DisplayLimits(20, 80, 300, 4_000, 0),
    DisplayLimits(8, 60, 120, 1_500, 0),
    DisplayLimits(2, 40, 60, 400, 0),
)
"""From most to least detail: a display that is too large is drawn with the next one."""

_FIXED_PARTS = 10
"""Parts that a display has in addition to its rows, such as the prompt and a turn's answer."""


@dataclass(frozen=True, slots=True)
class Status:
    """A state: a symbol with its word. The tone only adds a colour."""

    text: str
    tone: Tone = "quiet"


@dataclass(frozen=True, slots=True)
class Tags:
    """Words in a row."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words as one text."""
        return ", ".join(self.words)


@dataclass(frozen=True, slots=True)
class Bar:
    """A number with a bar. `fraction` is 0 to 1, or None for no bar.

    `colour` is an index in the palette of `StackedBar`.

    A `narrow` bar is below its number, for a table with many bars in a row. A `track` shows the
    whole, where there is no other bar to compare with.
    """

    text: str
    fraction: float | None
    colour: int | None = None
    narrow: bool = False
    track: bool = False


@dataclass(frozen=True, slots=True)
class StackedBar:
    """A number with a bar in several parts.

    `fractions` are each part's share of the full width, 0 to 1 together.
    """

    text: str
    fractions: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A name, set as code."""

    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a phrase: plain, code, quiet, a step number, or a call's result."""

    text: str
    style: Literal["", "code", "quiet", "number", "result"] = ""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A line with several pieces, separated by spaces."""

    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        """The pieces as one text."""
        return " ".join(span.text for span in self.spans)


Cell = str | Status | Tags | Bar | StackedBar | Name | Phrase
Row = tuple[Cell, ...]
"""A table's row."""
Facts = tuple[tuple[str, Cell], ...]
"""Labels with their values."""


@dataclass(frozen=True, slots=True)
class Column:
    """A table column. `share` is its width in percent, so that tables below each other line up."""

    title: str
    numeric: bool = False
    share: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under titles. A row's first cell names it. `hidden` counts rows that are not given."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    hidden: int = 0

    @classmethod
    def of(
        cls,
        columns: tuple[Column, ...],
        items: Collection[T],
        row: Callable[[T], Row],
        limit: int,
    ) -> Table:
        """Make a table of the first items, with a row for each. The others are hidden."""
        rows = tuple(map(row, islice(items, limit)))
        return cls(columns, rows, len(items) - len(rows))

    @property
    def more(self) -> str:
        """How many rows are not shown, in words, or empty if none."""
        if self.hidden:
            return f"{self.hidden:,} more"
        return ""


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Labels with their values."""

    rows: Facts


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A block of text with its line ends. `limit` replaces the default.

    `code` sets it as code, with a `language` as highlighted code with numbered lines, some of them
    marked. `prose` is Markdown, drawn in HTML as far as it is harmless.
    """

    text: str
    label: str = ""
    code: bool = False
    limit: int | None = None
    prose: bool = False
    data: Data = ()
    language: Literal["", "python"] = ""
    marks: Mapping[int, Tone] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a state, then figures."""

    mark: Status | None
    words: tuple[str, ...] = ()
    data: Data = ()


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image as its bytes. `note` describes it."""

    mime_type: str
    data: bytes
    note: str


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part. An empty title draws no heading.

    `fold` makes it one that folds, open or closed at first. `figures` are at the end of its title's
    line, `look` is its CSS class, and a page finds it by its `data`. Text forms, which cannot fold,
    only name a `brief` one.
    """

    title: str | Phrase
    blocks: Blocks
    mark: Status | None = None
    note: str = ""
    fold: Fold | None = None
    figures: tuple[str, ...] = ()
    look: str = "section"
    data: Data = ()
    brief: bool = False


Block = Table | KeyValues | TextBlock | Line | ImageBlock | Section
Blocks = tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A value's display: the kind is its CSS class, and an empty title draws no heading."""

    figures: ClassVar[tuple[str, ...]] = ()
    name: str
    title: str
    blocks: Blocks
    mark: Status | None = None
    note: str = ""


def columns(*titles: str, shares: Sequence[int] = ()) -> tuple[Column, ...]:
    """Create columns by title. A title that ends in ` #` is for a column of numbers.

    For `shares` see `Column`.
    """
    made = []
    for title, share in zip(titles, chain(shares, repeat(0)), strict=False):
        made.append(Column(title.removesuffix(" #"), title.endswith(" #"), share))
    return tuple(made)


def known(*facts: tuple[str, Cell]) -> Facts:
    """Leave out the facts whose value is empty or not known."""
    return tuple(fact for fact in facts if fact[1] not in ("", UNKNOWN))


def fraction(part: float | None, whole: float | None) -> float | None:
    """Divide `part` by `whole`, within 0 and 1, or None if that is not defined."""
    if part is None or whole is None or not whole > 0:
        return None
    return min(1.0, max(0.0, part / whole))


def cell_text(cell: Cell) -> str:
    """Read a cell's or title's text."""
    if isinstance(cell, str):
        return cell
    return cell.text


def heading(part: View | Section) -> tuple[str, ...]:
    """List those of title, state, note and figures that exist, or nothing without a title."""
    if not part.title:
        return ()
    mark = part.mark.text if part.mark else ""
    words = (cell_text(part.title), mark, part.note, *part.figures)
    return tuple(filter(None, words))


def complete(view: View, *, unfold: bool = False) -> View:
    """Show every part that a view only names, in all its forms.

    Args:
        view: The view.
        unfold: Open its folding parts, too.
    """
    return replace(view, blocks=_complete(view.blocks, unfold))


def _complete(blocks: Blocks, unfold: bool) -> Blocks:
    shown: list[Block] = []
    for block in blocks:
        if isinstance(block, Section):
            block = replace(block, blocks=_complete(block.blocks, unfold), brief=False)
            if unfold and block.fold:
                block = replace(block, fold="open")
        shown.append(block)
    return tuple(shown)


_NO_TEXTS = frozenset(
    {"data", "fold", "language", "look", "marks", "mime_type", "name", "style", "tone"}
)
"""The fields of parts that hold no text to show."""


def fit(view: View, limits: DisplayLimits) -> View:
    """Clean every text in a view, and cut every text and table to `limits`."""
    fitted: View = _fitted(view, limits)
    return fitted


def _fitted(part: Any, limits: DisplayLimits) -> Any:
    """Clean and cut a part with all its parts. Whatever is not treated apart is one line."""
    match part:
        case str():
            return one_line(cut(part, limits.cell))
        case tuple() | list():
            return tuple(_fitted(each, limits) for each in part)
        case TextBlock():
            limit = min(part.limit or limits.text, limits.document)
            text = clean(cut(part.text, limit, max(20, limit // 20)))
            # The lines after a cut would have other numbers.
            language = part.language if len(part.text) <= limit else ""
            label = _fitted(part.label, limits)
            return replace(part, label=label, text=text, language=language)
        case Line(mark=Status() as mark):
            # It can be an error message.
            mark = Status(one_line(cut(mark.text, limits.text)), mark.tone)
            return replace(part, mark=mark, words=_fitted(part.words, limits))
        case Table():
            rows = part.rows[: limits.rows]
            part = replace(part, rows=rows, hidden=part.hidden + len(part.rows) - len(rows))
        case Phrase():
            part = Phrase(part.spans[: limits.rows])
        case Tags():
            part = Tags(part.words[: limits.rows])
        case View() | Section():
            part = replace(part, blocks=_first_blocks(part.blocks, limits.rows + _FIXED_PARTS))
    kind: Any = type(part)
    names = _text_fields(kind)
    if not names:
        return part
    return replace(part, **{name: _fitted(getattr(part, name), limits) for name in names})


@cache
def _text_fields(kind: Any) -> tuple[str, ...]:
    """List the fields that can hold text to show: none of a number."""
    if not is_dataclass(kind):
        return ()
    return tuple(name for name in field_names(kind) if name not in _NO_TEXTS)


def _first_blocks(blocks: Blocks, most: int) -> Blocks:
    if len(blocks) <= most:
        return blocks
    return (*blocks[:most], TextBlock(f"{len(blocks) - most:,} more"))


_DEPTH = 3
_MAX_OPTIONS = 8


def parameters(schema: Mapping[str, Any]) -> tuple[Row, ...]:
    """List a tool's parameters in rows: name, type, whether it is required, description."""
    whole = SchemaReader(schema)
    rows: list[Row] = []
    for name, part in whole.properties.items():
        required = "required" if name in whole.required else "optional"
        rows.append((Name(name), type_words(part), required, part.description))
    return tuple(rows)


def type_words(part: SchemaReader | None, depth: int = _DEPTH) -> str:
    """Describe the type that a schema requires, such as `list of integer` or `'a' or 'b'`; `any` if
    it is not declared.
    """
    if part is None or depth == 0:
        return "any"
    if part.options:
        return _either([type_words(option, depth - 1) for option in part.options[:_MAX_OPTIONS]])
    if part.choices:
        choices = [pretty(value, indent=None) for value in part.choices[:_MAX_OPTIONS]]
        if len(part.choices) > _MAX_OPTIONS:
            choices.append("…")
        return _either(choices)
    if part.reference:
        return part.reference.rsplit("/", 1)[-1]
    if part.types == ("array",) and part.items is not None:
        return f"list of {type_words(part.items, depth - 1)}"
    return _either(list(part.types[:_MAX_OPTIONS]))


def pretty(value: object, indent: int | None = 2) -> str:
    """Format a value as JSON for people to read."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):
        return "This cannot be shown as JSON."


def readable(value: object, indent: int | None = 2) -> str:
    """Format a value for people to read: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return pretty(value, indent)


def _either(options: list[str]) -> str:
    return " or ".join(dict.fromkeys(options)) or "any"
