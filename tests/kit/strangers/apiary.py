"""A beekeeper's records."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked

Month = Literal[
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("apiary")


@server.tool(annotations=READS)
def list_hives(
    status: Literal["strong", "weak", "queenless"] | None = None, site: str | None = None
) -> str:
    """List the hives with their state."""
    return f"hives {status} {site}"


@server.tool(annotations=READS)
def inspections(hive: int, since: date | None = None, limit: int = 10) -> str:
    """Show the inspections of one hive, the newest first."""
    return f"inspections {hive} {since} {limit}"


@server.tool(annotations=READS)
def honey_harvest(year: int, unit: Literal["kg", "lb"] = "kg") -> str:
    """Sum up how much honey was harvested in a year."""
    return f"harvest {year} {unit}"


@server.tool(annotations=READS)
def mite_count(hive: int) -> str:
    """Tell how many mites were counted in a hive."""
    return f"mites {hive}"


@server.tool(annotations=READS)
def plants_in_flower(month: Month) -> str:
    """List the plants that are in flower in a month."""
    return f"flowers {month}"


@server.tool(annotations=READS)
def search_diary(text: str, max_results: int = 5) -> str:
    """Search the diary."""
    return f"diary {text} {max_results}"


@server.tool(annotations={"readOnlyHint": False})
def record_inspection(hive: int, day: date, notes: str) -> str:
    """Write down an inspection of a hive."""
    return f"recorded {hive} {day} {notes}"


@server.tool(annotations={"destructiveHint": True})
def replace_queen(hive: int, breed: str) -> str:
    """Replace the queen of a hive."""
    return f"replaced {hive} {breed}"


@server.tool
def order_jars(count: int, size_ml: Literal[250, 500]) -> str:
    """Order empty honey jars."""
    return f"ordered {count} {size_ml}"


QUESTIONS = [
    answered("Which hives are queenless?", "list_hives", status="queenless"),
    answered("How much honey did we harvest in 2024?", "honey_harvest", year=2024),
    answered("What was the honey harvest of 2023 in lb?", "honey_harvest", year=2023, unit="lb"),
    answered("Which plants are in flower in June?", "plants_in_flower", month="june"),
    answered("Show the last 3 inspections of hive 8", "inspections", hive=8, limit=3),
    answered("Search the diary for swarming", "search_diary", text="swarming"),
    answered("Order 200 jars of 500 ml", "order_jars", count=200, size_ml=500),
    answered("How many mites are in hive 4?", "mite_count", hive=4),
    asked("Replace the queen of hive 5"),
    answered(("Show me the inspections", "List the weak hives"), "list_hives", status="weak"),
    answered("List the strong hives at site Meadow", "list_hives", status="strong", site="Meadow"),
    answered("What blooms in april?", "plants_in_flower", month="april"),
    answered(
        "Show me the inspections of hive 2 since 2026-04-01",
        "inspections",
        hive=2,
        since="2026-04-01",
    ),
    asked("Was an inspection of hive 3 recorded?", "Who recorded it?"),
    answered(("What is the mite count?", "7"), "mite_count", hive=7),
    asked("What is the mite count?", "the one by the fence"),
    answered(
        ("What was the honey harvest?", "Search the diary for wasps"),
        "search_diary",
        text="wasps",
    ),
    asked("Order some jars"),
    answered(
        "Search the diary for 'oxalic acid', at most 2 results",
        "search_diary",
        text="oxalic acid",
        max_results=2,
    ),
    answered(
        "Record an inspection of hive 6 on 2026-05-02, notes: calm and full of brood",
        "record_inspection",
        hive=6,
        day="2026-05-02",
        notes="calm and full of brood",
    ),
]
