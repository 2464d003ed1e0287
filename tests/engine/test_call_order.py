"""Which calls of one answer run at the same time, and which wait for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from kit.history import assert_valid
from kit.turns import ask
from mcp.types import ToolAnnotations

from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.providers.scripted import call, calls

READS = ToolAnnotations(read_only_hint=True)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False)


class Shelf:
    """A server that notes how its calls begin and end, and whose readers go on in pairs."""

    def __init__(self, log: list[str], pair: asyncio.Barrier) -> None:
        self.log, self.pair = log, pair
        self.mcp: FastMCP[Any] = FastMCP("shelf")
        self.mcp.tool(self.look, annotations=READS)
        self.mcp.tool(self.save, annotations=WRITES)
        self.mcp.tool(self.meet)
        self.mcp.tool(self.meet, name="meet_and_save", annotations=WRITES)

    async def look(self) -> str:
        """Look, together with another one."""
        self.log.append("look")
        await self.pair.wait()
        return "seen"

    async def save(self, ctx: Context, fails: bool = False) -> str:
        """Save, which takes a while."""
        self.log.append("save")
        for _ in range(20):
            await ctx.report_progress(1, 2)
        self.log.append("saved")
        if fails:
            raise ValueError("full")
        return "saved"

    async def meet(self) -> str:
        """Wait for another call."""
        await self.pair.wait()
        return "met"


@pytest.fixture
def shelf() -> Callable[[], Shelf]:
    log: list[str] = []
    pair = asyncio.Barrier(2)
    return lambda: Shelf(log, pair)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_that_writes_runs_in_its_place_among_those_to_its_server(
    shelf: Callable[[], Shelf], fails: bool
) -> None:
    one = shelf()
    look = call("shelf__look")
    made = calls(look, look, call("shelf__save", fails=fails), call("shelf__save"), look, look)
    async with McpToolChat.from_config({}, in_process={"shelf": one.mcp}) as chat:
        turn = await asyncio.wait_for(ask(chat, made, "Done."), 30)
    saves = ["save", "saved"]
    assert one.log == ["look", "look", *saves, *saves, "look", "look"]
    statuses = [each.status for each in turn.tool_calls]
    assert statuses == ["ok", "ok", "error" if fails else "ok", "ok", "ok", "ok"]
    assert_valid(turn.messages)


@pytest.mark.parametrize(
    "names",
    [("shelf__meet", "shelf__meet"), ("shelf__meet_and_save", "attic__meet_and_save")],
    ids=["undeclared", "two servers"],
)
async def test_other_calls_run_at_the_same_time(
    shelf: Callable[[], Shelf], names: tuple[str, str]
) -> None:
    in_process = {"shelf": shelf().mcp, "attic": shelf().mcp}
    async with McpToolChat.from_config({}, in_process=in_process) as chat:
        turn = await asyncio.wait_for(ask(chat, calls(*map(call, names)), "Done."), 30)
    assert [each.result for each in turn.tool_calls] == ["met", "met"]
