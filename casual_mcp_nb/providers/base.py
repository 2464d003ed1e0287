"""How requests are made again, and what is told of it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RetryScheduled:
    """A request failed and is made again after a wait.

    Args:
        attempt: How many requests were made so far.
        seconds: The wait that begins now.
        reason: What went wrong, in few words.
    """

    attempt: int
    seconds: float
    reason: str


@dataclass(frozen=True)
class RequestAdapted:
    """A request is made again in another form, since the model does not take the first one.

    Args:
        notice: What is done differently from now on, in words for the person.
    """

    notice: str


@dataclass(frozen=True)
class Retries:
    """How often and how patiently a request is made again. Where the provider says how long to wait, that holds.

    Args:
        most: How often at most.
        first_wait: Seconds of the first wait where the provider does not say; each further one is twice as long, and all are
            lengthened by chance.
        most_wait: Seconds of the longest single wait; a provider that asks for more is not waited for.
        most_waits: Seconds of all waits together.
    """

    most: int = 0
    first_wait: float = 0.5
    most_wait: float = 60.0
    most_waits: float = 120.0
