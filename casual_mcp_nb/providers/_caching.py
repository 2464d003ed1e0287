"""Anthropic's marks for its prompt cache: everything up to a mark is read from the cache where it was sent before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MARK = {"cache_control": {"type": "ephemeral"}}


def marked_for_cache(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with a mark at the end of its tools, of its system prompt and of its conversation.

    Three, since each ends a part that can be the same while the next one differs: a tool that is found by search changes
    everything behind it.
    """
    marked = dict(request)
    for name in ("tools", "system"):
        if request.get(name):
            marked[name] = _marked(request[name])
    messages = list(request["messages"])
    if messages and messages[-1]["content"]:
        messages[-1] = {**messages[-1], "content": _marked(messages[-1]["content"])}
    return {**marked, "messages": messages}


def _marked(blocks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [*blocks[:-1], {**blocks[-1], **_MARK}]
