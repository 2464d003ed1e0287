"""A bicycle workshop."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked
from pydantic import Field

server: FastMCP[Any] = FastMCP("workshop")
READS = {"readOnlyHint": True}


class Kind(Enum):
    brakes = "brakes"
    gears = "gears"
    wheels = "wheels"
    service = "full service"


@server.tool(annotations=READS)
def find_jobs(
    kind: Annotated[Kind | None, Field(description="What is repaired")] = None,
    status: Literal["waiting", "in progress", "finished"] | None = None,
    since: Annotated[
        date | None, Field(description="Only jobs brought in on or after this day")
    ] = None,
) -> list[dict[str, Any]]:
    """List the repair jobs of the workshop, newest first."""
    return [{"job": 12, "kind": str(kind), "status": status, "since": str(since)}]


@server.tool
def job_price(job: Annotated[int, Field(description="Number of the job", ge=1)]) -> float:
    """Tell what a repair job costs in euros, parts included."""
    return 42.5 + job


@server.tool(annotations=READS)
def parts_in_stock(
    part: Annotated[str, Field(description="Name of the part, such as chain or saddle")],
    at_least: Annotated[int, Field(description="Smallest number in stock")] = 1,
) -> list[dict[str, Any]]:
    """Show how many of a spare part the workshop has on its shelves."""
    return [{"part": part, "count": at_least + 2}]


@server.tool
def order_part(part: str, quantity: Annotated[int, Field(ge=1, le=100)] = 1) -> str:
    """Order a spare part from the supplier."""
    return f"ordered {quantity} {part}"


@server.tool(annotations={"destructiveHint": True})
def cancel_job(job: int, reason: str | None = None) -> str:
    """Cancel a repair job and free its place."""
    return f"cancelled {job}"


@server.tool(annotations=READS)
def tyre_pressure(
    rider_kg: Annotated[float, Field(description="Weight of the rider in kilograms", gt=20)],
    width_mm: Annotated[float, Field(description="Width of the tyre in millimetres")] = 32,
) -> float:
    """Recommend a tyre pressure in bar for a rider's weight and a tyre's width."""
    return rider_kg / width_mm * 2


QUESTIONS = [
    answered("Which repair jobs are waiting?", "find_jobs", status="waiting"),
    answered(
        "Show all brakes jobs since 2026-03-01.", "find_jobs", kind="brakes", since="2026-03-01"
    ),
    answered("How much does job 12 cost?", "job_price", job=12),
    answered(
        "What tyre pressure do you recommend for a rider of 72 kg on 28 mm tyres?",
        "tyre_pressure",
        rider_kg=72,
        width_mm=28,
    ),
    answered("Order 3 chains.", "order_part", part="chain", quantity=3),
    answered("Do we have saddles in stock?", "parts_in_stock", part="saddle"),
    answered("Cancel job 7, please.", "cancel_job", job=7),
    asked("Why was job 7 cancelled?"),
    asked("Can you lend me a pump?"),
    answered(
        "List the finished jobs from 5 May 2026 on.",
        "find_jobs",
        status="finished",
        since="2026-05-05",
    ),
    asked("What is the price of the repair job?"),
    asked("How many orders did we place last month?"),
    answered(
        "Recommend a pressure for a rider who weighs 85.5 kilograms", "tyre_pressure", rider_kg=85.5
    ),
    asked("Is there a part of which at least 10 are in stock?"),
    asked("Which jobs has Maria finished?"),
]
