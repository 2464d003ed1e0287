"""Pick values out of JSON by a path such as `users[0].name` or `users[*].name`."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.bundled._server import ToolError
from casual_mcp_nb.isolation import _query


def pick(value: Any, path: str) -> Any:
    """Return the value at a path, see `isolation._query.pick`.

    Raises:
        ToolError: The path is not valid, or leads to nothing; the message names what is there.
    """
    try:
        return _query.pick(value, path)
    except _query.BadQuery as error:
        text = str(error)
        raise ToolError(f"{text[0].upper()}{text[1:]}.") from None
