"""What happens in a turn, as typed events. The engine emits them; everything that is shown or counted is a view of them.

All are frozen; `at` is seconds since the turn began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.displayable import Displayable
from casual_mcp_nb.types.prices import Price
from casual_mcp_nb.types.tokens import TokenParts, TokenUsage
from casual_mcp_nb.types.tool import ToolName

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage

CallStatus = Literal["running", "ok", "error", "denied", "stopped", "timeout", "unknown"]
TurnStatus = Literal["running", "done", "stopped", "failed"]

SYNTHETIC = "_synthetic"
"""The server name under which tools of our own, such as the search tool, are counted."""

READ_RESULT = "read_result"
"""The name of our tool that reads on in a result that was cut."""

UNKNOWN = "_unknown"
"""The server name under which calls of names that are no tool's are counted."""


@dataclass(frozen=True, slots=True)
class SearchRow:
    """One tool that a search came to.

    Args:
        tool: Its name.
        score: Its score; None where it was named and not ranked.
        newly_loaded: Whether it was new.
        same_server: It did not match and is there because the best match's server has it; then it has no score.
    """

    tool: ToolName
    score: float | None
    newly_loaded: bool
    same_server: bool = False


@dataclass(frozen=True, slots=True)
class Request(Displayable):
    """Exactly what one call of the model was given.

    Args:
        messages: All messages, the system message first.
        tools: The definitions offered, each with `name`, `description` and `parameters`.
        tokens: What it is made of.
        left_out: How many of the oldest messages of the conversation are not in it, since the model cannot read more.
        options: What it was sent with, such as `temperature`: see `RequestOptions`; headers are left out.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...]
    tokens: TokenParts
    left_out: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn began.

    Args:
        messages: The messages that the person added, mostly one.
        model: Name of the model.
        tool_set: Name of the toolset, `custom` for one without a name, None for all tools.
        discovery: Whether deferred tools were hidden behind the search tool.
        loaded: How many tools the model saw at the start, without the search tool.
        deferred: How many it could find.
        undeferred_tokens: What the definitions would cost with nothing deferred: the figure that discovery is compared with.
        provider: The model's provider, where it is known; `offline` means a deterministic planner and no language model.
        price: What the model's tokens cost by the person's own table; None where that has no price for it.
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


@dataclass(frozen=True, slots=True)
class TextEdited:
    """The person changed, by hand, what the model was about to read.

    Args:
        step: The step that reads it.
        call_id: The call whose result it was; None for the person's message.
        text: The text as the model reads it.
        before: The text as it was.
    """

    step: int
    call_id: str | None
    text: str
    before: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ContextTrimmed:
    """From this step on, the oldest exchanges of the conversation are not sent. The conversation itself keeps them.

    Args:
        step: The step.
        messages: How many messages are left out, of the whole conversation.
        exchanges: How many exchanges those are: what the person said, with all that followed.
        window: How many tokens the model can read.
    """

    step: int
    messages: int
    exchanges: int
    window: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A call of the model began. Steps count from 0 in each turn.

    Args:
        step: The step.
        request: What was sent.
        undeferred_tokens: What the definitions would cost with nothing deferred, where that is no longer what it was when the
            turn began; else None.
    """

    step: int
    request: Request
    at: float = 0.0
    undeferred_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text arrived."""

    step: int
    text: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The model answered.

    Args:
        step: Which step.
        message: The answer, with unique and non-empty ids on its calls.
        usage: What it cost, as the provider reported it; None where it did not.
        finish_reason: The provider's word for why it ended, where it gives one.
        truncated: Whether the answer was cut at a limit of tokens.
    """

    step: int
    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    at: float = 0.0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """A request to the model failed and is made again after a wait.

    Args:
        step: The step.
        attempt: How many requests it made so far.
        seconds: The wait that began.
        reason: What went wrong, in few words.
    """

    step: int
    attempt: int
    seconds: float
    reason: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelWait:
    """A request to the model waits before it is made.

    Args:
        step: The step.
        seconds: The wait that began; another one can follow it.
        reason: What for, in few words: a limit of its client, or a pause that the provider asked for.
    """

    step: int
    seconds: float
    reason: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call of a tool began.

    Args:
        step: The step that asked for it.
        call_id: The call's id, unique in the conversation.
        name: The tool's name as the model wrote it, in the characters that providers accept.
        tool: Which tool; its server is `_synthetic` for our own, and `_unknown` for a name that is not a tool's.
        arguments: The arguments, or the text as it came where that is not a usable JSON object.
        wire_name: The tool's name on the wire, whatever spelling the model used; empty where it is not a tool.
    """

    step: int
    call_id: str
    name: str
    tool: ToolName
    arguments: dict[str, Any] | str
    at: float = 0.0
    wire_name: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A call waits for the person's approval from now on."""

    call_id: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """The person approved the call or denied it; how the call ended tells which."""

    call_id: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A running call reported progress.

    Args:
        call_id: The call's id.
        progress: How far it is.
        total: What it goes up to, where the server says so.
        text: What the server says about it.
    """

    call_id: str
    progress: float
    total: float | None = None
    text: str | None = None
    at: float = 0.0

    @property
    def message(self) -> str | None:
        """The older name of `text`."""
        return self.text


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call ended, however it ended.

    Args:
        step: The step that asked for it.
        call_id: The call's id.
        tool: Which tool.
        status: How it ended.
        text: The result as the model reads it.
        result: The result as it came; None where there is none.
    """

    step: int
    call_id: str
    tool: ToolName
    status: CallStatus
    text: str
    result: ToolResult | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolsSearched:
    """The model searched the deferred tools, or loaded or unloaded some by name.

    Args:
        step: The step that asked for it.
        call_id: The search call's id.
        query: What it looked for, in words.
        rows: What it came to, best first.
        offered: How many tools the model sees from now on, without the search tool.
        unloaded: The tools that it does not see any more.
    """

    step: int
    call_id: str
    query: str
    rows: tuple[SearchRow, ...]
    offered: int
    at: float = 0.0
    unloaded: tuple[ToolName, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerLog:
    """A server sent a log message in this turn."""

    server: str
    level: str
    text: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the person should know: a server that is missing, a result that was cut, a request that was refused."""

    text: str
    server: str | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The turn ended. `error` says why, unless the status is `done`."""

    status: TurnStatus
    error: str | None = None
    at: float = 0.0


Event = (
    TurnStarted
    | TextEdited
    | ContextTrimmed
    | StepStarted
    | TextDelta
    | ModelRetry
    | ModelWait
    | StepFinished
    | ToolStarted
    | ApprovalAsked
    | ApprovalAnswered
    | ToolProgress
    | ToolFinished
    | ToolsSearched
    | ServerLog
    | Notice
    | TurnFinished
)
