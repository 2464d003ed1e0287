"""Limits on nesting: too deeply nested values cannot be sent, shown or saved, because JSON encoders recurse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100
"""Maximum nesting of arguments and structured results. Parsers of MCP servers fail at about 200 levels."""

_NESTED = (dict, list, tuple)


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether objects and lists in a value are nested beyond a limit, as they are in one that contains itself.

    Args:
        value: Any JSON value.
        limit: Maximum number of levels.
    """
    # Depth-first, so that a value that contains itself several times does not grow without bound.
    waiting = [(value, 1)] if isinstance(value, _NESTED) else []
    while waiting:
        node, depth = waiting.pop()
        if depth > limit:
            return True
        inner = node.values() if isinstance(node, dict) else node
        waiting += [(item, depth + 1) for item in inner if isinstance(item, _NESTED)]
    return False


def is_large(value: Any, limit: int = 10_000) -> bool:
    """Return whether a value has too many parts, or too long a string, to traverse quickly.

    Args:
        value: Any JSON value.
        limit: Maximum number of parts; a string may have ten times as many characters.
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
    """Parse the arguments of a call as the model wrote them.

    Returns:
        The arguments; none for an empty string or `null`. The text itself if it is not a JSON object or is nested too deeply;
        `problem_of` says which.
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
    """Return what is wrong with arguments that `parse_arguments` could not use, as the predicate of a sentence."""
    try:
        is_object = isinstance(json.loads(text), dict)
    except RecursionError:
        is_object = text.lstrip().startswith("{")
    except ValueError:
        is_object = False
    return f"are nested more than {MAX_DEPTH} levels deep" if is_object else "are not a JSON object"
