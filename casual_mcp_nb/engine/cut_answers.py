"""Answers that were cut off: tell the person, and refuse the call that was cut."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.discovery.synthetic import ways_to_shorten
from casual_mcp_nb.errors import AnswerCutError, shown

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

    from casual_mcp_nb.conversation.step import ModelResponse

END_AFTER = 3
"""After this many consecutive responses cut off in a tool call, the turn ends."""


class CutAnswers:
    """Counts the responses in one turn that were cut off.

    Attributes:
        where: Where the last one was cut, or empty if it was not.
    """

    def __init__(self) -> None:
        self.where = ""
        self._notified = False
        self._in_a_row = 0

    def notice(self, step: int, request: Request, response: ModelResponse) -> str | None:
        """Record a response, and return a notice for the person if it is the first one cut off."""
        if not response.truncated:
            self.where, self._in_a_row = "", 0
            return None
        # None is the model's own limit.
        max_tokens = request.options.get("max_tokens")
        self.where = _where(response, max_tokens)
        if self._notified:
            return None
        self._notified = True
        return (
            f"The answer of step {step + 1} was cut at {self.where}. {_advice(request, response)}"
        )

    def refusals(
        self, calls: Sequence[AssistantToolCall], whole: Container[str]
    ) -> Mapping[str, str]:
        """Refuse the last call in the response if that was cut off. Returns errors in place of
        calls, by their ids.

        The call's arguments can be incomplete even where they are valid JSON: some providers add the
        closing brackets.

        Args:
            calls: The response's calls.
            whole: The ids of calls that were whole before it was cut.
        """
        if not self.where:
            return {}
        calls = [call for call in calls if call.id not in whole]
        if not calls:
            return {}
        self._in_a_row += 1
        last = calls[-1]
        cut = (
            f"your answer was cut at {self.where}, so the arguments of {shown(last.function.name)}"
            " may be incomplete"
        )
        advice = "Make it again with shorter arguments, in several calls if necessary."
        return {last.id: f"Error: {cut}, and the call was not run. {advice}"}

    def check(self) -> None:
        """Check that the turn can continue."""
        if self._in_a_row >= END_AFTER:
            raise AnswerCutError(
                f"{self._in_a_row} answers in a row were cut at {self.where}, in the middle of a"
                " tool call.",
                hint="Everything up to here is kept: raise max_tokens, or ask for less at a time.",
            )


def _where(response: ModelResponse, max_tokens: int | None) -> str:
    if response.finish_reason == "model_context_window_exceeded":
        return "the end of the model's context window"
    return f"max_tokens = {max_tokens:,}" if max_tokens else "the model's limit of tokens"


def _advice(request: Request, response: ModelResponse) -> str:
    max_tokens = request.options.get("max_tokens")
    if response.finish_reason == "model_context_window_exceeded":
        return f"{ways_to_shorten(request.tools)}, or use a model with a larger context window."
    raised = "Raise max_tokens" if max_tokens else "Set a higher max_tokens"
    return f"{raised}, in the config or for one call, or ask the model to continue."
