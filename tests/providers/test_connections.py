"""The connections to a provider, and servers that end them or answer early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.provider import answer

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.errors import ProviderError
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


def model_at(listening: asyncio.Server) -> tuple[ChatModel, Callable[[], Awaitable[None]]]:
    """Create a model of the server, and what closes it."""
    client = {
        "provider": "openai",
        "base_url": f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1",
        "api_key": "sk-none",
    }
    models = {"m": {"client": "c", "model": "m-1"}}
    factory = ModelFactory(Config.model_validate({"clients": {"c": client}, "models": models}))
    return factory.chat_model("m"), factory.close


@asynccontextmanager
async def asking(ends: bool = False, at_once: int = 1) -> AsyncIterator[tuple[Desk, ChatModel]]:
    desk = Desk(ends, at_once)
    async with await asyncio.start_server(desk.serve, "127.0.0.1", 0) as listening:
        model, close = model_at(listening)
        try:
            yield desk, model
        finally:
            await close()


async def test_a_connection_that_its_server_has_ended_is_not_used_again() -> None:
    events: list[Any] = []
    async with asking(ends=True) as (desk, model):
        for _ in range(3):
            await model.complete(ASKED, on_event=events.append)
    assert desk.connections == 3
    assert not [event for event in events if isinstance(event, RetryScheduled)]


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_a_server_that_refuses_a_request_before_it_has_read_it_is_heard(size: int) -> None:
    ended = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.write_eof()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        model, close = model_at(listening)
        try:
            with pytest.raises(ProviderError) as caught:
                await model.complete([UserMessage(content="x" * size)])
        finally:
            await close()
        async with asyncio.timeout(10):
            await ended.wait()
    assert caught.value.status == 413
