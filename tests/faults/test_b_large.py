"""Results, noise and notices without measure: bounded, said, and the loop goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kit.history import assert_valid
from kit.mcp_http import McpHttp
from kit.raw_server import OK, text_result
from kit.secrets import planted
from kit.turns import ask

from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.engine.notices import MAX_LOGS
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.providers.scripted import call, calls
from casual_mcp_nb.servers.process import KEPT_BYTES

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

MB = 1024 * 1024


def huge(size: int) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "x" * size}]}


WAYS = ["stdio", "json", "event stream"]


@contextmanager
def serving(way: str, raw: Raw, size: int) -> Iterator[dict[str, Any]]:
    """The config of a server with a tool whose result is large and one whose result is small."""
    if way == "stdio":
        yield raw(calls={"large": {"size": size}, "small": OK})
        return
    with McpHttp(
        {"large": huge(size), "small": OK["result"]}, events=way == "event stream"
    ) as server:
        yield server.config()


@pytest.mark.fault(21)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [5 * MB, 15 * MB], ids=["5 MB", "15 MB"])
async def test_a_result_below_the_limit_is_kept_whole_and_cut_for_the_model(
    opened: Opened, raw: Raw, way: str, size: int
) -> None:
    with serving(way, raw, size) as config:
        chat = await opened({"lab": config, "other": raw(calls={"a": OK | {"delay": 0.05}})})
        await ask(chat, call("lab__small"), "warm")
        turn = await ask(
            chat, calls(call("lab__large"), call("other__a"), call("lab__small")), "done"
        )
        large, *others = turn.tool_calls
        assert [c.result for c in others] == ["ok", "ok"]
        assert large.value == "x" * size
        assert len(large.result) < TurnLimits().result_tokens * 4 + 200
        assert f"{size:,} characters" in large.result
        assert len(large.content[0].text) < size
        assert len(turn._repr_html_()) < 64 * 1024
        assert_valid(turn.messages)


@pytest.mark.fault(21)
@pytest.mark.parametrize("kind", ["text", "structured"])
async def test_secrets_are_masked_in_a_large_result_and_the_loop_goes_on(
    opened: Opened, raw: Raw, kind: str
) -> None:
    secrets = [planted(str(number)) for number in range(20)]
    row = {"id": 1, "name": "x" * 20, "value": 1.5, "key": secrets[7]}
    rows = [row] * (5 * MB // len(json.dumps(row)))
    result = (
        {"content": [], "structuredContent": {"rows": rows}}
        if kind == "structured"
        else text_result(json.dumps(rows))
    )
    with McpHttp({"large": result, "small": OK["result"]}) as server:
        keys = {f"KEY_{number}": secret for number, secret in enumerate(secrets)}
        chat = await opened(
            {"lab": server.config(), "other": raw({"env": keys}, calls={"a": OK | {"delay": 0.05}})}
        )
        await ask(chat, call("lab__small"), "warm")
        turn = await ask(chat, calls(call("lab__large"), call("other__a")), "done")
    assert [c.status for c in turn.tool_calls] == ["ok", "ok"]
    large = turn.tool_calls[0].large
    assert large is not None
    assert large.size > 3 * MB
    assert "planted" not in large.text
    assert not any("planted" in part.text for part in turn.tool_calls[0].content)
    assert MASK in turn.tool_calls[0].result


@pytest.mark.fault(21)
@pytest.mark.parametrize("way", WAYS)
async def test_a_result_of_50_mb_fails_that_call_with_its_size_and_everything_else_goes_on(
    opened: Opened, raw: Raw, way: str
) -> None:
    with serving(way, raw, 50 * MB) as config:
        chat = await opened({"lab": config, "other": raw(calls={"a": OK | {"delay": 0.05}})})
        await ask(chat, call("lab__small"), "warm")
        turn = await ask(
            chat, calls(call("lab__large"), call("other__a"), call("lab__small")), "done"
        )
        large, *others = turn.tool_calls
        assert [c.result for c in others] == ["ok", "ok"]
        assert large.status == "error"
        assert re.search(r"too large: 50\.0 MB\b.* 16 MB\b", large.result)
        again = await ask(chat, call("lab__small"), "done", history=turn.messages)
        assert again.tool_calls[0].result == "ok"
        assert_valid(again.messages)


NOTICE = {"method": "notifications/message", "params": {"level": "info", "data": "tick " * 20}}


@pytest.mark.fault(32)
async def test_noise_a_flood_on_stderr_and_20_000_notices_do_not_stop_a_call(
    opened: Opened, raw: Raw
) -> None:
    noise = "Loading model ...\n\n{not json}\n[]\n" * 200
    plan = OK | {"stdout": noise, "stderr_flood": 4 * MB, "notify": NOTICE, "notify_count": 20_000}
    chat = await opened({"loud": raw(calls={"a": plan, "b": OK})})
    await ask(chat, call("loud__b"), "warm")
    turn = await ask(chat, call("loud__a"), call("loud__b"), "done")
    assert [c.result for c in turn.tool_calls] == ["ok", "ok"]
    assert len(chat.server_manager.statuses["loud"].stderr_tail) < KEPT_BYTES
    assert len(turn.server_logs) == MAX_LOGS
    assert [notice.server for notice in turn.trace.of(Notice)] == ["loud"]
    assert len(turn._repr_html_()) < 64 * 1024
    assert_valid(turn.messages)
