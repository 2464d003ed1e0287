"""Answers that were cut at a limit of tokens: the person and the model are told, and a turn that cannot go on ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import AnswerCutError, shown

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

    from casual_mcp_nb.types.model_response import ModelResponse

END_AFTER = 3
"""After how many answers in a row that were cut in a call the turn ends."""


class CutAnswers:
    """The answers of one turn that were cut."""

    def __init__(self) -> None:
        self._where = ""
        self._told = False
        self._in_a_row = 0

    def notice(self, step: int, answer: ModelResponse, max_tokens: int | None) -> str | None:
        """Take note of an answer.

        Args:
            step: The step, from 0.
            answer: The answer.
            max_tokens: The limit that it was asked with; None where there was none of ours.

        Returns:
            What the person is told; None where nothing was cut, or they were told already.
        """
        self._where = _where(answer, max_tokens) if answer.truncated else ""
        if not self._where:
            self._in_a_row = 0
        if not self._where or self._told:
            return None
        self._told = True
        return f"The answer of step {step + 1} was cut at {self._where}. {_advice(answer, max_tokens)}"

    def refusals(self, calls: Sequence[AssistantToolCall]) -> Mapping[str, str]:
        """What the model is told of the calls that are not run, by their ids: the last one of an answer that was cut.

        Its arguments can be incomplete also where they are valid: some providers close what the model did not.
        """
        if not self._where or not calls:
            return {}
        self._in_a_row += 1
        last = calls[-1]
        cut = f"your answer was cut at {self._where}, so the arguments of {shown(last.function.name)} may be incomplete"
        advice = "Make it again with shorter arguments, in several calls where it must be."
        return {last.id: f"Error: {cut}, and the call was not run. {advice}"}

    def check(self) -> None:
        """Do nothing, unless too many answers in a row were cut in a call.

        Raises:
            AnswerCutError: They were.
        """
        if self._in_a_row >= END_AFTER:
            raise AnswerCutError(
                f"{self._in_a_row} answers in a row were cut at {self._where} in the middle of a call of a tool.",
                hint="Everything up to here is kept: raise max_tokens, or ask for less at a time.",
            )


def _where(answer: ModelResponse, max_tokens: int | None) -> str:
    if answer.finish_reason == "model_context_window_exceeded":
        return "the end of what the model can read"
    return f"max_tokens = {max_tokens:,}" if max_tokens else "the model's limit of tokens"


def _advice(answer: ModelResponse, max_tokens: int | None) -> str:
    if answer.finish_reason == "model_context_window_exceeded":
        return "Start a new conversation, or defer tools."
    raised = "Raise max_tokens" if max_tokens else "Set a higher max_tokens"
    return f"{raised}, in the config or for one call, or ask the model to go on."
