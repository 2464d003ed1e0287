"""Which models reason before answering, and which options they then refuse."""

from __future__ import annotations

import re

from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.options import RequestOptions

_REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-(?:[5-9]|\d\d)|codex|computer-use)(?!.*chat)", re.IGNORECASE)


def is_reasoning_model(model: str) -> bool:
    """Check whether a name is one of OpenAI's reasoning models, which refuse `temperature` and count reasoning as output."""
    return _REASONING.search(model) is not None


def thinks(model: str, options: RequestOptions) -> bool:
    """Check whether one of OpenAI's models reasons before it answers."""
    return is_reasoning_model(model) and options.reasoning_effort != "none"


def unsent_to_reasoning(model: str, options: RequestOptions, thinks: bool = False) -> dict[str, str]:
    """List the options not sent to one of OpenAI's models because it reasons, by its name or by `thinks`."""
    given = options.given() if thinks or is_reasoning_model(model) else {}
    reason = f"Model {shown(model)} is asked to reason, and takes no"
    return {name: f"{reason} {name}: it is not sent." for name in ("temperature", "top_p") if name in given}
