"""A library that lends tools to its members."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked
from pydantic import Field

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("toolshed")


@server.tool(annotations=READS)
def find_items(
    category: Literal["drill", "saw", "ladder", "sander"] | None = None,
    available_only: bool = False,
    max_weight_kg: float | None = None,
) -> str:
    """List the tools that can be borrowed, with their numbers."""
    return f"items {category} {available_only} {max_weight_kg}"


@server.tool(annotations=READS)
def item_details(item_id: int) -> str:
    """Tell everything about one item: maker, weight, condition."""
    return f"item {item_id}"


@server.tool(annotations=READS)
def loans_of_member(member: str, overdue_only: bool = False) -> str:
    """List what a member has on loan."""
    return f"loans {member} {overdue_only}"


@server.tool(annotations=READS)
def rental_fee(item_id: int, days: Annotated[int, Field(ge=1, le=30)]) -> str:
    """Compute what it costs to rent an item for some days."""
    return f"fee {item_id} {days}"


@server.tool
def opening_hours(weekday: Weekday) -> str:
    """Say when the tool library is open on a day of the week."""
    return f"open {weekday}"


@server.tool(annotations={"readOnlyHint": False})
def borrow_item(item_id: int, member: str, due: date) -> str:
    """Lend an item to a member until a date."""
    return f"lent {item_id} {member} {due}"


@server.tool
def return_item(item_id: int, damaged: bool = False) -> str:
    """Take an item back."""
    return f"returned {item_id} {damaged}"


@server.tool
def register_member(name: str, email: str) -> str:
    """Register a new member."""
    return f"registered {name} {email}"


QUESTIONS = [
    answered(
        "Which saws are available right now?", "find_items", category="saw", available_only=True
    ),
    answered("Show me all the ladders", "find_items", category="ladder"),
    answered("When are you open on Saturday?", "opening_hours", weekday="saturday"),
    answered("What does it cost to rent item 12 for 5 days?", "rental_fee", item_id=12, days=5),
    answered(
        "Does Priya have any overdue loans?", "loans_of_member", member="Priya", overdue_only=True
    ),
    answered(
        "Please borrow item 7 for Priya until 2026-03-14",
        "borrow_item",
        item_id=7,
        member="Priya",
        due="2026-03-14",
    ),
    answered(("Show me the details of an item", "31"), "item_details", item_id=31),
    asked("What was returned last week?"),
    answered("List the tools that weigh less than 4 kg", "find_items", max_weight_kg=4),
    answered(
        ("What is the rental fee?", "Which sanders do you have?"), "find_items", category="sander"
    ),
    answered(
        "Which drills under 3 kg are available?",
        "find_items",
        category="drill",
        available_only=True,
        max_weight_kg=3,
    ),
    answered("Is the library open on Tuesdays?", "opening_hours", weekday="tuesday"),
    asked("Show me the details of an item", "the big red one"),
    answered(
        ("What's the rental fee?", "When are you open on Friday?"),
        "opening_hours",
        weekday="friday",
    ),
    asked("Has anybody borrowed item 7?"),
    asked("Can I return things on Sunday?", "And who registered as a member?"),
    answered("How much would 3 days with item 44 cost me?", "rental_fee", item_id=44, days=3),
    asked("Rent item 12 for 90 days"),
    answered(
        "Register the member Ines Okafor, email ines@example.org",
        "register_member",
        name="Ines Okafor",
        email="ines@example.org",
    ),
    answered("What does Tomás have on loan?", "loans_of_member", member="Tomás"),
]
