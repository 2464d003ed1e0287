"""Two small servers for tests of a turn: one to find by searching, one to have loaded."""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP


def weather() -> FastMCP[Any]:
    """A server with two tools whose descriptions share a word."""
    server: FastMCP[Any] = FastMCP("weather")

    @server.tool
    def forecast(city: str) -> str:
        """Forecast the weather of a city."""
        return f"Sunny in {city}"

    @server.tool
    def history(city: str) -> str:
        """Past weather of a city."""
        return f"Rain in {city}"

    return server


def desk() -> FastMCP[Any]:
    """A server with one tool."""
    server: FastMCP[Any] = FastMCP("desk")

    @server.tool
    def note(text: str) -> str:
        """Write a note."""
        return f"Noted {text}"

    return server
