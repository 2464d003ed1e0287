"""How deep a value is nested: what is nested too deep cannot be sent, shown or saved, since every writer of JSON recurses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100
"""How deep arguments and structured results may be nested. Parsers of MCP servers give up at about 200 levels."""

_NESTED = (dict, list, tuple)


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether a value has objects or lists nested over more levels than a limit; one that contains itself has.

    Args:
        value: Anything that JSON can hold.
        limit: How many levels are allowed.
    """
    # The deepest first, so that a value that contains itself several times does not grow without bound.
    waiting = [(value, 1)] if isinstance(value, _NESTED) else []
    while waiting:
        node, depth = waiting.pop()
        if depth > limit:
            return True
        inner = node.values() if isinstance(node, dict) else node
        waiting += [(item, depth + 1) for item in inner if isinstance(item, _NESTED)]
    return False


def is_large(value: Any, limit: int = 10_000) -> bool:
    """Return whether a value has more parts, or a longer text, than can be gone through in a moment.

    Args:
        value: Anything that JSON can hold.
        limit: How many parts are few; a text may have ten times as many characters.
    """
    waiting, size = [value], 0
    while waiting:
        node = waiting.pop()
        size += 1 + (len(node) // 10 if isinstance(node, str) else 0)
        if isinstance(node, Mapping | list | tuple):
            size += len(node)
            if size <= limit:
                waiting += node.values() if isinstance(node, Mapping) else node
        if size > limit:
            return True
    return False


def parse_arguments(text: str | None) -> dict[str, Any] | str:
    """Read the arguments of a call as a model wrote them.

    Returns:
        The arguments; for nothing and for `null` none. The text itself where it is not a JSON object, or one that is nested too
        deep; `problem_of` says which.
    """
    if text is None or not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if value is None:
        return {}
    if not isinstance(value, dict) or (text.count("{") + text.count("[") > MAX_DEPTH and is_too_deep(value)):
        return text
    return value


def problem_of(text: str) -> str:
    """Return what is wrong with arguments that `parse_arguments` could not use, as the end of a sentence about them."""
    try:
        is_object = isinstance(json.loads(text), dict)
    except RecursionError:
        is_object = text.lstrip().startswith("{")
    except ValueError:
        is_object = False
    return f"are nested more than {MAX_DEPTH} levels deep" if is_object else "are not a JSON object"
