"""A small harbour's office."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("harbour")


@server.tool(annotations=READS)
def list_berths(
    size: Literal["small", "medium", "large"] | None = None, free_only: bool = False
) -> str:
    """List the berths of the harbour."""
    return f"berths {size} {free_only}"


@server.tool(annotations=READS)
def tide_table(day: date, limit: int = 4) -> str:
    """Show high and low water on a day."""
    return f"tides {day} {limit}"


@server.tool(annotations=READS)
def ferry_departures(destination: str, weekday: str | None = None) -> str:
    """List the departures of the ferry to an island."""
    return f"ferries {destination} {weekday}"


@server.tool
def vessel_info(call_sign: str) -> str:
    """Get the details of a vessel by its call sign."""
    return f"vessel {call_sign}"


@server.tool
def berth_fee(length_m: float, nights: int) -> str:
    """Calculate what a berth costs for a boat of a length, for some nights."""
    return f"fee {length_m} {nights}"


@server.tool(annotations=READS)
def search_log(query: str, max_results: int = 5) -> str:
    """Search the harbour master's log."""
    return f"log {query} {max_results}"


@server.tool
def reserve_berth(berth: int, vessel: str, arrival: date) -> str:
    """Reserve a berth for a vessel."""
    return f"reserved {berth} {vessel} {arrival}"


@server.tool(annotations={"readOnlyHint": False})
def report_damage(berth: int, text: str) -> str:
    """Report a damage at a berth."""
    return f"damage {berth} {text}"


QUESTIONS = [
    answered("Which small berths are free?", "list_berths", size="small", free_only=True),
    answered("Show the tide table of 2026-07-04", "tide_table", day="2026-07-04"),
    answered("When does the ferry leave for Skerry?", "ferry_departures", destination="Skerry"),
    answered(
        "List the ferry departures to Skerry on Sunday",
        "ferry_departures",
        destination="Skerry",
        weekday="Sunday",
    ),
    answered(
        "What does a berth cost for a boat of 9.5 m for 3 nights?",
        "berth_fee",
        length_m=9.5,
        nights=3,
    ),
    answered("Search the log for fog", "search_log", query="fog"),
    answered(("Show the tide table", "List the large berths"), "list_berths", size="large"),
    answered(("Show me the tide table", "2026-08-01"), "tide_table", day="2026-08-01"),
    asked("Was berth 12 reserved by the Albatross?"),
    answered(
        "Reserve berth 4 for the Albatross, arrival 2026-06-01",
        "reserve_berth",
        berth=4,
        vessel="Albatross",
        arrival="2026-06-01",
    ),
    asked("Reserve a berth", "What is the weather like?"),
    asked("There is some damage at berth 3"),
    answered("Get the vessel with call sign LK4711", "vessel_info", call_sign="LK4711"),
    asked("Who is the harbour master?"),
    answered("Find 'engine failure' in the log", "search_log", query="engine failure"),
]
