"""Check whether a tool's structured content matches the output schema that its server declared.

Both come from the server, and some schemas take forever to check. So the library runs in a worker process, within a time limit.
Small values with simple schemas are checked here directly.
See https://modelcontextprotocol.io/specification/2025-11-25/server/tools#output-schema.
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
    """Checks the results of one server.

    Args:
        worker: The process for other checks.
        redact: Hides secrets in messages about a value.
        seconds: Time limit of a check.
    """

    def __init__(self, worker: Worker, redact: Callable[[str], str], seconds: float) -> None:
        self._worker = worker
        self._redact = redact
        self._seconds = min(seconds, CHECK_SECONDS)
        self._given_up: dict[str, str] = {}

    async def problem(self, schema: Any, value: Any) -> tuple[str, bool]:
        """Describe the mismatch between a value and the schema, for the model and the person.

        Args:
            schema: The server's output schema.
            value: The structured content.

        Returns:
            A message, empty if the value matches, and whether it is invalid; a message for a valid one says why it was not
            checked.
        """
        if fits_plainly(schema, value):
            return "", False
        key = json.dumps(schema)
        if key not in self._given_up:
            try:
                answer = await self._worker.call("validate", {"schema": key, "value": value}, self._seconds)
            except GaveUp as gave_up:
                # A schema that took too long once is not tried again: each call would wait for it.
                self._given_up[key] = str(gave_up)
            else:
                return self._in_words(answer)
        return f"The structured content was not checked against the tool's own output schema: {self._given_up[key]}.", False

    def _in_words(self, answer: Mapping[str, str] | None) -> tuple[str, bool]:
        if answer is None:
            return "", False
        if "invalid" in answer:
            return f"The tool's own output schema is not valid: {self._redact(answer['invalid'])[:MAX_REASON]}", True
        reason = f"at {self._redact(answer['path'])}: {self._redact(answer['message'])}"[:MAX_REASON]
        return f"The structured content does not fit the tool's own output schema: {reason}", True
