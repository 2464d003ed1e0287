"""Calls that are made again with the same result or failure: a model that does not notice would go on to the last step."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from casual_mcp_nb.errors import RepeatedCallError, shown
from casual_mcp_nb.types.event import SYNTHETIC

WARN_AFTER = 3
"""After how many identical calls with the same result or failure the model is told."""
END_AFTER = 5
"""After how many identical failures the turn ends. Successes do not end it: a model may ask often whether a job is done."""

_MAX_REASON = 200
_MAX_RESULT = 300

_SYNTHETIC = f"{SYNTHETIC}:"
_WRITTEN = json.JSONEncoder(sort_keys=True, default=str).encode

_Identity = tuple[str, str, str]
"""Tool, arguments, and result or error."""


class Repeats:
    """The calls of one turn that were made again.

    Calls are the same if tool, arguments and result or error are. Within a step they count once: the model has read nothing in
    between.
    """

    def __init__(self) -> None:
        self._steps: dict[_Identity, set[int]] = defaultdict(set)
        self._error: RepeatedCallError | None = None
        self._warned: set[_Identity] = set()
        self._last_success = "", ""

    @property
    def last_useful(self) -> str:
        """The last call that succeeded, with the beginning of its result; empty if none did."""
        name, text = self._last_success
        return f"{name}: {shown(' '.join(text[: _MAX_RESULT * 2].split()), _MAX_RESULT)}" if name else ""

    def record_success(self, step: int, name: str, arguments: dict[str, Any] | str, text: str) -> tuple[str, str]:
        """Count a call that succeeded.

        Args:
            step: The step, from 0.
            name: The tool.
            arguments: The arguments.
            text: What the model reads of the result.

        Returns:
            What to add to the result for the model, and the first time a notice for the person; else empty.
        """
        if not name.startswith(_SYNTHETIC):
            self._last_success = name, text
        call, times = self._count(step, name, arguments, text)
        if times < WARN_AFTER:
            return "", ""
        notice = (
            f"The model made the same call of {shown(name)} {times} times, and the result was the same each time: it was told."
        )
        self._warned, notice = self._warned | {call}, "" if call in self._warned else notice
        return (
            f"\nThis call has now been made {times} times with the same arguments and the same result. Do not make it again: "
            "use the result, change the arguments, or answer.",
            notice,
        )

    def _count(self, step: int, name: str, arguments: dict[str, Any] | str, text: str) -> tuple[_Identity, int]:
        """Count in how many steps a call was made, and identify the call."""
        written = arguments if isinstance(arguments, str) else _WRITTEN(arguments)
        identity = (name, written, text)
        self._steps[identity].add(step)
        return identity, len(self._steps[identity])

    def record(self, step: int, name: str, arguments: dict[str, Any] | str, text: str) -> str:
        """Count a failed call.

        Args:
            step: The step, from 0.
            name: The tool.
            arguments: The arguments, or the text as it came.
            text: What the model reads of the failure.

        Returns:
            A warning for the model, to add to the failure; empty for the first times.
        """
        _, times = self._count(step, name, arguments, text)
        if times >= END_AFTER:
            reason = " ".join(text[: _MAX_REASON * 2].split())[:_MAX_REASON]
            self._error = RepeatedCallError(
                f"The model made the same call of {shown(name)} {times} times, and it failed each time in the same way: "
                f"{reason}",
                hint="Everything up to here is kept: correct what the error names, or tell the model what to do instead.",
            )
        if times < WARN_AFTER:
            return ""
        return (
            f"\nThis call has now failed {times} times in the same way. Do not make it again: change the arguments, use "
            "another tool, or answer without it."
        )

    def check(self) -> None:
        """Check that no call has failed too often.

        Raises:
            RepeatedCallError: One has.
        """
        if self._error is not None:
            raise self._error
