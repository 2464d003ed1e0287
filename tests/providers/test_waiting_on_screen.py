"""The display of a cell while its model keeps it waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.kernel import Kernel, Ran, started_kernel
from kit.lean import lean
from kit.provider import answer
from kit.scripted_http import Reply
from kit.streams import reply, streamed

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(**lean(openai=True)) as kernel:
        assert kernel.run("from casual_mcp_nb import Session").status == "ok"
        yield kernel


def shown_while_running(ran: Ran) -> list[str]:
    drawn = [
        m["content"]["data"]["text/html"]
        for m in ran.messages
        if m["msg_type"] == "update_display_data"
    ]
    return [html for html in drawn if "running" in html]


@pytest.mark.fault(61)
def test_a_silent_model_is_seen_to_be_waited_for(
    kernel: Kernel, serving: Callable[..., Any]
) -> None:
    config = serving(Reply(silent=True)).config("openai", timeout=2.5)
    ran = kernel.run(
        f"turn = Session.from_config({config!r}, in_process={{}}).chat('Hi'); print(turn.status)"
    )
    assert "failed" in ran.text()
    assert len(set(shown_while_running(ran))) >= 3


def test_a_session_that_does_not_stream_asks_for_no_stream(
    kernel: Kernel, serving: Callable[..., Any]
) -> None:
    server = serving(answer("openai", "Here."), reply("openai", streamed("openai", ("Here.",))))
    chats = (
        "s = Session.from_config({config!r}, in_process={{}})\ns.chat('Hi',"
        " stream=False)\ns.chat('Hi')"
    )
    ran = kernel.run(chats.format(config=server.config("openai")))
    assert ran.status == "ok", ran.text()
    assert [bool(seen.body.get("stream")) for seen in server.seen] == [False, True]


@pytest.mark.fault(58)
def test_a_wait_before_the_next_request_is_on_screen_while_it_lasts(
    kernel: Kernel, serving: Callable[..., Any]
) -> None:
    busy = Reply(429, {"error": {"message": "too busy"}}, {"retry-after": "1.2"})
    config = serving(busy, reply("openai", streamed("openai", ("Fine.",)))).config("openai")
    ran = kernel.run(
        f"turn = Session.from_config({config!r}, in_process={{}}).chat('Hi'); print(turn.status)"
    )
    assert "done" in ran.text()
    assert any(
        "too busy" in html and "Retry after 1.2 s" in html for html in shown_while_running(ran)
    )


@pytest.mark.fault(68)
def test_a_wait_for_the_limit_of_a_client_is_on_screen_and_can_be_interrupted(
    kernel: Kernel, serving: Callable[..., Any]
) -> None:
    server = serving(reply("openai", streamed("openai", ("Fine.",))))
    config = server.config("openai", requests_per_minute=1)
    assert (
        kernel.run(
            f"limited = Session.from_config({config!r}, in_process={{}}); limited.chat('Hi');"
        ).status
        == "ok"
    )
    cell = kernel.start("limited.chat('And again');")
    drawn: list[str] = []
    while (
        not drawn
        or "s for the limit of client &#39;desk&#39;: 1 request a minute." not in drawn[-1]
    ):
        drawn += shown_while_running(kernel.wait(cell, until="update_display_data"))
        assert len(drawn) < 50
    ran = kernel.interrupt(cell, "limited")
    assert "KeyboardInterrupt" in ran.text()
    assert kernel.printed("print([turn.status for turn in limited.turns])") == "['done', 'stopped']"
    assert len(server.seen) == 1
