"""The connections to a provider: one write for a request, a cheap question to idle ones, and
servers that end them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType, SimpleNamespace
from typing import Any, Self

import httpcore2
import pytest
from casual_llm.messages import UserMessage
from kit.provider import answer

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.providers._reading import watch_responses
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.limits import RetryScheduled

pytestmark = pytest.mark.defect("G11")

ASKED = [UserMessage(content="Where is it?")]


class Desk:
    """A server that speaks OpenAI's format, and counts.

    Args:
        ends: Whether it ends each connection after one answer, without saying so.
        at_once: How many requests it waits for before it answers the first ones.
    """

    def __init__(self, ends: bool, at_once: int) -> None:
        self.ends = ends
        self.together = asyncio.Barrier(at_once)
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        body = json.dumps(answer("openai", "Here.")).encode()
        try:
            while request := await reader.read(65_536):
                self.requests.append(request)
                if self.together.parties > len(self.requests) - 1:
                    await self.together.wait()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:"
                    b" %d\r\n\r\n" % len(body) + body
                )
                await writer.drain()
                if self.ends:
                    return
        except asyncio.CancelledError:
            # The test ends.
            pass
        finally:
            writer.close()


@asynccontextmanager
async def asking(ends: bool = False, at_once: int = 1) -> AsyncIterator[tuple[Desk, ChatModel]]:
    desk = Desk(ends, at_once)
    async with await asyncio.start_server(desk.serve, "127.0.0.1", 0) as listening:
        address = listening.sockets[0].getsockname()
        client = {
            "provider": "openai",
            "base_url": f"http://127.0.0.1:{address[1]}/v1",
            "api_key": "sk-none",
        }
        factory = ModelFactory(
            Config.model_validate(
                {"clients": {"c": client}, "models": {"m": {"client": "c", "model": "m-1"}}}
            )
        )
        try:
            yield desk, factory.chat_model("m")
        finally:
            await factory.close()


class Counted:
    """The Python functions that run in the body, and the pieces that are sent, by both sides."""

    def __init__(self) -> None:
        self.functions = self.sent = 0

    def _count(self, frame: FrameType, event: str, function: Any) -> None:
        self.functions += event == "call"
        self.sent += (
            event == "c_call"
            and function.__name__ == "send"
            and hasattr(function.__self__, "fileno")
        )

    def __enter__(self) -> Self:
        self._before = sys.getprofile()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)


async def test_the_head_and_the_body_of_a_request_are_sent_together() -> None:
    async with asking() as (desk, model):
        await model.complete(ASKED)
        with Counted() as counted:
            await model.complete(ASKED)
    assert desk.connections == 1
    # The server's answer is the other one.
    assert counted.sent == 2


async def test_a_connection_that_its_server_has_ended_is_not_used_again() -> None:
    events: list[Any] = []
    async with asking(ends=True) as (desk, model):
        for _ in range(3):
            await model.complete(ASKED, on_event=events.append)
    assert desk.connections == 3
    assert not [event for event in events if isinstance(event, RetryScheduled)]


async def test_idle_connections_cost_a_request_little() -> None:
    functions = []
    for idle in (1, 21):
        async with asking(at_once=idle) as (desk, model):
            await asyncio.gather(*(model.complete(ASKED) for _ in range(idle)))
            await model.complete(ASKED)
            assert desk.connections == idle
            with Counted() as counted:
                await model.complete(ASKED)
            functions.append(counted.functions)
    # The pool asks each of them once before a request and once after it.
    assert (functions[1] - functions[0]) / 20 <= 40


class Refusing(httpcore2.AsyncNetworkStream, httpcore2.AsyncNetworkBackend):
    """A network whose server answers before it has read the request."""

    def __init__(self) -> None:
        self.answers = [b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n"]

    async def connect_tcp(self, *args: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        return self

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        raise httpcore2.WriteError

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return self.answers.pop()

    async def aclose(self) -> None:
        pass

    def get_extra_info(self, info: str) -> Any:
        return None


@pytest.mark.parametrize("size", [10, 1_000_000])
async def test_a_server_that_refuses_a_request_before_it_has_read_it_is_heard(size: int) -> None:
    async with httpcore2.AsyncConnectionPool(network_backend=Refusing()) as pool:
        http = SimpleNamespace(event_hooks={}, _transport=SimpleNamespace(_pool=pool))
        watch_responses(SimpleNamespace(client=SimpleNamespace(_client=http)))
        answer = await pool.request("POST", "http://desk.example/", content=b"x" * size)
    assert answer.status == 413
