"""A byte order mark before a stream is no part of its first event."""

from __future__ import annotations

import pytest
from casual_llm.messages import UserMessage
from kit.provider import Provider
from kit.streams import reply, streamed

from casual_mcp_nb.engine.chat import McpToolChat

MARK = b"\xef\xbb\xbf"


@pytest.mark.defect("M19")
@pytest.mark.parametrize("bytewise", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_a_stream_that_begins_with_a_byte_order_mark_keeps_its_first_piece(
    provider: str, bytewise: bool
) -> None:
    body = streamed(provider, ["Once", " upon", " a time"])
    with Provider(reply(provider, MARK + body, bytewise=bytewise)) as server:
        chat = McpToolChat.from_config(server.config(provider))
        messages = await chat.chat([UserMessage(content="Tell me a story.")], model="small")
        await chat.close()
    assert messages[-1].content == "Once upon a time"
