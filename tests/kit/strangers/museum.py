"""A small museum of clocks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked
from pydantic import Field

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("museum")


@server.tool(annotations=READS)
def search_collection(
    query: str, century: Annotated[int | None, Field(ge=14, le=21)] = None
) -> str:
    """Search the clocks of the collection."""
    return f"clocks {query} {century}"


@server.tool(annotations=READS)
def clock(inventory_number: int) -> str:
    """Show a clock with its maker, year and room."""
    return f"clock {inventory_number}"


@server.tool(annotations=READS)
def room_plan(floor: Literal["ground", "first", "cellar"]) -> str:
    """Show the rooms of a floor."""
    return f"plan {floor}"


@server.tool(annotations=READS)
def guided_tours(language: str = "English") -> str:
    """List today's guided tours."""
    return f"tours {language}"


@server.tool(annotations=READS)
def ticket_price(visitors: int, reduced: bool = False) -> str:
    """Compute the price of tickets for a group."""
    return f"price {visitors} {reduced}"


@server.tool(annotations=READS)
def visitors_today() -> str:
    """Count the visitors of today."""
    return "41"


@server.tool(annotations={"readOnlyHint": False})
def lend(inventory_number: int, to: str) -> str:
    """Lend a clock to another museum."""
    return f"lent {inventory_number} {to}"


@server.tool(annotations={"readOnlyHint": False, "destructiveHint": True})
def remove_from_collection(inventory_number: int) -> str:
    """Remove a clock from the collection for good."""
    return f"removed {inventory_number}"


QUESTIONS = [
    answered("How many visitors came today?", "visitors_today"),
    answered("Show me clock 118", "clock", inventory_number=118),
    answered("What is on the first floor?", "room_plan", floor="first"),
    answered("Are there guided tours in French?", "guided_tours", language="French"),
    answered("How much are tickets for 5 visitors?", "ticket_price", visitors=5),
    answered("Search the collection for pendulum", "search_collection", query="pendulum"),
    answered("Lend clock 7 to Basel", "lend", inventory_number=7, to="Basel"),
    asked("Was clock 12 removed from the collection?"),
    asked("Who painted the ceiling?"),
    answered(("Look a clock up by its inventory number", "204"), "clock", inventory_number=204),
]
