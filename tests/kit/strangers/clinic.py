"""A vet's practice."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from fastmcp import FastMCP
from kit.strangers.question import answered, asked

READS = {"readOnlyHint": True}

server: FastMCP[Any] = FastMCP("clinic")


@server.tool(annotations=READS)
def find_patient(name: str, species: Literal["dog", "cat", "rabbit"] | None = None) -> str:
    """Find an animal by its name."""
    return f"patient {name} {species}"


@server.tool(annotations=READS)
def appointments(day: date, vet: str | None = None) -> str:
    """List the appointments of a day."""
    return f"appointments {day} {vet}"


@server.tool(annotations=READS)
def vaccinations(patient: str, overdue_only: bool = False) -> str:
    """Show the vaccinations of an animal."""
    return f"vaccinations {patient} {overdue_only}"


@server.tool(annotations=READS)
def weight_chart(patient: str, months: int = 12) -> str:
    """Show how the weight of an animal changed over the months."""
    return f"weight {patient} {months}"


@server.tool
def medicine_dose(medicine: str, weight_kg: float) -> str:
    """Calculate the dose of a medicine for an animal's weight."""
    return f"dose {medicine} {weight_kg}"


@server.tool(annotations=READS)
def opening_hours() -> str:
    """Tell when the practice is open."""
    return "9 to 5"


@server.tool(annotations={"readOnlyHint": False})
def book_appointment(patient: str, day: date, reason: str) -> str:
    """Book an appointment for an animal."""
    return f"booked {patient} {day} {reason}"


@server.tool(annotations={"destructiveHint": True})
def delete_patient(patient: str) -> str:
    """Delete the record of an animal."""
    return f"deleted {patient}"


QUESTIONS = [
    answered("When are you open?", "opening_hours"),
    answered("Find the cat Minka", "find_patient", name="Minka", species="cat"),
    answered("Which appointments are there on 2026-03-09?", "appointments", day="2026-03-09"),
    answered("Show the vaccinations of Bello", "vaccinations", patient="Bello"),
    answered(
        "Which vaccinations of Bello are overdue?",
        "vaccinations",
        patient="Bello",
        overdue_only=True,
    ),
    answered(
        "How did the weight of Minka change over 6 months?",
        "weight_chart",
        patient="Minka",
        months=6,
    ),
    answered(
        "What is the dose of meloxicam for 4.2 kg?",
        "medicine_dose",
        medicine="meloxicam",
        weight_kg=4.2,
    ),
    asked("Book an appointment for Bello"),
    asked("Has the record of Minka been deleted?"),
    answered(("List the appointments", "2026-03-10"), "appointments", day="2026-03-10"),
]
