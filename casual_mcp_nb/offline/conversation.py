"""Extract what the planner needs from a conversation: the request, its calls, and the earlier context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.discovery._cards import definitions_in
from casual_mcp_nb.types.bridged_call import read_call
from casual_mcp_nb.types.cards import loaded_in
from casual_mcp_nb.types.event import FINDING, UNLOAD_TOOLS
from casual_mcp_nb.types.result_text import bare_result, says_failed

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_REQUEST = 4_000
"""Maximum number of characters of a message that the planner reads."""


class PlannedCall(NamedTuple):
    """A call to make: the tool's wire name and its arguments."""

    name: str
    arguments: dict[str, Any]


class PastCall(NamedTuple):
    """A call that was made, and the text of its result."""

    call: PlannedCall
    result: str

    @property
    def failed(self) -> bool:
        """Whether the result says that the call failed."""
        return says_failed(self.result)


@dataclass(frozen=True)
class Conversation:
    """The parts of a conversation.

    Args:
        request: The text of the person's last message, without `cut` characters.
        last_reply: The text of the assistant's last message before it.
        calls: Calls since the request.
        earlier: Calls before it.
        cut: How many characters are left out.
    """

    request: str
    last_reply: str
    calls: tuple[PastCall, ...]
    earlier: tuple[PastCall, ...]
    cut: int


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Split the messages of a conversation into its parts."""
    last = max((index for index, message in enumerate(messages) if message.role == "user"), default=len(messages))
    replies = [_text(message.content) for message in messages[:last] if message.role == "assistant" and message.content]
    request = _text(messages[last].content) if last < len(messages) else ""
    cut = max(len(request) - MAX_REQUEST, 0)
    return Conversation(
        request[:MAX_REQUEST], replies[-1] if replies else "", _calls(messages[last:]), _calls(messages[:last]), cut
    )


def _calls(messages: Sequence[ChatMessage]) -> tuple[PastCall, ...]:
    results = {message.tool_call_id: _text(message.content) for message in messages if message.role == "tool"}
    calls = []
    for made in (call for message in messages if message.role == "assistant" for call in message.tool_calls or ()):
        name, arguments, _ = read_call(made.function.name, made.function.arguments)
        call = PlannedCall(name, arguments if isinstance(arguments, dict) else {})
        calls.append(PastCall(call, bare_result(results.get(made.id, ""), name)))
    return tuple(calls)


def bridged_definitions(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the definitions of the tools that searches have found and that are called through `call_tool`."""
    definitions: dict[str, dict[str, Any]] = {}
    for message in messages:
        if message.role == "tool" and message.name in FINDING:
            text = _text(message.content)
            definitions.update((definition["name"], definition) for definition in definitions_in(text))
            for name in loaded_in(text) if message.name == UNLOAD_TOOLS else ():
                definitions.pop(name, None)
    return list(definitions.values())


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.text for part in content if part.type == "text")
    return content or ""
