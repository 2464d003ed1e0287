"""The trace of a turn, and the turn as a view of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.event import (
    Event,
    ModelRetry,
    Notice,
    ServerLog,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)
from casual_mcp_nb.types.rich import Rich
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.step import Step, ToolCall, call_of, messages_of, step_of, text_of

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

E = TypeVar("E")


class Trace:
    """The append-only record of one turn's events."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events: list[Event] = list(events)

    def append(self, event: Event) -> None:
        """Add the next event."""
        self._events.append(event)

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self if isinstance(event, kind)]

    def to_json(self) -> str:
        """All events as JSON that `from_json` reads."""
        from casual_mcp_nb.types.record import dump_turns

        return dump_turns([self])

    @classmethod
    def from_json(cls, text: str | bytes) -> Trace:
        """The trace that `to_json` wrote.

        Raises:
            UsageError: It is something else, or holds more than one turn.
        """
        from casual_mcp_nb.types.record import load_turns

        turns = load_turns(text)
        if len(turns) != 1:
            raise UsageError(f"This holds {len(turns)} turns, and a trace is one.", hint="Use Conversation.from_json.")
        return cls(turns[0])

    def __repr__(self) -> str:
        return f"<Trace: {len(self)} events>"


class Turn(Rich):
    """One message of the person and all that followed, up to the final answer. A view of its trace; it can still be running.

    Args:
        trace: The turn's events.

    Attributes:
        exception: What made the turn fail, where it failed in this process.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.exception: Exception | None = None

    @property
    def started(self) -> TurnStarted:
        """How the turn began: the messages added, the model, the toolset, what was offered."""
        return self.trace.of(TurnStarted)[0]

    @property
    def _finished(self) -> TurnFinished | None:
        finished = self.trace.of(TurnFinished)
        return finished[-1] if finished else None

    @property
    def running(self) -> bool:
        """Whether the turn has not ended yet."""
        return self._finished is None

    @property
    def status(self) -> TurnStatus:
        """How it ended; `stopped` while it runs."""
        return self._finished.status if self._finished else "stopped"

    @property
    def error(self) -> str | None:
        """Why it did not end well, or None."""
        return self._finished.error if self._finished else None

    def raise_for_status(self) -> None:
        """Raise what made the turn fail; do nothing for a turn that did not."""
        if self.exception is not None:
            raise self.exception

    @property
    def seconds(self) -> float:
        """How long it took so far."""
        return max((event.at for event in self.trace), default=0.0)

    @property
    def prompt(self) -> str:
        """The text of the person's last message in this turn."""
        return next((text_of(m.content) for m in reversed(self.started.messages) if m.role == "user"), "")

    @property
    def answer(self) -> str:
        """The text of the last step; empty where the model said nothing."""
        steps = self.steps
        return steps[-1].text if steps else ""

    @property
    def steps(self) -> list[Step]:
        """The calls of the model, in order."""
        answers = {event.step: event for event in self.trace.of(StepFinished)}
        deltas: dict[int, list[TextDelta]] = {}
        for delta in self.trace.of(TextDelta):
            deltas.setdefault(delta.step, []).append(delta)
        calls = self._calls_by_step()
        steps: list[Step] = []
        for event in self.trace.of(StepStarted):
            previous = steps[-1].request if steps else None
            steps.append(
                step_of(
                    event,
                    answers.get(event.step),
                    deltas.get(event.step, []),
                    calls.get(event.step, ()),
                    previous,
                )
            )
        return steps

    @property
    def tool_calls(self) -> list[ToolCall]:
        """All calls of tools, in order, searches included."""
        return [call for calls in self._calls_by_step().values() for call in calls]

    @property
    def searches(self) -> list[ToolsSearched]:
        """All searches of the model, in order."""
        return self.trace.of(ToolsSearched)

    @property
    def retries(self) -> list[ModelRetry]:
        """The requests to the model that failed and were made again."""
        return self.trace.of(ModelRetry)

    @property
    def notices(self) -> list[Notice]:
        """What the person should know about this turn."""
        return self.trace.of(Notice)

    @property
    def server_logs(self) -> list[ServerLog]:
        """What servers logged in this turn."""
        return self.trace.of(ServerLog)

    @property
    def stats(self) -> ChatStats:
        """What it took."""
        return ChatStats.of(self.trace)

    @property
    def messages(self) -> list[ChatMessage]:
        """What this turn adds to the conversation. Valid at every moment: each call is followed by exactly one result."""
        messages: list[ChatMessage] = list(self.started.messages)
        for step in self.steps:
            messages += messages_of(step)
        return messages

    def _calls_by_step(self) -> dict[int, tuple[ToolCall, ...]]:
        ended = {event.call_id: event for event in self.trace.of(ToolFinished)}
        progress = {event.call_id: event for event in self.trace.of(ToolProgress)}
        searches = {event.call_id: event for event in self.trace.of(ToolsSearched)}
        calls: dict[int, list[ToolCall]] = {}
        for event in self.trace.of(ToolStarted):
            call = call_of(event, ended.get(event.call_id))
            call = dataclasses.replace(call, progress=progress.get(event.call_id), search=searches.get(event.call_id))
            calls.setdefault(event.step, []).append(call)
        return {step: tuple(items) for step, items in calls.items()}

    def __repr__(self) -> str:
        return f"<Turn: {self.status}, {len(self.trace.of(StepStarted))} steps, {len(self.tool_calls)} tool calls>"
