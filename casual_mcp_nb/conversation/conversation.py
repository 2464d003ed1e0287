"""A conversation: its turns, the list of saved conversations, messages that become turns, and the
part of a turn that is repeated after an edit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, overload

from pydantic import Field, TypeAdapter, ValidationError

from casual_mcp_nb.base.displayable import Displayable, DisplayableList, count
from casual_mcp_nb.base.limits import read_json
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.tokens import Origin
from casual_mcp_nb.base.wire_names import is_wire_name
from casual_mcp_nb.conversation.event import (
    FINDING,
    Event,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    RequestEdited,
    StepFinished,
    StepStarted,
    TaskReported,
    TextDelta,
    TextEdited,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    as_in_a_file,
)
from casual_mcp_nb.conversation.repair import repaired, repaired_traces
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.conversation.step import EMPTY_RESULT, UNANSWERED, Step, ToolCall, text_of
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.conversation.usage import ToolUsage, usage_of
from casual_mcp_nb.conversation.written_program import WrittenProgram
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief, shown

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage


class Conversation(Sequence[Turn], Displayable):
    """A conversation's turns, oldest first.

    Attributes:
        repairs: The repairs on loading, one sentence per kind. Of another agent's session, also
            what was not understood. Of one that `%mcp resume` returns, also what is not available.
        unread_records: How many lines and other records of another agent's session were not
            understood.
    """

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._turns = tuple(turns)
        self._unread: Mapping[str, Any] = {}
        self.repairs: tuple[str, ...] = ()
        self.unread_records: int = 0

    @overload
    def __getitem__(self, key: int) -> Turn: ...
    @overload
    def __getitem__(self, key: slice) -> Conversation: ...
    def __getitem__(self, key: int | slice) -> Turn | Conversation:
        if isinstance(key, slice):
            return Conversation(self._turns[key])
        return self._turns[key]

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def messages(self) -> list[ChatMessage]:
        """All messages. Always valid: exactly one result follows each call."""
        return list(chain.from_iterable(turn.messages for turn in self))

    @property
    def stats(self) -> ChatStats:
        """The whole conversation's stats."""
        return sum((turn.stats for turn in self), ChatStats())

    @property
    def usage(self) -> ToolUsage:
        """How the tools were used in this conversation: offered, found, called.

        `session.tools.usage()` has it for all saved conversations.
        """
        return usage_of(self, unread_records=self.unread_records)

    def as_in_a_file(self) -> Conversation:
        """Copy the conversation in the form for files: values that stay in the kernel are only
        described.
        """
        conversation = Conversation(Turn(Trace(map(as_in_a_file, turn.trace))) for turn in self)
        conversation.repairs = self.repairs
        conversation.unread_records = self.unread_records
        return conversation

    def to_json(self, programs: Iterable[WrittenProgram] = ()) -> str:
        """Format the whole conversation as JSON that `from_json` can load.

        The `programs`, which models wrote for notebook cells meanwhile, are in its field
        `written_cells`.
        """
        from casual_mcp_nb.conversation.codec import dump_traces

        more = dict(self._unread)
        cells = [program.as_dict() for program in programs]
        if cells:
            more["written_cells"] = cells
        return dump_traces((turn.trace for turn in self), more)

    @classmethod
    def from_json(cls, text: str | bytes) -> Conversation:
        """Load a conversation from `to_json`.

        An invalid one is repaired, and `repairs` lists the changes.

        Raises:
            UsageError: It is not a saved conversation, or is damaged or from a later version.
        """
        from casual_mcp_nb.conversation.codec import load_traces

        traces, unread = load_traces(text, Trace)
        traces, repairs = repaired_traces(traces)
        conversation = cls(Turn(_ended(trace)) for trace in traces)
        conversation._unread, conversation.repairs = unread, repairs
        return conversation

    @classmethod
    def load(cls, path: str | Path) -> Conversation:
        """Load a conversation: one that `session.export` saved as JSON, a session of Claude Code
        or Codex, or another agent's spans of OpenTelemetry as JSON.

        Nothing in it is executed. In another agent's session, probable secrets are masked, and
        `repairs` says what was not understood.

        Args:
            path: The file.

        Raises:
            UsageError: The file does not exist, or is not a saved conversation.
        """
        from casual_mcp_nb.conversation.foreign.opening import check_saved, opened, read_foreign
        from casual_mcp_nb.conversation.foreign.turns import notes_on, turns_of

        path = Path(path).expanduser()
        draft = read_foreign(path)
        if draft is not None:
            notes = notes_on(draft)
            conversation = cls(turns_of(draft))
            conversation.repairs = notes
            conversation.unread_records = draft.unread.total()
            return conversation
        check_saved(path)
        with opened(path) as file:
            text = file.read()
        return cls.from_json(text)

    def __repr__(self) -> str:
        return f"<Conversation: {count(len(self), 'turn')}>"


def _ended(trace: Trace) -> Trace:
    if not trace.of(TurnFinished):
        trace.append(TurnFinished("stopped", "It was saved before it ended.", trace.last_at))
    return trace


StoredStatus = Literal["active", "archived"]
"""Where a stored conversation is listed.

- `active`: in the list of conversations.
- `archived`: only among the archived ones.
"""


@dataclass(frozen=True)
class ForkedFrom:
    """Where a conversation was forked: its id, the last turn by index, and the last step in that
    turn if others followed.
    """

    id: str
    turn: int
    step: int | None = None


@dataclass(frozen=True)
class SavedSession:
    """What opens a conversation's session again in another process. Secrets are never in it.

    A file with saved conversations may come from anybody, so the person is asked about the servers
    in it as about those of a config file, unless they typed them in the same notebook.

    Args:
        notebook: The notebook's file, or the working folder if there is none.
        config: The config file, or None if the session had none.
        content: The config itself if it had no file.
        added: The servers that were added to the config, as in a config's `servers`.
        found: Those of them that a catalog or a registry named.
        lost: What cannot be opened again, by name, with the reason.
        name: The session's name.
        strict: Whether the session itself was strict.
        approval: When calls need approval, by server, as the session was told.
        widgets: The widgets that were shown, `explorer` and `panel`.
        variables: The notebook's variables with values that no file has, each with the code that
            makes its value again.
    """

    notebook: str = ""
    config: str | None = None
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    added: Mapping[str, Any] = field(default_factory=dict, repr=False)
    found: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    strict: bool = False
    approval: Mapping[str, Any] = field(default_factory=dict)
    widgets: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConversationHead:
    """A conversation's settings. Its events are in its turns."""

    model: str | None = None
    system: str | None = field(default=None, repr=False)
    selection: Mapping[str, Any] = field(default_factory=dict, repr=False)
    forked_from: ForkedFrom | None = None
    session: SavedSession | None = None


@dataclass(frozen=True)
class StoredConversation(Displayable):
    """A saved conversation. Unless renamed, it is titled by its first words.

    Times are in the time zone in which it was changed. Tokens count all requests, at the prices of
    that time. `damaged` names what the file has of it and cannot be read, such as `head`. Something
    neutral replaces that.
    """

    id: str
    title: str
    status: StoredStatus
    created: datetime
    changed: datetime
    head: ConversationHead
    turns: int = 0
    tokens: int | None = None
    origin: Origin = "reported"
    cost: Cost | None = None
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredConversations(DisplayableList[StoredConversation]):
    """Saved conversations, the last changed one first.

    With `find`, the list is read when it is first counted, iterated or displayed. `place` is the
    file, and `total` includes those beyond the limit.
    """

    conversations: tuple[StoredConversation, ...] = ()
    place: str = ""
    problem: str = ""
    total: int = 0
    find: Callable[[], StoredConversations] | None = field(default=None, repr=False, compare=False)

    def read(self) -> StoredConversations:
        """Read the list, once."""
        return self._read if self.find is not None else self

    @cached_property
    def _read(self) -> StoredConversations:
        return self.find() if self.find is not None else self

    @property
    def _items(self) -> tuple[StoredConversation, ...]:
        return self.read().conversations


Prompt: TypeAlias = "str | Sequence[ChatMessage | Mapping[str, Any]]"


def as_messages(prompt: Prompt) -> list[ChatMessage]:
    """Convert a prompt to messages: a text, or messages of casual-llm or as mappings, `{"role":
    "user", "content": "Hello"}`.

    Raises:
        UsageError: It is neither.
    """
    if isinstance(prompt, str):
        from casual_llm.messages import UserMessage

        return [UserMessage(content=prompt)]
    if not isinstance(prompt, Iterable) or isinstance(prompt, bytes | Mapping):
        raise UsageError(f"The messages cannot be {brief(prompt)}.", hint=_MESSAGES)
    messages = list(prompt)
    for index, message in enumerate(messages):
        # The role tells it from a mapping, and a check of the class would be slower.
        if not hasattr(message, "role"):
            messages[index] = _message_of(message, index + 1)
    return messages  # type: ignore[return-value]


_MESSAGES = 'Give a text, or a list of messages such as {"role": "user", "content": "Hello"}.'


@cache
def _any_message() -> TypeAdapter[ChatMessage]:
    from casual_llm.messages import ChatMessage

    return TypeAdapter(Annotated[ChatMessage, Field(discriminator="role")])


def _message_of(given: object, number: int) -> ChatMessage:
    if not isinstance(given, Mapping):
        raise UsageError(f"Message {number} cannot be {brief(given)}.", hint=_MESSAGES)
    try:
        message: ChatMessage = _any_message().validate_python(dict(given))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = "".join(f"{part}: " for part in problem["loc"][1:2])
        raise UsageError(
            f"Message {number} is not valid: {where}{problem['msg']}.", hint=_MESSAGES
        ) from None
    return message


def added_turns(messages: Prompt, before: Iterable[ChatMessage] = ()) -> list[Turn]:
    """Convert messages to turns: each begins with a person's message, and no model is asked in any.

    A call gets another id if the conversation `before` uses it already. A UsageError if a provider
    would not accept the messages in this order.
    """
    whole = list(map(_checked_message, as_messages(messages)))
    if not whole:
        raise UsageError("There are no messages to add.")
    _check_order(whole)
    taken: set[str] = set()
    for message in before:
        taken.update(call.id for call in _calls(message))
    whole, _ = repaired(whole, taken)
    starts = [0]
    for number, (before_it, message) in enumerate(pairwise(whole), 1):
        if message.role == "user" and before_it.role != "user":
            starts.append(number)
    now = time.time()
    turns: list[Turn] = []
    for start, end in pairwise([*starts, len(whole)]):
        begin = TurnStarted(tuple(whole[start:end]), model="", began=now)
        turns.append(Turn(Trace([begin, TurnFinished("done")])))
    return turns


def _checked_message(message: Any) -> ChatMessage:
    from casual_llm.messages import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage

    match message:
        case SystemMessage():
            raise UsageError("A system message cannot be added.", hint="Set session.system.")
        case ToolResultMessage():
            if message.content:
                return message
            return message.model_copy(update={"content": EMPTY_RESULT})
        case AssistantMessage():
            for call in _calls(message):
                _check_call(call.function.name, call.function.arguments)
            if not message.tool_calls and not text_of(message.content):
                raise UsageError("A model's message needs a text or a call.")
            return message
        case UserMessage():
            if not message.content:
                raise UsageError("A person's message is empty.")
            return message
    raise UsageError(f"A message cannot be {brief(message)}.", hint=_MESSAGES)


def _check_call(name: str, arguments: str) -> None:
    if not is_wire_name(name):
        raise UsageError(
            f"{shown(name)} cannot be the name of a called tool.",
            hint="Use its wire name, such as math__add.",
        )
    if not isinstance(read_json(arguments), dict):
        raise UsageError(
            f"The arguments of a call of {name} are not a JSON object: {brief(arguments)}."
        )


def _check_order(messages: Sequence[ChatMessage]) -> None:
    """Check that each call is followed by its result, and each result belongs to a call."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise UsageError(
                    f"The result {shown(message.tool_call_id)} does not follow a call with that id."
                )
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            break
        ids = [call.id for call in _calls(message)]
        if len(set(ids)) < len(ids) or "" in ids:
            raise UsageError("Calls in one message need different ids.")
        waiting = ids
    if waiting:
        raise UsageError(
            f"The call {shown(waiting[0])} has no result.",
            hint="Add a ToolResultMessage behind its message.",
        )


def _calls(message: ChatMessage | AssistantMessage) -> Sequence[Any]:
    return getattr(message, "tool_calls", None) or ()


def recorded_steps(
    turn: Turn, step: int, *, result: str | Mapping[str, str] | None = None, text: str | None = None
) -> Turn:
    """Cut a turn to the part that will be repeated.

    It continues from a step, by its index. Negative ones count from the end. `result` replaces its
    call's result (a mapping by tool or call id for several), `text` the model's text. Without both,
    that step is left out as well. A UsageError if there is no such step, or nothing in it to
    replace.
    """
    steps = turn.steps
    if not -len(steps) <= step < len(steps):
        hint = "The model was not asked in this turn."
        if steps:
            hint = f"There are {len(steps):,}, counted from 0."
        raise UsageError(f"There is no steps[{step}] in this turn.", hint=hint)
    at = steps[step]
    changed = result is not None or text is not None
    if changed and at.response is None:
        raise UsageError(
            "The model did not finish this step.",
            hint="Without result and text, it is asked again.",
        )
    edits = _edits(at, result)
    begin = turn.started
    if turn.edits:
        begin = replace(begin, messages=tuple(turn.prompt_messages))
    if text is not None:
        text = _checked_text(at, text)
    recorded = Trace([begin, *_until(turn, at.index + changed, text)])
    # A call that was stopped is not still running in the new turn.
    ended = {event.call_id for event in recorded.of(ToolFinished)}
    for started in recorded.of(ToolStarted):
        if started.call_id not in ended:
            end = ToolFinished(
                started.step,
                started.call_id,
                started.tool,
                "stopped",
                UNANSWERED,
                at=recorded.last_at,
            )
            recorded.append(end)
    for call, new in edits:
        recorded.append(TextEdited(at.index + 1, call.id, new, call.result, recorded.last_at))
    return Turn(recorded)


def _until(turn: Turn, end: int, text: str | None) -> Iterator[Event]:
    """Yield the events before step `end`. If `text` is given, it replaces the last answer."""
    step, calls = -1, set()
    for event in turn.trace:
        if isinstance(event, StepStarted):
            step = event.step
        if isinstance(event, ToolStarted) and step < end:
            calls.add(event.call_id)
        if isinstance(event, RequestEdited) and event.step >= end:
            continue
        # A pause before the first step does not count as time taken; what was unloaded later stays
        # unloaded.
        is_pause = isinstance(event, QuestionAsked | QuestionAnswered) and step < end
        is_report = isinstance(event, TaskReported) and event.call_id is None
        if (
            0 <= step < end
            or is_pause
            or is_report
            or (isinstance(event, TextEdited) and event.call_id in calls)
        ):
            if text is None or step < end - 1:
                yield event
            elif isinstance(event, StepFinished):
                from casual_llm.messages import AssistantMessage

                # Without the provider's state, which has the old text in it, and which may be
                # signed.
                message = AssistantMessage(content=text, tool_calls=event.message.tool_calls)
                yield replace(
                    event, message=message, truncated=False, response_id=None, request_id=None
                )
                yield Notice("The text of this step was replaced.", at=event.at)
            elif not isinstance(event, TextDelta):
                yield event


def _checked_text(step: Step, text: str) -> str:
    if not isinstance(text, str) or not (text.strip() or step.tool_calls):
        raise UsageError(f"text cannot be {brief(text)}.", hint="It replaces the model's text.")
    return text


def _edits(step: Step, result: str | Mapping[str, str] | None) -> list[tuple[ToolCall, str]]:
    if result is None:
        return []
    calls = {call.id: call for call in step.tool_calls if call.name not in FINDING}
    if not calls:
        what = "only searched for tools" if step.tool_calls else "called no tool"
        raise UsageError(f"This step {what}, so it has no result to replace.")
    if isinstance(result, str):
        if len(calls) > 1:
            names = ", ".join(f"{call.tool}" for call in calls.values())
            raise UsageError(
                f"This step made {len(calls):,} calls: {names}.",
                hint='Name one: result={"server:tool": "…"}.',
            )
        result = dict.fromkeys(calls, result)
    edits = []
    for name, new in result.items():
        named = [call for call in calls.values() if name in (call.id, str(call.tool), call.name)]
        if len(named) != 1:
            known = list(calls) if named else [str(call.tool) for call in calls.values()]
            raise UnknownNameError("call of this step", str(name), known)
        if not isinstance(new, str):
            raise UsageError(
                f"A result cannot be {brief(new)}.", hint="It is the text that the model reads."
            )
        edits.append((named[0], new))
    return edits
