"""The turns of a session: one at a time, each kept however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.read_on import recall_from
from casual_mcp_nb.errors import ClosedError, UsageError
from casual_mcp_nb.notebook.observers import Observers
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.event import Event, TurnStarted
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.trace import Turn

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

STOP_SECONDS = 5.0
"""How long a turn that is being stopped is waited for."""


class ConversationRunner:
    """What was said, and the turn that is running. Its coroutines belong to the engine's loop.

    Args:
        chat: Runs the turns.
        observers: Are told of the events, and when the turns change.

    Attributes:
        turns: The turns, oldest first; a running one stands at the end from its start on.
    """

    def __init__(self, chat: McpToolChat, observers: Observers) -> None:
        self.turns: list[Turn] = []
        self._chat = chat
        self._observers = observers
        self._running: asyncio.Task[object] | None = None
        self._stopped: asyncio.Task[object] | None = None
        self._ended: str | None = None

    @property
    def ended(self) -> bool:
        """Whether no further turn can begin."""
        return self._ended is not None

    @property
    def busy(self) -> bool:
        """Whether a turn is running, or about to begin."""
        return self._running is not None

    @property
    def messages(self) -> list[ChatMessage]:
        """All turns as messages; valid at every moment."""
        return [message for turn in self.turns for message in turn.messages]

    @property
    def conversation(self) -> Conversation:
        """The turns as they are now."""
        return Conversation(self.turns)

    @property
    def stats(self) -> ChatStats:
        """What all turns took."""
        return sum((turn.stats for turn in self.turns), ChatStats())

    async def take(
        self,
        turn: Turn,
        begin: Callable[[], Awaitable[Sequence[ChatMessage]]],
        options: TurnOptions,
        on_event: Callable[[Event], None] | None = None,
        place: int | None = None,
    ) -> Turn:
        """Run one turn to its end; see `McpToolChat.run`. A stop or a close in the middle ends it, and it is returned as it is.

        Args:
            turn: The turn whose trace takes the events.
            begin: Gets ready, and gives what the person adds.
            options: What this turn does differently.
            on_event: Called with each event after it was recorded.
            place: The turn takes the place of the one there and of all after it; None adds it at the end.

        Raises:
            UsageError: Another turn is running, or this one was stopped before it began; nothing was sent.
            ClosedError: It was closed before the turn began.
        """
        await self._acquire()
        turns = self.turns
        history = [message for before in turns[:place] for message in before.messages]

        def note(event: Event) -> None:
            if isinstance(event, TurnStarted):
                self._add(turn, turns, place)
            self._observers.events.notify(turn, event)
            if on_event is not None:
                on_event(event)

        try:
            recall = recall_from(turns[:place])
            return await self._chat.run(await begin(), options, history=history, turn=turn, on_event=note, recall=recall)
        except asyncio.CancelledError:
            if self._ended is None and self._stopped is not self._running:
                raise
            if not turn.trace.of(TurnStarted):
                self.check_open()
                raise UsageError("The turn was stopped before it began; nothing was sent.") from None
            return turn
        finally:
            self._running = self._stopped = None
            self._observers.changes.notify()

    async def stop(self) -> None:
        """Stop the turn that is running, if one is, and wait for its end."""
        running = self._running
        self.cancel()
        if running is not None:
            await asyncio.wait({running}, timeout=STOP_SECONDS)

    def cancel(self) -> None:
        """Stop the turn that is running, if one is; on the engine's loop."""
        if self._running is not None and self._stopped is not self._running:
            self._stopped = self._running
            self._running.cancel()

    def clear(self) -> None:
        """Start with no turns; those there were are forgotten here, and stay whole for whoever holds them."""
        self.turns = []
        self._observers.changes.notify()

    def undo(self) -> Turn | None:
        """Take back the last turn.

        Raises:
            UsageError: A turn is running.
        """
        self._check_free()
        last = self.turns[-1] if self.turns else None
        self.turns = self.turns[:-1]
        self._observers.changes.notify()
        return last

    def asked_at(self, index: int, text: str | None = None) -> tuple[int, list[ChatMessage]]:
        """The place of a turn, counted from the front, and what the person added there, with another text if one is given.

        Raises:
            UsageError: There is no such turn, or a turn is running.
        """
        self._check_free()
        count = len(self.turns)
        if not -count <= index < count:
            hint = f"There are {count:,}: turns[0] to turns[{count - 1}]." if count > 1 else "There is 1: turns[0]."
            raise UsageError(f"There is no turns[{index}].", hint=hint if count else "There are no turns yet.")
        place = index % count
        asked = self.turns[place].asked
        return place, asked if text is None else _with_text(asked, text)

    def check_open(self) -> None:
        """Do nothing, unless it has ended.

        Raises:
            ClosedError: It has; the message says why.
        """
        if self._ended is not None:
            raise ClosedError(
                f"This session is closed: {self._ended}.",
                hint="Make a new one with Session.from_config; give it a name to keep it beside another one of its config.",
            )

    def end(self, why: str) -> None:
        """Let no further turn begin; the first reason holds."""
        self._ended = self._ended or why

    async def close(self, why: str) -> None:
        """End it, and stop the turn that is running.

        Args:
            why: What whoever begins another turn is told.
        """
        self.end(why)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=STOP_SECONDS)

    def _add(self, turn: Turn, turns: list[Turn], place: int | None) -> None:
        if place is None:
            turns.append(turn)
        elif self.turns is turns:
            self.turns = [*turns[:place], turn]
        self._observers.changes.notify()

    def _check_free(self) -> None:
        if self._running is not None:
            raise UsageError("A turn of this session is still running.", hint="Wait for its end, or stop it.")

    async def _acquire(self) -> None:
        running = self._running
        if running is not None and running.cancelling():
            await asyncio.wait({running}, timeout=STOP_SECONDS)
        self.check_open()
        if self._running is not None:
            raise UsageError(
                "Another turn of this session is still running.",
                hint="Wait for its end, or chat in a session of its own: Session.from_config(…, name='second').",
            )
        self._running = asyncio.current_task()
        self._observers.changes.notify()


def _with_text(messages: list[ChatMessage], text: str) -> list[ChatMessage]:
    """The messages with another text in the person's last one, whose images stay."""
    from casual_llm.messages import ImageContent, TextContent, UserMessage

    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, UserMessage):
            parts = message.content if isinstance(message.content, list) else []
            kept = [part for part in parts if isinstance(part, ImageContent)]
            content: str | list[TextContent | ImageContent] = [TextContent(text=text), *kept] if kept else text
            return [*messages[:place], UserMessage(content=content), *messages[place + 1 :]]
    return [UserMessage(content=text)]
