"""What a model answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage

# Chat completions and Ollama: length; Anthropic: max_tokens, model_context_window_exceeded; Responses: max_output_tokens, and
# incomplete where it gives no reason; Mistral: model_length.
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length", "model_context_window_exceeded"})


@dataclass(frozen=True)
class ModelResponse:
    """The answer to one request.

    Args:
        message: The answer: text, calls of tools, or both.
        usage: What it cost, as the provider reported it with this answer; None where it did not.
        finish_reason: The provider's word for why it ended.
    """

    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether the answer was cut at a limit of tokens, its own or that of what the model can read."""
        return (self.finish_reason or "").lower() in _CUT
