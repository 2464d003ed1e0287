"""An observatory of amateurs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked
from pydantic import Field

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("observatory")


@server.tool(annotations=READS)
def visible_planets(
    month: Annotated[str, Field(description="The month, for example June.")],
    hemisphere: Literal["north", "south"] = "north",
) -> str:
    """List the planets that can be seen in a month."""
    return f"planets {month} {hemisphere}"


@server.tool(annotations=READS)
def moon_phase(date: Annotated[str, Field(description="The date as YYYY-MM-DD.")]) -> str:
    """Get the phase of the moon on a date."""
    return f"moon {date}"


@server.tool(annotations=READS)
def object_position(
    name: Annotated[str, Field(description="The name of a star, planet or galaxy.")],
) -> str:
    """Get the coordinates of an object in the sky."""
    return f"position {name}"


@server.tool(annotations=READS)
def observation_log(
    observer: str | None = None, telescope: str | None = None, limit: int = 20
) -> str:
    """Show what was observed, the latest first."""
    return f"log {observer} {telescope} {limit}"


@server.tool(annotations=READS)
def telescope_status(telescope: Literal["refractor", "dobson", "radio"]) -> str:
    """Tell whether a telescope is free, in use or broken."""
    return f"status {telescope}"


@server.tool
def convert_distance(light_years: float) -> str:
    """Convert light years to kilometres."""
    return f"km {light_years}"


@server.tool
def reserve_telescope(telescope: Literal["refractor", "dobson", "radio"], night: str) -> str:
    """Reserve a telescope for a night."""
    return f"reserved {telescope} {night}"


@server.tool(annotations={"readOnlyHint": False})
def open_dome(dome: int) -> str:
    """Open a dome."""
    return f"opened {dome}"


QUESTIONS = [
    answered("Which planets can I see in June?", "visible_planets", month="June"),
    answered(
        "Which planets are visible in July from the south hemisphere?",
        "visible_planets",
        month="July",
        hemisphere="south",
    ),
    answered("What was the phase of the moon on 2025-12-24?", "moon_phase", date="2025-12-24"),
    answered("Where is Andromeda?", "object_position", name="Andromeda"),
    answered("Show the last 5 observations", "observation_log", limit=5),
    answered("Is the dobson free?", "telescope_status", telescope="dobson"),
    answered("How many kilometres are 4.2 light years?", "convert_distance", light_years=4.2),
    asked("Open the dome"),
    asked("Who reserved the radio telescope?"),
    answered(
        "Show the observation log of the observer Tycho",
        "observation_log",
        observer="Tycho",
    ),
]
