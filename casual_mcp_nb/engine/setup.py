"""The settings of a chat, and those of each of its turns: two values that are made once and handed
on whole.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from casual_mcp_nb.base.config import Policies, ToolSetConfig
from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.conversation.event import Event
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.discovery.synthetic import SyntheticTool
from casual_mcp_nb.engine.consent import Approver
from casual_mcp_nb.engine.options import TurnLimits, TurnOptions
from casual_mcp_nb.engine.task_reports import TaskDesk
from casual_mcp_nb.own_tools.context import FunctionRunner, run_here

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.tool import ToolSpec


@dataclass(frozen=True, kw_only=True)
class ChatSetup:
    """How a chat is set up, besides its connections and models.

    Args:
        selection: The model's view of the tools. Edit it at any time, a turn reads it when it
            starts.
        tool_sets: The toolsets that a selection can name.
        templates: Where system prompts come from.
        limits: A turn's limits.
        system: The system prompt where neither the turn nor the model's template gives one, or None
            for the default template.
        approver: Asks the person where a tool's policy requires it. Without one, a policy in the
            config denies the calls that it would ask about. Those that only the default policy asks
            about run, with a notice.
        approval: Policies by server that replace the config's.
        can_ask: Returns whether somebody could answer the approver now, or None if somebody always
            can.
        how_to_allow: See `Consent`.
        answer_limits: How long to wait for the person.
        secrets: Values to redact in a turn's error.
        run_function: Runs the calls to functions that `McpToolChat.add_tool` made tools.
        strict: Whether every call asks unless somebody set its policy to `never`, and changed tools
            are blocked.
        synthetic_tools: Your own synthetic tools, see `McpToolChat.add_synthetic_tool`.
    """

    selection: Selection | None = None
    tool_sets: Mapping[str, ToolSetConfig] | None = None
    templates: TemplateLibrary | None = None
    limits: TurnLimits | None = None
    system: str | None = None
    approver: Approver | None = None
    approval: Mapping[str, Policies] | None = None
    can_ask: Callable[[], bool] | None = None
    how_to_allow: Callable[[ToolSpec], str] | None = None
    answer_limits: AnswerLimits | None = None
    secrets: Collection[str] = ()
    run_function: FunctionRunner = run_here
    strict: bool = False
    synthetic_tools: Iterable[SyntheticTool] = ()


def _new_turn() -> Turn:
    return Turn(Trace())


@dataclass(frozen=True, kw_only=True, eq=False)
class TurnSetup:
    """What one turn is set up with.

    Args:
        messages: The person's new messages.
        options: This turn's options.
        history: The conversation so far.
        turn: The turn whose trace records the events.
        before: The previous turn, to compare its last request with this turn's first one, or None
            if unknown.
        on_event: Called with each event after it was recorded.
        recorded: The steps that it begins with, see `recorded_steps`. They call no model.
        plan_only: Whether the first response with calls ends it, without running them. Searches for
            tools do not count.
        in_history: Whether the turn becomes part of the conversation, so that a recording cassette
            has it as a turn.
        asked_at: When the person asked, by `time.monotonic()`. The turn's time counts from then.
        ahead: Awaited before each request to the model, after its event, to save everything before
            it.
        tasks: Keeps the tasks that calls become. Without it, a call waits for the end of its task.
    """

    messages: Sequence[ChatMessage] = ()
    options: TurnOptions = field(default_factory=TurnOptions)
    history: Sequence[ChatMessage] = ()
    turn: Turn = field(default_factory=_new_turn)
    before: Turn | None = None
    on_event: Callable[[Event], None] | None = None
    recorded: Turn | None = None
    plan_only: bool = False
    in_history: bool = False
    asked_at: float = field(default_factory=time.monotonic)
    ahead: Callable[[], Awaitable[None]] | None = None
    tasks: TaskDesk | None = None

    def clock(self) -> Callable[[], float]:
        """Build the turn's clock, which returns the seconds since the person asked.

        Recorded steps have taken theirs before. It refers to nothing of the turn, see decision
        0103.
        """
        start = self.asked_at
        if self.recorded is not None:
            start -= self.recorded.trace.last_at

        def now() -> float:
            return time.monotonic() - start

        return now
