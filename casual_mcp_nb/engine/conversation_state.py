"""The state of a conversation that is kept between its turns."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.event import Event, QuestionKind
from casual_mcp_nb.conversation.past_questions import PastQuestion
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.large_results import LargeResults
from casual_mcp_nb.engine.notices import SeenNotices, ServerLogs
from casual_mcp_nb.engine.window import ContextWindows
from casual_mcp_nb.providers.spending import Account


def _own_key() -> Callable[[], str]:
    """Return a function that returns a new conversation's key."""
    key = uuid.uuid4().hex
    return lambda: key


async def no_questions() -> Sequence[PastQuestion]:
    """Return no past questions: searches learn nothing."""
    return ()


class RunningTurn(Protocol):
    """A running turn, as those see it who record what servers say and ask meanwhile. See `Run`."""

    logs: ServerLogs
    account: Account

    @property
    def emit(self) -> Callable[[Event], None]:
        """The function that records an event."""

    @property
    def now(self) -> Callable[[], float]:
        """The turn's clock."""

    def waiting_for_person(
        self, kind: QuestionKind, server: str | None = None
    ) -> Callable[[], None]:
        """Record a question to the person. Return the function that records the answer."""

    def is_calling(self, server: str) -> bool:
        """Check whether a call to this server is running."""


@dataclass(eq=False)
class ConversationState:
    """One conversation's state. Conversations with the same servers share everything else.

    Args:
        last_selection: The key of the last turn's selection, or empty before it.
        spends_as: Returns the key under which what its requests take is counted.
        past_questions: Returns the questions that its searches learn from. No other conversation
            learns from them.
    """

    selection: Selection
    consent: Consent
    large_results: LargeResults
    windows: ContextWindows = field(default_factory=ContextWindows)
    seen_notices: SeenNotices = field(default_factory=SeenNotices)
    last_selection: str = ""
    last_turn: Turn | None = None
    last_account: Account | None = None
    running: set[RunningTurn] = field(default_factory=set)
    spends_as: Callable[[], str] = field(default_factory=_own_key)
    past_questions: Callable[[], Awaitable[Sequence[PastQuestion]]] = no_questions
    _shared: tuple[str, Selection] | None = None

    def apart(self, consent: Consent | None = None, *, private: bool = False) -> ConversationState:
        """Create another conversation's state, see `McpToolChat.apart`."""
        selection = self._shared_snapshot() if private else self.selection.snapshot()
        other = ConversationState(selection, consent or self.consent.apart(), self.large_results)
        if private:
            other.large_results = self.large_results.apart()
        else:
            other.running = self.running
        return other

    def _shared_snapshot(self) -> Selection:
        """Copy the selection once for all clients of a service, as long as it stays the same.

        A turn whose options differ copies it again.
        """
        key = self.selection.key()
        if self._shared is None or self._shared[0] is not key:
            self._shared = key, self.selection.snapshot()
        return self._shared[1]
