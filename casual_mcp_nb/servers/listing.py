"""A server's lists, cached until they are stale."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from casual_mcp_nb.base.tokens import total_tokens
from casual_mcp_nb.base.tool import ToolSpec, for_models, hash_of_tools

T = TypeVar("T")

DEFAULT_TTL = 30.0
RETRY_SECONDS = 30.0


def _unchanged(seconds: float | None) -> float | None:
    return seconds


class Listing(Generic[T]):
    """A server's list, cached until it is stale. Concurrent callers share one listing.

    Args:
        fetch: Lists the items.
        ttl: For how many seconds a list is fresh. None means until the server reports a change.
        lifetime: Turns that into the time for the last list, for servers that declare one.
        clock: Tells the time in seconds.

    Attributes:
        items: The list as last fetched.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Sequence[T]]],
        ttl: float | None = DEFAULT_TTL,
        lifetime: Callable[[float | None], float | None] = _unchanged,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.items: tuple[T, ...] = ()
        self.ttl = ttl
        self._fetch = fetch
        self._lifetime = lifetime
        self._clock = clock
        self._lock = asyncio.Lock()
        self._stale_at = -math.inf
        self._invalidations = 0
        self._fetches = 0

    @property
    def fresh(self) -> bool:
        """Whether `get` lists nothing."""
        return self._clock() < self._stale_at

    async def get(self, force: bool = False) -> tuple[T, ...]:
        """List the items, again only if the list is stale, or if this is forced."""
        fetches = self._fetches
        if force or not self.fresh:
            async with self._lock:
                if fetches == self._fetches or not self.fresh:
                    await self._list()
        return self.items

    def invalidate(self) -> None:
        """Make the next use list again, even during a listing, which may already be out of date."""
        self._invalidations += 1
        self._stale_at = -math.inf

    async def _list(self) -> None:
        invalidations = self._invalidations
        seconds = await self._fetched()
        self._fetches += 1
        if invalidations == self._invalidations:
            self._stale_at = math.inf if seconds is None else self._clock() + seconds

    async def _fetched(self) -> float | None:
        """Fetch the list. Return for how long it is fresh."""
        self._keep(await self._fetch())
        return self._lifetime(self.ttl)

    def _keep(self, items: Sequence[T]) -> None:
        self.items = tuple(items)


class ToolListing(Listing[ToolSpec]):
    """A server's tools.

    Tools that did not change keep their version and stay the same objects, however often they are
    listed. If a listing fails, the older one stays, and without one the error is raised. Either way
    it is tried again after the TTL or 30 seconds, whichever is shorter.

    Attributes:
        listed: Whether they were ever listed.
        last_error: Why the last listing failed, if it did.
    """

    listed = False
    last_error: Exception | None = None
    _version: str | None = None
    _tokens: int | None = None

    async def get(self, force: bool = False) -> tuple[ToolSpec, ...]:
        """List the tools, again only if the list is stale, or if this is forced."""
        await super().get(force)
        if not self.listed and self.last_error is not None:
            raise self.last_error.with_traceback(None)
        return self.items

    async def _fetched(self) -> float | None:
        try:
            seconds = await super()._fetched()
        except Exception as error:
            self.last_error = error
            if self.ttl is None:
                return RETRY_SECONDS
            return min(self.ttl, RETRY_SECONDS)
        self.last_error = None
        return seconds

    def _keep(self, items: Sequence[ToolSpec]) -> None:
        version = hash_of_tools(items)[:16] if self.listed else None
        if version is None or version != self.version:
            super()._keep(items)
            self._version, self._tokens = version, None
        self.listed = True

    @property
    def version(self) -> str:
        """A hash of the tools, computed when first needed: a single listing needs none."""
        if self._version is None:
            self._version = hash_of_tools(self.items)[:16]
        return self._version

    @property
    def tokens(self) -> int:
        """Estimated tokens for all definitions that a model can be offered, counted once per
        version.
        """
        if self._tokens is None:
            self._tokens = total_tokens(for_models(self.items))
        return self._tokens
