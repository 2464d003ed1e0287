"""A conversation: the turns that belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.counts import count
from casual_mcp_nb.types.displayable import Displayable
from casual_mcp_nb.types.event import TurnFinished, as_in_a_file
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.trace import Trace, Turn

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


class Conversation(Sequence[Turn], Displayable):
    """The turns of a conversation, oldest first.

    Args:
        turns: The turns.

    Attributes:
        repairs: What was repaired on loading, one sentence for each kind of repair.
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
        """All messages; valid at every moment: each call is followed by exactly one result."""
        return [message for turn in self for message in turn.messages]

    @property
    def stats(self) -> ChatStats:
        """The stats of the whole conversation."""
        return sum((turn.stats for turn in self), ChatStats())

    def as_in_a_file(self) -> Conversation:
        """Copy the conversation in the form for files: values that stay in the kernel are only described."""
        conversation = Conversation(Turn(Trace(map(as_in_a_file, turn.trace))) for turn in self)
        conversation.repairs = self.repairs
        return conversation

    def to_json(self) -> str:
        """Format the whole conversation as JSON that `from_json` can load."""
        from casual_mcp_nb.types.record import dump_traces

        return dump_traces((turn.trace for turn in self), self._unread)

    @classmethod
    def from_json(cls, text: str | bytes) -> Conversation:
        """Load a conversation from `to_json`. An invalid one is repaired, and `repairs` says how.

        Raises:
            UsageError: It is not a saved conversation, or is damaged or from a later version.
        """
        from casual_mcp_nb.types.record import load_traces
        from casual_mcp_nb.types.repair import repaired_traces

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
    """Mark the trace of a saved turn as ended."""
    if not trace.of(TurnFinished):
        trace.append(TurnFinished("stopped", "It was saved before it ended.", max(event.at for event in trace)))
    return trace
