"""Parse the arguments of the search tool leniently: models send numbers, strings and nulls where the schema says otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.errors import UsageError, shown

MAX_NAMES = 100
_MAX_QUERY = 1_000
_MAX_NAME = 200
_MAX_ITEMS = 10_000
_NO_SERVER = ("null", "none")
_WANTED = {
    "query": "a text",
    "server_name": "the name of one server",
    "tool_names": "a list of tool names",
    "names": "a list of tool names",
    "category": "the name of one category",
    "page": "a number",
}
_QUOTES = " \t\r\n`'\""


@dataclass(frozen=True)
class SearchArguments:
    """The arguments of one search, empty if not given. `dropped` counts the names beyond the limit."""

    query: str = ""
    server: str = ""
    names: tuple[str, ...] = ()
    dropped: int = 0


def read_arguments(args: object) -> SearchArguments:
    """Parse the arguments of a search, whatever the model sent.

    Raises:
        UsageError: An argument is invalid, or none is given; the message is for the model.
    """
    given = args if isinstance(args, Mapping) else {}
    names = list(dict.fromkeys(_names(given.get("tool_names"))))
    arguments = SearchArguments(
        _query(given.get("query")), _server(given.get("server_name")), tuple(names[:MAX_NAMES]), len(names[MAX_NAMES:])
    )
    if arguments == SearchArguments():
        unknown = [shown(str(key)) for key in given if key not in ("query", "server_name", "tool_names")][:5]
        also = f" There is no argument {' or '.join(unknown)}." if unknown else ""
        raise UsageError(
            f"Give at least one of query, server_name and tool_names.{also}",
            hint='For example: {"query": "convert a time between time zones"}.',
        )
    return arguments


def read_names(args: object) -> tuple[tuple[str, ...], int]:
    """Parse the names for a tool that takes only names, and count those beyond the limit.

    Raises:
        UsageError: They are invalid, or there are none; the message is for the model.
    """
    names = list(dict.fromkeys(_names(_first_given(args, ("names", "tool_names", "tools", "name")), "names")))
    if not names:
        raise UsageError("Give names.", hint='For example: {"names": ["get_current_time"]}.')
    return tuple(names[:MAX_NAMES]), len(names[MAX_NAMES:])


def read_browsing(args: object) -> tuple[str, str, int]:
    """Parse the category, the query and the page to show; they default to empty strings and 1.

    Raises:
        UsageError: An argument is invalid; the message is for the model.
    """
    category = _server(_first_given(args, ("category", "server_name", "server")), "category")
    page = _text("page", _first_given(args, ("page",))) or "1"
    if not page.isdecimal():
        raise UsageError("page must be a whole number.")
    return category, _query(_first_given(args, ("query",))), int(page[:9])


def _first_given(args: object, keys: tuple[str, ...]) -> Any:
    given = args if isinstance(args, Mapping) else {}
    return next((given[key] for key in keys if given.get(key)), None)


def _query(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = " ".join(_text("query", item) for item in value[:50])
    return _text("query", value)[:_MAX_QUERY]


def _server(value: Any, key: str = "server_name") -> str:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    name = _text(key, value).strip(_QUOTES)[:_MAX_NAME]
    return "" if name.casefold() in _NO_SERVER else name


def _names(value: Any, key: str = "tool_names") -> list[str]:
    items = _listed(value) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        items = [items]
    names = [_text(key, item).strip(_QUOTES)[:_MAX_NAME] for item in items[:_MAX_ITEMS]]
    return [name for name in names if name]


def _listed(text: str) -> list[Any]:
    """Parse names sent as a string instead of a list: JSON, or separated by commas."""
    text = text.strip()[: MAX_NAMES * _MAX_NAME]
    if text.startswith("["):
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):
            items = None
        if isinstance(items, list):
            return items
    return text.strip("[]").replace("\n", ",").split(",")


def _text(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        return str(value)
    raise UsageError(f"{key} must be {_WANTED[key]}, not {_kind(value)}.")


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return {bool: "true or false", list: "a list", tuple: "a list"}.get(type(value), "such a value")
