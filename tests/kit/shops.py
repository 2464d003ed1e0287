"""FastMCP servers of this process to choose tools from."""

from __future__ import annotations

from typing import Any, Literal

from fastmcp import FastMCP
from fastmcp.tools import Tool

EVIL = "<img src=x onerror='document.body.dataset.pwned=1'>\u202e\x1b[2J"


def shop() -> FastMCP[Any]:
    """A server with a few tools, one of which says hostile things."""
    server = FastMCP("shop")

    @server.tool(annotations={"readOnlyHint": True})
    def stock(
        kind: Literal["tea", "coffee"], most: int = 5, filters: dict[str, int] | None = None
    ) -> dict[str, Any]:
        """List what is in the shop."""
        return {"kind": kind, "most": most, "filters": filters}

    @server.tool(annotations={"destructiveHint": True})
    def burn(reason: str) -> str:
        """Burn the shop down."""
        raise ValueError(reason)

    @server.tool(name="evil", description=EVIL)
    def evil() -> str:
        return EVIL

    return server


class _Still(Tool):
    """A tool that is only listed."""

    async def run(self, arguments: dict[str, Any]) -> Any:
        raise ValueError("This tool does nothing.")


VERBS = ("create", "read", "update", "delete", "search", "send", "list")
THINGS = (
    "event",
    "mail",
    "page",
    "ticket",
    "invoice",
    "photo",
    "song",
    "route",
    "table",
    "branch",
    "order",
)


def shelf(name: str, tools: int) -> FastMCP[Any]:
    """A server with as many tools as wanted, which look like those of real servers."""
    server = FastMCP(name)
    for number in range(tools):
        verb, thing = VERBS[number % len(VERBS)], THINGS[number % len(THINGS)]
        properties = {
            key: {"type": "string", "description": f"The {key} of the {thing}."}
            for key in ("name", thing, "since")
        }
        schema = {"type": "object", "properties": properties, "required": [thing]}
        description = (
            f"{verb.title()} the {thing} with number {number} in {name}. It is given by its name,"
            " and what is old is left out."
        )
        server.add_tool(
            _Still(name=f"{verb}_{thing}_{number}", description=description, parameters=schema)
        )
    return server


def shelves(servers: int, tools: int) -> dict[str, FastMCP[Any]]:
    """Servers with together so many tools."""
    return {
        f"shelf-{number:02}": shelf(f"shelf-{number:02}", tools // servers)
        for number in range(servers)
    }
