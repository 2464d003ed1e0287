"""A tool's result that is too large for the model: its description, and the whole for the person."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.errors import UsageError

HANDLE_NOTE = re.compile(r"\[Result (r_[0-9a-f]{10}): ")
"""How the model reads the handle of a large result, which depends on the id of its call."""


class KeptText:
    """The whole text of a result, until it is dropped.

    Args:
        text: The text.
        plain: Whether it is only a text, because reading it as JSON took too long or too much memory.
    """

    def __init__(self, text: str, plain: bool = False) -> None:
        self.text: str | None = text
        self.plain = plain

    def drop(self) -> None:
        """Free the text."""
        self.text = None


@dataclass(frozen=True, slots=True)
class LargeResult:
    """A result of which the model read only the head. The whole stays in this process and is in no file.

    Args:
        handle: The name by which the model reads on.
        what: What it is, such as `table of 60,000 rows, 8 columns`.
        size: Its size in bytes.
        tokens: Estimated tokens of what the model read.
        source: The whole, a `KeptText`; None in a saved conversation.
    """

    handle: str
    what: str
    size: int
    tokens: int
    source: Any = field(default=None, repr=False, compare=False)

    @property
    def size_in_words(self) -> str:
        """Its size, such as `5.7 MB`."""
        return size_in_words(self.size)

    @property
    def is_kept(self) -> bool:
        """Whether the whole is still here."""
        return self.source is not None and self.source.text is not None

    @property
    def text(self) -> str:
        """The whole text.

        Raises:
            UsageError: It is not here any more.
        """
        if self.source is None:
            raise UsageError(
                f"The whole result ({self.what}) is not in a saved conversation.", hint="Call the tool again to get it."
            )
        if self.source.text is None:
            raise UsageError(
                f"The whole result ({self.what}) was dropped, because later ones needed the memory.",
                hint="Call the tool again, and keep call.value in a variable.",
            )
        return str(self.source.text)

    @property
    def value(self) -> Any:
        """The whole as a Python value, see `value_of`.

        Raises:
            UsageError: It is not here any more.
        """
        text = self.text
        return text if self.source.plain else value_of(text)


def size_in_words(size: int) -> str:
    """Format a number of bytes: `5.7 MB`, `28.0 kB`."""
    return f"{size / 1_000_000:,.1f} MB" if size >= 100_000 else f"{size / 1_000:,.1f} kB"


def value_of(text: str) -> Any:
    """Parse a text: as a pandas DataFrame for a table, a list or dict for other JSON, else the text.

    Without pandas, a table is a list of dicts.
    """
    from casual_mcp_nb.isolation._query import parse

    kind, value = parse(text)
    if kind != "table":
        return value
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return value
    return pandas.DataFrame(value)
