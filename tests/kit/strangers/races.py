"""Races of a running club."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked
from pydantic import Field

server: FastMCP[Any] = FastMCP("races")
READS = {"readOnlyHint": True}


@server.tool(annotations=READS)
def upcoming_races(
    town: str | None = None,
    surface: Literal["road", "trail", "track"] | None = None,
    before: Annotated[
        date | None, Field(description="Only races that start before this day")
    ] = None,
    max_fee: Annotated[float | None, Field(description="Highest entry fee in euros")] = None,
) -> list[dict[str, Any]]:
    """List the races that are open for entry."""
    return [{"race": "Harvest Run", "town": town, "surface": surface}]


@server.tool(annotations=READS)
def race_results(
    race: Annotated[str, Field(description="Name of the race")],
    year: Annotated[int, Field(ge=1950, le=2100)],
    top: Annotated[int, Field(description="How many runners to list")] = 10,
) -> list[dict[str, Any]]:
    """Give the results of a race in one year, fastest runner first."""
    return [{"race": race, "year": year, "place": n} for n in range(1, top + 1)]


@server.tool
def predict_finish(
    distance_km: Annotated[float, Field(description="Length of the race in kilometres")],
    pace_min_per_km: Annotated[float, Field(description="Pace in minutes per kilometre")],
) -> float:
    """Predict the finishing time in minutes from a distance and a pace."""
    return distance_km * pace_min_per_km


@server.tool
def register_runner(
    name: str, race: str, category: Literal["junior", "adult", "senior"] = "adult"
) -> str:
    """Register a runner for a race."""
    return f"{name} runs {race}"


@server.tool(annotations={"destructiveHint": True})
def withdraw_runner(bib: Annotated[int, Field(description="Bib number")]) -> str:
    """Withdraw a runner from a race by bib number."""
    return f"{bib} withdrawn"


QUESTIONS = [
    answered(
        "Are there any trail races before 2026-10-01?",
        "upcoming_races",
        surface="trail",
        before="2026-10-01",
    ),
    answered("List the open races in Malmö.", "upcoming_races", town="Malmö"),
    answered("Which races can I still enter?", "upcoming_races"),
    answered(
        "Show me road races with an entry fee of 25 euros at most.",
        "upcoming_races",
        surface="road",
        max_fee=25,
    ),
    answered(
        'Give me the results of the "Harvest Run" in 2024.',
        "race_results",
        race="Harvest Run",
        year=2024,
    ),
    answered(
        "Who were the top 3 runners of the Harvest Run in 2023?",
        "race_results",
        race="Harvest Run",
        year=2023,
        top=3,
    ),
    answered(
        "How long will I need for 10 km at a pace of 5.5 minutes per kilometre?",
        "predict_finish",
        distance_km=10,
        pace_min_per_km=5.5,
    ),
    asked("Predict the finishing time for 21.1 kilometres."),
    answered(
        "Register Anna Lind for the Harvest Run.",
        "register_runner",
        name="Anna Lind",
        race="Harvest Run",
    ),
    asked("Is Anna Lind registered for the Harvest Run?"),
    answered("Withdraw bib 118.", "withdraw_runner", bib=118),
    asked("How many runners withdrew last year?"),
    asked("What should I eat the evening before a marathon?"),
    asked("Who won the Lake Loop?"),
    asked("Please delete all races on track."),
]
