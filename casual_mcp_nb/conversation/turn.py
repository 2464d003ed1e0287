"""A turn's trace, and `Turn`, a view on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from casual_mcp_nb.base.displayable import Displayable, count
from casual_mcp_nb.base.iterables import grouped
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.secret import Failure
from casual_mcp_nb.conversation.codec import Unread, dump_traces, load_traces
from casual_mcp_nb.conversation.event import (
    AppCalled,
    ApprovalAsked,
    ContextTrimmed,
    Event,
    ModelRetry,
    ModelWait,
    Notice,
    PrefixChanged,
    QuestionAsked,
    Request,
    RequestEdited,
    ServerLog,
    SkillRead,
    StepFinished,
    StepStarted,
    TaskReported,
    TaskStarted,
    TextDelta,
    TextEdited,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.conversation.step import (
    Step,
    ToolCall,
    app_calls_in,
    ended_call,
    messages_of,
    step_of,
    tasks_in,
    text_of,
)
from casual_mcp_nb.conversation.waits import PersonWaits, person_waits
from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


E = TypeVar("E")

MAX_UNFINISHED = 100_000
"""How many characters the conversation keeps when an answer is incomplete.

The trace has them all.
"""


class Trace:
    """The append-only record of one turn's events.

    Attributes:
        kinds: The classes of its events. Grows with the trace.
        unread: Unknown parts from the file that it was loaded from.
        results: The messages with results that the turn has sent, by the call's id. None in a trace
            that was loaded.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.unread = Unread()
        self.results: dict[str, ChatMessage] = {}
        self._events: list[Event] = []
        self._by_kind: dict[type[Any], list[Any]] = {}
        self.kinds: Collection[type[Any]] = self._by_kind
        for event in events:
            self.append(event)

    def append(self, event: Event) -> None:
        """Add the next event."""
        self._events.append(event)
        self._by_kind.setdefault(type(event), []).append(event)

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    def since(self, count: int) -> list[Event]:
        """List the events after the first `count`."""
        return self._events[count:]

    @property
    def last_at(self) -> float:
        """When the last event happened, in seconds since the turn began."""
        return max((event.at for event in self._events), default=0.0)

    def all_of(self, kind: type[E]) -> Sequence[E]:
        """The events of one kind, in order. Not a copy: the list grows with the trace."""
        return self._by_kind.get(kind, ())

    def of(self, kind: type[E]) -> list[E]:
        """List the events of one kind, in order."""
        return list(self._by_kind.get(kind, ()))

    def to_json(self) -> str:
        """Format all events as JSON that `from_json` can load."""
        return dump_traces([self])

    @classmethod
    def from_json(cls, text: str | bytes) -> Trace:
        """Load a trace from `to_json`.

        Raises:
            UsageError: It is not a saved conversation, or contains more than one turn.
        """
        traces, _ = load_traces(text, cls)
        if len(traces) != 1:
            raise UsageError(
                f"This holds {len(traces)} turns, and a trace is one.",
                hint="Use Conversation.from_json.",
            )
        return traces[0]

    def __repr__(self) -> str:
        return f"<Trace: {count(len(self), 'event')}>"


class Turn(Displayable):
    """A user message and everything that followed, up to the final answer. A view on its trace.

    Attributes:
        exception: The error that ended the turn, if it failed in this process.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.exception: Exception | None = None
        self._messages: tuple[int, list[ChatMessage]] = (0, [])

    @property
    def started(self) -> TurnStarted:
        """The turn's start: the messages added, the model, the toolset, the tools offered."""
        return self.trace.all_of(TurnStarted)[0]

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
        """`running`, or how it ended."""
        return self._finished.status if self._finished else "running"

    @property
    def error(self) -> str | None:
        """Why it failed or was stopped, or None."""
        return self._finished.error if self._finished else None

    @property
    def failure(self) -> Failure | None:
        """The fields of the error that ended it: status, request id, delay.

        None if no error from this package did.
        """
        return self._finished.failure if self._finished else None

    def raise_for_status(self) -> None:
        """Raise the error that ended the turn. Do nothing if it did not fail."""
        if self.exception is not None:
            raise self.exception

    @property
    def seconds(self) -> float:
        """The time it has taken so far, without `waited`."""
        return self.person_waits.taken(0.0, self.trace.last_at)

    @property
    def waited(self) -> float:
        """Seconds in which it only waited for the person: approvals, pauses, and servers'
        questions.
        """
        return self.person_waits.within(0.0, self.trace.last_at)

    @property
    def person_waits(self) -> PersonWaits:
        """The times in which it waited for the person, and the open question."""
        kinds = self.trace.kinds
        if ApprovalAsked in kinds or QuestionAsked in kinds:
            return person_waits(self.trace)
        return PersonWaits()

    @property
    def prompt(self) -> str:
        """The text in the last user message, as the model read it."""
        for message in reversed(self.prompt_messages):
            if message.role == "user":
                return text_of(message.content)
        return ""

    @property
    def last_request(self) -> Request | None:
        """The last request, with estimated tokens, or None."""
        started = self.trace.of(StepStarted)
        return started[-1].request if started else None

    @property
    def last_response_id(self) -> str | None:
        """The provider's id for the last response, if any."""
        finished = self.trace.of(StepFinished)
        return finished[-1].response_id if finished else None

    @property
    def prompt_messages(self) -> list[ChatMessage]:
        """The messages that the person added, as the model read them."""
        messages: list[ChatMessage] = list(self.started.messages)
        if not self.trace.all_of(TextEdited):
            return messages
        edit = next((edit for edit in reversed(self.edits) if edit.call_id is None), None)
        index = max(
            (i for i, message in enumerate(messages) if message.role == "user"), default=None
        )
        if edit is not None and index is not None:
            messages[index] = messages[index].model_copy(update={"content": edit.text})
        return messages

    @property
    def edits(self) -> list[TextEdited]:
        """The edits that the person made before the model read the texts."""
        return self.trace.of(TextEdited)

    @property
    def request_edits(self) -> list[RequestEdited]:
        """The changes that the person made to the system prompt and the tools while it ran."""
        return self.trace.of(RequestEdited)

    @property
    def added(self) -> bool:
        """Whether the person added it without asking a model, see `session.conversations.add`."""
        started = self.trace.of(TurnStarted)
        return bool(started) and not started[0].model

    @property
    def answer(self) -> str:
        """The last step's text, or the last message if the turn was added. May be empty."""
        if self.added:
            last = self.started.messages[-1]
            return text_of(last.content) if last.role == "assistant" else ""
        started = self.trace.all_of(StepStarted)
        if not started:
            return ""
        step = started[-1].step
        for event in self.trace.of(StepFinished):
            if event.step == step:
                return text_of(event.message.content)
        return self._unfinished_text(step)

    @property
    def truncated(self) -> bool:
        """Whether any answer in this turn was cut at a token limit."""
        return any(event.truncated for event in self.trace.of(StepFinished))

    @property
    def steps(self) -> list[Step]:
        """The model calls, in order."""
        answers = {event.step: event for event in self.trace.of(StepFinished)}
        deltas = grouped(self.trace.of(TextDelta), "step")
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
                    self.started.price,
                )
            )
        return steps

    @property
    def tool_calls(self) -> list[ToolCall]:
        """All tool calls by the model, in order, including searches.

        Calls that tools made are `nested`.
        """
        return list(chain.from_iterable(self._calls_by_step().values()))

    @property
    def app_calls(self) -> list[ToolCall]:
        """All tool calls by apps that show a call of this turn, in order.

        No model made or read them.
        """
        return list(chain.from_iterable(app_calls_in(self.trace.all_of(AppCalled)).values()))

    @property
    def payloads(self) -> list[Any]:
        """The values that notebook functions returned for the person, in order.

        Empty in a saved conversation.
        """
        return [call.payload for call in self.tool_calls if call.payload is not None]

    @property
    def searches(self) -> list[ToolsSearched]:
        """All searches by the model, in order."""
        return self.trace.of(ToolsSearched)

    @property
    def skills_read(self) -> list[SkillRead]:
        """The skills that the model read, with each of their files, in order."""
        return self.trace.of(SkillRead)

    @property
    def retries(self) -> list[ModelRetry]:
        """The model requests that failed and were retried."""
        return self.trace.of(ModelRetry)

    @property
    def waits(self) -> list[ModelWait]:
        """How long requests waited for client limits."""
        return self.trace.of(ModelWait)

    @property
    def trimmings(self) -> list[ContextTrimmed]:
        """When more of the conversation was left out to fit the context window."""
        return self.trace.of(ContextTrimmed)

    @property
    def prefix_changes(self) -> list[PrefixChanged]:
        """Requests that did not begin with the whole previous one, each with the change."""
        return self.trace.of(PrefixChanged)

    @property
    def notices(self) -> list[Notice]:
        """This turn's notices."""
        return self.trace.of(Notice)

    @property
    def server_logs(self) -> list[ServerLog]:
        """Server log messages during this turn."""
        return self.trace.of(ServerLog)

    @property
    def stats(self) -> ChatStats:
        """The turn's stats."""
        return ChatStats.of(self.trace)

    @property
    def cost(self) -> Cost | None:
        """Estimated cost by the user's price table. None if price or tokens are unknown."""
        return self.stats.cost

    @property
    def messages(self) -> list[ChatMessage]:
        """The messages that this turn adds to the conversation.

        Always valid: exactly one result follows each call.
        """
        events = len(self.trace)
        if events != self._messages[0]:
            messages, all_of = self.prompt_messages, self.trace.all_of
            answers = {event.step: event for event in all_of(StepFinished)}
            ended = _by_call(all_of(ToolFinished))
            edited = {
                edit.call_id: edit.text for edit in all_of(TextEdited) if edit.call_id is not None
            }
            reports: dict[str | None, str] = {}
            for report in all_of(TaskReported):
                texts = (reports.get(report.call_id), report.text)
                reports[report.call_id] = "\n\n".join(filter(None, texts))
            for event in all_of(StepStarted):
                answer = answers.get(event.step)
                if answer is None:
                    messages += self._unfinished(event.step)
                elif not answer.dropped:
                    messages += messages_of(
                        answer.message, ended, edited, self.trace.results, reports
                    )
            self._messages = events, messages
        return self._messages[1].copy()

    def _unfinished(self, step: int) -> list[ChatMessage]:
        from casual_llm.messages import AssistantMessage

        text = self._unfinished_text(step)
        if len(text) > MAX_UNFINISHED:
            text = (
                f"{text[:MAX_UNFINISHED]}\n[… cut: {MAX_UNFINISHED:,} of {len(text):,} characters"
                " are kept …]"
            )
        if not text:
            return []
        return [AssistantMessage(content=text)]

    def _unfinished_text(self, step: int) -> str:
        return "".join(delta.text for delta in self.trace.of(TextDelta) if delta.step == step)

    def _calls_by_step(self) -> dict[int, tuple[ToolCall, ...]]:
        ended = _by_call(self.trace.of(ToolFinished))
        progress = _by_call(self.trace.of(ToolProgress))
        searches = _by_call(self.trace.of(ToolsSearched))
        skills = _by_call(self.skills_read)
        edits = grouped(self.edits, "call_id")
        waits, running = self.person_waits, self.running
        tasks = tasks_in(self.trace) if self.trace.all_of(TaskStarted) else {}
        of_apps = app_calls_in(self.trace.all_of(AppCalled))
        started = self.trace.of(ToolStarted)
        ids = {event.call_id for event in started}
        calls: dict[int, list[ToolCall]] = {
            event.step: [] for event in started if event.parent not in ids
        }
        nested: dict[str, list[ToolCall]] = {}
        # Backwards, because nested calls start after the one that makes them.
        for event in reversed(started):
            id = event.call_id
            call = ToolCall(
                id,
                event.name,
                event.tool,
                event.arguments,
                status="running" if running else "unknown",
                progress=progress.get(id),
                search=searches.get(id),
                skill=skills.get(id),
                at=event.at,
                needs_approval=id in waits.approvals,
                waiting=id in waits.waiting,
                waited=waits.calls.get(id, 0.0),
                nested=tuple(reversed(nested.get(id, ()))),
                task=tasks.get(id),
                app=event.app,
                app_calls=of_apps.get(id, ()),
            )
            if id in ended:
                call = ended_call(call, ended[id], edits.get(id, ()))
            if event.parent in ids:
                nested.setdefault(event.parent or "", []).append(call)
            else:
                calls[event.step].append(call)
        return {step: tuple(reversed(items)) for step, items in calls.items()}

    def __repr__(self) -> str:
        cut = ", cut at a token limit" if self.truncated else ""
        steps = count(len(self.trace.of(StepStarted)), "step")
        calls = count(len(self.tool_calls), "tool call")
        prompt = f" {shown(self.prompt, 40)}" if self.trace.all_of(TurnStarted) else ""
        return f"<Turn{prompt}: {self.status}{cut}, {steps}, {calls}>"


class _OfCall(Protocol):
    @property
    def call_id(self) -> str: ...


_C = TypeVar("_C", bound=_OfCall)


def _by_call(events: Iterable[_C]) -> dict[str, _C]:
    """Index the events by their call. The last one counts."""
    return {event.call_id: event for event in events}
