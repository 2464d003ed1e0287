"""The tokens of an answer, by the names that agents and instrumentations give them."""

from __future__ import annotations

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.foreign.lines import Fields, object_in, tokens_in

_READ = ("input_tokens", "prompt_tokens", "prompt", "promptTokens", "inputTokens", "input")
_WRITTEN = (
    *("output_tokens", "completion_tokens", "completion", "completionTokens"),
    *("outputTokens", "output"),
)
_TOTAL = ("total_tokens", "total")
_CACHED = (
    "cache_read.input_tokens",
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "details.cache_read_tokens",
    "details.cached_tokens",
    "prompt_details.cache_read",
    "cached_input_tokens",
    "input_cached_tokens",
    "input_token_details.cache_read",
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
)
_CACHE_WRITTEN = (
    "cache_creation.input_tokens",
    "cache_creation_input_tokens",
    "cacheCreationInputTokens",
    "details.cache_write_tokens",
    "prompt_details.cache_write",
)
_REASONING = (
    "reasoning.output_tokens",
    "reasoning_tokens",
    "reasoning_output_tokens",
    "details.reasoning_tokens",
    "details.thoughts_tokens",
    "completion_details.reasoning",
    "output_reasoning_tokens",
    "output_token_details.reasoning",
    "completion_tokens_details.reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
)


def usage_in(counts: Fields) -> TokenUsage | None:
    """Read the tokens of an answer, or return None if there are no numbers."""
    fields = dict(counts)
    for name in counts:
        for inner, number in object_in(counts, name).items():
            fields[f"{name}.{inner}"] = number
    read, written = tokens_in(fields, *_READ), tokens_in(fields, *_WRITTEN)
    if read is None and written is None:
        return None
    read, written = read or 0, written or 0
    cached, stored = tokens_in(fields, *_CACHED), tokens_in(fields, *_CACHE_WRITTEN)
    reasoning = tokens_in(fields, *_REASONING)
    more = (tokens_in(fields, *_TOTAL) or 0) - read - written
    if more > 0 and more == reasoning:
        written += more
    elif more > 0:
        # What a cache read is counted apart.
        read += more
    return TokenUsage(read, written, cached, reasoning, cache_write_tokens=stored)
