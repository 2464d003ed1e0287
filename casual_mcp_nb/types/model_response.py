"""A model's response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from casual_mcp_nb.types.event import HostedCall
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage

# Chat completions and Ollama: length; Anthropic: max_tokens, model_context_window_exceeded; Responses: max_output_tokens, and
# incomplete where it gives no reason; Mistral: model_length.
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length", "model_context_window_exceeded"})


@dataclass(frozen=True)
class ModelResponse:
    """The response to one request.

    Args:
        message: The answer: text, tool calls, or both.
        usage: Tokens as reported by the provider with this response; None if it did not.
        finish_reason: The provider's reason for the end of the answer.
        hosted_calls: Calls of tools that the provider ran itself.
        response_id: The provider's id of the response, with which the next request can be compared.
        request_id: The provider's id of the request, from the headers of the response.
    """

    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    hosted_calls: tuple[HostedCall, ...] = ()
    response_id: str | None = None
    request_id: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether the answer was cut at a token limit: its own, or the context window."""
        return (self.finish_reason or "").lower() in _CUT
