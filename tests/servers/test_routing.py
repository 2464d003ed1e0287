"""Which arguments a call repeats in HTTP headers while its tools are listed again, page by page."""

from __future__ import annotations

from typing import Any

from mcp_types import Tool

from casual_mcp_nb.servers._repairs import ToolsPage
from casual_mcp_nb.servers._routing import Routing

REGION = {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "Region"}}}
PLAIN = {"type": "object", "properties": {"r": {"type": "string"}}}
TWICE = {
    "type": "object",
    "properties": {
        "r": {"type": "string", "x-mcp-header": "Region"},
        "s": {"type": "string", "x-mcp-header": "REGION"},
    },
}


def page(more: str | None = None, **schemas: dict[str, Any]) -> ToolsPage:
    tools = [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]
    read = [Tool.model_validate(tool) for tool in tools]
    return ToolsPage(tools=read, listed=tools, next_cursor=more)


def headers(routing: Routing, tool: str) -> dict[str, str]:
    return routing.headers({"name": tool, "arguments": {"r": "north"}})


def test_a_tool_keeps_its_header_until_the_last_page_is_there() -> None:
    routing = Routing()
    assert routing.read(page(a=REGION, b=REGION), first=True) == []
    assert headers(routing, "b") == {"Mcp-Param-Region": "north"}
    routing.read(page("2", a=PLAIN), first=True)
    assert headers(routing, "b") == {"Mcp-Param-Region": "north"}
    routing.read(page(c=REGION), first=False)
    known = {tool: bool(headers(routing, tool)) for tool in "abc"}
    assert known == {"a": False, "b": False, "c": True}


def test_a_tool_with_a_wrong_header_is_dropped_from_its_page() -> None:
    routing, listed = Routing(), page(wrong=TWICE, right=REGION)
    assert routing.read(listed, first=True) == ["wrong"]
    assert [tool.name for tool in listed.tools] == ["right"]
    assert headers(routing, "wrong") == {}
