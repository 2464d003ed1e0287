"""casual-llm clients whose requests are made here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from casual_mcp_nb.providers._answers import plain_usage

if TYPE_CHECKING:
    from casual_llm import AssistantMessage, ChatMessage, ChatOptions, StreamChunk
    from casual_llm.usage import Usage

    from casual_mcp_nb.providers.spec import OnText
    from casual_mcp_nb.types.model_response import ModelResponse


class OwnClient:
    """Base of clients that casual-llm's `Model` can use too; subclasses implement the request."""

    async def ask(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
        """Make a request without streaming."""
        raise NotImplementedError

    async def stream(self, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText) -> ModelResponse:
        """Make a streaming request."""
        raise NotImplementedError

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> tuple[AssistantMessage, Usage | None]:
        answer = await self.ask(model, messages, options)
        return answer.message, plain_usage(answer.usage)

    async def _stream(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> AsyncIterator[StreamChunk]:
        from casual_llm import StreamChunk

        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def put_text(text: str, response: object = None, /) -> None:
            pieces.put_nowait(text)

        asking = asyncio.create_task(self.stream(model, messages, options, put_text))
        asking.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (text := await pieces.get()) is not None:
                if text:
                    yield StreamChunk(content=text)
            answer = await asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        yield StreamChunk(content="", finish_reason=answer.finish_reason, usage=plain_usage(answer.usage))
