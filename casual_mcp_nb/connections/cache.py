"""Cache a server's list of tools for a limited time."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from casual_mcp_nb.types.tool import ToolSpec

DEFAULT_TTL = 30.0
RETRY_SECONDS = 30.0


class ToolCache:
    """Caches a listing. Tools that did not change keep their version and stay the same objects, however often they are listed.

    Args:
        fetch: Lists the tools; must have its own time limit.
        ttl_seconds: How long a listing is fresh; None means it never expires.
        clock: A monotonic clock in seconds.

    Attributes:
        ttl: As given; a listing that is fresh already stays so for as long as it was at first.
        listed: Whether there was a listing.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Sequence[ToolSpec]]],
        ttl_seconds: float | None = DEFAULT_TTL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self.ttl = ttl_seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._stale_at = -math.inf
        self._invalidations = 0
        self._fetches = 0
        self.listed = False
        self._tokens: int | None = None
        self.tools: tuple[ToolSpec, ...] = ()
        self._version: str | None = None
        self.last_error: Exception | None = None

    async def get_tools(self, force_refresh: bool = False) -> tuple[ToolSpec, ...]:
        """List the tools, again only if the cache has expired. Concurrent callers share one listing.

        Args:
            force_refresh: List them even if the cache is fresh.

        Raises:
            Exception: The listing failed, and there is no older one; it is tried again after the TTL or
                30 seconds, whichever is shorter.
        """
        fetches = self._fetches
        if force_refresh or not self.fresh:
            async with self._lock:
                if fetches == self._fetches or not self.fresh:
                    await self._refresh()
        if not self.listed and self.last_error is not None:
            raise self.last_error.with_traceback(None)
        return self.tools

    async def invalidate(self) -> None:
        """Make the next use list the tools again, even during a listing, which may already be out of date."""
        self._invalidations += 1
        self._stale_at = -math.inf

    @property
    def fresh(self) -> bool:
        """Whether the cache is fresh."""
        return self._clock() < self._stale_at

    @property
    def version(self) -> str:
        """A hash of the tools, computed when it is first needed: a listing that is the only one needs none."""
        if self._version is None:
            self._version = _version(self.tools)
        return self._version

    @property
    def tokens(self) -> int:
        """Estimated tokens of all definitions that a model can be offered, counted once per version."""
        if self._tokens is None:
            self._tokens = sum(tool.tokens for tool in self.tools if tool.restriction is None)
        return self._tokens

    async def _refresh(self) -> None:
        invalidations = self._invalidations
        ttl = self.ttl
        try:
            self._store(await self._fetch())
        except Exception as error:
            self.last_error = error
            ttl = RETRY_SECONDS if ttl is None else min(ttl, RETRY_SECONDS)
        self._fetches += 1
        if invalidations == self._invalidations:
            self._stale_at = math.inf if ttl is None else self._clock() + ttl

    def _store(self, tools: Sequence[ToolSpec]) -> None:
        version = _version(tools) if self.listed else None
        if version is None or version != self.version:
            self.tools, self._version = tuple(tools), version
            self._tokens = None
        self.listed = True
        self.last_error = None


def _version(tools: Sequence[ToolSpec]) -> str:
    return hashlib.sha256("".join(tool.digest for tool in tools).encode()).hexdigest()[:16]
