"""Price tables, from a file or as plain objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from casual_mcp_nb.base.prices import Price, PriceTable
from casual_mcp_nb.config.document import (
    ConfigProblem,
    Document,
    problems_of,
    raise_problems,
    read_document,
)
from casual_mcp_nb.errors import ConfigError

PRICE_FILE = "prices.json"
"""The price file, read from the config's folder if it has no `prices`."""
_SHAPE = (
    'A price table: {"MODEL": {"input": 2.0, "output": 8.0, "cached_input": 0.5, "cache_write":'
    ' 2.5, "currency": "USD"}}, per million tokens.'
)
_OF_ANOTHER_KIND = 'If this file is unrelated, put "prices": {} in the config.'


def read_prices(source: str | Path | Mapping[str, Any]) -> dict[str, Price]:
    """Read a price table from a JSON file, or as plain objects.

    For each model, by its name in the config or the provider's name for it: `input`, `output`,
    `cached_input` and `cache_write` (both optional) per million tokens, and `currency` (USD). A
    ConfigError has the file, line, column and key.
    """
    if not isinstance(source, str | Path | Mapping):
        raise ConfigError("A price table must be a path or an object.", key="prices", hint=_SHAPE)
    if isinstance(source, Mapping):
        document = Document(dict(source))
    else:
        document = read_document(Path(source).expanduser().absolute())
    try:
        prices, errors = TypeAdapter(PriceTable).validate_python(document.data), []
    except ValidationError as error:
        prices, errors = {}, problems_of(error, document.data, within=("prices",))
    # In a config, the table's keys are below `prices`; in a separate file they are at the top
    # level.
    within = 1 if document.path else 0
    shape = _SHAPE
    if document.path and document.path.name == PRICE_FILE:
        shape = f"{_SHAPE} {_OF_ANOTHER_KIND}"
    problems = [
        ConfigProblem(problem.path[within:], f"{problem.text}. {shape}") for problem in errors
    ]
    raise_problems([*document.problems, *problems], document)
    return prices
