"""Messages with more than text: an answer with provider state, a tool's result with images."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from casual_llm.messages import AssistantMessage, ImageContent, ToolResultMessage, UserMessage
from pydantic import BaseModel, ConfigDict, Field

from casual_mcp_nb.base.content import ToolResult, images_of, media_type_of

NO_ORIGINS: Mapping[str, str] = MappingProxyType({})


class ProviderState(BaseModel):
    """State that only one model can read: signed or encrypted reasoning, and its position in the
    answer.

    Args:
        parts: The answer's parts, in order: `{"type": "text", "text": ...}`, `{"type": "call"}` for
            the next tool call (with the provider's `fields`, and its `id` if not every provider
            would accept it), `{"type": "fields", "fields": ...}` for the whole answer's fields, and
            the provider's own.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    wire: str
    model: str
    parts: tuple[dict[str, Any], ...]


class StatefulAssistantMessage(AssistantMessage):
    """An assistant message whose provider needs more back than its text and its calls.

    Other models get only these.
    """

    kept: ProviderState = Field(repr=False)


class ToolOutcomeMessage(ToolResultMessage):
    """A tool's result with more than text.

    Whether the call failed is sent to Anthropic in addition to the text. Images, for models with
    vision, are counted and limited as in `base.content`. The handles are those of the large results
    in the text: only these count, since a server can write what looks like one in a text. Results
    of tasks are among them: `origins` has the ids of the calls that became the tasks, by handle.
    """

    failed: bool
    images: tuple[ImageContent, ...] = Field(default=(), repr=False)
    handles: tuple[str, ...] = ()
    origins: dict[str, str] = Field(default_factory=dict)


class TaskReportMessage(UserMessage):
    """A report on tasks that have ended, with the handles of their large results, and the ids of
    the calls that became the tasks, by handle.
    """

    handles: tuple[str, ...]
    origins: dict[str, str] = Field(default_factory=dict)


def result_message(
    name: str,
    call_id: str,
    text: str,
    *,
    failed: bool = False,
    result: ToolResult | None = None,
    handles: tuple[str, ...] = (),
    origins: Mapping[str, str] = NO_ORIGINS,
) -> ToolResultMessage:
    """Build the message that gives a model a call's result."""
    images = tuple(map(_image, images_of(result))) if result is not None else ()
    if not failed and not images and not handles:
        return ToolResultMessage(name=name, tool_call_id=call_id, content=text)
    return ToolOutcomeMessage(
        name=name,
        tool_call_id=call_id,
        content=text,
        failed=failed,
        images=images,
        handles=handles,
        origins=dict(origins),
    )


def _image(data: bytes) -> ImageContent:
    source = {"type": "base64", "data": base64.b64encode(data).decode("ascii")}
    return ImageContent(source=source, media_type=media_type_of(data) or "image/png")
