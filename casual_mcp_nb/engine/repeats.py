"""Calls that keep failing in the same way: a model that does not notice would repeat them up to the last step."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import Any

from casual_mcp_nb.errors import RepeatedCallError, shown

WARN_AFTER = 3
"""After how many identical failures the model is warned."""
END_AFTER = 5
"""After how many the turn ends."""

_MAX_REASON = 200


class Repeats:
    """The failed calls of one turn.

    Calls are the same if tool, arguments and error are. Within a step they count once: the model has read nothing in between.
    """

    def __init__(self) -> None:
        self._steps: dict[str, set[int]] = defaultdict(set)
        self._error: RepeatedCallError | None = None

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
        call = json.dumps([name, arguments, text], sort_keys=True, default=str)
        steps = self._steps[hashlib.sha256(call.encode("utf-8", "replace")).hexdigest()]
        steps.add(step)
        if len(steps) >= END_AFTER:
            reason = " ".join(text[: _MAX_REASON * 2].split())[:_MAX_REASON]
            self._error = RepeatedCallError(
                f"The model made the same call of {shown(name)} {len(steps)} times, and it failed each time in the same way: "
                f"{reason}",
                hint="Everything up to here is kept: correct what the error names, or tell the model what to do instead.",
            )
        if len(steps) < WARN_AFTER:
            return ""
        return (
            f"\nThis call has now failed {len(steps)} times in the same way. Do not make it again: change the arguments, use "
            "another tool, or answer without it."
        )

    def check(self) -> None:
        """Check that no call has failed too often.

        Raises:
            RepeatedCallError: One has.
        """
        if self._error is not None:
            raise self._error
