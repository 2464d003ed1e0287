"""Results that can be written to a file: CSV, JSON or HTML."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from casual_mcp_nb.base.displayable import Displayable, display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown


class Exportable(Displayable, ABC):
    """A displayable value with rows that can be written to a file. Subclasses set `_kind`."""

    _kind: ClassVar[str]

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per run, for a DataFrame or a CSV file."""

    @abstractmethod
    def _about(self) -> dict[str, Any]:
        """Collect what a JSON file has beside the rows."""

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write it to a file.

        Args:
            path: The file. Its extension decides the format: `.html` (one page, without scripts or
                network access), `.csv` (a row per run), or `.json` (the same rows).
            overwrite: Replace a file that exists.

        Returns:
            The file. It is written whole or not at all.

        Raises:
            UsageError: The extension is unknown, or the file exists or cannot be written.
        """
        path = Path(path).expanduser()
        formats = {".html": self._page, ".csv": self._csv, ".json": self._json}
        write = formats.get(path.suffix.casefold())
        if write is None:
            hint = did_you_mean(closest(path.suffix, formats), formats)
            raise UsageError(
                f"{self._kind} cannot be saved as {shown(path.suffix or path.name)}.", hint=hint
            )
        write_text(path, write(), overwrite=overwrite, hint="To replace it: overwrite=True.")
        return path

    def _page(self) -> str:
        return display().page(self, f"{self._kind} with casual_mcp_nb")

    def _json(self) -> str:
        return (
            json.dumps({**self._about(), "runs": self.rows()}, ensure_ascii=False, indent=2) + "\n"
        )

    def _csv(self) -> str:
        text, rows = io.StringIO(), self.rows()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _as_text(value) for name, value in row.items()})
        return text.getvalue()


def _as_text(value: Any) -> Any:
    """Escape a value for a CSV cell, so that a spreadsheet sees no formula in a model's words."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
