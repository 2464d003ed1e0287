"""A kennel where dogs stay while their people travel."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("kennel")


@server.tool(annotations=READS)
def list_dogs(size: Literal["small", "medium", "large"] | None = None) -> str:
    """List the dogs that stay here now."""
    return f"dogs {size}"


@server.tool(annotations=READS)
def dog_details(name: str) -> str:
    """Show a dog's age, breed and owner."""
    return f"dog {name}"


@server.tool(annotations=READS)
def feeding_plan(dog: str) -> str:
    """Show what a dog eats and when."""
    return f"food {dog}"


@server.tool(annotations=READS)
def free_runs(day: date) -> str:
    """Tell how many runs are free on a day."""
    return f"free {day}"


@server.tool(annotations=READS)
def opening_hours() -> str:
    """Tell when the kennel is open."""
    return "8 to 18"


@server.tool(annotations=READS)
def find_owner(phone: str) -> str:
    """Find an owner by telephone number."""
    return f"owner {phone}"


@server.tool()
def reserve_run(dog: str, day: date, nights: int) -> str:
    """Reserve a run for a dog."""
    return f"reserved {dog} {day} {nights}"


@server.tool()
def mark_vaccinated(dog: str) -> str:
    """Note that a dog was vaccinated today."""
    return f"vaccinated {dog}"


@server.tool(annotations={"destructiveHint": True})
def send_home(dog: str) -> str:
    """Send a dog home and clear its run."""
    return f"home {dog}"


QUESTIONS = [
    answered("When are you open?", "opening_hours"),
    answered("Which large dogs are staying here?", "list_dogs", size="large"),
    answered("How old is Rex?", "dog_details", name="Rex"),
    answered("What does Bella eat?", "feeding_plan", dog="Bella"),
    answered("How many runs are free on 2027-01-04?", "free_runs", day="2027-01-04"),
    answered("Who has the phone number 555-0142?", "find_owner", phone="555-0142"),
    asked("Is Rex vaccinated?"),
    asked("Did Bella go home yesterday?"),
    answered(
        "Reserve a run for Max on 2027-02-01 for 4 nights",
        "reserve_run",
        dog="Max",
        day="2027-02-01",
        nights=4,
    ),
    answered(("Show me a dog's details", "Luna"), "dog_details", name="Luna"),
]
