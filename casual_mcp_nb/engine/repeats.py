"""Calls that fail again and again in the same way: a model that does not see it would go on to the last step."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import Any

from casual_mcp_nb.errors import RepeatedCallError, shown

TELL_AFTER = 3
"""After how many identical failures the model is told."""
END_AFTER = 5
"""After how many the turn ends."""

_MAX_REASON = 200


class Repeats:
    """The failed calls of one turn. A call is the same with the same tool, arguments and error; within a step it counts once,
    since the model has read nothing in between."""

    def __init__(self) -> None:
        self._steps: dict[str, set[int]] = defaultdict(set)
        self._error: RepeatedCallError | None = None

    def note(self, step: int, name: str, arguments: dict[str, Any] | str, text: str) -> str:
        """Count a failed call.

        Args:
            step: The step that asked for it.
            name: The tool.
            arguments: The arguments, or the text as it came.
            text: What the model reads of the failure.

        Returns:
            What the model is told beside it; empty for the first times.
        """
        written = json.dumps([name, arguments, text], sort_keys=True, default=str)
        steps = self._steps[hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()]
        steps.add(step)
        if len(steps) >= END_AFTER:
            reason = " ".join(text[: _MAX_REASON * 2].split())[:_MAX_REASON]
            self._error = RepeatedCallError(
                f"The model made the same call of {shown(name)} {len(steps)} times, and it failed each time in the same way: "
                f"{reason}",
                hint="Everything up to here is kept: correct what the error names, or tell the model what to do instead.",
            )
        if len(steps) < TELL_AFTER:
            return ""
        return (
            f"\nThis call has now failed {len(steps)} times in the same way. Do not make it again: change the arguments, use "
            "another tool, or answer without it."
        )

    def check(self) -> None:
        """Do nothing, unless a call has failed too often.

        Raises:
            RepeatedCallError: One has.
        """
        if self._error is not None:
            raise self._error
