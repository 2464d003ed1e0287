"""Pick values out of JSON by a path such as `users[*].name`, or by a JMESPath query such as ``users[?age > `30`].name``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from casual_mcp_nb.bundled._server import ToolError
from casual_mcp_nb.isolation import _query

_FUNCTIONS = {
    *("abs", "avg", "ceil", "contains", "ends_with", "floor", "keys", "length", "max", "max_by", "min", "min_by", "not_null"),
    *("reverse", "sort", "sort_by", "starts_with", "sum", "to_number", "to_string", "type", "values"),
}
"""Those whose result is about as large as what they are given; join and map can make a list of millions."""
_MAX_COPIES = 30


def pick(value: Any, query: str) -> Any:
    """Evaluate a path or a JMESPath query.

    A path is read as in `read_result` of large results: it names what is there when it leads to nothing.

    Raises:
        ToolError: The query is not valid, or finds nothing.
    """
    try:
        return _query.pick(value, query)
    except _query.BadQuery as error:
        matches = _searched(value, query)
        if matches is None:
            text = str(error)
            raise ToolError(f"{text[0].upper()}{text[1:]}.") from None
        return matches


def _searched(value: Any, query: str) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        with warnings.catch_warnings(action="ignore"):
            expression = jmespath.compile(query.strip().removeprefix("$."))
    except (JMESPathError, RecursionError):
        return None
    nodes = list(_nodes(expression.parsed))
    functions = {str(node["value"]) for node in nodes if node["type"] == "function_expression"} - _FUNCTIONS
    if functions:
        raise ToolError(f"The function {min(functions)} is not offered here. Valid: {', '.join(sorted(_FUNCTIONS))}.")
    # Lists of the same value again and again, each built from the one before, would grow without end.
    copies = [node for node in nodes if node["type"] in ("multi_select_list", "multi_select_dict")]
    if len(copies) > 2 or sum(len(node["children"]) for node in copies) > _MAX_COPIES:
        raise ToolError(f"The query selects too much: at most two [a, b] or {{a: b}}, with {_MAX_COPIES} values.")
    try:
        return expression.search(value)
    except (JMESPathError, RecursionError, TypeError, ValueError, OverflowError) as error:
        raise ToolError(f"The query cannot be answered: {str(error)[:200]}.") from error


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        if isinstance(child, dict):
            yield from _nodes(child)
