"""Handle responses cut at a token limit: tell the person and the model, and end a turn that cannot continue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import AnswerCutError, shown

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

    from casual_mcp_nb.types.model_response import ModelResponse

END_AFTER = 3
"""After how many consecutive responses that were cut in a tool call the turn ends."""


class CutAnswers:
    """Counts the responses of one turn that were cut."""

    def __init__(self) -> None:
        self._where = ""
        self._notified = False
        self._in_a_row = 0

    def notice(self, step: int, response: ModelResponse, max_tokens: int | None) -> str | None:
        """Record a response, and return a notice for the person where it is the first that was cut.

        Args:
            step: The step, from 0.
            response: The response.
            max_tokens: The limit in the request; None for the model's own.
        """
        self._where = _where(response, max_tokens) if response.truncated else ""
        if not self._where:
            self._in_a_row = 0
        if not self._where or self._notified:
            return None
        self._notified = True
        return f"The answer of step {step + 1} was cut at {self._where}. {_advice(response, max_tokens)}"

    def refusals(self, calls: Sequence[AssistantToolCall]) -> Mapping[str, str]:
        """Refuse the last call of a response that was cut: errors in place of calls, by their ids.

        Its arguments can be incomplete even where they are valid JSON: some providers close what the model did not.
        """
        if not self._where or not calls:
            return {}
        self._in_a_row += 1
        last = calls[-1]
        cut = f"your answer was cut at {self._where}, so the arguments of {shown(last.function.name)} may be incomplete"
        advice = "Make it again with shorter arguments, in several calls if necessary."
        return {last.id: f"Error: {cut}, and the call was not run. {advice}"}

    def check(self) -> None:
        """Check that the turn can continue.

        Raises:
            AnswerCutError: Too many consecutive responses were cut in a call.
        """
        if self._in_a_row >= END_AFTER:
            raise AnswerCutError(
                f"{self._in_a_row} answers in a row were cut at {self._where}, in the middle of a tool call.",
                hint="Everything up to here is kept: raise max_tokens, or ask for less at a time.",
            )


def _where(response: ModelResponse, max_tokens: int | None) -> str:
    if response.finish_reason == "model_context_window_exceeded":
        return "the end of what the model can read"
    return f"max_tokens = {max_tokens:,}" if max_tokens else "the model's limit of tokens"


def _advice(response: ModelResponse, max_tokens: int | None) -> str:
    if response.finish_reason == "model_context_window_exceeded":
        return "Start a new conversation, or defer tools."
    raised = "Raise max_tokens" if max_tokens else "Set a higher max_tokens"
    return f"{raised}, in the config or for one call, or ask the model to go on."
