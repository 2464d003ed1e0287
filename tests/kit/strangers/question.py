"""What a person says to a server, and which calls are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Question:
    """Messages of one conversation; the last is judged, and those before it must call nothing.

    Each of `right` is a call that answers it, the others of its tool's parameters left out. Where
    there is none, no call is right.
    """

    says: tuple[str, ...]
    right: tuple[tuple[str, dict[str, Any]], ...] = ()


def asked(*says: str) -> Question:
    """Make a question that no call answers."""
    return Question(says)


def answered(says: str | tuple[str, ...], tool: str, **arguments: Any) -> Question:
    """Make a question that one call answers."""
    messages = says if isinstance(says, tuple) else (says,)
    return Question(messages, ((tool, arguments),))
