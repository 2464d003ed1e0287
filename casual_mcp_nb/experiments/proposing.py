"""Ask a model to propose texts for a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import LimitError, UsageError
from casual_mcp_nb.experiments.budget import MARGIN


async def ask_for_texts(
    chat: McpToolChat,
    text: str,
    n: int,
    name: Any,
    max_total_tokens: int,
    add: Callable[[str], None],
) -> None:
    """Ask a model to propose texts for a tool, if the person allows it.

    Raises:
        UsageError: They do not.
        LimitError: The budget is too small.
    """
    from casual_llm.messages import UserMessage

    model = await chat.ready_model(name)
    left = max_total_tokens - round(estimate_tokens(text) * MARGIN)
    if left < 200:
        raise LimitError(
            f"The request has ≈ {estimate_tokens(text):,} tokens, and the budget is"
            f" {max_total_tokens:,}."
        )
    arguments = {
        "model": model.name,
        "messages": [{"role": "user", "text": text}],
        "max_tokens": min(left, 1_000 * n),
    }
    permission = await chat.consent.sampling(
        "workshop", arguments, method="propose", reason="proposal"
    )
    if not permission.allowed:
        raise UsageError(
            f"Nothing was sent: {permission.reason.rstrip('.') or 'you did not allow it'}."
        )
    limited = (
        model.unforced()
        .without_hosted_tools()
        .with_options(RequestOptions(max_tokens=min(left, 1_000 * n)))
    )
    response = await limited.complete([UserMessage(content=text)], stream=False)
    add(text_of(response.message.content))
