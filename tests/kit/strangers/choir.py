"""A choir's plan of rehearsals."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked

Section = Literal["soprano", "alto", "tenor", "bass"]
READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("choir")


@server.tool(annotations=READS)
def rehearsals(
    section: Section | None = None, month: str | None = None, limit: int | None = None
) -> str:
    """List the coming rehearsals, of the whole choir or of one section."""
    return f"rehearsals {section} {month} {limit}"


@server.tool(annotations=READS)
def pieces(
    composer: str | None = None, language: Literal["latin", "german", "english"] | None = None
) -> str:
    """List the pieces of the programme."""
    return f"pieces {composer} {language}"


@server.tool(annotations=READS)
def attendance(singer: str, since: date | None = None) -> str:
    """Show how often a singer was there."""
    return f"attendance {singer} {since}"


@server.tool(annotations=READS)
def next_concert() -> str:
    """Tell when and where the next concert is."""
    return "on Sunday"


@server.tool(annotations=READS)
def search_notes(query: str, limit: int = 5) -> str:
    """Search the conductor's notes."""
    return f"notes {query} {limit}"


@server.tool
def seating(rows: int, section: Section | None = None) -> str:
    """Draw a seating plan with a number of rows."""
    return f"seats {rows} {section}"


@server.tool
def add_rehearsal(day: date, place: str, section: Section | None = None) -> str:
    """Put another rehearsal into the plan."""
    return f"added {day} {place} {section}"


@server.tool(annotations={"destructiveHint": True})
def cancel_rehearsal(rehearsal_id: int, reason: str = "") -> str:
    """Cancel a rehearsal and tell everybody."""
    return f"cancelled {rehearsal_id} {reason}"


@server.tool(annotations={"readOnlyHint": False})
def note_absence(singer: str, day: date) -> str:
    """Write down that a singer will be absent."""
    return f"absent {singer} {day}"


QUESTIONS = [
    answered("When is the next concert?", "next_concert"),
    answered("Which Latin pieces are we singing?", "pieces", language="latin"),
    answered("List the alto rehearsals in March", "rehearsals", section="alto", month="March"),
    answered("Show the pieces by Bruckner", "pieces", composer="Bruckner"),
    answered(
        "Show the attendance of Marta since 2026-01-15",
        "attendance",
        singer="Marta",
        since="2026-01-15",
    ),
    answered("Cancel rehearsal 14", "cancel_rehearsal", rehearsal_id=14),
    asked("Why was the last rehearsal cancelled?"),
    answered("Search the notes for breathing", "search_notes", query="breathing"),
    answered(("Show me the attendance", "List the bass rehearsals"), "rehearsals", section="bass"),
    asked("Marta can't come on Friday"),
    answered("What are the next 3 rehearsals?", "rehearsals", limit=3),
    answered("Which rehearsals are in May?", "rehearsals", month="May"),
    answered("Which rehearsals were added for the tenors?", "rehearsals", section="tenor"),
    answered(
        "Are there any English pieces by Byrd?", "pieces", composer="Byrd", language="english"
    ),
    asked("Cancel a rehearsal", "the one on Monday"),
    answered(("Draw a seating plan", "5"), "seating", rows=5),
    answered(
        ("Draw a seating plan", "What do the notes say about vowels?"),
        "search_notes",
        query="vowels",
    ),
    answered(
        "Search the notes for 'staggered breathing', limit 2",
        "search_notes",
        query="staggered breathing",
        limit=2,
    ),
    answered(
        "Add a rehearsal on 2026-05-04, place: Church Hall",
        "add_rehearsal",
        day="2026-05-04",
        place="Church Hall",
    ),
    asked("Who was absent yesterday?"),
]
