"""The trace of a turn, and the nouns that are views of it: Turn, Step, ToolCall."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.types.event import (
    CallStatus,
    ContentPart,
    Event,
    Notice,
    Request,
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
from casual_mcp_nb.types.tokens import TokenParts, TokenUsage
from casual_mcp_nb.types.tool import ToolName

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage

E = TypeVar("E")

UNANSWERED = "Error: this call was stopped before it had a result."


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

    def __repr__(self) -> str:
        return f"<Trace: {len(self)} events>"


@dataclass(frozen=True)
class ToolCall(Rich):
    """One call of a tool.

    Args:
        id: The call's id.
        name: The tool's name as the model wrote it.
        tool: Which tool.
        arguments: The arguments, or the text as it came where that is no JSON object.
        status: How it ended; `unknown` while it runs.
        result: The result as the model read it; empty while it runs.
        content: The result's parts as they came.
        structured: Structured content, where the tool gives it.
        seconds: How long it took; None while it runs.
        progress: The last progress that it reported.
        search: What it found, where it was a search.
    """

    id: str
    name: str
    tool: ToolName
    arguments: dict[str, Any] | str
    status: CallStatus = "unknown"
    result: str = ""
    content: tuple[ContentPart, ...] = ()
    structured: Any = None
    seconds: float | None = None
    progress: ToolProgress | None = None
    search: ToolsSearched | None = None


@dataclass(frozen=True)
class StepDiff:
    """What a request has that the one before it had not.

    Args:
        messages_added: Messages at its end.
        tools_added: Names of tools that are offered now.
        tools_removed: Names of tools that are no longer offered.
        tokens_before: Make-up of the request before; None for the first step.
        tokens: Make-up of this one.
    """

    messages_added: tuple[ChatMessage, ...]
    tools_added: tuple[str, ...]
    tools_removed: tuple[str, ...]
    tokens_before: TokenParts | None
    tokens: TokenParts


@dataclass(frozen=True)
class Step:
    """One call of the model and the calls of tools that it asked for.

    Args:
        index: Its number in the turn, from 0.
        request: Exactly what was sent; its token make-up is scaled to the provider's count where there is one.
        response: The answer; None while it runs and when it failed.
        text: The answer's text so far.
        tool_calls: The calls that it asked for, in their order.
        usage: What it cost as the provider reported it, or None.
        finish_reason: The provider's word for why it ended.
        seconds: How long the model took; None while it runs.
        first_token_seconds: How long until the first piece of text; None where none was streamed.
        previous: The request of the step before.
    """

    index: int
    request: Request
    response: AssistantMessage | None = None
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    seconds: float | None = None
    first_token_seconds: float | None = None
    previous: Request | None = dataclasses.field(default=None, repr=False)

    def diff(self) -> StepDiff:
        """What this request adds to the one of the step before; for the first step, everything."""
        before = self.previous
        old = [tool["name"] for tool in before.tools] if before else []
        new = [tool["name"] for tool in self.request.tools]
        return StepDiff(
            messages_added=self.request.messages[len(before.messages) if before else 0 :],
            tools_added=tuple(name for name in new if name not in old),
            tools_removed=tuple(name for name in old if name not in new),
            tokens_before=before.tokens if before else None,
            tokens=self.request.tokens,
        )


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
        return next((_text(m.content) for m in reversed(self.started.messages) if m.role == "user"), "")

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
                _step(
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
            messages += _step_messages(step)
        return messages

    def _calls_by_step(self) -> dict[int, tuple[ToolCall, ...]]:
        ended = {event.call_id: event for event in self.trace.of(ToolFinished)}
        progress = {event.call_id: event for event in self.trace.of(ToolProgress)}
        searches = {event.call_id: event for event in self.trace.of(ToolsSearched)}
        calls: dict[int, list[ToolCall]] = {}
        for event in self.trace.of(ToolStarted):
            call = _call(event, ended.get(event.call_id))
            call = dataclasses.replace(call, progress=progress.get(event.call_id), search=searches.get(event.call_id))
            calls.setdefault(event.step, []).append(call)
        return {step: tuple(items) for step, items in calls.items()}

    def __repr__(self) -> str:
        return f"<Turn: {self.status}, {len(self.trace.of(StepStarted))} steps, {len(self.tool_calls)} tool calls>"


def _step(
    event: StepStarted,
    answer: StepFinished | None,
    deltas: list[TextDelta],
    calls: tuple[ToolCall, ...],
    previous: Request | None,
) -> Step:
    usage = answer.usage if answer else None
    request = event.request
    if usage and usage.prompt_tokens is not None and usage.origin == "reported":
        request = dataclasses.replace(request, tokens=request.tokens.scaled_to(usage.prompt_tokens))
    return Step(
        index=event.step,
        request=request,
        response=answer.message if answer else None,
        text=_text(answer.message.content) if answer else "".join(delta.text for delta in deltas),
        tool_calls=calls,
        usage=usage,
        finish_reason=answer.finish_reason if answer else None,
        seconds=answer.at - event.at if answer else None,
        first_token_seconds=deltas[0].at - event.at if deltas else None,
        previous=previous,
    )


def _call(event: ToolStarted, end: ToolFinished | None) -> ToolCall:
    call = ToolCall(event.call_id, event.name, event.tool, event.arguments)
    if end is None:
        return call
    return dataclasses.replace(
        call,
        status=end.status,
        result=end.text,
        content=end.result.content if end.result else (),
        structured=end.result.structured if end.result else None,
        seconds=end.at - event.at,
    )


def _step_messages(step: Step) -> list[ChatMessage]:
    from casual_llm.messages import AssistantMessage, ToolResultMessage

    if step.response is None:
        return [AssistantMessage(content=step.text)] if step.text else []
    asked = step.response.tool_calls or []
    if not asked and not step.text:
        return []
    results: Mapping[str, str] = {call.id: call.result for call in step.tool_calls}
    return [
        step.response,
        *(
            ToolResultMessage(name=call.function.name, tool_call_id=call.id, content=results.get(call.id) or UNANSWERED)
            for call in asked
        ),
    ]


def _text(content: Any) -> str:
    """The text of a message's content, which is a text, a list of parts, or nothing."""
    if isinstance(content, list):
        return "\n".join(part.text for part in content if part.type == "text")
    return content or ""
