"""The turns of a session: one at a time, each kept however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ClosedError, UsageError
from casual_mcp_nb.types.event import Event, TurnStarted
from casual_mcp_nb.types.trace import Turn

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

STOP_SECONDS = 5.0
"""How long a turn that is being stopped is waited for."""


class Dialogue:
    """What was said, and the turn that is running. Its coroutines belong to the engine's loop.

    Args:
        chat: Runs the turns.

    Attributes:
        turns: The turns, oldest first; a running one stands at the end from its start on.
    """

    def __init__(self, chat: McpToolChat) -> None:
        self.turns: list[Turn] = []
        self._chat = chat
        self._running: asyncio.Task[object] | None = None
        self._ended: str | None = None

    @property
    def messages(self) -> list[ChatMessage]:
        """All turns as messages; valid at every moment."""
        return [message for turn in self.turns for message in turn.messages]

    async def take(
        self,
        turn: Turn,
        messages: Sequence[ChatMessage],
        options: TurnOptions,
        on_event: Callable[[Event], None] | None = None,
    ) -> Turn:
        """Run one turn to its end; see `McpToolChat.run`. A close in the middle ends it as a stop.

        Raises:
            UsageError: Another turn is running; nothing was sent.
            ClosedError: It was closed before the turn began.
        """
        await self._take_the_floor()
        turns = self.turns

        def note(event: Event) -> None:
            if isinstance(event, TurnStarted):
                turns.append(turn)
            if on_event is not None:
                on_event(event)

        try:
            return await self._chat.run(messages, options, history=self.messages, turn=turn, on_event=note)
        except asyncio.CancelledError:
            if self._ended is None:
                raise
            if not turn.trace.of(TurnStarted):
                self.check_open()
            return turn
        finally:
            self._running = None

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

    async def _take_the_floor(self) -> None:
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
