"""Edits of a request at a pause, before it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tool import ToolName, full_names, tool_names
from casual_mcp_nb.conversation.event import FINDING, Request
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.engine.tool_view import ToolView


@dataclass(frozen=True)
class MessageEdit:
    """A new text for something that the model has not read yet.

    Args:
        call_id: The call whose result it replaces, or None for the person's message.
    """

    text: str
    call_id: str | None = None


@dataclass(frozen=True)
class SystemEdit:
    """Another system prompt until the turn ends, or empty for none."""

    text: str


@dataclass(frozen=True)
class ToolsEdit:
    """Other tools until the turn ends.

    Args:
        loaded: Deferred tools to send with their definitions, although no search has found them.
    """

    off: tuple[ToolName, ...] = ()
    loaded: tuple[ToolName, ...] = ()


RequestEdit = MessageEdit | SystemEdit | ToolsEdit

BeforeModelCall = Callable[[int, Request], Awaitable[Sequence[RequestEdit] | None]]
"""Called before each model call with the step and the request.

Returns the edits, or None to send it as it is.
"""


def editable(messages: Sequence[ChatMessage]) -> dict[str | None, int]:
    """Find the texts that the model has not answered yet, which a person may edit.

    Leaves out synthetic tools' results, since they list the loaded tools, and messages that are not
    only text.

    Returns:
        Indexes in `messages` by the call's id, and the person's last message by None.
    """
    indexes: dict[str | None, int] = {}
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        is_text = isinstance(message.content, str)
        if message.role == "tool":
            if is_text and message.name not in FINDING:
                indexes[message.tool_call_id] = index
        elif message.role == "user" and is_text:
            # Everything before it is of an earlier turn, which may have ended without an answer.
            return {None: index}
        else:
            break
    return dict(reversed(indexes.items()))


def index_of(edit: MessageEdit, messages: Sequence[ChatMessage]) -> int:
    """Find the index in `messages` where an edit applies."""
    indexes = editable(messages)
    if edit.call_id not in indexes:
        target = "the message"
        if edit.call_id is not None:
            target = f"the result of call {shown(edit.call_id)}"
        raise UsageError(
            f"This cannot be edited: {target}.",
            hint="Only text that the model has not read yet can be edited.",
        )
    return indexes[edit.call_id]


def edited_view(
    edit: ToolsEdit, view: ToolView, select: Callable[[Selection], ToolView]
) -> ToolView:
    """Apply a tools edit to a view."""
    selection = view.selection.snapshot()
    for name in edit.loaded:
        selection.tools_off.discard(str(name))
    for name in edit.off:
        selection.tools_off.add(str(name))
    selection.always_loaded = (*selection.always_loaded, *map(str, edit.loaded))
    edited = select(selection)
    loaded = tool_names(edited.loaded)
    for name in edit.loaded:
        if name not in loaded:
            raise UnknownNameError("tool", str(name), full_names(edited.included))
    return edited
