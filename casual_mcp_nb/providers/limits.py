"""Retries and rate limits for a client, shared by all models and chats that use it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.limits import LONGEST_WAIT, load
from casual_mcp_nb.errors import shown

if TYPE_CHECKING:
    from pyrate_limiter import InMemoryBucket, RateItem

    from casual_mcp_nb.base.config import ClientConfig


@dataclass(frozen=True)
class RetryScheduled:
    """A request failed and will be retried after a delay."""

    attempt: int
    seconds: float
    reason: str


@dataclass(frozen=True)
class RequestAdapted:
    """A request is repeated in another form, because the model refused the first one."""

    notice: str


@dataclass(frozen=True)
class Retries:
    """How often and with which delays requests are retried.

    A delay requested by the provider takes precedence.

    Args:
        most: How often a failed request is retried.
        first_wait: The first delay in seconds, unless the provider requests one. Each further delay
            is twice as long, plus random jitter.
        max_wait: The longest single delay in seconds. If a provider requests more, that is an
            error.
        max_total_wait: All delays together, in seconds.
    """

    most: int = 0
    first_wait: float = 0.5
    max_wait: float = LONGEST_WAIT
    max_total_wait: float = 120.0


PERIOD = 60.0
"""A limit's period in seconds, as a sliding window."""

_ENTRIES = 10_000
_SECONDS_BETWEEN_LOOKS = 0.02
_NOT_WORTH_SAYING = 0.05


@dataclass(frozen=True)
class RateLimitWait:
    """A request is delayed."""

    seconds: float
    reason: str


RequestEvent = RetryScheduled | RateLimitWait | RequestAdapted
"""What happens to a request before its answer is complete."""
OnEvent = Callable[[str | RequestEvent], None]
"""Hears a request's events, and its text as it arrives."""


@dataclass
class TokenReservation:
    """The tokens reserved for a request before it is made.

    Args:
        tokens: The estimate.
        entry: Its entry in the window, or None without a limit.
    """

    tokens: int
    entry: RateItem | None = None


class _Window:
    """A limit on units in any `PERIOD`."""

    def __init__(self, limit: int) -> None:
        # The bucket has one entry per unit, so a unit is many tokens.
        self._size = math.ceil(limit / _ENTRIES)
        self._most = max(1, limit // self._size)

    @cached_property
    def _bucket(self) -> InMemoryBucket:
        # An exact sliding window without a thread: `limits` starts a timer, and the leaky bucket of
        # aiolimiter lets up to twice the limit pass in a minute.
        from pyrate_limiter import InMemoryBucket, Rate

        return InMemoryBucket([Rate(self._most, round(PERIOD * 1000))])

    def reserve(self, amount: int) -> RateItem | float:
        """Add an entry for an amount. An amount above the whole limit passes once there is no other.

        Returns:
            The entry, or the seconds until there may be room for it.
        """
        item = _entry(min(self._units(amount), self._most))
        self._bucket.leak(item.timestamp)
        if self._bucket.put(item):
            return item
        milliseconds = self._bucket.waiting(item)
        assert isinstance(milliseconds, int)
        return max(milliseconds, 1) / 1000

    def give_back(self, entry: RateItem, amount: int) -> None:
        """Take this amount of an entry out again, if the window still has it."""
        items = self._bucket.items
        for first, item in enumerate(items):
            if item is entry:
                # An entry's units follow each other.
                del items[first : first + min(self._units(amount), entry.weight)]
                return

    def add(self, amount: int) -> None:
        """Record an amount already used, even if there is no room for it, up to the whole limit."""
        item = _entry(min(self._units(amount), self._most))
        self._bucket.items.extend([item] * item.weight)

    def _units(self, amount: int) -> int:
        return math.ceil(amount / self._size)


def _entry(weight: int) -> RateItem:
    from pyrate_limiter import RateItem

    return RateItem("request", round(time.monotonic() * 1000), weight)


class ClientLimits:
    """Admits one client's requests in the order of their arrival.

    Args:
        client: The client's name.
        requests: How many requests may be made in a minute, or None without a limit.
        tokens: How many tokens they may take in a minute, or None without a limit.
    """

    def __init__(self, client: str, requests: int | None = None, tokens: int | None = None) -> None:
        self._client = shown(client)
        self._requests = _Window(requests) if requests else None
        self._tokens = _Window(tokens) if tokens else None
        self._most_requests = count(requests or 0, "request")
        self._most_tokens = tokens or 0
        self.counts_tokens = self._tokens is not None
        self._paused_until = 0.0
        self._line: list[object] = []
        self._first_goes = (0.0, "")

    def pause(self, seconds: float) -> None:
        """Pause all requests for some seconds, as the provider requested."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def turn(self, tokens: int, on_wait: Callable[[RateLimitWait], None]) -> TokenReservation:
        """Wait until a request may be made. If it is cancelled, nothing is charged."""
        ticket = object()
        self._line.append(ticket)
        try:
            if self._requests or self._tokens:
                await load("pyrate_limiter")
            while isinstance(wait := self._try_reserve(ticket, tokens), RateLimitWait):
                if wait.seconds > _NOT_WORTH_SAYING:
                    on_wait(wait)
                await asyncio.sleep(max(wait.seconds, _SECONDS_BETWEEN_LOOKS))
            return wait
        finally:
            self._line.remove(ticket)

    def settle(self, charge: TokenReservation, used: int | None) -> None:
        """Correct a reservation by the reported usage. None keeps the estimate."""
        if self._tokens is None or charge.entry is None or used is None:
            return
        if used < charge.tokens:
            self._tokens.give_back(charge.entry, charge.tokens - used)
        elif used > charge.tokens:
            self._tokens.add(used - charge.tokens)

    def _try_reserve(self, ticket: object, tokens: int) -> TokenReservation | RateLimitWait:
        now = time.monotonic()
        if self._paused_until > now:
            reason = f"the provider of client {self._client}, which requested a pause"
            return RateLimitWait(self._paused_until - now, reason)
        if self._line[0] is not ticket:
            time_of_first, reason = self._first_goes
            return RateLimitWait(max(0.0, time_of_first - now), reason)
        entry = self._reserve(min(tokens, self._most_tokens))
        if isinstance(entry, RateLimitWait):
            self._first_goes = (now + entry.seconds, entry.reason)
        return entry

    def _reserve(self, tokens: int) -> TokenReservation | RateLimitWait:
        limit = f"the limit of client {self._client}:"
        request = self._requests.reserve(1) if self._requests else None
        if isinstance(request, float):
            return RateLimitWait(request, f"{limit} {self._most_requests} a minute")
        entry = self._tokens.reserve(tokens) if self._tokens else None
        if not isinstance(entry, float):
            return TokenReservation(tokens, entry)
        if self._requests and request is not None:
            self._requests.give_back(request, 1)
        return RateLimitWait(entry, f"{limit} {self._most_tokens:,} tokens a minute")


_shared: WeakValueDictionary[tuple[Any, ...], ClientLimits] = WeakValueDictionary()


def limits_of(name: str, config: ClientConfig) -> ClientLimits:
    """Get a client's limits, shared by every session of this process with the same client."""
    key = (
        name,
        config.provider,
        config.base_url,
        config.api_key,
        config.requests_per_minute,
        config.tokens_per_minute,
    )
    limits = _shared.get(key)
    if limits is None:
        limits = _shared[key] = ClientLimits(
            name, config.requests_per_minute, config.tokens_per_minute
        )
    return limits
