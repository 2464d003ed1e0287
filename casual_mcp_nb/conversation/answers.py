"""A model's answer: its response, the intended calls, and the tools named in a search result.

A marker is a line with only a tool's wire name, after an empty line. Text from a server is indented and has no empty lines, so
it can never look like a marker, even if the answer is cut later. `discovery` writes the markers. Here they are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.limits import parse_arguments
from casual_mcp_nb.base.record import record
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import CALL_TOOL, HostedCall

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage

# Chat completions and Ollama: length; Anthropic: max_tokens, model_context_window_exceeded; Responses: max_output_tokens, and
# incomplete where it gives no reason; Mistral: model_length.
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length", "model_context_window_exceeded"})


@record(frozen=True)
class ModelResponse:
    """The response to one request, with the tool calls that the provider ran itself.

    The next request can be compared with the response by its id. The request's id is from the headers.
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


_MARKER = re.compile(r"(?<=\n\n)## ([A-Za-z0-9_-]{1,64})$", re.MULTILINE)
_CARD = re.compile(r"\n\n## ([A-Za-z0-9_-]{1,64})(?=\n|\Z)(?:\n(?!\n).*)*")


def unmarked(content: str) -> str:
    """Change a text so that nothing in it marks a tool as loaded."""
    return _MARKER.sub(r" ## \1", f"\n\n{content}")[2:]


def unloaded(content: str, name: str) -> str:
    """Mark a tool in an answer as unloaded by the person instead."""
    marker = re.compile(rf"(?<=\n\n)## {re.escape(name)}$", re.MULTILINE)
    return marker.sub(lambda match: f" {match[0]} (unloaded since by the person)", content)


def loaded_in(content: str) -> list[str]:
    """Parse the wire names of the tools that an answer presents as loaded, now or before."""
    return list(dict.fromkeys(_MARKER.findall(content)))


def without_cards(content: str, names: Collection[str]) -> str:
    """Leave these tools' cards out of an answer: the definitions that come with it say more."""
    return _CARD.sub(lambda card: "" if card[1] in names else card[0], content)


class NamedCall(NamedTuple):
    """The call that a model meant, perhaps through `call_tool`. Arguments that are not a JSON object are its text."""

    name: str
    arguments: dict[str, Any] | str
    bridged: bool = False


def read_call(name: str, text: str | None) -> NamedCall:
    """Parse the call that a model meant, including one through `call_tool`. That itself where it names no tool."""
    arguments = parse_arguments(text)
    return NamedCall(name, arguments) if name != CALL_TOOL else named_call(name, arguments)


def named_call(name: str, arguments: dict[str, Any] | str) -> NamedCall:
    """Parse the call that was meant, as `read_call` does."""
    if name != CALL_TOOL or not isinstance(arguments, dict):
        return NamedCall(name, arguments)
    inner, given = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(inner, str) or not inner or arguments.keys() - {"name", "arguments"}:
        return NamedCall(name, arguments)
    if isinstance(given, str) or given is None:
        # Some models write JSON in JSON.
        given = parse_arguments(given)
    return NamedCall(inner, given if isinstance(given, dict) else json.dumps(given), bridged=True)
