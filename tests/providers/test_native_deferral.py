"""Deferred tools that the provider loads itself: what is on the wire, and what the provider refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from casual_llm.messages import UserMessage
from kit.provider import Provider, answer

from casual_mcp_nb.errors import NativeDeferralError
from casual_mcp_nb.providers import ChatModel

SEARCH = {"name": "search_tools", "description": "Find tools.", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("name", ["openai", "ollama"])
async def test_a_provider_that_cannot_says_so_before_it_is_asked(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], name: str
) -> None:
    server = loopback(answer(name, "Hi."))
    model = model_of(server, name, native_deferral=True)
    assert not model.defers_natively
    with pytest.raises(NativeDeferralError):
        await model.complete([UserMessage(content="Hi.")], [SEARCH], found=())
    assert server.seen == []
