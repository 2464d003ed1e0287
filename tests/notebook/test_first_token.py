"""The parts of an answer that are drawn while it arrives, in a real kernel under a provider that
streams.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kit.kernel import Kernel, Ran, started_kernel
from kit.provider import Provider
from kit.scripted_http import Reply
from kit.streams import KINDS, streamed

pytestmark = pytest.mark.kernel

LIMIT = 30
SETUP = """
from casual_mcp_nb import Session
from casual_mcp_nb.notebook import live
# What is drawn now and then is drawn once in ten minutes.
live._SECONDS_BETWEEN_UPDATES = live._SECONDS_BETWEEN_TICKS = 600
Session({}, in_process={}).connect();
"""


class Streaming(Provider):
    """Streams an answer of many words; the first one and the others when they are `set` free."""

    def __init__(self) -> None:
        self.first, self.others = threading.Event(), threading.Event()
        super().__init__(Reply(200, self._pieces(), {"content-type": KINDS["openai"]}))

    def _pieces(self) -> Iterator[bytes]:
        first, *others = [
            f"{piece}\n\n".encode()
            for piece in streamed("openai", ["Wonderful "] * 60).decode().split("\n\n")
            if piece
        ]
        yield b": hello\n\n"
        assert self.first.wait(LIMIT)
        yield first
        assert self.others.wait(LIMIT)
        yield from others


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP, PYTHONPATH="") as kernel:
        yield kernel


def updates(ran: Ran) -> list[dict[str, Any]]:
    return [message for message in ran.messages if message["msg_type"] == "update_display_data"]


def html_of(message: dict[str, Any]) -> str:
    return str(message["content"]["data"]["text/html"])


def test_the_first_text_of_an_answer_is_drawn_at_once_and_the_rest_when_it_is_time(
    kernel: Kernel,
) -> None:
    with Streaming() as server:
        cell = kernel.start(
            f"Session({server.config('openai', timeout=LIMIT)!r}, in_process={{}}).chat('Hi');"
        )
        step = kernel.wait(cell, until="update_display_data")
        assert "Wonderful" not in html_of(updates(step)[-1])
        server.first.set()
        first = kernel.wait(cell, until="update_display_data")
        assert html_of(updates(first)[-1]).count("Wonderful") == 1
        server.others.set()
        rest = kernel.wait(cell)
    assert rest.status == "ok", rest.text()
    # The end of the step where it is drawn, and the picture that stays.
    assert 1 <= len(updates(rest)) <= 2
    assert html_of(updates(rest)[-1]).count("Wonderful") == 60
