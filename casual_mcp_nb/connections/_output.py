"""Whether a tool's structured content fits the output schema that its server declared.

The server chose both, and there are schemas whose check takes longer than the universe lasts. So the library checks in another
process, within a limit of time. What needs no library to be seen to fit is seen here, in one walk over a small value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from casual_mcp_nb.isolation import GaveUp, Worker

CHECK_SECONDS = 2.0
MAX_STEPS = 2_000
"""How many parts of a value are looked at here; what has more goes to the other process."""
MAX_DEPTH = 20
MAX_REASON = 500

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
"""Words that decide nothing; the library does not check formats either, unless it is told to."""


class OutputCheck:
    """Checks results of one server.

    Args:
        worker: The process that checks what is not plain.
        mask: Hides secrets in what is said of a value.
        seconds: What a check may take.
    """

    def __init__(self, worker: Worker, mask: Callable[[str], str], seconds: float) -> None:
        self._worker = worker
        self._mask = mask
        self._seconds = min(seconds, CHECK_SECONDS)
        self._given_up: dict[str, str] = {}

    async def breach(self, schema: Any, value: Any) -> tuple[str, bool]:
        """What is wrong with a value, for the model and the person to read.

        Args:
            schema: The output schema, as the server wrote it.
            value: The structured content.

        Returns:
            A text, which is empty where the value fits, and whether it is a breach; otherwise the text says why nobody knows.
        """
        if fits_plainly(schema, value):
            return "", False
        written = json.dumps(schema)
        if written not in self._given_up:
            try:
                answer = await self._worker.call("validate", {"schema": written, "value": value}, self._seconds)
            except GaveUp as gave_up:
                # A schema that took too long once is not tried again: each call would wait for it.
                self._given_up[written] = str(gave_up)
            else:
                return self._said(answer)
        return f"The structured content was not checked against the tool's own output schema: {self._given_up[written]}.", False

    def _said(self, answer: Mapping[str, str] | None) -> tuple[str, bool]:
        if answer is None:
            return "", False
        if "invalid" in answer:
            return f"The tool's own output schema is not valid: {self._mask(answer['invalid'])[:MAX_REASON]}", True
        reason = f"at {self._mask(answer['path'])}: {self._mask(answer['message'])}"[:MAX_REASON]
        return f"The structured content does not fit the tool's own output schema: {reason}", True


def fits_plainly(schema: Any, value: Any) -> bool:
    """Whether a small value is seen to fit a schema of nothing but types, properties and items. False says nothing."""
    return _fits(schema, value, [MAX_STEPS], 0)


def _fits(schema: Any, value: Any, steps: list[int], depth: int) -> bool:
    steps[0] -= 1
    if steps[0] < 0 or depth > MAX_DEPTH or not isinstance(schema, dict) or len(schema) > MAX_DEPTH:
        return False
    return all(word in _SAYS_NOTHING or _follows(word, schema, value, steps, depth + 1) for word in schema)


def _follows(word: str, schema: dict[str, Any], value: Any, steps: list[int], depth: int) -> bool:
    rule = schema[word]
    match word:
        case "type":
            return isinstance(rule, str) and rule in _TYPES and _TYPES[rule](value)
        case "properties" if isinstance(rule, dict) and isinstance(value, dict) and len(rule) < steps[0]:
            steps[0] -= len(rule)
            return all(_fits(part, value[name], steps, depth) for name, part in rule.items() if name in value)
        case "required" if isinstance(rule, list) and isinstance(value, dict) and len(rule) < steps[0]:
            steps[0] -= len(rule)
            return all(isinstance(name, str) and name in value for name in rule)
        case "items" if isinstance(value, list) and len(value) < steps[0]:
            return all(_fits(rule, item, steps, depth) for item in value)
        case "anyOf" if isinstance(rule, list) and len(rule) < steps[0]:
            return any(_fits(part, value, steps, depth) for part in rule)
        case "enum" if isinstance(rule, list) and isinstance(value, str) and len(rule) < steps[0]:
            steps[0] -= len(rule)
            return value in rule
        case "additionalProperties":
            # Of a schema, or of False, the properties would have to be known.
            return rule is True or (rule is False and isinstance(value, dict) and value.keys() <= _names(schema, steps))
    return False


def _names(schema: dict[str, Any], steps: list[int]) -> set[str]:
    properties = schema.get("properties")
    return set(properties) if isinstance(properties, dict) and len(properties) < steps[0] else set()
