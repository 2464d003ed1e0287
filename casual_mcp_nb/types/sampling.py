"""A server's request to a model (sampling, deprecated in MCP since 2026-07-28), and the answer."""

from __future__ import annotations

from dataclasses import dataclass

METHOD = "sampling/createMessage"
MAX_SAMPLES = 10
"""How many requests a server may make during one call of it."""
MAX_SAMPLE_TOKENS = 4_096
"""Maximum tokens of an answer, whatever the server asks for."""


@dataclass(frozen=True)
class SamplingRequest:
    """Messages that a server wants answered: texts only, redacted.

    Args:
        messages: Role (`user` or `assistant`) and text of each.
        system: The system prompt; may be empty.
        max_tokens: Maximum tokens of the answer.
    """

    messages: tuple[tuple[str, str], ...]
    system: str
    max_tokens: int


@dataclass(frozen=True)
class SamplingAnswer:
    """The answer of a model.

    Args:
        text: Its text.
        model: The model's name.
        cut: Whether it ended at the limit of tokens.
        note: What it took, for the person.
    """

    text: str
    model: str
    cut: bool
    note: str


class SamplingRefused(Exception):
    """A request of a server that is not answered.

    Args:
        text: Why, for the server.
        details: Why, for the person; empty for the same text.
    """

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details or text
