"""Servers' requests for a model's answer, in our types and the SDK's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.mcp import (
    MAX_SAMPLE_TOKENS,
    SamplingAnswer,
    SamplingRefused,
    SamplingRequest,
)

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult

MAX_MESSAGES = 50

MAX_CHARACTERS = 20_000
"""A request's maximum length: the person reads all of it."""


def request_of(params: Any, redact: Callable[[str], str]) -> SamplingRequest:
    """Convert a request, or raise SamplingRefused if it is too long, or more than texts."""
    system = params.system_prompt or ""
    messages: list[tuple[str, str]] = []
    length = len(system)
    for message in params.messages:
        for text in _texts(message.content):
            messages.append((str(message.role), text))
            length += len(text)
    if len(messages) > MAX_MESSAGES or length > MAX_CHARACTERS:
        raise SamplingRefused(
            f"at most {MAX_MESSAGES} messages with {MAX_CHARACTERS:,} characters together are"
            " answered"
        )
    if not messages or params.tools:
        raise SamplingRefused("only messages without tools are answered")
    # The system prompt and the texts are shown and sent alike.
    redacted = tuple((role, redact(text)) for role, text in messages)
    return SamplingRequest(
        redacted, redact(system), max(1, min(params.max_tokens, MAX_SAMPLE_TOKENS))
    )


def _texts(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else [content]:
        if block.type != "text":
            raise SamplingRefused("only texts are answered")
        yield block.text


def result_of(answer: SamplingAnswer) -> CreateMessageResult:
    """Convert an answer."""
    from mcp_types import CreateMessageResult, TextContent

    reason = "endTurn"
    if answer.cut:
        reason = "maxTokens"
    content = TextContent(type="text", text=answer.text)
    return CreateMessageResult(
        role="assistant", model=answer.model, content=content, stop_reason=reason
    )
