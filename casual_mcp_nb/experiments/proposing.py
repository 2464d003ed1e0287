"""Ask a model to propose texts for a tool."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import LimitError, UsageError
from casual_mcp_nb.providers.spending import MARGIN


async def ask_for_texts(
    chat: McpToolChat, text: str, n: int, name: Any, max_total_tokens: int
) -> str:
    """Ask a model to propose texts for a tool, if the person allows it, and return its answer.

    Args:
        chat: Its models and its consent are used.
        text: The request.
        n: How many proposals it asks for.
        name: A model name or object.
        max_total_tokens: Limit on input and output tokens.

    Raises:
        UsageError: They do not.
        LimitError: The budget is too small.
    """
    from casual_llm.messages import UserMessage

    model = await chat.ready_model(name)
    tokens = estimate_tokens(text)
    left = max_total_tokens - round(tokens * MARGIN)
    if left < 200:
        raise LimitError(
            f"The request has ≈ {tokens:,} tokens, and the budget is {max_total_tokens:,}."
        )
    most = min(left, 1_000 * n)
    arguments = {
        "model": model.name,
        "messages": [{"role": "user", "text": text}],
        "max_tokens": most,
    }
    permission = await chat.consent.sampling(
        "workshop", arguments, method="propose", reason="proposal"
    )
    if not permission.allowed:
        raise UsageError(
            f"Nothing was sent: {permission.reason.rstrip('.') or 'you did not allow it'}."
        )
    limited = model.unforced().without_hosted_tools().with_options(RequestOptions(max_tokens=most))
    response = await limited.complete(
        [UserMessage(content=text)], stream=False, account=chat.account()
    )
    return text_of(response.message.content)
