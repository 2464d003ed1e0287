"""Deferred tools that a provider loads itself: where in a conversation they were found, and which models can."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.types.cards import loaded_in
from casual_mcp_nb.types.event import LOAD_TOOLS, SEARCH_TOOLS

if TYPE_CHECKING:
    from casual_llm import ChatMessage

_FIELDS = re.compile(r"defer_loading|tool[ _]reference|additional_tools|tool_search|\bnamespace\b", re.IGNORECASE)
_REFUSALS = (400, 404, 422)


def first_found(messages: Sequence[ChatMessage], names: Collection[str]) -> list[list[str]]:
    """Find for each message those of these tools that it is the first to load; for most, none.

    Only results of the search and of `load_tools` count: any other text could name tools, too.

    Args:
        messages: The conversation.
        names: The wire names of the tools that are found and still there.
    """
    waiting = set(names)
    first_by_message: list[list[str]] = []
    for message in messages:
        here: list[str] = []
        if message.role == "tool" and message.name in (SEARCH_TOOLS, LOAD_TOOLS) and not getattr(message, "failed", False):
            here = [name for name in loaded_in(message.content) if name in waiting]
        waiting.difference_update(here)
        first_by_message.append(here)
    return first_by_message


def refuses_deferral(status: int | None, text: str) -> bool:
    """Check whether a provider refuses the fields with which it would load deferred tools.

    Args:
        status: The HTTP status of the refusal.
        text: The provider's message.
    """
    return status in _REFUSALS and _FIELDS.search(text) is not None


# Documentation of Anthropic, "Tool search tool", as of November 2026: Opus, Sonnet and Haiku from 4.5 on, all Fable and Mythos;
# not Opus 4.1, Sonnet 4 and older. Snapshots have eight digits after the version.
_CLAUDE = re.compile(r"^claude-(?:(?:opus|sonnet|haiku)-(\d+)(?:-(\d{1,2}))?(?!\d)|(fable|mythos)-)", re.IGNORECASE)
# Documentation of OpenAI, "Tool search", as of November 2026: from GPT-5.4 on.
_GPT = re.compile(r"^(?:ft:)?gpt-(\d+)(?:\.(\d+))?(?!\d)", re.IGNORECASE)


def claude_defers(model: str) -> bool:
    """Check whether a model of Anthropic's is known to load deferred tools."""
    match = _CLAUDE.match(model)
    return match is not None and (match[3] is not None or (int(match[1]), int(match[2] or 0)) >= (4, 5))


def gpt_defers(model: str) -> bool:
    """Check whether a model of OpenAI's is known to load deferred tools."""
    return gpt_version(model) >= (5, 4)


def gpt_version(model: str) -> tuple[int, int]:
    """Parse the version in the name of a GPT model; (0, 0) for any other name."""
    match = _GPT.match(model)
    return (int(match[1]), int(match[2] or 0)) if match is not None else (0, 0)
