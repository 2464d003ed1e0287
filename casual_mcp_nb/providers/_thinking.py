"""How much a model thinks before it answers, in each provider's words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.types.config import ModelConfig

_REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-(?:[5-9]|\d\d)|codex|computer-use)(?!.*chat)", re.IGNORECASE)
_LEVELS = {"minimal": "low", "xhigh": "high", "max": "high"}


def is_reasoning_model(model: str) -> bool:
    """Whether a name is one of OpenAI's reasoning models: they refuse `temperature` and count their thinking as output."""
    return _REASONING.search(model) is not None


def thinking_arguments(provider: str, config: ModelConfig) -> dict[str, Any]:
    """What a config says about thinking, as arguments of a request.

    Raises:
        UsageError: The provider knows no budget of tokens for thinking.
    """
    effort, tokens = config.reasoning_effort, config.thinking_tokens
    if tokens is not None and provider not in ("anthropic", "litellm"):
        raise UsageError(
            f"Model {shown(config.model)}: provider {provider} knows no thinking_tokens.", hint="Set reasoning_effort instead."
        )
    budget = {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens is not None else {}
    if effort is None:
        return budget
    match provider:
        case "anthropic":
            return _anthropic(effort) | budget
        case "openai-responses":
            return {"reasoning": {"effort": effort}}
        case "ollama":
            return {"think": effort != "none" and _LEVELS.get(effort, effort)}
        case "openai" | "litellm":
            return {"reasoning_effort": effort, **budget}
    return {}


def _anthropic(effort: str) -> dict[str, Any]:
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low" if effort == "minimal" else effort}}
