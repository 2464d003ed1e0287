"""Interrupts of cells in real kernels: a blocking and an awaited chat, in a call of a tool and in a
call of the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kernel import KERNELS_WITH_OPENAI, Kernel, started_kernel
from kit.provider import Provider, answer
from kit.raw_server import raw_config
from kit.scripted_http import Reply
from kit.waiting import wait_for_text, wait_until

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(90)]

TESTS = Path(__file__).resolve().parents[1]
SETUP = """
import json, sys
sys.path.append({tests!r})
from casual_mcp_nb import Session
from kit.history import assert_valid
session = Session.from_config(json.loads({config!r}))
session.connect();
"""
CHATS = {"blocking": "session.chat('go')", "awaited": "await session.chat_async('go')"}


@pytest.fixture(scope="module", params=KERNELS_WITH_OPENAI)
def started(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with started_kernel(**request.param) as kernel:
        yield kernel


@pytest.fixture
def kernel(started: Kernel) -> Iterator[Kernel]:
    yield started
    started.printed("session.close()")


def set_up(kernel: Kernel, provider: Provider, **servers: Any) -> None:
    config = {**provider.config("openai", timeout=600), "servers": servers}
    kernel.printed(SETUP.format(tests=str(TESTS), config=json.dumps(config)))


def assert_stopped(kernel: Kernel) -> None:
    """The turn is kept and marked, its history valid, and the next cell works."""
    assert (
        kernel.printed(
            "turn = session.turns[-1]; assert_valid(session.messages); print(turn.status)"
        )
        == "stopped"
    )
    assert "fine" in kernel.printed("print(session.chat('go on', echo='none').answer)")
    kernel.printed("assert_valid(session.messages)")


@pytest.mark.fault(69)
@pytest.mark.fault(70)
@pytest.mark.fault(71)
def test_an_interrupt_in_a_call_stops_it_tells_the_server_and_the_next_cell_works(
    kernel: Kernel, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    raw = raw_config(
        calls={"hang": {"stderr": "called"}, "quick": {"result": {"content": []}}},
        record=str(record),
    )
    quick, hang, fine = (
        answer("openai", *said)
        for said in (("", ("raw__quick", {})), ("", ("raw__hang", {})), ("fine",))
    )
    with Provider(quick, hang, fine, quick, hang, fine) as provider:
        set_up(kernel, provider, raw=raw)
        for count, (way, code) in enumerate(CHATS.items(), 1):
            cell = kernel.start(code)
            wait_for_text(record, '"hang"', count)
            ran = kernel.interrupt(cell)
            assert ran.status == "error"
            (error,) = [output for output in ran.outputs if "traceback" in output]
            assert (
                error["ename"]
                == {"blocking": "KeyboardInterrupt", "awaited": "CancelledError"}[way]
            )
            assert len(error["traceback"]) == 1
            statuses = kernel.printed(
                "print(*(call.status for call in session.turns[-1].tool_calls))"
            )
            assert statuses == "ok stopped"
            wait_for_text(record, "notifications/cancelled", count)
            assert_stopped(kernel)
        assert kernel.printed("import asyncio; print(hasattr(asyncio, '_nest_patched'))") == "False"


@pytest.mark.fault(69)
def test_an_interrupt_in_a_call_of_the_model_stops_it_and_the_next_cell_works(
    kernel: Kernel,
) -> None:
    fine = answer("openai", "fine")
    with Provider(Reply(silent=True), fine, Reply(silent=True), fine) as provider:
        set_up(kernel, provider, raw=raw_config())
        for count, code in enumerate(CHATS.values(), 1):
            cell = kernel.start(code)
            wait_until(lambda wanted=2 * count - 1: len(provider.seen) == wanted, "the request")
            ran = kernel.interrupt(cell)
            assert ran.status == "error"
            assert_stopped(kernel)


@pytest.mark.fault(14)
def test_an_interrupt_while_servers_start_ends_the_cell_and_the_start(
    kernel: Kernel, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    config = {
        "servers": {
            "raw": raw_config(handshake="silent", record=str(record), config={"init_timeout": 600})
        }
    }
    kernel.printed(f"from casual_mcp_nb import Session\nsession = Session.from_config({config!r})")
    for count, code in enumerate(("session.connect()", "await session.connect_async()"), 1):
        cell = kernel.start(code)
        wait_for_text(record, '"jsonrpc"', count)
        ran = kernel.interrupt(cell)
        assert ran.status == "error"
        assert kernel.printed("print(session.servers['raw'].state)") == "closed"
