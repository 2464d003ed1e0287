"""A conversation: its turns, and the list of saved conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from casual_mcp_nb.base.displayable import Displayable, DisplayableList, count
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.tokens import Origin
from casual_mcp_nb.conversation.event import TurnFinished, as_in_a_file
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


class Conversation(Sequence[Turn], Displayable):
    """A conversation's turns, oldest first.

    Attributes:
        repairs: The repairs on loading, one sentence per kind.
    """

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._turns = tuple(turns)
        self._unread: Mapping[str, Any] = {}
        self.repairs: tuple[str, ...] = ()

    @overload
    def __getitem__(self, key: int) -> Turn: ...
    @overload
    def __getitem__(self, key: slice) -> Conversation: ...
    def __getitem__(self, key: int | slice) -> Turn | Conversation:
        return Conversation(self._turns[key]) if isinstance(key, slice) else self._turns[key]

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def messages(self) -> list[ChatMessage]:
        """All messages. Always valid: exactly one result follows each call."""
        return [message for turn in self for message in turn.messages]

    @property
    def stats(self) -> ChatStats:
        """The whole conversation's stats."""
        return sum((turn.stats for turn in self), ChatStats())

    def as_in_a_file(self) -> Conversation:
        """Copy the conversation in the form for files: values that stay in the kernel are only described."""
        conversation = Conversation(Turn(Trace(map(as_in_a_file, turn.trace))) for turn in self)
        conversation.repairs = self.repairs
        return conversation

    def to_json(self) -> str:
        """Format the whole conversation as JSON that `from_json` can load."""
        from casual_mcp_nb.conversation.codec import dump_traces

        return dump_traces((turn.trace for turn in self), self._unread)

    @classmethod
    def from_json(cls, text: str | bytes) -> Conversation:
        """Load a conversation from `to_json`. An invalid one is repaired, and `repairs` lists the changes.

        Raises:
            UsageError: It is not a saved conversation, or is damaged or from a later version.
        """
        from casual_mcp_nb.conversation.codec import load_traces
        from casual_mcp_nb.conversation.history import repaired_traces

        traces, unread = load_traces(text, Trace)
        traces, repairs = repaired_traces(traces)
        conversation = cls(Turn(_ended(trace)) for trace in traces)
        conversation._unread, conversation.repairs = unread, repairs
        return conversation

    @classmethod
    def load(cls, path: str | Path) -> Conversation:
        """Load a conversation that `session.export` saved as JSON.

        Args:
            path: The file.

        Raises:
            UsageError: The file does not exist, or is not a saved conversation.
        """
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{shown(Path(path))} cannot be read: {error.strerror}.") from None
        return cls.from_json(text)

    def __repr__(self) -> str:
        return f"<Conversation: {count(len(self), 'turn')}>"


def _ended(trace: Trace) -> Trace:
    if not trace.of(TurnFinished):
        trace.append(TurnFinished("stopped", "It was saved before it ended.", max(event.at for event in trace)))
    return trace


StoredStatus = Literal["active", "archived"]


@dataclass(frozen=True)
class ForkedFrom:
    """Where a conversation was forked: its id, the last turn by index, and the last step in that turn if others followed."""

    id: str
    turn: int
    step: int | None = None


@dataclass(frozen=True)
class ConversationHead:
    """A conversation's settings. Its events are in its turns."""

    model: str | None = None
    system: str | None = field(default=None, repr=False)
    selection: Mapping[str, Any] = field(default_factory=dict, repr=False)
    forked_from: ForkedFrom | None = None


@dataclass(frozen=True)
class StoredConversation(Displayable):
    """A saved conversation. Unless renamed, it is titled by its first words.

    Times are in the time zone in which it was changed. Tokens count all requests, at the prices of that time.
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

    With `find`, the list is read when it is first counted, iterated or displayed. `place` is the file, and `total` includes
    those beyond the limit.
    """

    conversations: tuple[StoredConversation, ...] = ()
    place: str = ""
    problem: str = ""
    total: int = 0
    find: Callable[[], StoredConversations] | None = field(default=None, repr=False, compare=False)

    def read(self) -> StoredConversations:
        """Read the list, once."""
        return self._read if self.find is not None else self

    @cached_property
    def _read(self) -> StoredConversations:
        return self.find() if self.find is not None else self

    @property
    def _items(self) -> tuple[StoredConversation, ...]:
        return self.read().conversations
