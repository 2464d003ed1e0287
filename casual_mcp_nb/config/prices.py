"""The user's price table, in the config or in a file beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from casual_mcp_nb.config.document import Document, read_document
from casual_mcp_nb.config.problems import ConfigProblem, problems_of, raise_problems
from casual_mcp_nb.errors import ConfigError
from casual_mcp_nb.types.prices import Price, PriceTable

FILE = "prices.json"
"""Read from beside the config when it has no `prices`."""

_SHAPE = (
    'A price table: {"MODEL": {"input": 2.0, "output": 8.0, "cached_input": 0.5, "cache_write": 2.5, "currency": "USD"}}, '
    "per million tokens."
)
_OF_ANOTHER_KIND = 'If this file is unrelated, put "prices": {} in the config.'


def read_prices(source: str | Path | Mapping[str, Any]) -> dict[str, Price]:
    """Read a price table.

    Args:
        source: A JSON file, or the same as plain objects: for each model, by its name in the config or the provider's name for
            it, `input`, `output`, `cached_input` and `cache_write` (both optional) per million tokens, and `currency` (USD).

    Raises:
        ConfigError: The table is not valid; with the file, line, column and key.
    """
    if not isinstance(source, str | Path | Mapping):
        raise ConfigError("A price table must be a path or an object.", key="prices", hint=_SHAPE)
    document = Document(dict(source)) if isinstance(source, Mapping) else read_document(Path(source).expanduser().absolute())
    try:
        prices, errors = TypeAdapter(PriceTable).validate_python(document.data), []
    except ValidationError as error:
        prices, errors = {}, problems_of(error, within=("prices",))
    # In a config, the table's keys are below `prices`; in a separate file they are at the top level.
    within = 1 if document.path else 0
    shape = f"{_SHAPE} {_OF_ANOTHER_KIND}" if document.path and document.path.name == FILE else _SHAPE
    problems = [ConfigProblem(problem.path[within:], f"{problem.text}. {shape}") for problem in errors]
    raise_problems([*document.problems, *problems], path=str(document.path) if document.path else None, locate=document.locate)
    return prices


def file_of(named: Any, folder: Path | None) -> Path | None:
    """Locate the file that holds the prices of a config, if there is one.

    Args:
        named: The config's `prices`: a path, the table itself, or None.
        folder: The config file's folder; None for a config made in Python.
    """
    if isinstance(named, str):
        return (folder or Path()) / os.path.expanduser(named)
    beside = folder / FILE if folder else None
    return beside if beside and named is None and beside.is_file() else None
