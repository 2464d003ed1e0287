"""A conversation: the turns that belong together, and the list of the saved ones."""

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
        repairs: The repairs on loading, one sentence for each kind of repair.
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
        """All messages. Valid at every moment: each call is followed by exactly one result."""
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
    """Where a conversation was forked: its id, the index of its last turn, and of that turn's step if not the last."""

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
    """A saved conversation, titled by the first words of the first message unless it was renamed.

    The times have the time zone of the place where it was changed. Tokens are those of all its requests, and their cost is by
    the price table of that time.
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

    Those with `find` are read from their file when they are first counted, gone through or displayed. `place` is where they are
    saved, `total` how many there are with those that a limit leaves out.
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
