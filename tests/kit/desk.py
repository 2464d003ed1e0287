"""A FastMCP server of this process that uses every ability of servers: ask, report progress, draw,
change its tools.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image
from mcp_types import ResourceLink, TextContent

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Desk:
    """The server and its events.

    Attributes:
        server: The server.
        began: Set when a call of `wait` or `burn` began.
        ended: How many calls of `wait` were cancelled.
        burnt: How often `burn` ran.
    """

    def __init__(self) -> None:
        self.server: FastMCP[Any] = FastMCP("desk")
        self.began = asyncio.Event()
        self.ended = 0
        self.burnt = 0
        for tool in (self.add, self.draw, self.ask, self.steps, self.fail):
            self.server.tool(tool)
        self.server.tool(self.wait, annotations={"readOnlyHint": True})
        self.server.tool(self.burn, annotations={"destructiveHint": True, "title": "Burn"})

    def add(self, a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    def draw(self) -> list[Any]:
        """Draw a pixel."""
        link = ResourceLink(name="pixel", uri="file:///pixel.png", mime_type="image/png")
        return [TextContent(text="Here:"), Image(data=PIXEL, format="png"), link]

    async def ask(self, ctx: Context) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Your name?", response_type=str)
        return f"{answer.action} {getattr(answer, 'data', None)}"

    async def steps(self, ctx: Context) -> str:
        """Report two steps."""
        await ctx.report_progress(1, 2, "one")
        await ctx.report_progress(2, 2, "two")
        return "done"

    def fail(self) -> str:
        """Fail."""
        raise ValueError("broken")

    async def wait(self) -> str:
        """Wait to be cancelled."""
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1
        return "never"

    def burn(self, what: str) -> str:
        """Burn something down."""
        self.burnt += 1
        return f"burnt {what}"
