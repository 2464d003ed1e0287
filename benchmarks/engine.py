"""Cost of a chat beyond its model, compared with casual-mcp: `python benchmarks/engine.py [--sizes
30,300,3000] [--repeats 200]`.

A model that answers immediately makes one tool call and ends. The servers are in-memory FastMCP
servers, the connections are warm, and the same stub of casual-llm's client protocol answers both
packages. With discovery, all tools but the called one are deferred. The bare call is the same call
on a fastmcp client, without either package, to one server with all the tools, which FastMCP
searches at each call; ours has the called tool on a separate server. What a chat takes beyond it is
processor time, which other load on the machine changes less. The listing starts from scratch and
ends with the definitions sent to a model. Each runs in a separate process, after small ones: in
this one, what the chats left would decide when the garbage collector runs, which takes half of a
listing. casual-mcp is measured if it can be imported and works.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, NamedTuple, Protocol, Self

from casual_llm import AssistantToolCall, AssistantToolCallFunction, Model
from casual_llm.messages import AssistantMessage, ChatMessage, UserMessage
from common.figures import Figure, be_quiet, in_process, installed, print_figures
from fastmcp import Client, FastMCP
from fastmcp.tools import Tool

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager

WARM_UP = 3
LISTINGS = 5
SIZES, REPEATS = (30, 300, 3_000), 200
BARE, OURS, PEER = "bare call", "ours", "casual-mcp"
LISTED = 3_000
BEYOND = {30: 0.3, 300: 0.3, 3_000: 0.6}
"""How many milliseconds of processor time a chat with discovery may take beyond the bare call, by
the number of tools.
"""
QUESTION = UserMessage(content="Add 1 and 2")


class AtOnce:
    """A casual-llm client that answers immediately: a tool call, and after its result a text."""

    def __init__(self, tool: str) -> None:
        function = AssistantToolCallFunction(name=tool, arguments='{"a": 1, "b": 2}')
        self._call = AssistantMessage(
            content="", tool_calls=[AssistantToolCall(id="1", function=function)]
        )

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: Any
    ) -> tuple[AssistantMessage, None]:
        return (AssistantMessage(content="3") if messages[-1].role == "tool" else self._call), None


class Side(Protocol):
    """One package with its servers: a context manager that holds the connections."""

    def __init__(self, tools: int, discovery: bool) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc_info: object) -> None: ...
    async def chat(self) -> object:
        """One chat with one call."""

    async def list(self) -> int:
        """The number of tools, ready for a model."""


class Ours:
    """This package, with the called tool on a separate server."""

    def __init__(self, tools: int, discovery: bool) -> None:
        modes = {"desk": "loaded", "many": "deferred"}
        selection = Selection.model_validate({"servers": modes, "discovery": discovery})
        server_manager = ServerManager(
            {}, in_process={"desk": server(0, "add"), "many": server(tools - 1)}, cache_ttl=None
        )
        self._chat = McpToolChat(
            server_manager, ModelFactory(Config()), ChatSetup(selection=selection)
        )
        self._model = Model(AtOnce("desk__add"), "at-once")  # type: ignore[arg-type]

    async def __aenter__(self) -> Self:
        await self._chat.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._chat.close()

    async def chat(self) -> object:
        messages = await self._chat.chat([QUESTION], model=self._model)
        assert messages[1].content == "3"
        return messages

    async def list(self) -> int:
        return len((await self._chat.view()).definitions)


class CasualMcp:
    """casual-mcp.

    Its tools are called `server_tool` on one server: mounted ones would make its calls slower.
    """

    def __init__(self, tools: int, discovery: bool) -> None:
        from casual_mcp.mcp_tool_chat import McpToolChat as Theirs
        from casual_mcp.models.config import Config as TheirConfig
        from casual_mcp.tool_cache import ToolCache

        names = {"desk": {"command": "desk"}, "many": {"command": "many", "defer_loading": True}}
        config = {
            "clients": {},
            "models": {},
            "servers": names,
            "tool_discovery": {"enabled": discovery},
        }
        self._chat = Theirs.from_config(TheirConfig.model_validate(config))
        self._chat.mcp_client = Client(server(tools - 1, "desk_add", "many_"))
        self._chat.tool_cache = ToolCache(self._chat.mcp_client, ttl_seconds=3_600)
        self._model = Model(AtOnce("desk_add"), "at-once")  # type: ignore[arg-type]

    async def __aenter__(self) -> Self:
        await self._chat.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._chat.__aexit__(None, None, None)

    async def chat(self) -> object:
        messages = await self._chat.chat([QUESTION], model=self._model)
        assert "3" in str(messages[1].content)
        return messages

    async def list(self) -> int:
        from casual_mcp.convert_tools import tools_from_mcp

        return len(tools_from_mcp(await self._chat.tool_cache.get_tools()))


SIDES: dict[str, type[Side]] = {OURS: Ours, PEER: CasualMcp}


def _add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _record(record_id: str, fields: list[str] | None = None, limit: int = 10) -> str:
    """Read a record by its number, with the requested fields."""
    return record_id


@cache
def server(fillers: int, called: str = "", prefix: str = "") -> FastMCP[Any]:
    """Return a server with a number of tools that are not called, and the one that is. Cached."""
    made: FastMCP[Any] = FastMCP("bench")
    if called:
        made.add_tool(Tool.from_function(_add, name=called))
    for number in range(fillers):
        made.add_tool(Tool.from_function(_record, name=f"{prefix}read_record_{number}"))
    return made


class Milliseconds(NamedTuple):
    """What something takes: on the clock, and of the processor."""

    elapsed: float
    processor: float


async def medians(
    runs: Mapping[str, Callable[[], Awaitable[object]]], repeats: int
) -> dict[str, Milliseconds]:
    """Return the medians of each, measured alternately, so that other load affects all of them
    equally.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(WARM_UP + repeats):
        for name, run in runs.items():
            start, spent = time.perf_counter(), time.process_time()
            await run()
            if number >= WARM_UP:
                times[name].append((time.perf_counter() - start, time.process_time() - spent))
    return {
        name: Milliseconds(
            *(statistics.median(values) * 1_000 for values in zip(*taken, strict=True))
        )
        for name, taken in times.items()
    }


async def chat_times(
    sides: Mapping[str, type[Side]], tools: int, discovery: bool, repeats: int
) -> dict[str, Milliseconds]:
    """Return the medians of a warm chat with one call, for each side, and of the bare call."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(server(tools - 1, "add")))
        runs: dict[str, Callable[[], Awaitable[object]]] = {
            BARE: lambda: client.call_tool("add", {"a": 1, "b": 2})
        }
        for name, side in sides.items():
            made = side(tools, discovery)
            await stack.enter_async_context(made)
            runs[name] = made.chat
        return await medians(runs, repeats)


def listing_times(sides: Iterable[str], tools: int, repeats: int) -> dict[str, Milliseconds]:
    """Measure the medians of connecting and listing from scratch, alternately, each time in a
    separate process.
    """
    taken: dict[str, list[Milliseconds]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, times in taken.items():
            times.append(
                Milliseconds(*in_process(__file__, "--listing", name, "--listed", str(tools)))
            )
    return {
        name: Milliseconds(*map(statistics.median, zip(*times, strict=True)))
        for name, times in taken.items()
    }


async def one_listing(side: type[Side], tools: int) -> Milliseconds:
    """Connect and list from scratch, in a process that has listed no more than a few tools."""

    async def listing(tools: int) -> None:
        async with side(tools, False) as made:
            assert await made.list() == tools

    for _ in range(WARM_UP):
        await listing(10)
    # Making the server, which is cached, is no part of it.
    side(tools, False)
    start, spent = time.perf_counter(), time.process_time()
    await listing(tools)
    return Milliseconds(
        (time.perf_counter() - start) * 1_000, (time.process_time() - spent) * 1_000
    )


async def measure(sizes: Sequence[int], repeats: int, listed: int, listings: int) -> list[Figure]:
    """Measure chats with each number of tools, and the listing."""
    sides = {name: side for name, side in SIDES.items() if name == OURS or installed("casual_mcp")}
    measured = []
    for discovery in (False, True):
        for tools in sizes:
            name = f"chat, {tools:,} tools, discovery {'on' if discovery else 'off'}"
            times = await chat_times(sides, tools, discovery, repeats)
            ours, bare, peer = times[OURS], times[BARE], times.get(PEER)
            peer_elapsed = peer.elapsed if peer else None
            measured.append(
                Figure(name, ours.elapsed, "ms", peer_elapsed, None if discovery else peer_elapsed)
            )
            measured.append(Figure("  beside the bare call", ours.elapsed, "ms", bare.elapsed))
            beyond, of_peer = (
                ours.processor - bare.processor,
                peer.processor - bare.processor if peer else None,
            )
            limit = BEYOND.get(tools) if discovery else None
            measured.append(
                Figure("  beyond the bare call, processor time", beyond, "ms", of_peer, limit)
            )
    times = await asyncio.to_thread(listing_times, sides, listed, listings)
    ours, peer = times[OURS], times.get(PEER)
    for kind, which in (("", 0), (", processor time", 1)):
        limit = peer[which] if peer else None
        measured.append(
            Figure(f"cold listing, {listed:,} tools{kind}", ours[which], "ms", limit, limit)
        )
    return measured


def figures(quick: bool) -> list[Figure]:
    """What a chat and a listing cost."""
    return asyncio.run(
        measure((30,), 5, 300, 1) if quick else measure(SIZES, REPEATS, LISTED, LISTINGS)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of tools")
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="chats of which the median is taken"
    )
    parser.add_argument(
        "--listed", type=int, default=LISTED, help="number of tools of the cold listing"
    )
    parser.add_argument("--listing", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    be_quiet()
    if given.listing:
        print(json.dumps(asyncio.run(one_listing(SIDES[given.listing], given.listed))))
        raise SystemExit
    sizes = [int(size) for size in given.sizes.split(",")]
    print_figures(asyncio.run(measure(sizes, given.repeats, given.listed, LISTINGS)))
