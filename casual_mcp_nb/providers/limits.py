"""What a client may ask in a minute, and the pause that its provider asks for: shared by all models and chats that use it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from casual_mcp_nb.errors import shown

if TYPE_CHECKING:
    from pyrate_limiter import RateItem

    from casual_mcp_nb.types.config import ClientConfig

PERIOD = 60.0
"""Seconds that a limit is for: in any such span, wherever it begins, it is kept."""

_ENTRIES = 10_000
_SECONDS_BETWEEN_LOOKS = 0.02
_NOT_WORTH_SAYING = 0.05


@dataclass(frozen=True)
class RateLimitWait:
    """A request waits before it is made.

    Args:
        seconds: The wait that begins now; another one can follow it.
        reason: What for, in few words.
    """

    seconds: float
    reason: str


@dataclass
class TokenReservation:
    """What a request was charged for its tokens before it was made: the estimate, and its entry among the others."""

    tokens: int
    entry: RateItem | None = None


class _Window:
    """So many units in any `PERIOD`."""

    def __init__(self, limit: int) -> None:
        from pyrate_limiter import InMemoryBucket, Rate

        # The bucket holds an entry for each unit, so that many tokens are made one unit.
        self._size = math.ceil(limit / _ENTRIES)
        self._most = max(1, limit // self._size)
        self._bucket = InMemoryBucket([Rate(self._most, round(PERIOD * 1000))])

    def take(self, amount: int) -> RateItem | float:
        """Return the entry for this amount; or, where there is no room for it, the seconds until there can be some.

        More than the whole limit goes once everything else has passed.
        """
        item = _entry(min(self._units(amount), self._most))
        self._bucket.leak(item.timestamp)
        if self._bucket.put(item):
            return item
        milliseconds = self._bucket.waiting(item)
        assert isinstance(milliseconds, int)
        return max(milliseconds, 1) / 1000

    def give_back(self, entry: RateItem, amount: int) -> None:
        """Reduce an entry by an amount."""
        items = self._bucket.items
        first = next((place for place, item in enumerate(items) if item is entry), None)
        if first is not None:
            del items[first : first + min(self._units(amount), entry.weight)]

    def add(self, amount: int) -> None:
        """Count an amount that was used already, whether there is room for it or not; at most the whole limit."""
        item = _entry(min(self._units(amount), self._most))
        self._bucket.items.extend([item] * item.weight)

    def _units(self, amount: int) -> int:
        return math.ceil(amount / self._size)


def _entry(weight: int) -> RateItem:
    from pyrate_limiter import RateItem

    return RateItem("request", round(time.monotonic() * 1000), weight)


class ClientLimits:
    """Lets the requests of one client pass, one after the other in the order in which they came.

    Args:
        client: The client's name in the config.
        requests: How many requests in a minute; None for any number.
        tokens: How many tokens in a minute, of requests and answers; None for any number.
    """

    def __init__(self, client: str, requests: int | None = None, tokens: int | None = None) -> None:
        name = shown(client)
        self._requests = _Window(requests) if requests else None
        self._tokens = _Window(tokens) if tokens else None
        self._words = {
            "requests": f"the limit of client {name}: {requests or 0:,} request{'s' if requests != 1 else ''} a minute",
            "tokens": f"the limit of client {name}: {tokens or 0:,} tokens a minute",
            "pause": f"the provider of client {name}, which asked for a pause",
        }
        self._most_tokens = tokens or 0
        self._paused_until = 0.0
        self._line: list[object] = []
        self._first_goes = (0.0, "")

    @property
    def counts_tokens(self) -> bool:
        """Whether requests are charged for their tokens."""
        return self._tokens is not None

    def pause(self, seconds: float) -> None:
        """Let nothing pass for so long: the provider said that it has had enough of this client."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def turn(self, tokens: int, say: Callable[[RateLimitWait], None]) -> TokenReservation:
        """Wait until a request may be made. It can be cancelled; nothing is charged then.

        Args:
            tokens: What it will take, by estimate.
            say: Told of each wait that a person can notice.
        """
        ticket = object()
        self._line.append(ticket)
        try:
            while isinstance(found := self._look(ticket, tokens), RateLimitWait):
                if found.seconds > _NOT_WORTH_SAYING:
                    say(found)
                await asyncio.sleep(max(found.seconds, _SECONDS_BETWEEN_LOOKS))
            return found
        finally:
            self._line.remove(ticket)

    def settle(self, charge: TokenReservation, used: int | None) -> None:
        """Correct a charge by what the provider reported; None leaves the estimate."""
        if self._tokens is None or charge.entry is None or used is None:
            return
        if used < charge.tokens:
            self._tokens.give_back(charge.entry, charge.tokens - used)
        elif used > charge.tokens:
            self._tokens.add(used - charge.tokens)

    def _look(self, ticket: object, tokens: int) -> TokenReservation | RateLimitWait:
        now = time.monotonic()
        if self._paused_until > now:
            return RateLimitWait(self._paused_until - now, self._words["pause"])
        if self._line[0] is not ticket:
            time_of_first, reason = self._first_goes
            return RateLimitWait(max(0.0, time_of_first - now), reason)
        found = self._take(min(tokens, self._most_tokens))
        if isinstance(found, RateLimitWait):
            self._first_goes = (now + found.seconds, found.reason)
        return found

    def _take(self, tokens: int) -> TokenReservation | RateLimitWait:
        request = self._requests.take(1) if self._requests else None
        if isinstance(request, float):
            return RateLimitWait(request, self._words["requests"])
        entry = self._tokens.take(tokens) if self._tokens else None
        if not isinstance(entry, float):
            return TokenReservation(tokens, entry)
        if self._requests and request is not None:
            self._requests.give_back(request, 1)
        return RateLimitWait(entry, self._words["tokens"])


_shared: WeakValueDictionary[tuple[Any, ...], ClientLimits] = WeakValueDictionary()


def limits_of(name: str, config: ClientConfig) -> ClientLimits:
    """Return the limits of a client: the same ones for every session of this process that has it in its config.

    Args:
        name: Its name in the config.
        config: The client.
    """
    key = (name, config.provider, config.base_url, config.api_key, config.requests_per_minute, config.tokens_per_minute)
    limits = _shared.get(key)
    if limits is None:
        limits = _shared[key] = ClientLimits(name, config.requests_per_minute, config.tokens_per_minute)
    return limits
