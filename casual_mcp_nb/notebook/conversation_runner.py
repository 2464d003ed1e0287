"""Run a conversation's turns one at a time, and keep every one, however it ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.conversation import Conversation, Prompt, added_turns
from casual_mcp_nb.conversation.event import (
    Event,
    TaskReported,
    TextDelta,
    ToolProgress,
    TurnStarted,
)
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.synthetic import discovered_in
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.errors import ClosedError, UsageError
from casual_mcp_nb.notebook.saving import ConversationSaver, save
from casual_mcp_nb.notebook.tasks import LaterEvent, TaskRegister

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

STOP_SECONDS = 5.0


class ConversationRunner:
    """Runs and keeps a conversation's turns, oldest first.

    Its coroutines run on the engine's loop.
    """

    def __init__(self, chat: McpToolChat, observers: Observers, saver: ConversationSaver) -> None:
        self.saver = saver
        self.turns: list[Turn] = []
        self.cells: list[Any] = []
        """The cells that models wrote during the conversation. They are not part of it, but an
        export shows them.
        """
        self._chat = chat
        self._observers = observers
        self._running: asyncio.Task[object] | None = None
        self.stops = 0
        self._stopped: asyncio.Task[object] | None = None
        self._ended: str | None = None
        self._setting_up = False
        chat.selection.watch(self.save_setup)
        self.tasks: TaskRegister | None = None
        self.asks: Callable[[], bool] = lambda: False
        """Whether a question waits for the person."""

    def keep_tasks(self, tasks: TaskRegister) -> None:
        """Use a register for the tasks of the conversation."""
        self.tasks = tasks
        tasks.add_later = self.add_later

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
        """All turns as messages. A valid history at any time."""
        return self.conversation.messages

    @property
    def conversation(self) -> Conversation:
        """The turns as they are now."""
        return Conversation(self.turns)

    @property
    def stats(self) -> ChatStats:
        """Combined stats for all turns."""
        return self.conversation.stats

    @asynccontextmanager
    async def adding(self, setup: TurnSetup, index: int | None = None) -> AsyncIterator[TurnSetup]:
        """Add the turn that the body runs to the conversation, and save it as it grows.

        No other turn can run meanwhile. A stop or a close ends the body early, and keeps the turn
        as it is.

        Args:
            setup: The turn's.
            index: The first of the turns that it replaces, or None to add it at the end.

        Yields the setup with what the conversation knows.
        """
        turn, on_event = setup.turn, setup.on_event
        finished = False
        async with self._exclusive():
            turns, saved = self.turns, self.saver.current

            def record(event: Event) -> None:
                if isinstance(event, TurnStarted):
                    self._add(turn, turns, index)
                if saved is not None and not isinstance(event, (TextDelta, ToolProgress)):
                    if turn in self.turns[-1:]:
                        saved.save(self.turns)
                    else:
                        # The person has begun another conversation meanwhile.
                        saved.save(turns)
                self._observers.events.notify(turn, event)
                if on_event is not None:
                    on_event(event)

            earlier = turns[:index]
            before = earlier[-1] if earlier else None
            ahead = tasks = None
            if saved is not None:
                ahead = saved.store.written
            if self.tasks is not None:
                tasks = self.tasks.desk(turn, earlier)
            yield replace(
                setup,
                history=Conversation(earlier).messages,
                before=before,
                on_event=record,
                in_history=True,
                ahead=ahead,
                tasks=tasks,
            )
            if saved is not None:
                await saved.store.written()
            finished = True
        if not finished and not turn.trace.of(TurnStarted):
            self.check_open()
            raise UsageError("The turn was stopped before it began. Nothing was sent.")

    @asynccontextmanager
    async def apart(self, stops: int | None = None) -> AsyncIterator[None]:
        """Let the body work without adding to the conversation.

        No turn can run meanwhile. A stop or a close ends the body early.

        Args:
            stops: How many stops there had been when the work was requested. One that came since
                ends the body at its first wait.
        """
        async with self._exclusive():
            if stops is not None and stops != self.stops:
                self.cancel()
            yield

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Let no turn run beside the body.

        A stop or a close ends the body early, without an error.
        """
        await self._acquire()
        try:
            yield
        except asyncio.CancelledError:
            if self._ended is None and self._stopped is not self._running:
                raise
        finally:
            self._running = self._stopped = None
            self._observers.changes.notify()

    async def stop(self) -> None:
        """Stop the running turn, if there is one, and wait for its end."""
        running = self._running
        self.cancel()
        if running is not None:
            await asyncio.wait({running}, timeout=STOP_SECONDS)

    def cancel(self) -> None:
        """Stop the running turn, if there is one. On the engine's loop."""
        self.stops += 1
        if self._running is not None and self._stopped is not self._running:
            self._stopped = self._running
            self._running.cancel()

    def remember(
        self, *, widget: str = "", variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Save with the conversation that a widget is shown, or that variables hold results.

        Args:
            widget: The widget's kind.
            variables: What each variable holds, see `SavedSession`.
        """
        memory = self.saver.memory
        before = memory.widgets, memory.variables
        if widget:
            memory.widgets = tuple(dict.fromkeys((*memory.widgets, widget)))
        if variables:
            memory.variables = {**memory.variables, **variables}
        if (memory.widgets, memory.variables) != before:
            save(self.saver.current, self.turns)

    def save_setup(self) -> None:
        """Have it saved that the person chose another model, other tools or other servers after the
        last turn.
        """
        if self.turns and not self.busy and not self._setting_up:
            save(self.saver.current, self.turns)

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """Leave the saved set-up as it is while the body gives the session that of a conversation: a
        part that is not available here stays in the file.
        """
        self._setting_up = True
        try:
            yield
        finally:
            self._setting_up = False

    def clear(self, *, private: bool = False) -> None:
        """Start a conversation with no turns. The old turns stay intact for whoever holds them."""
        self.saver.begin(private=private)
        self.turns, self.cells = [], []
        self._observers.changes.notify()

    def replace(self, turns: Iterable[Turn]) -> None:
        """Continue with another conversation's turns."""
        self.check_free()
        self.turns = list(turns)
        self._observers.changes.notify()

    def add(self, messages: Prompt) -> list[Turn]:
        """Add messages without asking a model, see `session.conversations.add`."""
        self.check_open()
        self.check_free()
        turns = added_turns(messages, self.messages)
        self.turns = [*self.turns, *turns]
        save(self.saver.current, self.turns)
        self._observers.changes.notify()
        return turns

    def add_later(self, turn: Turn, event: LaterEvent, belongs: Callable[[Turn], bool]) -> None:
        """Add an event to a turn, usually one that has ended, and save it.

        On the engine's loop.

        Args:
            turn: The turn.
            event: The event. It gets the time of the turn's last one.
            belongs: Tells whether another object is the same turn. In a resumed conversation, the
                turn of an older result is not the object in the list.
        """
        turns = list(self.turns)
        if turn not in turns:
            turns.append(turn)
        for each in turns:
            if not belongs(each):
                continue
            each.trace.append(replace(event, at=each.trace.last_at))
            redraw = getattr(each, "redraw", None)
            if redraw is not None:
                redraw()
        save(self.saver.current, self.turns)

    def undo(self) -> Turn | None:
        """Remove the last turn, and return it. None if there is none."""
        self.check_free()
        last = None
        if self.turns:
            last = self.turns[-1]
        self.turns = self.turns[:-1]
        save(self.saver.current, self.turns)
        self._observers.changes.notify()
        return last

    @property
    def discovered(self) -> list[ToolSpec]:
        """The tools that searches in the conversation have loaded, in order."""
        return discovered_in(
            self.messages,
            self._chat.catalog,
            {tool.spec.name for tool in self._chat.tools.custom},
        )

    def prompt_at(self, index: int, text: str | None = None) -> tuple[int, list[ChatMessage]]:
        """Find what a turn was asked.

        Args:
            index: The turn's. Negative ones count from the end.
            text: Another text, or None for the turn's own.

        Returns:
            Its index from the front, and the person's messages.

        Raises:
            UsageError: There is no such turn, or a turn is running.
        """
        self.check_free()
        count = len(self.turns)
        if not -count <= index < count:
            hint = "There are no turns yet."
            if count == 1:
                hint = "There is 1: turns[0]."
            elif count:
                hint = f"There are {count:,}: turns[0] to turns[{count - 1}]."
            raise UsageError(f"There is no turns[{index}].", hint=hint)
        index %= count
        messages = self.turns[index].prompt_messages
        if any(report.call_id is None for report in self.turns[index].trace.all_of(TaskReported)):
            # The report leaves the conversation with the turn, and comes again.
            messages = messages[1:]
        if self.turns[index].added:
            # Only the person's messages are sent again. They come first.
            own = itertools.takewhile(lambda message: message.role == "user", messages)
            messages = list(own)
        if text is not None:
            messages = _with_text(messages, text)
        return index, messages

    def check_open(self) -> None:
        """Raise ClosedError, with the reason, if no further turn can begin."""
        if self._ended:
            hint = (
                "Open a new one with Session.from_config. To keep two of one config, give it a"
                " name."
            )
            raise ClosedError(f"This session is closed: {self._ended}.", hint=hint)
        if self.ended:
            raise ClosedError(
                "This session is closed.", hint="Start again with %mcp demo or %mcp connect."
            )

    def end(self, why: str = "") -> None:
        """Refuse further turns.

        Args:
            why: The reason, for errors. Empty if the person closed the session. Only the first
                reason counts.
        """
        if self._ended is None:
            self._ended = why

    async def close(self) -> None:
        """Refuse further turns, and stop the running one."""
        self.end()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=STOP_SECONDS)

    def _add(self, turn: Turn, turns: list[Turn], index: int | None) -> None:
        if index is None:
            turns.append(turn)
        elif self.turns is turns:
            self.turns = [*turns[:index], turn]
        self._observers.changes.notify()

    def check_free(self) -> None:
        """Raise UsageError if a turn is running."""
        if self._running is not None:
            raise self._busy("A turn", "Wait until it ends, or stop it.")

    async def _acquire(self) -> None:
        running = self._running
        if running is not None and running.cancelling():
            await asyncio.wait({running}, timeout=STOP_SECONDS)
        self.check_open()
        if self._running is not None:
            raise self._busy(
                "Another turn",
                "Wait until it ends, or use a second session: Session.from_config(…,"
                " name='second').",
            )
        self._running = asyncio.current_task()
        self._observers.changes.notify()

    def _busy(self, what: str, hint: str) -> UsageError:
        """Explain why no turn can begin: one runs, or waits for the person."""
        if self.asks():
            return UsageError(
                f"{what} in this session waits for your answer.",
                hint="Answer it where it is asked, in the panel or in the other cell, or with"
                " session.questions. %mcp stop ends the turn.",
            )
        return UsageError(f"{what} in this session is still running.", hint=hint)


def _with_text(messages: list[ChatMessage], text: str) -> list[ChatMessage]:
    """Replace the last user message's text, and keep its images."""
    from casual_llm.messages import ImageContent, TextContent, UserMessage

    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, UserMessage):
            parts = message.content if isinstance(message.content, list) else []
            images = of_type(parts, ImageContent)
            content: str | list[TextContent | ImageContent] = text
            if images:
                content = [TextContent(text=text), *images]
            return [*messages[:index], UserMessage(content=content), *messages[index + 1 :]]
    return [UserMessage(content=text)]
