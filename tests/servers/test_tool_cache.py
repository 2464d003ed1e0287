from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.tools import Tool

from casual_mcp_nb.base.tool import MAX_TOOLS_ON_LOOP, ToolSpec
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.listing import ToolListing


class Shelf:
    """A server's listing that counts how often it is asked for."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.listings = 0
        self.error: Exception | None = None
        self.now = 0.0

    async def fetch(self) -> list[ToolSpec]:
        self.listings += 1
        names = list(self.names)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return [ToolSpec("shelf", name) for name in names]

    def cache(self, ttl: float | None = 30.0) -> ToolListing:
        return ToolListing(self.fetch, ttl, clock=lambda: self.now)


async def test_a_fresh_listing_is_not_requested_again() -> None:
    shelf = Shelf("a", "b")
    cache = shelf.cache()
    first = await cache.get()
    shelf.now = 29.9
    assert await cache.get() is first
    assert shelf.listings == 1
    shelf.now = 30.0
    await cache.get()
    assert shelf.listings == 2


async def test_the_same_tools_keep_their_version_and_stay_the_same_objects() -> None:
    shelf = Shelf("a", "b")
    cache = shelf.cache()
    first, version = await cache.get(), cache.version
    assert await cache.get(force=True) is first
    assert cache.version == version
    shelf.names = ["a", "c"]
    assert [tool.name for tool in await cache.get(force=True)] == ["a", "c"]
    assert cache.version != version


async def test_callers_at_the_same_time_cause_one_listing() -> None:
    shelf = Shelf("a")
    cache = shelf.cache()
    await asyncio.gather(*(cache.get() for _ in range(20)))
    assert shelf.listings == 1


async def test_without_a_ttl_a_listing_is_kept_until_it_is_invalidated() -> None:
    shelf = Shelf("a")
    cache = shelf.cache(ttl=None)
    await cache.get()
    shelf.now = 1e9
    await cache.get()
    assert shelf.listings == 1
    cache.invalidate()
    await cache.get()
    assert shelf.listings == 2


async def test_a_listing_that_was_under_way_when_the_tools_changed_is_not_taken_for_fresh() -> None:
    shelf = Shelf("old")
    cache = shelf.cache()
    listing = asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    shelf.names = ["new"]
    cache.invalidate()
    await listing
    assert [tool.name for tool in await cache.get()] == ["new"]


async def test_a_refresh_that_fails_keeps_the_old_tools_and_its_error() -> None:
    shelf = Shelf("a")
    cache = shelf.cache()
    first = await cache.get()
    shelf.error = OSError("the shelf fell")
    assert await cache.get(force=True) is first
    assert cache.last_error is shelf.error
    shelf.error = None
    await cache.get(force=True)
    assert cache.last_error is None


async def test_a_listing_that_fails_with_nothing_older_raises_and_is_not_repeated_at_once() -> None:
    shelf = Shelf("a")
    shelf.error = OSError("the shelf fell")
    cache = shelf.cache(ttl=None)
    for _ in range(3):
        with pytest.raises(OSError, match="fell"):
            await cache.get()
    assert shelf.listings == 1
    shelf.error, shelf.now = None, 30.0
    assert len(await cache.get()) == 1


async def test_a_caller_that_is_cancelled_leaves_the_cache_usable() -> None:
    shelf = Shelf("a")
    cache = shelf.cache()
    listing = asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    listing.cancel()
    await asyncio.wait({listing})
    assert len(await cache.get()) == 1


async def test_a_large_list_is_hashed_only_when_there_is_one_to_compare_it_with(
    opened: Callable[..., Any],
) -> None:
    server: FastMCP[Any] = FastMCP("shelf")
    for number in range(MAX_TOOLS_ON_LOOP):
        server.add_tool(
            Tool(name=f"tool_{number}", description="Measure it.", parameters={"type": "object"})
        )
    connection = opened(Connection("shelf", server=server))
    await connection.connect()
    first = connection.tools
    assert len(first) == MAX_TOOLS_ON_LOOP
    assert not any("digest" in vars(tool) for tool in first)
    assert await connection.refresh(force=True) is first
    assert all("digest" in vars(tool) for tool in first)
