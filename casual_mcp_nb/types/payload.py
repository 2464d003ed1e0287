"""Previews of the payload that a function of the notebook returned for the person."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PayloadPreview:
    """A preview of a payload; the payload itself stays in the kernel. Files have only its description.

    Args:
        what: What it is, such as `DataFrame, 1,200 rows, 5 columns`.
        columns: The first columns of a table.
        rows: The first rows of a table, each with a text for each of these columns.
        more_rows: How many rows of it are not shown.
        picture: A PNG of a figure or an image that is small enough to be shown.
        text: Of anything else, the beginning of its repr.
    """

    what: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    more_rows: int = 0
    picture: bytes | None = field(default=None, repr=False)
    text: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether there is more than the description."""
        return bool(self.columns or self.picture or self.text)


def in_a_file(preview: PayloadPreview) -> PayloadPreview:
    """Reduce a preview to the part that is saved in a file."""
    return PayloadPreview(preview.what)
