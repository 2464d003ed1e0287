"""Extract what the planner needs from a conversation: the request, its calls, and the earlier context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.types.bridged_call import read_call
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


class Conversation(NamedTuple):
    """The parts of a conversation."""

    request: str
    """The text of the person's last message, without `cut` characters."""
    cut: int
    last_reply: str
    """The text of the assistant's last message before it."""
    calls: list[PastCall]
    """Calls since the request."""
    earlier: list[PastCall]
    """Calls before it."""


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Split the messages of a conversation into its parts."""
    last = max((index for index, message in enumerate(messages) if message.role == "user"), default=len(messages))
    replies = [text_of(message) for message in messages[:last] if message.role == "assistant" and message.content]
    request = "".join(map(text_of, messages[last : last + 1]))
    cut = max(len(request) - MAX_REQUEST, 0)
    return Conversation(request[:MAX_REQUEST], cut, "".join(replies[-1:]), _calls(messages[last:]), _calls(messages[:last]))


def text_of(message: ChatMessage) -> str:
    """Return the text of a message, without its images."""
    if isinstance(message.content, list):
        return "\n".join(part.text for part in message.content if part.type == "text")
    return message.content or ""


def _calls(messages: Sequence[ChatMessage]) -> list[PastCall]:
    results = {message.tool_call_id: text_of(message) for message in messages if message.role == "tool"}
    calls = []
    for made in (call for message in messages if message.role == "assistant" for call in message.tool_calls or ()):
        name, arguments, _ = read_call(made.function.name, made.function.arguments)
        call = PlannedCall(name, arguments if isinstance(arguments, dict) else {})
        calls.append(PastCall(call, bare_result(results.get(made.id, ""), name)))
    return calls
