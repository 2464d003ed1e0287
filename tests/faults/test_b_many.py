"""Results of many parts and many values: bounded before they are read, counted, and the loop goes
on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kit.history import assert_valid
from kit.loop_guard import LoopGuard
from kit.mcp_http import McpHttp
from kit.raw_server import OK
from kit.secrets import planted
from kit.turns import ask

from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.providers.scripted import call, calls
from casual_mcp_nb.servers._repairs import MAX_PARTS

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

WAYS = ["stdio", "json", "event stream"]
ROW = {"id": 1, "name": "x" * 20, "value": 1.5}


def parts(count: int) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "x"}] * count}


def values(text: str, count: int) -> dict[str, Any]:
    return {"content": [], "structuredContent": {"a": [json.loads(text)] * count}}


@asynccontextmanager
async def serving(
    way: str, raw: Raw, folder: Any, result: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    if way == "stdio":
        # Written down on a thread: it takes long for the largest.
        yield await asyncio.to_thread(
            raw, folder=folder, calls={"many": {"result": result}, "small": OK}
        )
        return
    with McpHttp({"many": result, "small": OK["result"]}, events=way == "event stream") as server:
        yield server.config()


@pytest.fixture
def watch() -> Iterator[LoopGuard]:
    guard = LoopGuard()
    guard.start()
    yield guard
    guard.stop()


@pytest.mark.defect("B3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [MAX_PARTS, MAX_PARTS + 1, 60_000])
async def test_parts_beyond_a_limit_are_counted_and_left_out(
    opened: Opened, raw: Raw, way: str, count: int, tmp_path: Any, watch: LoopGuard
) -> None:
    async with serving(way, raw, tmp_path, parts(count)) as config:
        chat = await opened({"lab": config})
        turn = await ask(chat, call("lab__many"), "done")
    content = turn.tool_calls[0].content
    assert [part.text for part in content[:MAX_PARTS]] == ["x"] * MAX_PARTS
    assert len(content) == MAX_PARTS + (count > MAX_PARTS)
    assert count == MAX_PARTS or f"{count - MAX_PARTS:,} more parts" in content[-1].text
    assert turn.tool_calls[0].status == "ok"
    assert not watch.take()


TOO_MANY = {
    "400,000 parts": parts(400_000),
    "4 million objects": values("{}", 4_000_000),
    "2 million numbers": values("1", 2_000_000),
}


@pytest.mark.defect("B3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("result", TOO_MANY.values(), ids=TOO_MANY.keys())
async def test_a_message_of_too_many_values_fails_that_call_and_everything_else_goes_on(
    opened: Opened, raw: Raw, way: str, result: dict[str, Any], tmp_path: Any, watch: LoopGuard
) -> None:
    async with serving(way, raw, tmp_path, result) as config:
        chat = await opened({"lab": config, "other": raw(calls={"a": OK | {"delay": 0.05}})})
        turn = await ask(
            chat, calls(call("lab__many"), call("other__a"), call("lab__small")), "done"
        )
    many, *others = turn.tool_calls
    assert [each.result for each in others] == ["ok", "ok"]
    assert many.status == "error"
    assert "too large: over 250,000 values" in many.result
    assert not watch.take()
    assert_valid(turn.messages)


@pytest.mark.defect("B3")
async def test_a_large_table_within_the_limit_is_converted_without_holding_the_loop(
    opened: Opened, raw: Raw, watch: LoopGuard
) -> None:
    secrets = [planted(str(number)) for number in range(20)]
    rows = [ROW | {"key": secrets[7]}] * 45_000
    with McpHttp(
        {"many": {"content": [], "structuredContent": {"rows": rows}}, "small": OK["result"]}
    ) as server:
        keys = {f"KEY_{number}": secret for number, secret in enumerate(secrets)}
        chat = await opened({"lab": server.config(), "other": raw({"env": keys}, calls={"a": OK})})
        turn = await ask(chat, call("lab__many"), "done")
    large = turn.tool_calls[0].large
    assert large is not None
    assert len(json.loads(large.text)["rows"]) == 45_000
    assert "planted" not in large.text
    assert MASK in turn.tool_calls[0].result
    assert not watch.take()


@pytest.mark.defect("B3")
@pytest.mark.parametrize(
    "text", ["a,{[" * 4_000_000, '\\"{,\\' * 1_500_000, "\U0001f600" * 100_000]
)
async def test_what_stands_within_a_text_is_not_counted(
    opened: Opened, text: str, watch: LoopGuard
) -> None:
    text = text[: 15 * 1024 * 1024 // len(json.dumps(text[:1000])) * 1000]
    with McpHttp(
        {"many": {"content": [{"type": "text", "text": text}]}, "small": OK["result"]}
    ) as server:
        chat = await opened({"lab": server.config()})
        turn = await ask(chat, call("lab__many"), "done")
    assert turn.tool_calls[0].value == text
    assert not watch.take()
