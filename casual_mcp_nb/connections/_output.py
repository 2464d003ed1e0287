"""Whether a tool's structured content fits the output schema that its server declared.

The server chose both, and there are schemas whose check takes longer than the universe lasts. So the library checks in another
process, within a limit of time. What needs no library to be seen to fit is seen here, in one walk over a small value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from casual_mcp_nb.isolation import GaveUp, Worker
from casual_mcp_nb.types.schema import fits_plainly

CHECK_SECONDS = 2.0
MAX_REASON = 500


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
