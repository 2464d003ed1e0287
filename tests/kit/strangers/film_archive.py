"""An archive of films on reels."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked
from pydantic import Field

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("film-archive")


@server.tool(annotations=READS)
def search_films(
    query: Annotated[str, Field(description="Words of the title or of the summary.")],
    max_results: Annotated[int, Field(description="How many films at most.", ge=1, le=50)] = 10,
) -> str:
    """Search the archive's films by title or summary."""
    return f"films {query} {max_results}"


@server.tool(annotations=READS)
def films_by_director(director: str, decade: int | None = None) -> str:
    """List the films of a director.

    Args:
        director: The director's name.
        decade: The first year of the decade, for example 1960.
    """
    return f"films {director} {decade}"


@server.tool(annotations=READS)
def film_details(title: str) -> str:
    """Get the year, the length and the cast of a film."""
    return f"details {title}"


@server.tool(annotations=READS)
def reel_condition(reel_number: int) -> str:
    """Tell in what condition a reel is."""
    return f"condition {reel_number}"


@server.tool(annotations=READS)
def list_screenings(hall: Literal["red", "blue"] | None = None, day: str | None = None) -> str:
    """List the coming screenings."""
    return f"screenings {hall} {day}"


@server.tool
def lend_reel(reel_number: int, borrower: str, weeks: int = 2) -> str:
    """Lend a reel to a cinema."""
    return f"lent {reel_number} {borrower} {weeks}"


@server.tool(annotations={"destructiveHint": True})
def discard_reel(reel_number: int) -> str:
    """Discard a reel that cannot be repaired."""
    return f"discarded {reel_number}"


QUESTIONS = [
    answered("Search the films for lighthouse", "search_films", query="lighthouse"),
    answered(
        "Which films by Agnes Varda do you have?", "films_by_director", director="Agnes Varda"
    ),
    answered("Get the details of 'The Third Man'", "film_details", title="The Third Man"),
    answered("What condition is reel 812 in?", "reel_condition", reel_number=812),
    answered("What is on in the blue hall?", "list_screenings", hall="blue"),
    answered("Which screenings are there on Friday?", "list_screenings", day="Friday"),
    asked("Is reel 40 lent to anybody?"),
    asked("Discard the broken reels"),
    answered(
        "Lend reel 17 to Odeon for 3 weeks",
        "lend_reel",
        reel_number=17,
        borrower="Odeon",
        weeks=3,
    ),
    answered(
        ("Show me a film's details", "Find films about trains, at most 5"),
        "search_films",
        query="trains",
        max_results=5,
    ),
]
