"""A nursery's greenhouses."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("greenhouse")


@server.tool(annotations=READS)
def current_climate(house: int) -> str:
    """Get the temperature and the humidity in a greenhouse now."""
    return f"climate {house}"


@server.tool(annotations=READS)
def list_plants(
    kind: Literal["herb", "vegetable", "flower"] | None = None,
    house: int | None = None,
    ready_only: bool = False,
) -> str:
    """List the plants that are grown, of one kind or in one greenhouse."""
    return f"plants {kind} {house} {ready_only}"


@server.tool(annotations=READS)
def watering_history(plant: str, days: int = 7) -> str:
    """Show when a plant was watered in the last days."""
    return f"watered {plant} {days}"


@server.tool(annotations=READS)
def pest_reports(since: date | None = None, severity: Literal["low", "high"] | None = None) -> str:
    """List the reports of pests."""
    return f"pests {since} {severity}"


@server.tool
def sowing_calendar(month: str) -> str:
    """Tell what can be sown in a month."""
    return f"sow {month}"


@server.tool(annotations={"readOnlyHint": False})
def set_temperature(house: int, celsius: float) -> str:
    """Set the target temperature of a greenhouse."""
    return f"set {house} {celsius}"


@server.tool(annotations={"readOnlyHint": False})
def water_plant(plant: str, litres: float) -> str:
    """Water a plant."""
    return f"watering {plant} {litres}"


QUESTIONS = [
    answered("How warm is it in greenhouse 2?", "current_climate", house=2),
    answered("Which herbs are ready?", "list_plants", kind="herb", ready_only=True),
    answered("List the vegetables in house 3", "list_plants", kind="vegetable", house=3),
    answered("When were the tomatoes watered?", "watering_history", plant="tomatoes"),
    answered("What can I sow in September?", "sowing_calendar", month="September"),
    answered("Show pest reports with high severity", "pest_reports", severity="high"),
    answered("Set greenhouse 1 to 21.5 celsius", "set_temperature", house=1, celsius=21.5),
    asked("Water the basil"),
    asked("Did anyone set the temperature of house 4 yesterday?"),
    answered(
        "Show the watering history of the basil for the last 14 days",
        "watering_history",
        plant="basil",
        days=14,
    ),
]
