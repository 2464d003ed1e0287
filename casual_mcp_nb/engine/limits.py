"""The limits of a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from casual_mcp_nb.config import Settings
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.result_text import ResultFormat


@dataclass(frozen=True)
class TurnLimits:
    """The limits of a turn.

    Args:
        max_steps: Model calls.
        max_calls_per_step: Tool calls in one response of the model; those beyond it are not run.
        parallel_calls: Maximum number of tool calls that run concurrently; the others wait.
        result_tokens: Tokens of a result that the model reads, unless its server has another limit; 0 for no limit. Of a larger
            one it reads the head, and can read on.
        result_format: How a result is presented to the model.
        answer_seconds: How long one response of the model may take, all attempts and waits together.
        answer_characters: Length of one response of the model, its text and its calls together. No current model writes as
            much: a longer stream is endless.
    """

    max_steps: int = 50
    max_calls_per_step: int = 64
    parallel_calls: int = 8
    result_tokens: int = 4_000
    result_format: ResultFormat = "result"
    answer_seconds: float = 1_800.0
    answer_characters: int = 2_000_000

    @classmethod
    def of(cls, config: Config, settings: Settings) -> Self:
        """Create the limits that a config and the environment set."""
        return cls(
            max_steps=settings.max_chat_iterations,
            max_calls_per_step=settings.max_calls_per_step,
            result_tokens=config.tool_results.max_tokens,
            result_format=settings.tool_result_format,
        )
