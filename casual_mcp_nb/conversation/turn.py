"""A turn's trace; `Turn`, a view on it; what a person reads and edits before it runs: planned calls
and written programs.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from casual_mcp_nb.base.displayable import Displayable, DisplayableList, count
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.secret import Failure
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.codec import Unread, dump_traces, load_traces
from casual_mcp_nb.conversation.event import (
    AppCalled,
    ApprovalAsked,
    CallStatus,
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
    PersonWaits,
    Step,
    ToolCall,
    app_calls_in,
    call_of,
    messages_of,
    person_waits,
    step_of,
    tasks_in,
    text_of,
)
from casual_mcp_nb.errors import UsageError

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
        has_waited = bool(self.trace.of(ApprovalAsked)) or bool(self.trace.of(QuestionAsked))
        if not has_waited:
            return PersonWaits()
        return person_waits(self.trace)

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
            ended = {event.call_id: event for event in all_of(ToolFinished)}
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
        ended = {event.call_id: event for event in self.trace.of(ToolFinished)}
        progress = {event.call_id: event for event in self.trace.of(ToolProgress)}
        searches = {event.call_id: event for event in self.trace.of(ToolsSearched)}
        skills = {event.call_id: event for event in self.skills_read}
        edits: dict[str | None, list[TextEdited]] = {}
        for edit in self.edits:
            edits.setdefault(edit.call_id, []).append(edit)
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
            name = event.call_id
            call = call_of(
                event,
                ended.get(name),
                edits.get(name, ()),
                progress.get(name),
                searches.get(name),
                skills.get(name),
                waits,
                running,
                tuple(reversed(nested.get(name, ()))),
                tasks.get(name),
                of_apps.get(name, ()),
            )
            if event.parent in ids:
                nested.setdefault(event.parent or "", []).append(call)
            else:
                calls[event.step].append(call)
        return {step: tuple(reversed(items)) for step, items in calls.items()}

    def __repr__(self) -> str:
        cut = ", cut at a token limit" if self.truncated else ""
        steps = count(len(self.trace.of(StepStarted)), "step")
        calls = count(len(self.tool_calls), "tool call")
        return f"<Turn: {self.status}{cut}, {steps}, {calls}>"


Check = Callable[[ToolSpec, Mapping[str, Any]], Sequence[str]]
"""Returns the problems in a tool's arguments."""


@dataclass(eq=False)
class PlannedCall(Displayable):
    """A call that a model would make. To change it, assign to `arguments` or a part.

    Args:
        id: The model's call id.
        name: The tool's name as the model wrote it.
        tool: The tool, or None if there is none with that name.
        arguments: The arguments, or the model's text if that is not a JSON object.
        check: Checks the arguments.
        skipped: Whether `PlannedCalls.run` leaves it out.
        call: The call with its result, or None before `PlannedCalls.run`.
        ran: Whether its tool was called, which happens once, and never if it was denied, mocked or
            not sent.
        events: The call's events.
    """

    id: str
    name: str
    tool: ToolSpec | None
    arguments: dict[str, Any] | str
    check: Check = field(repr=False)
    skipped: bool = False
    call: ToolCall | None = field(default=None, repr=False)
    ran: bool = False
    events: tuple[Event, ...] = field(default=(), repr=False)

    @property
    def problems(self) -> tuple[str, ...]:
        """Where the current arguments break the tool's schema. Empty if nowhere."""
        if self.tool is None:
            return ("There is no such tool.",)
        if isinstance(self.arguments, str):
            return ("The arguments are not a JSON object.",)
        return tuple(self.check(self.tool, self.arguments))

    def skip(self) -> None:
        """Leave it out when all calls are run; `skipped = False` includes it again."""
        self.skipped = True


def _is_open(call: PlannedCall) -> bool:
    """Check whether a call was neither run nor skipped."""
    return call.call is None and not call.skipped


class ToolCalls(DisplayableList[ToolCall], items="_calls"):
    """Calls that were run."""

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        self._calls = tuple(calls)

    def __repr__(self) -> str:
        return f"<ToolCalls: {len(self)}>"


class PlannedCalls(DisplayableList[PlannedCall], items="_calls"):
    """The calls that a model would make to answer a prompt. Only searches for tools were run.

    Args:
        turn: The planning turn, with its searches, requests and tokens. The conversation does not
            include it.
        run: Runs calls and waits.
        run_async: Runs calls, to be awaited.
        resume: Continues the conversation and waits. Takes a notebook's live output.
        resume_async: Continues the conversation, to be awaited.
    """

    def __init__(
        self,
        turn: Turn,
        calls: Iterable[PlannedCall],
        run: Callable[[Sequence[PlannedCall]], ToolCalls],
        run_async: Callable[[Sequence[PlannedCall]], Awaitable[ToolCalls]],
        resume: Callable[[Any], Turn],
        resume_async: Callable[[Any], Awaitable[Turn]],
    ) -> None:
        self.turn = turn
        self._calls = tuple(calls)
        self._run, self._run_async = run, run_async
        self._resume, self._resume_async = resume, resume_async
        self._lock = threading.Lock()
        self._running: set[str] = set()

    @property
    def answer(self) -> str:
        """The model's text beside the calls, or instead of any."""
        return self.turn.answer

    def run(self, *indices: int) -> ToolCalls:
        """Run the calls, at the same time, as a turn would: the person is asked according to the
        policy.

        The conversation does not change. `resume` gives the results to the model. Each call's tool
        is called once.

        Args:
            indices: Which calls, from 0. Without any, all that were neither run nor skipped.

        Returns:
            The calls with their results.

        Raises:
            UsageError: There is no such index, a call was run already, or a tool definition has
                changed since the model read it. Nothing was run.
        """
        with self._chosen(indices) as calls:
            return self._run(calls)

    async def run_async(self, *indices: int) -> ToolCalls:
        """Run the calls as `run` does. To be awaited."""
        with self._chosen(indices) as calls:
            return await self._run_async(calls)

    def resume(self, *, echo: Literal["none", "text", "output", "all"] = "output") -> Turn:
        """Continue the conversation: the model reads the calls' results, and answers or calls more
        tools.

        The planned turn joins the conversation, with the arguments as they were run. The model
        reads which calls you skipped. Options stay as given to `Session.plan`.

        Args:
            echo: See `Session.chat`.

        Returns:
            The turn, like `Session.chat`.

        Raises:
            UsageError: A call was neither run nor skipped, the conversation has changed since the
                plan, or a turn is running.
        """
        self._check_complete()
        return self._resume(echo)

    async def resume_async(
        self, *, echo: Literal["none", "text", "output", "all"] = "output"
    ) -> Turn:
        """Continue the conversation as `resume` does. To be awaited."""
        self._check_complete()
        return await self._resume_async(echo)

    def _check_complete(self) -> None:
        with self._lock:
            waiting = [
                n for n, each in enumerate(self) if each.id in self._running or _is_open(each)
            ]
        if waiting:
            raise UsageError(
                f"Planned call {waiting[0]} was not run or skipped.",
                hint=f"Run it: plan.run({waiting[0]}). Or leave it out: plan[{waiting[0]}].skip().",
            )

    @contextmanager
    def _chosen(self, indices: Sequence[int]) -> Iterator[list[PlannedCall]]:
        for index in indices:
            if not -len(self) <= index < len(self):
                raise UsageError(
                    f"There is no planned call {index}.", hint=f"There are {len(self)}, from 0."
                )
        numbers = list(dict.fromkeys(index % len(self) for index in indices))
        with self._lock:
            for number in numbers:
                if self[number].ran or self[number].id in self._running:
                    raise UsageError(
                        f"Planned call {number} has already run, and runs only once.",
                        hint=(
                            f"Its result: plan[{number}].call. To make it again, call the tool:"
                            " session.tools.call(…)."
                        ),
                    )
            chosen = [self[number] for number in numbers]
            if not indices:
                chosen = [each for each in self if _is_open(each) and each.id not in self._running]
            self._running |= {each.id for each in chosen}
        try:
            yield chosen
        finally:
            with self._lock:
                self._running -= {each.id for each in chosen}

    def __repr__(self) -> str:
        return f"<PlannedCalls: {', '.join(each.name for each in self) or 'none'}>"


@dataclass(frozen=True)
class WrittenCall:
    """A call of a tool in a program that a model wrote.

    Attributes:
        policy: The tool's policy of approval.
        reason: Why the call will ask for approval. Empty if it will not.
        included: Whether the selection includes the tool. Otherwise, the call will be refused.
    """

    tool: ToolSpec
    line: int
    policy: str = "default"
    reason: str = ""
    included: bool = True


ProgramState = Literal["not run", "ok", "failed", "stopped"]
"""What became of a program that a model wrote.

- `not run`: this version has not run.
- `ok`: its last run ended without an error.
- `failed`: its last run ended with an error.
- `stopped`: its last run was interrupted.
"""


@dataclass(frozen=True)
class WrittenProgram(Displayable):
    """A program that a model wrote for a notebook cell, at one moment.

    Attributes:
        calls: The calls of tools that the text of the program shows.
        round: How often the program was corrected before this version, of `rounds` times at most.
        difference: The lines that the correction changed, as a unified diff.
        error: How the last run failed. Empty if it did not.
        call_counts: How many calls the last run made, by their status.
        stats: What writing it has cost, with all earlier versions.
        remarks: What else in it a person should know about before it runs, with the line.
        may_call_any_tool: Whether its text leaves open which tools it calls.
    """

    task: str
    code: str
    calls: tuple[WrittenCall, ...] = ()
    round: int = 0
    rounds: int = 0
    difference: str = ""
    state: ProgramState = "not run"
    error: str = ""
    call_counts: Mapping[CallStatus, int] = field(default_factory=dict)
    stats: ChatStats = field(default_factory=ChatStats)
    remarks: tuple[tuple[int, str], ...] = ()
    may_call_any_tool: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Convert it to JSON values, with the requests that writing it took and their tokens."""
        names = ("task", "code", "round", "rounds", "difference", "state", "error")
        calls = [
            {
                "tool": str(call.tool.tool_name),
                "line": call.line,
                "policy": call.policy,
                "asks": call.reason,
                "included": call.included,
            }
            for call in self.calls
        ]
        written = {"requests": self.stats.llm_calls, "tokens": self.stats.sent_tokens}
        return {
            **{name: getattr(self, name) for name in names},
            "calls": calls,
            "may_call_any_tool": self.may_call_any_tool,
            "remarks": [{"line": line, "text": text} for line, text in self.remarks],
            "call_counts": dict(self.call_counts),
            **written,
        }
