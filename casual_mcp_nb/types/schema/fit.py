"""Validate small values against simple schemas quickly, without a library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_STEPS = 2_000
"""Maximum number of parts of a value to check here; larger values go to the worker process."""
MAX_DEPTH = 20

_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_SAYS_NOTHING = frozenset({"$schema", "title", "description", "default", "examples", "format", "x-fastmcp-wrap-result"})
"""Keywords that do not affect validation; the library does not check formats by default either."""


def fits_plainly(schema: Any, value: Any) -> bool:
    """Check whether a small value is known to match a schema of only types, properties, items and choices.

    Args:
        schema: The server's schema.
        value: A JSON value.

    Returns:
        True if it matches; False is inconclusive, because most keywords are left to the library in the worker process.
    """
    return _fits(schema, value, [MAX_STEPS], 0)


def _fits(schema: Any, value: Any, steps: list[int], depth: int) -> bool:
    steps[0] -= 1
    if steps[0] < 0 or depth > MAX_DEPTH or not isinstance(schema, dict) or len(schema) > MAX_DEPTH:
        return False
    for word in schema.keys() - _SAYS_NOTHING:  # noqa: SIM110 (a generator takes twice as long)
        if not _follows(word, schema, value, steps, depth + 1):
            return False
    return True


def _follows(word: str, schema: dict[str, Any], value: Any, steps: list[int], depth: int) -> bool:
    rule = schema[word]
    match word:
        case "type":
            return isinstance(rule, str) and rule in _TYPES and _TYPES[rule](value)
        case "properties" if isinstance(rule, dict) and isinstance(value, dict) and len(rule) < steps[0]:
            steps[0] -= len(rule)
            return not [name for name in rule if name in value and not _fits(rule[name], value[name], steps, depth)]
        case "required" if isinstance(rule, list) and isinstance(value, dict) and len(rule) < steps[0]:
            steps[0] -= len(rule)
            return not [name for name in rule if not isinstance(name, str) or name not in value]
        case "items" if isinstance(value, list) and len(value) < steps[0]:
            return all(_fits(rule, item, steps, depth) for item in value)
        case "anyOf" if isinstance(rule, list) and len(rule) < steps[0]:
            return any(_fits(part, value, steps, depth) for part in rule)
        case "enum" if isinstance(rule, list) and isinstance(value, str) and len(rule) < steps[0]:
            steps[0] -= len(rule)
            return value in rule
        case "additionalProperties":
            # A schema or False would require knowing the properties.
            return rule is True or (rule is False and isinstance(value, dict) and value.keys() <= _names(schema, steps))
    return False


def _names(schema: dict[str, Any], steps: list[int]) -> set[str]:
    properties = schema.get("properties")
    return set(properties) if isinstance(properties, dict) and len(properties) < steps[0] else set()
