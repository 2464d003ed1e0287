"""Texts of servers between tags, bounded, so that they cannot end the tag or begin another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.engine.results import MAX_CHARACTERS_PER_TOKEN, characters_within

# One run of blanks and slashes: two runs of blanks in a row would take the square of the time.
_TAGS = re.compile(r"<(?=[\s/]*(?:server_instructions|mcp_resource|mcp_prompt)\b)", re.IGNORECASE)

_MAX_ATTRIBUTE = 300


def quoted(tag: str, attributes: Mapping[str, str | None], text: str) -> str:
    """Put text as `bounded` returns it between tags.

    Leaves out attributes that are None or empty.
    """
    pairs = "".join(f" {name}='{_attribute(value)}'" for name, value in attributes.items() if value)
    return f"<{tag}{pairs}>\n{text}\n</{tag}>"


# The same texts go into each turn.
@lru_cache(maxsize=256)
def bounded(text: str, tokens: int) -> tuple[str, int]:
    """Cut a text to a limit, remove anything that could close its block or be invisible in it, and
    count its tokens.
    """
    stripped = text.strip()
    start = encodable(stripped[: max(tokens, 0) * MAX_CHARACTERS_PER_TOKEN + 1])
    clean = _TAGS.sub("(", "".join(c if c in "\n\t" or c.isprintable() else " " for c in start))
    length = characters_within(clean, tokens) if tokens > 0 else 0
    if length >= len(stripped):
        return clean, estimate_tokens(clean)
    return f"{clean[:length]}\n[… cut: {length:,} of {len(stripped):,} characters …]", tokens


def _attribute(value: str) -> str:
    return "".join(c if c.isprintable() and c not in "<>'" else "_" for c in value[:_MAX_ATTRIBUTE])
