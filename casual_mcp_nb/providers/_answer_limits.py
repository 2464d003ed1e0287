"""How long an answer of Anthropic's models may be, where the person does not say: its API wants to be told."""

from __future__ import annotations

DEFAULT = 32_000
"""For a model that is not listed. One that takes less says so, and is asked again with what it takes."""

# "Max output" in https://platform.claude.com/docs/en/about-claude/models/overview, and the limit that the API names when a
# request is over it; as of August 2026. The first that a name begins with.
_MOST = {
    "claude-fable-5": 128_000,
    "claude-opus-4-8": 128_000,
    "claude-opus-4-7": 128_000,
    "claude-opus-4-6": 128_000,
    "claude-sonnet-4-6": 128_000,
    "claude-opus-4-5": 64_000,
    "claude-sonnet-4": 64_000,
    "claude-haiku-4-5": 64_000,
    "claude-3-7-sonnet": 64_000,
    "claude-3-5": 8_192,
    "claude-3": 4_096,
}


def default_max_tokens(model: str) -> int:
    """Return the limit for an answer of this model: its own maximum where that is known."""
    name = model.rsplit("/", 1)[-1].rsplit("anthropic.", 1)[-1]
    return next((most for start, most in _MOST.items() if name.startswith(start)), DEFAULT)
