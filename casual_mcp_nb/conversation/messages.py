"""Read a call through `call_tool`, with which a model calls the tools that it found, as the call that it meant."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from casual_llm.messages import AssistantMessage, ImageContent, ToolResultMessage
from pydantic import BaseModel, ConfigDict, Field

from casual_mcp_nb.base.content import ToolResult, images_of, media_type_of
from casual_mcp_nb.base.limits import parse_arguments
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import CALL_TOOL, HostedCall

# Chat completions and Ollama: length; Anthropic: max_tokens, model_context_window_exceeded; Responses: max_output_tokens, and
# incomplete where it gives no reason; Mistral: model_length.
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length", "model_context_window_exceeded"})


@dataclass(frozen=True)
class ModelResponse:
    """The response to one request.

    Args:
        message: The answer: text, tool calls, or both.
        usage: Tokens as reported by the provider with this response; None if it did not.
        finish_reason: The provider's reason for the end of the answer.
        hosted_calls: Calls of tools that the provider ran itself.
        response_id: The provider's id of the response, with which the next request can be compared.
        request_id: The provider's id of the request, from the headers of the response.
    """

    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    hosted_calls: tuple[HostedCall, ...] = ()
    response_id: str | None = None
    request_id: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether the answer was cut at a token limit: its own, or the context window."""
        return (self.finish_reason or "").lower() in _CUT


class ProviderState(BaseModel):
    """State that only one model can read: signed or encrypted reasoning, and its position in the answer.

    Args:
        wire: The wire format.
        model: The provider's name of the model.
        parts: The parts of the answer, in order: `{"type": "text", "text": ...}`, `{"type": "call"}` for the next tool call
            (with the provider's `fields`, and its `id` if not every provider would accept it), `{"type":
            "fields", "fields": ...}` for fields of the whole answer, and the provider's own.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    wire: str
    model: str
    parts: tuple[dict[str, Any], ...]


class StatefulAssistantMessage(AssistantMessage):
    """An assistant message whose provider needs more back than its text and its calls.

    Args:
        kept: The state sent back to the same model; all others get only text and calls.
    """

    kept: ProviderState = Field(repr=False)


class ToolOutcomeMessage(ToolResultMessage):
    """A tool's result with more than text.

    Args:
        failed: Whether the call failed, was denied or was stopped; sent to Anthropic in addition to the text.
        images: Images that the tool returned, for models with vision; counted and limited as in `types.image`.
    """

    failed: bool
    images: tuple[ImageContent, ...] = Field(default=(), repr=False)


def result_message(
    name: str, call_id: str, text: str, *, failed: bool = False, result: ToolResult | None = None
) -> ToolResultMessage:
    """Build the message that gives a model the result of a call.

    Args:
        name: The tool's name as the model wrote it.
        call_id: The call.
        text: The result as the model reads it.
        failed: Whether it is an error.
        result: The tool's result, whose images are included.
    """
    images = tuple([_image(data) for data in images_of(result)]) if result is not None else ()
    if not failed and not images:
        return ToolResultMessage(name=name, tool_call_id=call_id, content=text)
    return ToolOutcomeMessage(name=name, tool_call_id=call_id, content=text, failed=failed, images=images)


def _image(data: bytes) -> ImageContent:
    source = {"type": "base64", "data": base64.b64encode(data).decode("ascii")}
    return ImageContent(source=source, media_type=media_type_of(data) or "image/png")


_MARKER = re.compile(r"(?<=\n\n)## ([A-Za-z0-9_-]{1,64})$", re.MULTILINE)
_CARD = re.compile(rf"{_MARKER.pattern}(?:\n(?!\n).*)*", re.MULTILINE)


def unmarked(content: str) -> str:
    """Change a text so that nothing in it marks a tool as loaded."""
    return _MARKER.sub(r" ## \1", f"\n\n{content}")[2:]


def unloaded(content: str, name: str) -> str:
    """Mark a tool in an answer as unloaded by the person instead.

    Args:
        content: The answer.
        name: The wire name of the tool.
    """
    marker = re.compile(rf"(?<=\n\n)## {re.escape(name)}$", re.MULTILINE)
    return marker.sub(lambda match: f" {match[0]} (unloaded since by the person)", content)


def loaded_in(content: str) -> list[str]:
    """Parse the wire names of the tools that an answer presents as loaded, now or before."""
    return list(dict.fromkeys(_MARKER.findall(content)))


def without_cards(content: str, names: Collection[str]) -> str:
    """Cut these tools' cards in an answer to their marker lines: the definitions have the rest.

    Args:
        content: The answer.
        names: The wire names of the tools.
    """
    return _CARD.sub(lambda card: f"## {card[1]}" if card[1] in names else card[0], content)


class NamedCall(NamedTuple):
    """The call that a model meant.

    Args:
        name: The tool's name as the model wrote it.
        arguments: The arguments, or the model's text where that is not a JSON object.
        bridged: Whether it came through `call_tool`.
    """

    name: str
    arguments: dict[str, Any] | str
    bridged: bool = False


def read_call(name: str, text: str | None) -> NamedCall:
    """Parse the call that a model meant, also one through `call_tool`; that itself where it names no tool.

    Args:
        name: The name in its answer.
        text: The arguments as the model wrote them.
    """
    arguments = parse_arguments(text)
    return NamedCall(name, arguments) if name != CALL_TOOL else named_call(name, arguments)


def named_call(name: str, arguments: dict[str, Any] | str) -> NamedCall:
    """Parse the call that was meant, as `read_call` does.

    Args:
        name: The name.
        arguments: The arguments, or the model's text where that is not a JSON object.
    """
    if name != CALL_TOOL or not isinstance(arguments, dict):
        return NamedCall(name, arguments)
    inner, given = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(inner, str) or not inner or arguments.keys() - {"name", "arguments"}:
        return NamedCall(name, arguments)
    if isinstance(given, str) or given is None:
        # Some models write JSON in JSON.
        given = parse_arguments(given)
    return NamedCall(inner, given if isinstance(given, dict) else json.dumps(given), bridged=True)
