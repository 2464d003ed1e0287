"""The first chat of a process imports an SDK, and the caller's loop goes on meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kit.loop_guard import LIMIT_SECONDS
from kit.provider import PROVIDERS, Provider, answer

TESTS = Path(__file__).resolve().parents[1]
FIRST = """
import asyncio, json, sys
sys.path.insert(0, {tests!r})
from kit.loop_guard import LoopGuard
from casual_mcp_nb import McpToolChat

async def main():
    guard = LoopGuard({limit!r})
    guard.start()
    await asyncio.sleep(0.05)
    async with McpToolChat.from_config({config!r}) as chat:
        messages = await chat.chat("hello")
    guard.stop()
    print(json.dumps([messages[-1].content, [str(held) for held in guard.take()]]))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.defect("B9")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_first_chat_does_not_hold_the_callers_loop(provider: str) -> None:
    with Provider(answer(provider, "hello to you")) as server:
        code = FIRST.format(tests=str(TESTS), config=server.config(provider), limit=LIMIT_SECONDS)
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
        )
    assert ran.returncode == 0, ran.stderr[-2000:]
    text, held = json.loads(ran.stdout)
    assert text == "hello to you"
    assert held == []
