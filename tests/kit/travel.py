"""A server of this process that asks the person to fill in a form."""

from __future__ import annotations

from typing import Any

from fastmcp import Context, FastMCP
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "title": "City", "description": "Where you want to go."},
        "nights": {"type": "integer", "title": "Nights", "minimum": 1, "maximum": 30},
        "window": {"type": "boolean", "title": "Window seat"},
        "class": {
            "type": "string",
            "title": "Class",
            "enum": ["first", "second"],
            "default": "second",
        },
        "meals": {
            "type": "array",
            "title": "Meals",
            "items": {"enum": ["breakfast", "dinner"]},
            "default": ["dinner"],
        },
    },
    "required": ["city", "nights"],
}


def travel_server(message: str = "Where to?", schema: dict[str, Any] | None = None) -> FastMCP[Any]:
    """Create a server `travel` whose tool `book` asks, and returns the answer.

    Args:
        message: The words of the question.
        schema: The form; None for that of a trip.
    """
    travel: FastMCP[Any] = FastMCP("travel")
    form = ElicitRequestFormParams(message=message, requested_schema=schema or TRIP)

    @travel.tool
    async def book(ctx: Context) -> Any:
        """Book a trip."""
        if not ctx.input_responses:
            return InputRequiredResult(input_requests={"trip": ElicitRequest(params=form)})
        told: Any = ctx.input_responses["trip"]
        return f"{told.action} {told.content}"

    return travel
