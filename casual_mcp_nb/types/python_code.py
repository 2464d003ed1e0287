"""Tool calls as Python code."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping
from typing import Any

from casual_mcp_nb.types.tool import ToolName


def call_code(tool: ToolName, arguments: Mapping[str, Any]) -> str:
    """Write a tool call as Python code: `session.call_tool("math:add", a=1, b=2)`.

    Args:
        tool: The tool.
        arguments: Its arguments, as JSON values.
    """
    plain = {name: value for name, value in arguments.items() if _is_plain(name)}
    others = {name: value for name, value in arguments.items() if name not in plain}
    parts = [_code(str(tool)), *(f"{name}={_code(value)}" for name, value in plain.items())]
    return f"session.call_tool({', '.join([*parts, f'**{_code(others)}'] if others else parts)})"


def read_code(uri: str, server: str, parameters: Iterable[str] | Mapping[str, str] = ()) -> str:
    """Write the reading of a resource as Python code: `session.read("demo://1", server="demo")`.

    Args:
        uri: The URI or the URI template.
        server: Its server.
        parameters: The parameters of a template: their values, or only their names, to be filled in.
    """
    return f"session.read({', '.join([_code(uri), f'server={_code(server)}', *_values(parameters)])})"


def prompt_code(server: str, name: str, arguments: Iterable[str] | Mapping[str, str] = ()) -> str:
    """Write a prompt as Python code: `session.prompt("demo:greet", name="Ada")`; for arguments see `read_code`."""
    return f"session.prompt({', '.join([_code(f'{server}:{name}'), *_values(arguments)])})"


def _values(parameters: Iterable[str] | Mapping[str, str]) -> list[str]:
    given = parameters if isinstance(parameters, Mapping) else {}
    return [f"{name}={_code(given[name]) if name in given else '…'}" for name in parameters if _is_plain(name)]


def _is_plain(name: str) -> bool:
    # Python normalises identifiers (`ﬁ` becomes `fi`), so only ASCII round-trips.
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _code(value: Any) -> str:
    match value:
        case str():
            # Double quotes where possible, as in most examples.
            return f'"{value}"' if value.isprintable() and not set(value) & {'"', "\\"} else repr(value)
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case dict():
            return f"{{{', '.join(f'{_code(key)}: {_code(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_code, value))}]"
    return repr(value)
