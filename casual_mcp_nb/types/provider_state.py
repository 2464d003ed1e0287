"""Messages that are more than their text: an answer with what its provider wants back, a tool's result with its images."""

from __future__ import annotations

import base64
from typing import Any

from casual_llm.messages import AssistantMessage, ImageContent, ToolResultMessage
from pydantic import BaseModel, ConfigDict, Field

from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.image import images_of, media_type_of


class ProviderState(BaseModel):
    """What only one model can read: signed or encrypted reasoning, and where in the answer it stood.

    Args:
        wire: Which format it is in.
        model: The provider's name of the model.
        parts: The parts of the answer in their order: `{"type": "text", "text": ...}`, `{"type": "call"}` for the next call of
            a tool (with `fields` that the provider gave it, and its `id` where not every provider would take that), `{"type":
            "fields", "fields": ...}` for fields of the whole answer, and the provider's own.
    """

    model_config = ConfigDict(frozen=True)

    wire: str
    model: str
    parts: tuple[dict[str, Any], ...]


class StatefulAssistantMessage(AssistantMessage):
    """An assistant's message whose provider wants more back than its text and its calls.

    Args:
        kept: What is sent back to the same model; every other one gets text and calls only.
    """

    kept: ProviderState = Field(repr=False)


class ToolOutcomeMessage(ToolResultMessage):
    """A tool's result that is more than a text.

    Args:
        failed: Whether the call failed, was denied or was stopped; Anthropic is told so beside the text.
        images: Images that the tool returned, for models that can see; estimated and bounded as `types.image` says.
    """

    failed: bool
    images: tuple[ImageContent, ...] = Field(default=(), repr=False)


def result_message(
    name: str, call_id: str, text: str, *, failed: bool = False, result: ToolResult | None = None
) -> ToolResultMessage:
    """Return the message with which a model is given the result of a call.

    Args:
        name: The tool's name as the model wrote it.
        call_id: The call.
        text: The result as the model reads it.
        failed: Whether there is no result but an error.
        result: What the tool returned; its images go with the text.
    """
    images = tuple(_image(data) for data in images_of(result)) if result is not None else ()
    if not failed and not images:
        return ToolResultMessage(name=name, tool_call_id=call_id, content=text)
    return ToolOutcomeMessage(name=name, tool_call_id=call_id, content=text, failed=failed, images=images)


def _image(data: bytes) -> ImageContent:
    source = {"type": "base64", "data": base64.b64encode(data).decode("ascii")}
    return ImageContent(source=source, media_type=media_type_of(data) or "image/png")
