"""A turn's typed events. The engine emits them.

Everything that is shown or counted is derived from them.

All are frozen. `at` is seconds since the turn began. `step` is an index in `turn.steps`, from 0;
displays and magics count from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.base.content import LargeResult, ToolResult, in_a_file
from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.mcp import TaskStatus
from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.prices import Price
from casual_mcp_nb.base.search import RankedBy
from casual_mcp_nb.base.secret import Failure
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.base.tool import SYNTHETIC as SYNTHETIC
from casual_mcp_nb.base.tool import Permission, ToolName

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage


CallStatus = Literal["running", "ok", "error", "denied", "stopped", "timeout", "unknown"]
"""How a tool call ended, or that it has not.

- `running`: it has not ended.
- `ok`: there is a result that is not an error.
- `error`: the tool or its server failed, or the call could not be made.
- `denied`: it was not approved, so it was not run.
- `stopped`: it was cancelled, usually because its turn was stopped.
- `timeout`: it reached its time limit.
- `unknown`: its turn is over, and its end was not recorded.
"""

TurnStatus = Literal["running", "done", "stopped", "failed"]
"""How a turn ended, or that it has not.

- `running`: it has not ended.
- `done`: the model gave its answer, or, for a plan, its calls.
- `stopped`: it was cancelled, or saved before it ended.
- `failed`: an error ended it.
"""

SEARCH_TOOLS = "search_tools"
"""The search tool's name. Defined only here. Use `SearchToolsTool.name` elsewhere."""

OTHER_SEARCH_TOOLS = "search-tools"
"""The search tool's name in casual-mcp, whose prompts and conversations make models call it."""

BROWSE_TOOLKIT = "browse_toolkit"
LOAD_TOOLS = "load_tools"
UNLOAD_TOOLS = "unload_tools"

FINDING = frozenset({SEARCH_TOOLS, BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS})
"""The synthetic tools with which a model finds others."""

READ_SKILL = "read_skill"
"""The name of the synthetic tool that reads a skill of a server."""

READ_RESULT = "read_result"
"""The synthetic tool that reads more of a large result."""

CALL_TOOL = "call_tool"
"""The name under which a model calls the tools that it found, with the delivery `bridge`."""

RUN_CODE = "run_code"
"""The synthetic tool that runs a model's program, with the delivery `code`."""

PACKAGE_TOOLS = FINDING | {READ_SKILL, READ_RESULT, CALL_TOOL, RUN_CODE}
"""The names of all of this package's tools in requests. No server's tool has such a name there."""

UNKNOWN = "_unknown"
"""The server name under which unknown tools are counted."""


@dataclass(frozen=True, slots=True)
class SearchRow:
    """One tool returned by a search.

    Args:
        score: Its score, or None if it was requested by name.
        newly_loaded: Whether this search loaded it.
        same_server: Whether it is included, without a match or score, because it shares a server
            with the best match.
        words: The query words that it contains, in the query's order.
    """

    tool: ToolName
    score: float | None
    newly_loaded: bool
    same_server: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request(Displayable):
    """One model call's exact request.

    Args:
        messages: All messages, the system message first.
        tools: The definitions offered, each with `name`, `description` and `parameters`.
        tokens: Its size by part.
        left_out: How many old messages were left out to fit the context window.
        options: The options sent with it, such as `temperature`: see `RequestOptions`. Headers are
            left out.
        delivery: How the model gets the tools that searches found.
        found: With `native`, their definitions, in the order in which they were found. Otherwise,
            empty.
        reused: Estimated tokens at the beginning that repeat the previous request, even from an
            earlier turn. A provider that caches bills them at a fraction. Providers render tools
            first, then the system prompt, then messages. None for a conversation's first request.
        reused_tools: How many tools repeat, from the first one on.
        reused_messages: How many messages repeat, from the first one on, or 0 if the tools differ.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...]
    tokens: TokenParts
    left_out: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    delivery: Delivery = "definitions"
    found: tuple[Mapping[str, Any], ...] = ()
    reused: int | None = None
    reused_tools: int = 0
    reused_messages: int = 0


@dataclass(frozen=True)
class TurnStarted(Displayable):
    """A turn started.

    Args:
        messages: The new messages, usually one.
        model: The model name, or empty if the turn was added without asking a model.
        tool_set: The toolset's name, `custom` for one without a name, None for all tools.
        discovery: Whether deferred tools were hidden behind the search tool.
        loaded: Tools loaded at the start, without the search tool.
        deferred: Searchable tools.
        undeferred_tokens: Definition tokens if every tool were loaded: the baseline for savings.
        provider: The model's provider, if known; `offline` means a deterministic planner, not a
            language model.
        price: The model's price in the user's price table, if it has one.
        began: When it started, in seconds since 1970, or None in older files. An event's time is
            that and its `at`.
        recorded: How many steps at the beginning were copied from another turn, without asking a
            model.
        agent: Which other agent made the turn, as `Conversation.load` read it, or empty.
    """

    messages: tuple[ChatMessage, ...]
    model: str
    tool_set: str | None = None
    discovery: bool = False
    loaded: int = 0
    deferred: int = 0
    undeferred_tokens: int = 0
    at: float = 0.0
    provider: str | None = None
    price: Price | None = None
    began: float | None = None
    recorded: int = 0
    agent: str = ""


@dataclass(frozen=True, slots=True)
class TextEdited(Displayable):
    """The person edited a text that the model was about to read.

    Args:
        step: The step whose request contains it.
        call_id: The call whose result it was, or None for the person's message.
        text: The new text.
        before: The original text.
    """

    step: int
    call_id: str | None
    text: str
    before: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestEdited(Displayable):
    """The person changed the system prompt or the tools until the turn ends.

    Args:
        step: The first step whose request is changed.
        system: The new system prompt, or None if it stays as it is.
        off: Tools that are not offered any more.
        loaded: Deferred tools whose definitions are sent from now on.
    """

    step: int
    system: str | None = None
    off: tuple[ToolName, ...] = ()
    loaded: tuple[ToolName, ...] = ()
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ContextTrimmed(Displayable):
    """From this step on, the oldest exchanges are no longer sent.

    The conversation itself keeps them.

    Args:
        messages: Messages left out, over the whole conversation.
        exchanges: Exchanges left out: a user message with everything that followed.
        window: The context window in tokens.
    """

    step: int
    messages: int
    exchanges: int
    window: int
    at: float = 0.0


PrefixCause = Literal[
    "found",
    "unloaded",
    "definition",
    "large_result",
    "selection",
    "delivery",
    "tools",
    "system",
    "trimmed",
    "messages",
    "options",
    "model",
]
"""Why a request does not begin with the previous one.

- `found`: a search added tools.
- `unloaded`: found tools were removed again.
- `definition`: servers changed the tool definitions.
- `large_result`: the tool that reads large results is offered from now on.
- `selection`: the person chose other tools.
- `delivery`: found tools are delivered differently.
- `tools`: other tools are offered, for another reason.
- `system`: the system prompt differs.
- `trimmed`: the oldest messages are left out.
- `messages`: an earlier message differs.
- `options`: an option that providers render before the messages differs.
- `model`: another model is asked.
"""


@dataclass(frozen=True, slots=True)
class PrefixChanged(Displayable):
    """A request does not begin with the whole previous one: everything after the change is billed
    in full again.

    Args:
        step: The request's step.
        kept: Estimated tokens in the previous request up to the change.
        lost: Estimated tokens in it after the change.
        names: The tools that were added, removed or changed, by wire name. At most 12.
    """

    step: int
    cause: PrefixCause
    kept: int
    lost: int
    names: tuple[str, ...] = ()
    at: float = 0.0


@dataclass(frozen=True)
class StepStarted(Displayable):
    """A model call started. Steps count from 0 in each turn.

    Args:
        undeferred_tokens: Definition tokens if every tool were loaded, or None if unchanged since
            the turn started.
    """

    step: int
    request: Request
    at: float = 0.0
    undeferred_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TextDelta(Displayable):
    """A chunk of the answer's text arrived. An answer that is not streamed comes whole, at once."""

    step: int
    text: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class HostedCall:
    """A hosted tool call: the provider ran it itself. No server, approval or limit was involved.

    Args:
        name: The provider's tool name.
        arguments: The model's arguments, cut.
        result: The provider's report, cut. The provider gets it back in full.
        failed: Whether it reports an error.
    """

    name: str
    arguments: str
    result: str = ""
    failed: bool = False


@dataclass(frozen=True)
class StepFinished(Displayable):
    """The model answered.

    Args:
        message: The answer, with unique and non-empty ids on its calls.
        usage: Tokens as reported by the provider, or None if it did not.
        finish_reason: The provider's reason for the answer's end, if given.
        truncated: Whether the answer was cut at a token limit.
        hosted_calls: Tool calls that the provider ran itself for this answer.
        response_id: The provider's response id, if any.
        request_id: The provider's request id from the response headers, if any.
        dropped: Whether the answer was discarded, with an empty message, and another step asks
            again.
    """

    step: int
    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    at: float = 0.0
    truncated: bool = False
    hosted_calls: tuple[HostedCall, ...] = ()
    response_id: str | None = None
    request_id: str | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class ModelRetry(Displayable):
    """A model request failed and will be retried after a delay.

    Args:
        attempt: Attempts so far.
        seconds: The delay.
        reason: A short reason.
    """

    step: int
    attempt: int
    seconds: float
    reason: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelWait(Displayable):
    """A model request is delayed.

    Args:
        seconds: The delay. Another one can follow.
        reason: Why, in short: a client limit, or a pause that the provider requested.
    """

    step: int
    seconds: float
    reason: str
    at: float = 0.0


@dataclass(frozen=True)
class ToolStarted(Displayable):
    """A tool call started.

    Args:
        step: The step that made the call.
        call_id: The call's id, unique in the conversation.
        name: The tool's name as the model wrote it, limited to characters that providers accept.
        tool: The tool. Its server is `_synthetic` for a synthetic tool, and `_unknown` for an
            unknown name.
        arguments: The arguments, or the original text if it is not a usable JSON object.
        wire_name: The tool's wire name, whatever spelling the model used, or empty if there is no
            such tool.
        parent: The id of the call whose function made this one, or None if the model called.
        app: The address of the page that shows its result as an app of the server (MCP Apps), or
            empty.
    """

    step: int
    call_id: str
    name: str
    tool: ToolName
    arguments: dict[str, Any] | str
    at: float = 0.0
    wire_name: str = ""
    parent: str | None = None
    app: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalAsked(Displayable):
    """A call started to wait for the person's approval."""

    call_id: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ApprovalAnswered(Displayable):
    """The person approved or denied the call. Its final status tells which."""

    call_id: str
    at: float = 0.0


QuestionKind = Literal["step", "form", "link", "sampling"]
"""What the person is asked.

- `step`: how to continue at a pause in step mode.
- `form`: to fill in a server's form.
- `link`: to open a page that a server names.
- `sampling`: whether a server gets an answer from the model.
"""


@dataclass(frozen=True, slots=True)
class QuestionAsked(Displayable):
    """The turn started to wait for the person, for another reason than an approval.

    Args:
        id: Identifies the question in its turn.
        kind: Its kind.
        server: The server that asks, or None for a pause before a model call.
    """

    id: str
    kind: QuestionKind
    server: str | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class QuestionAnswered(Displayable):
    """The person answered, or nobody did in time."""

    id: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolProgress(Displayable):
    """A running call reported progress.

    Args:
        progress: The progress so far.
        total: The total, if the server reported one.
        text: The server's message.
    """

    call_id: str
    progress: float
    total: float | None = None
    text: str | None = None
    at: float = 0.0

    @property
    def message(self) -> str | None:
        """The older name for `text`."""
        return self.text


@dataclass(frozen=True)
class ToolFinished(Displayable):
    """A call ended, successfully or not.

    Args:
        step: The step that made the call.
        status: How it ended.
        text: The result as the model reads it.
        permission: Who decided whether it may run, or None for a call that did not get that far.
        result: The original result, if any. Large texts are cut.
        large: Describes a result that was too large for the model.
    """

    step: int
    call_id: str
    tool: ToolName
    status: CallStatus
    text: str
    result: ToolResult | None = None
    at: float = 0.0
    permission: Permission | None = None
    large: LargeResult | None = None


@dataclass(frozen=True, slots=True)
class TaskStarted(Displayable):
    """A call became a task, which its server continues after the call.

    Args:
        step: The step that made the call.
        number: The task's number, by which the person and the model know it.
        tool: The tool that runs.
        task_id: The server's name for the task, with which it is polled, by another process too.
        began: When it started, in seconds since 1970.
    """

    step: int
    call_id: str
    number: int
    tool: ToolName
    task_id: str = field(repr=False)
    began: float
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskChanged(Displayable):
    """A task's state has changed. After its turn has ended too, with the time of that end.

    Args:
        text: Its server's message about its state.
        asking: Whether it waits for the person.
    """

    call_id: str
    number: int
    status: TaskStatus
    text: str = ""
    asking: bool = False
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskEnded(Displayable):
    """A task has ended, during its turn or later.

    Args:
        text: Its result, or why it has none, as a model reads it.
        result: The original result, if there is one.
        ended: When, in seconds since 1970.
        in_call: Whether the call was still waiting for it, so that the model read the result as
            that of the call.
    """

    call_id: str
    number: int
    status: TaskStatus
    text: str
    result: ToolResult | None = None
    ended: float = 0.0
    in_call: bool = False
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskReported(Displayable):
    """The model was told how a task has ended.

    Args:
        step: The step whose request contains it first.
        text: The text that it read.
        call_id: The call to whose result the text was added, or None for a message before that of
            the person.
    """

    step: int
    number: int
    text: str
    call_id: str | None = None
    at: float = 0.0


@dataclass(frozen=True)
class AppCalled(Displayable):
    """The app that shows a call of this turn has called a tool. The model reads nothing of it.

    After the turn has ended too, with the time of that end.

    Args:
        call_id: The call whose app it is.
        tool: The tool that it called, of the same server.
        arguments: The arguments. Long ones are cut, as text.
        status: How the call ended.
        text: The result as text, or why there is none. Long texts are cut.
        result: The original result, or None if there is none, or the text was cut.
        began: When it started, in seconds since 1970.
        seconds: How long it took, without the wait for the person.
        permission: Who decided whether it may run, or None for a call that did not get that far.
    """

    call_id: str
    tool: ToolName
    arguments: dict[str, Any] | str
    status: CallStatus
    text: str
    result: ToolResult | None = None
    began: float = 0.0
    seconds: float = 0.0
    permission: Permission | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolsSearched(Displayable):
    """The model searched the deferred tools, or loaded or unloaded some by name.

    Args:
        step: The step that made the call.
        query: The query, in words.
        rows: The hits, best first.
        offered: How many tools are offered from now on, without the search tool.
        unloaded: Tools that are no longer offered.
        ranked_by: Whether meaning and past questions counted, or only words.
        skills: The skills that it found, best first.
    """

    step: int
    call_id: str
    query: str
    rows: tuple[SearchRow, ...]
    offered: int
    at: float = 0.0
    unloaded: tuple[ToolName, ...] = ()
    ranked_by: RankedBy = "words"
    skills: tuple[ToolName, ...] = ()


@dataclass(frozen=True)
class Searches(DisplayableList[ToolsSearched], items="searches"):
    """Searches of the model, in order."""

    searches: tuple[ToolsSearched, ...]


@dataclass(frozen=True, slots=True)
class SkillRead(Displayable):
    """The model read a file of a skill.

    Args:
        step: The step that made the call.
        skill: The skill: its server and its name.
        path: The file's path in the skill.
        tokens: The estimated tokens of its text.
        digest: The SHA-256 digest of the contents read.
        checked: Whether the server lists this digest. A wrong one is an error.
    """

    step: int
    call_id: str
    skill: ToolName
    path: str
    tokens: int
    digest: str
    checked: bool = True
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerLog(Displayable):
    """A server sent a log message in this turn."""

    server: str
    level: str
    text: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice(Displayable):
    """A notice to the person: a missing server, a cut result, a refused request."""

    text: str
    server: str | None = None
    at: float = 0.0


@dataclass(frozen=True)
class TurnFinished(Displayable):
    """The turn ended.

    Args:
        error: Why, unless the status is `done`.
        failure: The error's fields, if one from this package ended it.
    """

    status: TurnStatus
    error: str | None = None
    at: float = 0.0
    failure: Failure | None = None


def as_in_a_file(event: Event) -> Event:
    """Convert an event to the form for files: payloads and large results are only described."""
    if not isinstance(event, ToolFinished):
        return event
    result = event.result
    if event.large is None and (result is None or (result.payload is None and not result.returned)):
        return event
    if result is not None:
        result = replace(
            result,
            payload=None,
            rows=None,
            returned=(),
            previews=tuple(map(in_a_file, result.previews)),
        )
    return replace(event, result=result, large=event.large and replace(event.large, source=None))


Event = (
    TurnStarted
    | TextEdited
    | RequestEdited
    | ContextTrimmed
    | PrefixChanged
    | StepStarted
    | TextDelta
    | ModelRetry
    | ModelWait
    | StepFinished
    | ToolStarted
    | ApprovalAsked
    | ApprovalAnswered
    | QuestionAsked
    | QuestionAnswered
    | ToolProgress
    | ToolFinished
    | TaskStarted
    | TaskChanged
    | TaskEnded
    | TaskReported
    | AppCalled
    | ToolsSearched
    | SkillRead
    | ServerLog
    | Notice
    | TurnFinished
)
