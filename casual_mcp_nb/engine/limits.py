"""What a turn may take."""

from __future__ import annotations

from dataclasses import dataclass

from casual_mcp_nb.types.result_text import ResultFormat


@dataclass(frozen=True)
class TurnLimits:
    """What a turn may take.

    Args:
        max_steps: Calls of the model.
        max_calls_per_step: Calls of tools in one answer of the model; those beyond it are not run.
        parallel_calls: Calls of tools that run at once; the others wait their turn.
        result_tokens: Length of a result as the model reads it, in tokens; the full one stays on the trace, and the model can
            read on in it.
        result_format: How a result is put to the model.
        answer_seconds: How long one answer of the model may take, all attempts and waits together.
        answer_characters: Length of one answer of the model, its text and its calls together. No model of today can write as
            much: a stream that goes on for longer has no end.
    """

    max_steps: int = 50
    max_calls_per_step: int = 64
    parallel_calls: int = 8
    result_tokens: int = 10_000
    result_format: ResultFormat = "result"
    answer_seconds: float = 1_800.0
    answer_characters: int = 2_000_000
