"""Repeated calls: the model is warned of them, and a turn that goes on with them is ended."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from casual_mcp_nb.conversation.event import SYNTHETIC
from casual_mcp_nb.engine.small_models import SmallModelAid
from casual_mcp_nb.errors import RepeatedCallError, shown

WARN_AFTER = 3
"""After this many identical calls with the same result or failure, the model gets a warning."""
END_AFTER_FAILURES = 5
"""After this many identical failures, the turn ends.

Successes do not end it: a model may ask often whether a job is done.
"""

_MAX_REASON = 200
_MAX_RESULT = 300

_SYNTHETIC = f"{SYNTHETIC}:"
_JSON = json.JSONEncoder(sort_keys=True, default=str)

_Identity = tuple[str, str, str]
"""Tool, arguments, and result or error."""


def _written(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else _JSON.encode(arguments)


class Repeats:
    """One turn's repeated calls.

    Two calls are the same if their tool, arguments and result or error are. Within a step they
    count once: the model has read nothing in between.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[int, dict[str, Any] | str]] = {}
        self._steps: dict[_Identity, set[int]] = defaultdict(set)
        self._error: RepeatedCallError | None = None
        self._warned: set[_Identity] = set()
        self._last_success = "", ""

    @property
    def last_useful(self) -> str:
        """The last call that succeeded, with the beginning of its result, or empty if none did."""
        name, text = self._last_success
        if not name:
            return ""
        beginning = " ".join(text[: _MAX_RESULT * 2].split())
        return f"{name}: {shown(beginning, _MAX_RESULT)}"

    def record_success(
        self,
        step: int,
        name: str,
        arguments: dict[str, Any] | str,
        text: str,
        aid: SmallModelAid,
    ) -> tuple[str, str]:
        """Count a successful call by a model.

        Returns:
            A note to add to the result for the model, and the first time a notice for the person.
            Otherwise, empty.
        """
        call, times = self._count(step, name, arguments, text)
        if not name.startswith(_SYNTHETIC):
            self._last_success = name, text
            if reminder := aid.reminder(times):
                return reminder, ""
        if times < WARN_AFTER:
            return "", ""
        warning = (
            f"\nThis call has now been made {times} times with the same arguments and the same"
            " result. Do not make it again: use the result, change the arguments, or answer."
        )
        if call in self._warned:
            return warning, ""
        self._warned.add(call)
        notice = (
            f"The model made the same call of {shown(name)} {times} times, and the result was the"
            " same each time: it was told."
        )
        return warning, notice

    def _count(
        self, step: int, name: str, arguments: dict[str, Any] | str, text: str
    ) -> tuple[_Identity, int]:
        """Count the steps in which a call occurred, and identify the call."""
        at, first = self._first.setdefault((name, text), (step, arguments))
        if at == step and first is arguments:
            # Most results come once, and writing the arguments takes as long as all else here.
            return (name, "", text), 1
        self._steps[name, _written(first), text].add(at)
        identity = (name, _written(arguments), text)
        self._steps[identity].add(step)
        return identity, len(self._steps[identity])

    def record_failure(
        self, step: int, name: str, arguments: dict[str, Any] | str, text: str
    ) -> str:
        """Count a failed call.

        Returns:
            A warning for the model, to add to the failure, or empty for the first times.
        """
        _, times = self._count(step, name, arguments, text)
        if times >= END_AFTER_FAILURES:
            reason = " ".join(text[: _MAX_REASON * 2].split())[:_MAX_REASON]
            self._error = RepeatedCallError(
                f"The model called {shown(name)} {times} times with the same arguments, "
                f"and it failed each time with the same error: {reason}",
                hint=(
                    "Completed steps are kept. Correct the cause of the error, or tell the model to"
                    " do something else."
                ),
            )
        if times < WARN_AFTER:
            return ""
        return (
            f"\nThis call has now failed {times} times in the same way. Do not make it again:"
            " change the arguments, use another tool, or answer without it."
        )

    def check(self) -> None:
        """Check that no call has failed too often."""
        if self._error is not None:
            raise self._error
