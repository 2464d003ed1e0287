"""A model's answer and its tool calls, as they come and as views of a trace.

A search result's marker is a line with only a tool's wire name, after an empty line. Text from a
server is indented and has no empty lines, so it can never look like a marker, even if the answer is
cut later. `discovery` writes the markers. Here they are read.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.arguments import parse_arguments
from casual_mcp_nb.base.callbacks import VALUE_READERS
from casual_mcp_nb.base.content import (
    ContentPart,
    LargeResult,
    PayloadPreview,
    ToolResult,
    value_of,
)
from casual_mcp_nb.base.displayable import Displayable, count
from casual_mcp_nb.base.mcp import OVER, TaskStatus
from casual_mcp_nb.base.prices import Cost, Price
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.base.whole_result import texts_of, whole_of
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    RUN_CODE,
    SYNTHETIC,
    AppCalled,
    CallStatus,
    Event,
    HostedCall,
    Request,
    SkillRead,
    StepFinished,
    StepStarted,
    TaskChanged,
    TaskEnded,
    TaskStarted,
    TextDelta,
    TextEdited,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
)
from casual_mcp_nb.conversation.stats import cost_of, counted_request
from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage


UNANSWERED = "Error: this call was stopped before it had a result."
"""The model's substitute for a missing result."""

_MAX_REASON = 300
_NO_RESULT = ToolResult()

EMPTY_RESULT = "[No content returned]"
"""Replaces an empty result, because providers refuse an empty string."""


@dataclass(frozen=True)
class CallTask:
    """The task that a call became.

    Args:
        number: Its number in `session.servers.tasks`.
        status: Its last known state.
        text: While it runs, its server's message. Then its result, or why it has none.
        asking: Whether it waits for the person.
        began: When it started, in seconds since 1970. `ended` likewise, or None.
        in_call: Whether the call waited for its end, so that the call's result is that of the task.
        result: The original result, if there is one.
    """

    number: int
    status: TaskStatus
    text: str
    asking: bool
    began: float
    ended: float | None
    in_call: bool
    result: ToolResult | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status in OVER


def tasks_in(trace: Iterable[Event]) -> dict[str, CallTask]:
    """Collect the tasks of a turn, by the id of the call that started each."""
    tasks: dict[str, CallTask] = {}
    for event in trace:
        match event:
            case TaskStarted():
                tasks[event.call_id] = CallTask(
                    event.number, "working", "", False, event.began, None, False
                )
            case TaskChanged(call_id=id) | TaskEnded(call_id=id) if id in tasks:
                task = dataclasses.replace(tasks[id], status=event.status, text=event.text)
                if isinstance(event, TaskChanged):
                    tasks[id] = dataclasses.replace(task, asking=event.asking)
                    continue
                tasks[id] = dataclasses.replace(
                    task,
                    asking=False,
                    ended=event.ended,
                    in_call=event.in_call,
                    result=event.result,
                )
    return tasks


@dataclass(frozen=True)
class ToolCall(Displayable):
    """One tool call.

    Args:
        name: The tool's name as the model wrote it.
        arguments: The arguments, or the original text if it is not a usable JSON object.
        status: `running`, or how it ended; `unknown` if its turn ended without recording that.
        result: The result as the model read it, or empty while it runs.
        original: The result as the tool returned it. A large result's texts are cut, and its
            structured content is left out.
        seconds: How long it took, without `waited`, or None while it runs.
        progress: The last progress report.
        search: The search, if it was one.
        at: When it started, in seconds since its turn started.
        unedited: The result before the person edited it, if they did.
        needs_approval: Whether it is waiting for the person's approval.
        waiting: Whether it is waiting for the person: for an approval, or because its server asked
            something.
        waited: Seconds that it waited for the person.
        nested: The calls that its function made, see `ToolContext.call_tool`.
        planned: Whether the person ran it from a plan, see `Session.plan`.
        large: Describes a result too large for the model to read in full. `value` is the full
            result.
        task: The task that the call became, if it did.
        app: The address of the page that shows its result as an app of the server, or empty.
        app_calls: The calls that this app made.
        from_app: Whether an app made it, and no model.
    """

    id: str
    name: str
    tool: ToolName
    arguments: dict[str, Any] | str
    status: CallStatus = "running"
    result: str = ""
    original: ToolResult = _NO_RESULT
    seconds: float | None = None
    progress: ToolProgress | None = None
    search: ToolsSearched | None = None
    skill: SkillRead | None = None
    at: float = 0.0
    unedited: str | None = None
    needs_approval: bool = False
    waiting: bool = False
    waited: float = 0.0
    nested: tuple[ToolCall, ...] = ()
    planned: bool = False
    large: LargeResult | None = None
    task: CallTask | None = None
    app: str = ""
    app_calls: tuple[ToolCall, ...] = ()
    from_app: bool = False

    def __repr__(self) -> str:
        return f"<ToolCall: {self.tool}, {self.status}>"

    @property
    def content(self) -> tuple[ContentPart, ...]:
        """The result's parts as they came. A large result's texts are cut."""
        return self.original.content

    @property
    def structured(self) -> Any:
        """Structured content, if the tool returned any and the result is not large."""
        return self.original.structured

    @property
    def payload(self) -> Any:
        """The value that a notebook function returned for the person, or None in a saved
        conversation.
        """
        return self.original.payload

    @property
    def previews(self) -> tuple[PayloadPreview, ...]:
        """The payload as displays show it."""
        return self.original.previews

    @property
    def returned(self) -> tuple[Any, ...]:
        """The very object that a notebook function returned, in a tuple.

        Empty for other tools and in a saved conversation.
        """
        return self.original.returned

    @property
    def mocked(self) -> bool:
        """Whether a stub answered in place of the tool, see `session.tools.mock`."""
        return self.original.mocked

    @property
    def edited(self) -> bool:
        """Whether the person edited the result before the model read it.

        `unedited` is the original.
        """
        # A search result changes when its tools are unloaded.
        return self.unedited is not None and self.search is None

    @property
    def value(self) -> Any:
        """The whole result as a Python value, as the tool returned it, even if the person edited
        the model's copy.

        For a notebook function, the very object that it returned: for a `ToolOutput` the payload or
        else the content, for a generator the list of yielded values. For other tools, built at each
        access: a pandas DataFrame for a table (a list of dicts without pandas), else a dict, a list
        or a text.

        Raises:
            UsageError: It was large, and is not in this process any more.
        """
        value = self._value()
        for read in VALUE_READERS:
            read(self, value)
        return value

    def part(self, path: str = "", *, as_text: bool = False) -> Any:
        """Get the result, or a part of it, as a model passes it to another tool: as plain JSON values
        or as text.

        Args:
            path: The part, such as `items[0].name`, `items[10:20]` or `items[*].id`. Empty for all.
            as_text: Whether a text is wanted: as the tool gave it, or else as JSON.

        Raises:
            UsageError: There is no such part, the call has no result, or it was large, and is not
                in this process any more.
        """
        from casual_mcp_nb.isolation import _query

        if self.status != "ok" or self.original.task is not None:
            raise UsageError(f"{self.tool} has no result: {shown(self.result, _MAX_REASON)}.")
        plain = False
        if self.large is not None:
            text, plain = self.large.text, self.large.source.plain
        else:
            text, _ = whole_of(self.original, texts_of(self.original) or self.result)
        try:
            return _query.part_of(text, path, as_text=as_text, plain=plain)
        except _query.BadQuery as error:
            why = shown(str(error), _MAX_REASON)
            raise UsageError(f"The result of {self.tool} has no such part: {why}.") from None

    def _value(self) -> Any:
        if self.returned:
            return self.returned[0]
        if self.large is not None:
            return self.large.value
        if self.structured is not None:
            return value_of(json.dumps(self.structured, default=str))
        texts = [part.text for part in self.content if part.kind == "text"]
        return value_of("\n".join(texts)) if texts else self.result


def with_nested(calls: Iterable[ToolCall]) -> Iterator[ToolCall]:
    """Yield each call, followed by the calls nested in it."""
    for call in calls:
        yield call
        yield from with_nested(call.nested)


def calls_of_model(calls: Iterable[ToolCall]) -> Iterator[ToolCall]:
    """Yield the calls that a model made. Programs are replaced by the calls that they made."""
    for call in calls:
        if is_program(call.tool):
            yield from call.nested
        else:
            yield call


_PROGRAM = ToolName(SYNTHETIC, RUN_CODE)


def is_program(tool: ToolName) -> bool:
    """Check whether a call runs a program that the model wrote, with the delivery `code`."""
    return tool == _PROGRAM


@dataclass(frozen=True)
class StepDiff(Displayable):
    """The changes in a request since the previous one: new messages at the end, tools, and tokens
    by part.

    `messages_left_out` counts messages at the beginning that are no longer sent.
    """

    index: int
    messages_added: tuple[ChatMessage, ...]
    tools_added: tuple[str, ...]
    tools_removed: tuple[str, ...]
    tokens_before: TokenParts | None
    tokens: TokenParts
    messages_left_out: int = 0


@dataclass(frozen=True)
class ComingRequest(Displayable):
    """A request before it is sent, as a pause shows it: its newest message comes first."""

    request: Request


@dataclass(frozen=True)
class Step(Displayable):
    """One model call with its tool calls.

    Args:
        index: Its index in `turn.steps`, from 0. Displays and magics count from 1.
        request: The exact request. Tokens by part are scaled to the provider's count, if known.
        response: The answer, or None while it runs, or if it failed.
        text: The answer's text so far.
        tool_calls: The tool calls in the answer, in order.
        usage: Tokens as reported by the provider, or None.
        finish_reason: The provider's reason for the answer's end.
        seconds: How long the model took, or None while it runs.
        first_token_seconds: Time until the first chunk of text, or None if nothing was streamed.
        previous: The previous step's request.
        cost: Estimated cost by the user's price table, or None if price or tokens are unknown.
        truncated: Whether the answer was cut at a token limit.
        hosted_calls: Tool calls that the provider ran itself for this answer.
        request_id: The provider's request id, if any, for its support.
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
    cost: Cost | None = None
    truncated: bool = False
    hosted_calls: tuple[HostedCall, ...] = ()
    request_id: str | None = None

    def __repr__(self) -> str:
        return (
            f"<Step: {count(len(self.request.messages), 'message')} in the request,"
            f" {count(len(self.tool_calls), 'tool call')}>"
        )

    def diff(self, since: Request | None = None) -> StepDiff:
        """Compare this request with an earlier one.

        Args:
            since: The earlier request, or None for the previous step's, if there is one, or else
                everything is new.
        """
        before = since or self.previous
        old, new = _tool_names(before), _tool_names(self.request)
        added, left_out = self.request.messages, 0
        if before is not None:
            added = _added(before, self.request)
            left_out = self.request.left_out - before.left_out
        return StepDiff(
            index=self.index,
            messages_added=added,
            tools_added=tuple(name for name in new if name not in old),
            tools_removed=tuple(name for name in old if name not in new),
            tokens_before=before.tokens if before else None,
            tokens=self.request.tokens,
            messages_left_out=left_out,
        )


def _tool_names(request: Request | None) -> list[str]:
    if request is None:
        return []
    return [tool["name"] for tool in (*request.tools, *request.found)]


def _added(before: Request, request: Request) -> tuple[ChatMessage, ...]:
    """List the messages from the first one that differs from the earlier request, and the system
    prompt if it changed.
    """
    system, messages = _system_and_others(request)
    old_system, old = _system_and_others(before)
    old = old[max(request.left_out - before.left_out, 0) :]
    same = 0
    for one, two in zip(old, messages, strict=False):
        if one is not two and one != two:
            break
        same += 1
    if system == old_system:
        system = ()
    return (*system, *messages[same:])


def _system_and_others(
    request: Request,
) -> tuple[tuple[ChatMessage, ...], tuple[ChatMessage, ...]]:
    system = [message for message in request.messages[:1] if message.role == "system"]
    return request.messages[: len(system)], request.messages[len(system) :]


def step_of(
    event: StepStarted,
    answer: StepFinished | None,
    deltas: list[TextDelta],
    calls: tuple[ToolCall, ...],
    previous: Request | None,
    price: Price | None = None,
) -> Step:
    """Build a step from its events."""
    step = Step(
        event.step,
        counted_request(event.request, answer),
        text="".join(delta.text for delta in deltas),
        tool_calls=calls,
        first_token_seconds=deltas[0].at - event.at if deltas else None,
        previous=previous,
    )
    if answer is None:
        return step
    return dataclasses.replace(
        step,
        response=answer.message,
        text=text_of(answer.message.content),
        usage=answer.usage,
        finish_reason=answer.finish_reason,
        request_id=answer.request_id,
        seconds=answer.at - event.at,
        cost=cost_of(answer, price),
        truncated=answer.truncated,
        hosted_calls=answer.hosted_calls,
    )


def ended_call(call: ToolCall, end: ToolFinished, edits: Sequence[TextEdited]) -> ToolCall:
    """Add to a call how it ended, and what the person made of its result."""
    text, unedited = end.text, None
    if edits:
        text, unedited = edits[-1].text, edits[0].before
    return dataclasses.replace(
        call,
        status=end.status,
        result=text,
        unedited=unedited,
        original=end.result or _NO_RESULT,
        seconds=end.at - call.at - call.waited,
        large=end.large,
    )


def app_calls_in(events: Iterable[AppCalled]) -> dict[str, tuple[ToolCall, ...]]:
    """Build the calls that apps made, by the id of the call that each app shows."""
    calls: dict[str, tuple[ToolCall, ...]] = {}
    for event in events:
        before = calls.get(event.call_id, ())
        call = ToolCall(
            f"{event.call_id}/app-{len(before) + 1}",
            wire_name(event.tool),
            event.tool,
            event.arguments,
            status=event.status,
            result=event.text,
            original=event.result or _NO_RESULT,
            seconds=event.seconds,
            at=event.at,
            from_app=True,
        )
        calls[event.call_id] = (*before, call)
    return calls


def messages_of(
    answer: AssistantMessage,
    ended: Mapping[str, ToolFinished],
    edited: Mapping[str, str],
    sent: Mapping[str, ChatMessage],
    reports: Mapping[str | None, str],
) -> list[ChatMessage]:
    """Convert an answer and its calls' results to the conversation's messages.

    By call id, `ended` is how each call ended, `edited` the text with which the person replaced its
    result, `reports` a text in its result about tasks that have ended meanwhile, and `sent` the
    result message if one was built already.
    """
    tool_calls = answer.tool_calls or []
    if not tool_calls and not text_of(answer.content):
        return []
    from casual_mcp_nb.conversation.messages import result_message

    messages: list[ChatMessage] = [answer]
    for call in tool_calls:
        id, name = call.id, call.function.name
        end = ended.get(id)
        if end is None:
            text = edited.get(id, UNANSWERED)
            messages.append(result_message(name, id, text, failed=True))
            continue
        text = with_report(edited.get(id, end.text), reports.get(id, ""))
        if id in sent and id not in edited and sent[id].content == text:
            messages.append(sent[id])
            continue
        handles = (end.large.handle,) if end.large is not None else ()
        failed = end.status != "ok"
        text = text or EMPTY_RESULT
        messages.append(
            result_message(name, id, text, failed=failed, result=end.result, handles=handles)
        )
    return messages


def with_report(text: str, report: str) -> str:
    """Add to a result's text a note on tasks that have ended meanwhile, unless it is there."""
    if not report or report in text:
        return text
    return f"{text or EMPTY_RESULT}\n\n{report}"


def text_of(content: Any) -> str:
    """Extract the text from a message's content, which is a string, a list of parts, or None."""
    if isinstance(content, list):
        return "\n".join(part.text for part in content if part.type == "text")
    return content or ""


# Chat completions and Ollama: length; Anthropic: max_tokens, model_context_window_exceeded;
# Responses: max_output_tokens, and incomplete where it gives no reason; Mistral: model_length.
_CUT = frozenset(
    {
        "length",
        "max_tokens",
        "max_output_tokens",
        "incomplete",
        "model_length",
        "model_context_window_exceeded",
    }
)


@dataclass(frozen=True)
class ModelResponse:
    """The response to one request, with the tool calls that the provider ran itself.

    The next request can be compared with the response by its id. The request's id is from the
    headers.
    """

    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    hosted_calls: tuple[HostedCall, ...] = ()
    response_id: str | None = None
    request_id: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether the answer was cut at a token limit: its own, or the context window."""
        return (self.finish_reason or "").lower() in _CUT


_MARKER = re.compile(r"(?<=\n\n)## ([A-Za-z0-9_-]{1,64})$", re.MULTILINE)
_CARD = re.compile(r"\n\n## ([A-Za-z0-9_-]{1,64})(?=\n|\Z)(?:\n(?!\n).*)*")


def unmarked(content: str) -> str:
    """Change a text so that nothing in it marks a tool as loaded."""
    return _MARKER.sub(r" ## \1", f"\n\n{content}")[2:]


def unloaded(content: str, name: str) -> str:
    """Mark a tool in an answer as unloaded by the person instead."""
    marker = re.compile(rf"(?<=\n\n)## {re.escape(name)}$", re.MULTILINE)
    return marker.sub(r" \g<0> (unloaded since by the person)", content)


def loaded_in(content: str) -> list[str]:
    """Parse the wire names of the tools that an answer presents as loaded, now or before."""
    return list(dict.fromkeys(_MARKER.findall(content)))


def without_cards(content: str, names: Collection[str]) -> str:
    """Leave these tools' cards out of an answer: the definitions that come with it have more."""

    def shortened(card: re.Match[str]) -> str:
        return "" if card[1] in names else card[0]

    return _CARD.sub(shortened, content)


class NamedCall(NamedTuple):
    """The call that a model meant, perhaps through `call_tool`.

    Arguments that are not a JSON object are its text.
    """

    name: str
    arguments: dict[str, Any] | str
    bridged: bool = False


def read_call(name: str, text: str | None) -> NamedCall:
    """Parse the call that a model meant, including one through `call_tool`, which stays itself if
    it names no tool.
    """
    return named_call(name, parse_arguments(text))


def named_call(name: str, arguments: dict[str, Any] | str) -> NamedCall:
    """Find the call that was meant, as `read_call` does, in arguments that are parsed."""
    if name != CALL_TOOL or not isinstance(arguments, dict):
        return NamedCall(name, arguments)
    inner, given = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(inner, str) or not inner or arguments.keys() - {"name", "arguments"}:
        return NamedCall(name, arguments)
    if isinstance(given, str) or given is None:
        # Some models write JSON in JSON.
        given = parse_arguments(given)
    if not isinstance(given, dict):
        given = json.dumps(given)
    return NamedCall(inner, given, bridged=True)
