"""Tools that the documentation of the MCP SDK, of FastMCP and of the protocol begins with. None of
them says whether it writes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import Question, answered, asked
from pydantic import Field

server: FastMCP[Any] = FastMCP("documented")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b


@server.tool
def multiply(a: float, b: float) -> float:
    """Multiplies two numbers together."""
    return a * b


@server.tool
def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


@server.tool
def get_weather(city: str, unit: str = "celsius") -> str:
    """Get weather for a city."""
    return f"Weather in {city}: 22 {unit}"


@server.tool
def get_temperature(city: str) -> float:
    """Get temperature as a simple float"""
    return len(city)


@server.tool
def list_cities() -> list[str]:
    """Get a list of cities"""
    return ["London", "Paris", "Tokyo"]


@server.tool
def search_books(
    query: Annotated[str, Field(description="Title or author to search for.")],
    limit: Annotated[int, Field(description="Maximum number of results.", ge=1, le=50)] = 10,
    genre: Literal["fiction", "non-fiction", "poetry"] | None = None,
) -> str:
    """Search the catalog by title or author."""
    return f"{query} {limit} {genre}"


@server.tool
def get_alerts(state: str) -> str:
    """Get weather alerts for a US state.

    Args:
        state: Two-letter US state code (e.g. CA, NY)
    """
    return state


@server.tool
def get_forecast(latitude: float, longitude: float) -> str:
    """Get weather forecast for a location."""
    return f"{latitude} {longitude}"


@server.tool
def get_user(user_id: str) -> str:
    """Get user profile - returns structured data"""
    return user_id


@server.tool
def calculate_bmi(weight_kg: float, height_m: float) -> float:
    """Calculate BMI given weight in kg and height in meters"""
    return weight_kg / height_m**2


@server.tool
def book_table(date: str, time: str, party_size: int) -> str:
    """Book a table with date availability check."""
    return f"{date} {time} {party_size}"


@server.tool
def textme(text_content: str) -> str:
    """Send a text message to me"""
    return text_content


@server.tool
def generate_poem(topic: str) -> str:
    """Generate a poem using LLM sampling."""
    return topic


QUESTIONS = [
    answered("Add 2 and 3", "add", a=2, b=3),
    answered("What is 5 plus 7?", "add", a=5, b=7),
    answered("Multiply 4 by 2.5", "multiply", a=4, b=2.5),
    answered("Greet Ada", "greet", name="Ada"),
    answered("What's the weather in Paris?", "get_weather", city="Paris"),
    answered(
        "Get the weather in Oslo in fahrenheit", "get_weather", city="Oslo", unit="fahrenheit"
    ),
    answered("What is the temperature in Tokyo?", "get_temperature", city="Tokyo"),
    answered("Which cities do you know? List the cities", "list_cities"),
    answered("List the cities", "list_cities"),
    answered("Search books for dune", "search_books", query="dune"),
    answered("Are there any weather alerts in CA?", "get_alerts", state="CA"),
    answered(
        "Get the forecast for latitude 59.9 and longitude 10.7",
        "get_forecast",
        latitude=59.9,
        longitude=10.7,
    ),
    answered("Get user 42", "get_user", user_id="42"),
    answered("Calculate the BMI for 70 kg and 1.8 m", "calculate_bmi", weight_kg=70, height_m=1.8),
    asked("Book a table"),
    answered(
        "Book a table for 4 on 2026-05-01 at 19:30",
        "book_table",
        date="2026-05-01",
        time="19:30",
        party_size=4,
    ),
    asked("What books do you like?"),
    asked("How are you?"),
    Question(("What's the weather?", "Paris"), (("get_weather", {"city": "Paris"}),)),
    answered(("What's the weather?", "Add 4 and 5"), "add", a=4, b=5),
]
