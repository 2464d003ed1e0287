"""How much a model thinks before it answers, in each provider's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.options import is_reasoning_model

__all__ = ["budget_arguments", "effort_arguments", "is_reasoning_model"]

if TYPE_CHECKING:
    from casual_mcp_nb.types.config import ModelConfig
    from casual_mcp_nb.types.model_options import ReasoningEffort


def budget_arguments(provider: str, config: ModelConfig) -> dict[str, Any]:
    """A budget of tokens for thinking, as arguments of a request.

    Raises:
        UsageError: The provider knows no such budget.
    """
    tokens = config.thinking_tokens
    if tokens is None:
        return {}
    if provider not in ("anthropic", "litellm"):
        raise UsageError(
            f"Model {shown(config.model)}: provider {provider} knows no thinking_tokens.", hint="Set reasoning_effort instead."
        )
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def effort_arguments(wire: str, effort: ReasoningEffort | None) -> dict[str, Any]:
    """How much a model is to think, as arguments of a request.

    Args:
        wire: The format of the request; a client that makes its own gets OpenAI's word.
        effort: How much; None for the provider's default.
    """
    if effort is None:
        return {}
    match wire:
        case "ollama":
            # What it takes depends on the model, which its server is asked about.
            return {}
        case "anthropic" if effort == "none":
            return {"thinking": {"type": "disabled"}}
        case "anthropic":
            low = "low" if effort == "minimal" else effort
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": low}}
        case "openai-responses":
            return {"reasoning": {"effort": effort}}
    return {"reasoning_effort": effort}
