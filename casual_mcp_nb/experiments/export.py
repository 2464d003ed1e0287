"""Write results to a file: CSV, JSON or HTML."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.displayable import display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown

if TYPE_CHECKING:
    from casual_mcp_nb.experiments.results import RunResults


_FORMATS = (".html", ".csv", ".json")


def export_results(
    results: RunResults, path: str | Path, columns: Sequence[str], *, overwrite: bool
) -> Path:
    """Write results to a file, see `RunResults.export`.

    Args:
        results: The results.
        path: The file.
        columns: The names of the fields in a row.
        overwrite: Replace a file that exists.
    """
    path = Path(path).expanduser()
    match path.suffix.casefold():
        case ".html":
            text = display().page(results, "An experiment with casual_mcp_nb")
        case ".csv":
            text = _csv(results.rows(), columns)
        case ".json":
            text = _json(results)
        case _:
            raise UsageError(
                f"An experiment cannot be saved as {shown(path.suffix or path.name)}.",
                hint=did_you_mean(closest(path.suffix, _FORMATS), _FORMATS),
            )
    write_text(path, text, overwrite=overwrite, hint="To replace it: overwrite=True.")
    return path


def _json(results: RunResults) -> str:
    document = {
        "status": results.status,
        "arms": list(results),
        "cases": list(results.cases),
        "repeats": results.repeats,
        "runs": results.rows(),
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Escape a value for a CSV cell, so that a spreadsheet sees no formula in a model's words."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
