"""Saved conversations: a summary of each without reading its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.prices import Cost
from casual_mcp_nb.types.tokens import Origin

StoredStatus = Literal["active", "archived"]


@dataclass(frozen=True)
class ForkedFrom:
    """Where a conversation was forked from.

    Args:
        id: The other conversation.
        turn: The index of its last turn that was taken over.
        step: The index of the step of that turn from which it went on; None for the whole turn.
    """

    id: str
    turn: int
    step: int | None = None


@dataclass(frozen=True)
class ConversationHead:
    """The settings of a conversation; its events are in its turns.

    Args:
        model: Name of the model in the config.
        system: The system prompt; None for the model's template.
        selection: The selection, as plain values.
        forked_from: Where it was forked from; None for one that was not.
    """

    model: str | None = None
    system: str | None = field(default=None, repr=False)
    selection: Mapping[str, Any] = field(default_factory=dict, repr=False)
    forked_from: ForkedFrom | None = None


@dataclass(frozen=True)
class StoredConversation(Displayable):
    """A saved conversation.

    Args:
        id: Its id, for `Session.resume`.
        title: Its title: the first words of the first message, unless it was renamed.
        status: `active` or `archived`.
        created: When it was begun, with the time zone of that place.
        changed: When it last changed, likewise.
        head: What it was set up with.
        turns: How many turns it has.
        tokens: The size of all its requests; None if there were none.
        origin: Who counted them.
        cost: What they cost by the price table of that time; None if it is not known.
    """

    id: str
    title: str
    status: StoredStatus
    created: datetime
    changed: datetime
    head: ConversationHead
    turns: int = 0
    tokens: int | None = None
    origin: Origin = "reported"
    cost: Cost | None = None


@dataclass(frozen=True)
class StoredConversations(DisplayableList[StoredConversation]):
    """Saved conversations, the last changed one first.

    Those with `find` are read from their file when they are first counted, gone through or displayed.

    Args:
        conversations: The conversations.
        place: Where they are saved; empty if nothing is saved.
        problem: Why they cannot be read or written; empty if they can.
        total: How many there are, with those that a limit leaves out.
        find: Reads them; None if these are they.
    """

    conversations: tuple[StoredConversation, ...] = ()
    place: str = ""
    problem: str = ""
    total: int = 0
    find: Callable[[], StoredConversations] | None = field(default=None, repr=False, compare=False)

    def read(self) -> StoredConversations:
        """Read them as they were when they were first read."""
        return self._read if self.find is not None else self

    @cached_property
    def _read(self) -> StoredConversations:
        return self.find() if self.find is not None else self

    @property
    def _items(self) -> tuple[StoredConversation, ...]:
        return self.read().conversations
