"""The arguments of tools that a call repeats in HTTP headers, by which gateways route it.

A tool marks them with `x-mcp-header` in its schema. See
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map
from mcp_types import Tool
from pydantic_core import to_json

from casual_mcp_nb.servers._repairs import ToolsPage

_Headers = Mapping[tuple[str, ...], str]
"""The names of headers, by where in the arguments the values are."""


class Routing:
    """The headers of one server's listed tools."""

    def __init__(self) -> None:
        self._in_use: dict[str, _Headers] = {}
        self._listed: dict[str, _Headers] = {}

    def read(self, page: ToolsPage, *, first: bool) -> list[str]:
        """Read the tools of a page, the first or a later one of a listing.

        Until the last page, the tools of the listing before keep their headers, because they can
        be called meanwhile.

        Returns:
            The names of the tools whose annotations are not valid. They are dropped from the page.
        """
        if first:
            self._listed = {}
        wrong: list[str] = []
        # Few tools have such a header, and the SDK's functions walk through the whole schema.
        if _mentions_headers(page.listed):
            usable: list[Tool] = []
            for tool in page.tools:
                if self._is_usable(tool):
                    usable.append(tool)
                else:
                    wrong.append(tool.name)
            page.tools = usable
        self._in_use |= self._listed
        if page.next_cursor is None:
            self._in_use = self._listed
        return wrong

    def _is_usable(self, tool: Tool) -> bool:
        """Note a tool's headers. Return False if they are not valid."""
        if not _mentions_headers(tool.input_schema):
            return True
        if find_invalid_x_mcp_header(tool.input_schema) is not None:
            return False
        self._listed[tool.name] = x_mcp_header_map(tool.input_schema)
        return True

    def headers(self, call: Mapping[str, Any]) -> dict[str, str]:
        """Build the headers of a call from the parameters of `tools/call`."""
        headers = self._in_use.get(str(call.get("name")))
        if headers is None:
            return {}
        return mcp_param_headers(headers, call.get("arguments") or {})


def _mentions_headers(value: Any) -> bool:
    """Check whether listed tools, or the schema of one, can have an `x-mcp-header`."""
    try:
        return b'"x-mcp-header"' in to_json(value)
    except ValueError:
        return True
