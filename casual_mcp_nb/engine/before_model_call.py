"""A pause before each call of the model, in which the person may change what it reads next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from casual_mcp_nb.discovery.synthetic import LOAD_TOOLS, SEARCH_TOOLS, UNLOAD_TOOLS
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.event import Request

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

_OURS = (SEARCH_TOOLS, LOAD_TOOLS, UNLOAD_TOOLS, "browse_toolkit")


@dataclass(frozen=True)
class MessageEdit:
    """Another text for something that the model has not read yet.

    Args:
        text: The text.
        call_id: The call whose result it takes the place of; None for the person's message.
    """

    text: str
    call_id: str | None = None


BeforeModelCall = Callable[[int, Request], Awaitable[Sequence[MessageEdit] | None]]
"""Called before each call of the model with the step and the request; gives the edits, or None to send it as it is."""


def editable(messages: Sequence[ChatMessage]) -> dict[str | None, int]:
    """What a person may still edit: where in `messages` the texts of this turn stand that the model has not answered yet.

    Results of our own tools are left out, since they say what is loaded, and messages that are not only text.

    Returns:
        Places by the id of the call; of the person's last message by None.
    """
    places: dict[str | None, int] = {}
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "tool" and message.name not in _OURS and isinstance(message.content, str):
            places[message.tool_call_id] = place
        elif message.role == "user" and isinstance(message.content, str):
            # What stands before it is of an earlier turn, and that may have ended without an answer.
            return {None: place}
        elif message.role != "tool":
            break
    return dict(reversed(places.items()))


def place_of(edit: MessageEdit, messages: Sequence[ChatMessage]) -> int:
    """Where in `messages` the text stands that an edit is for.

    Raises:
        UsageError: The model has read it already, or there is none.
    """
    places = editable(messages)
    if edit.call_id not in places:
        what = "the message" if edit.call_id is None else f"the result of call {shown(edit.call_id)}"
        raise UsageError(f"This cannot be edited: {what}.", hint="What the model reads next can be, and nothing before it.")
    return places[edit.call_id]
