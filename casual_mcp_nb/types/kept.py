"""An answer of a model together with what its provider wants back when the conversation goes on."""

from __future__ import annotations

from typing import Any

from casual_llm.messages import AssistantMessage
from pydantic import BaseModel, ConfigDict, Field


class Kept(BaseModel):
    """What only one model can read: signed or encrypted reasoning, and where in the answer it stood.

    Args:
        wire: Which format it is in.
        model: The provider's name of the model.
        parts: The parts of the answer in their order: `{"type": "text", "text": ...}`, `{"type": "call"}` for the next call of
            a tool, and the provider's own.
    """

    model_config = ConfigDict(frozen=True)

    wire: str
    model: str
    parts: tuple[dict[str, Any], ...]


class KeptMessage(AssistantMessage):
    """An assistant's message whose provider wants more back than its text and its calls.

    Args:
        kept: What is sent back to the same model; every other one gets text and calls only.
    """

    kept: Kept = Field(repr=False)
