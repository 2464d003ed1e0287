"""A campsite by a river."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("campsite")


@server.tool(annotations=READS)
def free_pitches(
    kind: Literal["tent", "caravan", "cabin"] | None = None, with_power: bool = False
) -> str:
    """List the pitches and cabins that are free tonight."""
    return f"free {kind} {with_power}"


@server.tool(annotations=READS)
def arrivals(day: date) -> str:
    """List the guests who arrive on a day."""
    return f"arrivals {day}"


@server.tool(annotations=READS)
def guest_bill(guest: str) -> str:
    """Show what a guest has to pay."""
    return f"bill {guest}"


@server.tool(annotations=READS)
def shower_times() -> str:
    """Tell when the showers are open."""
    return "7 to 10"


@server.tool(annotations=READS)
def prices(season: Literal["low", "high"]) -> str:
    """Show what a night costs in a season."""
    return f"prices {season}"


@server.tool(annotations=READS)
def search_rules(query: str) -> str:
    """Search the rules of the campsite."""
    return f"rules {query}"


@server.tool(annotations={"readOnlyHint": False})
def book_pitch(guest: str, pitch_id: int, nights: int) -> str:
    """Book a pitch for a guest."""
    return f"booked {guest} {pitch_id} {nights}"


@server.tool(annotations={"destructiveHint": True})
def check_out(guest: str) -> str:
    """Check a guest out and free the pitch."""
    return f"checked out {guest}"


QUESTIONS = [
    answered("When are the showers open?", "shower_times"),
    answered("Which cabins are free?", "free_pitches", kind="cabin"),
    answered(
        "Is there a caravan pitch with power?", "free_pitches", kind="caravan", with_power=True
    ),
    answered("Who arrives on 2026-07-03?", "arrivals", day="2026-07-03"),
    answered("What does Lindqvist owe?", "guest_bill", guest="Lindqvist"),
    answered("How much does a night cost in high season?", "prices", season="high"),
    answered("What do the rules say about dogs?", "search_rules", query="dogs"),
    answered(
        "Book pitch 12 for Ada for 3 nights", "book_pitch", guest="Ada", pitch_id=12, nights=3
    ),
    asked("Has Lindqvist checked out?"),
    answered(("Show me a guest's bill", "Okafor"), "guest_bill", guest="Okafor"),
]
