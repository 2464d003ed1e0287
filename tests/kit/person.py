"""A person who is asked."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.engine.consent import ApprovalRequest


class Person:
    """A person who answers questions and remembers them.

    Args:
        answer: The answer to each, or a function of the question.
    """

    def __init__(self, answer: Any = True) -> None:
        self.answer = answer
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        return self.answer(request) if callable(self.answer) else self.answer

    def reasons(self) -> list[tuple[str, str]]:
        """List the questions since the last time, with their reasons."""
        told, self.asked = self.asked, []
        return [(request.tool.name, request.reason) for request in told]
