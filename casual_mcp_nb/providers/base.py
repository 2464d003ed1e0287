"""Retry settings, and the events of retries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RetryScheduled:
    """A request failed and will be retried after a delay.

    Args:
        attempt: Number of attempts so far.
        seconds: The delay.
        reason: What went wrong, in short.
    """

    attempt: int
    seconds: float
    reason: str


@dataclass(frozen=True)
class RequestAdapted:
    """A request is repeated in another form, because the model refused the first one.

    Args:
        notice: Description of the change for the person.
    """

    notice: str


@dataclass(frozen=True)
class Retries:
    """How often and with which delays requests are retried. A delay requested by the provider takes precedence.

    Args:
        most: Maximum number of retries.
        first_wait: The first delay in seconds, unless the provider requests one; each further delay is twice as long, plus
            random jitter.
        max_wait: The longest single delay in seconds; a longer request of a provider is an error.
        max_total_wait: The total of all delays in seconds.
    """

    most: int = 0
    first_wait: float = 0.5
    max_wait: float = 60.0
    max_total_wait: float = 120.0
