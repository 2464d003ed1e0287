"""Remote servers that fail in the middle of a session: it costs one call, and nothing is done
twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kit.history import assert_valid
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply
from kit.turns import ask

from casual_mcp_nb.providers.scripted import call, calls

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

TRANSPORTS = pytest.mark.parametrize("transport", ["http", "sse"])
REFUSED = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "x must be even"}}


@pytest.mark.fault(33)
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("transport", "fault", "reason"),
    [
        pytest.param("http", Reply(500), "HTTP 500", id="http 500"),
        pytest.param("sse", Reply(500), "HTTP 500", id="sse 500"),
        pytest.param("http", Reply(reset=True), "the connection was closed", id="http reset"),
        pytest.param("sse", Reply(cut=0), "the connection was closed", id="sse reset"),
        pytest.param("http", Reply(400, REFUSED), "x must be even", id="http json-rpc error"),
        pytest.param("http", Reply(200, b"{half"), "cannot be read", id="http broken json"),
    ],
)
async def test_a_call_that_fails_over_http_says_why_and_the_next_one_works(
    opened: Opened, servers: int, transport: str, fault: Reply, reason: str
) -> None:
    with ExitStack() as stack:
        remotes = [stack.enter_context(McpHttp(transport=transport)) for _ in range(servers)]
        chat = await opened(
            {
                f"remote{number}": remote.config(call_timeout=5)
                for number, remote in enumerate(remotes)
            }
        )
        remotes[0].script("tools/call", fault)
        both = calls(*(call(f"remote{number}__a") for number in range(servers)))
        turn = await ask(chat, both, both, "done")
        first, *others = turn.tool_calls
        assert first.status == "error"
        assert reason in first.result
        assert [c.result for c in others] == ["ok"] * (2 * servers - 1)
        assert [len(remote.received("tools/call")) for remote in remotes] == [2] * servers
        assert_valid(turn.messages)


@pytest.mark.fault(33)
@pytest.mark.parametrize(
    "fault", [Reply(500), Reply(reset=True), Reply(cut=5), Reply(200, b"{half")], ids=str
)
async def test_a_fault_of_one_call_does_not_touch_another_call_to_the_same_server(
    opened: Opened, fault: Reply
) -> None:
    with McpHttp() as server:
        chat = await opened({"remote": server.config()})
        server.script("tools/call", Reply(delay=0.3), fault)
        turn = await ask(
            chat, calls(call("remote__a"), call("remote__a")), call("remote__a"), "done"
        )
        assert sorted(c.status for c in turn.tool_calls[:2]) == ["error", "ok"]
        assert turn.tool_calls[2].result == "ok"
        assert len(server.received("initialize")) == 1
        assert len(server.received("tools/call")) == 3


@pytest.mark.fault(34)
@pytest.mark.parametrize(
    "body",
    [
        "session not found",
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}},
    ],
)
async def test_a_session_that_the_server_forgot_is_renewed_and_the_call_sent_again_once(
    opened: Opened, body: Any
) -> None:
    with McpHttp() as server:
        chat = await opened({"remote": server.config()})
        first = await ask(chat, call("remote__a"), "done")
        server.forget_sessions()
        server.script("tools/call", Reply(404, body))
        turn = await ask(chat, call("remote__a"), call("remote__a"), "done", history=first.messages)
        assert [c.result for c in turn.tool_calls] == ["ok", "ok"]
        # The refused one, the same once more in the new session, the next.
        assert len(server.received("tools/call")) == 4
        assert len(server.received("initialize")) == 2
        assert_valid(turn.messages)


@pytest.mark.fault(34)
async def test_a_server_that_forgets_the_new_session_as_well_is_not_asked_a_third_time(
    opened: Opened,
) -> None:
    with McpHttp() as server:
        chat = await opened({"remote": server.config()})
        server.script(
            "tools/call", Reply(404, "session not found"), Reply(404, "session not found")
        )
        turn = await ask(chat, call("remote__a"), call("remote__a"), "done")
        failed, works = turn.tool_calls
        assert failed.status == "error"
        assert "HTTP 404" in failed.result
        assert works.result == "ok"
        assert len(server.received("tools/call")) == 3


@pytest.mark.fault(34)
async def test_a_failure_after_which_the_server_may_have_run_the_call_is_not_repeated(
    opened: Opened,
) -> None:
    with McpHttp() as server:
        chat = await opened({"remote": server.config()})
        server.script(
            "tools/call",
            Reply(500),
            Reply(reset=True),
            Reply(
                404,
                {
                    "jsonrpc": "2.0",
                    "id": None,
                    "error": {"code": -32601, "message": "no such method"},
                },
            ),
        )
        turn = await ask(chat, call("remote__a"), call("remote__a"), call("remote__a"), "done")
        assert [c.status for c in turn.tool_calls] == ["error"] * 3
        assert len(server.received("tools/call")) == 3


@pytest.mark.fault(35)
@TRANSPORTS
@pytest.mark.parametrize(
    ("status", "words"), [(401, "the credentials were not accepted"), (403, "access was refused")]
)
async def test_credentials_refused_in_a_session_are_reported_and_the_call_not_repeated(
    opened: Opened, transport: str, status: int, words: str
) -> None:
    with McpHttp(transport=transport) as server:
        chat = await opened(
            {"remote": server.config(headers={"Authorization": "Bearer s3cret-token"})}
        )
        server.script("tools/call", Reply(status, "bad token s3cret-token"))
        turn = await ask(chat, call("remote__a"), "done")
        assert turn.tool_calls[0].status == "error"
        assert f"HTTP {status}: {words}" in turn.tool_calls[0].result
        assert "s3cret" not in turn.tool_calls[0].result
        assert len(server.received("tools/call")) == 1
        again = await ask(chat, call("remote__a"), "done", history=turn.messages)
        assert again.tool_calls[0].result == "ok"
        assert_valid(again.messages)


@pytest.mark.fault(36)
@pytest.mark.parametrize(
    ("transport", "fault", "reason"),
    [
        pytest.param("http", b": hello\n\n", "ended without a response", id="http"),
        pytest.param("sse", None, "the connection was closed", id="sse"),
    ],
)
async def test_an_event_stream_cut_before_the_answer_fails_only_that_call(
    opened: Opened, transport: str, fault: bytes | None, reason: str
) -> None:
    with McpHttp(transport=transport) as server:
        chat = await opened({"remote": server.config(call_timeout=5)})
        cut = Reply(cut=0) if fault is None else Reply(200, iter([fault]))
        server.script("tools/call", cut)
        turn = await ask(chat, call("remote__a"), call("remote__a"), "done")
        failed, works = turn.tool_calls
        assert failed.status == "error"
        assert reason in failed.result
        assert works.result == "ok"
        assert len(server.received("tools/call")) == 2
        assert_valid(turn.messages)
