"""How a call ended, and what the model reads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from casual_mcp_nb.conversation.step import with_report

if TYPE_CHECKING:
    from casual_mcp_nb.base.content import ToolResult
    from casual_mcp_nb.base.mcp import SkillContents
    from casual_mcp_nb.conversation.event import CallStatus
    from casual_mcp_nb.discovery.synthetic import SyntheticToolResult


class CallOutcome(NamedTuple):
    """How a call ended, for the caller: the turn, a function, a program or a host.

    Args:
        status: How it ended.
        text: The whole result or the failure as a text.
        result: The tool's result, if it has one that is more than the text.
        synthetic: The answer of a synthetic tool, with the tools that it loaded.
        skill: The skill's file that was read.
        note: What only a model has to know, behind the text: which arguments were left out, what
            was wrong in a call that failed, or what the server of a tool that was called without a
            search says about its use.
    """

    status: CallStatus
    text: str
    result: ToolResult | None = None
    synthetic: SyntheticToolResult | None = None
    skill: SkillContents | None = None
    note: str = ""


class ModelText(NamedTuple):
    """What a model reads of a call, in layers.

    They are joined here and nowhere else. Afterwards, only the person changes the text, in step
    mode or by unloading tools.

    Args:
        body: The outcome's text. Of a large one, its head, with a note on how to read on.
        heading: What goes before it with another `tool_result_format`: the tool's name, perhaps
            with the arguments.
        note: What the model has to know of this call, see `CallOutcome.note`.
        warning: What it has to know of equal calls before, see `Repeats`.
        taped: The text in the cassette that is replayed. It takes the place of the layers above,
            which a later release may word differently.
        report: How tasks have ended meanwhile. It is added to one result of a step.
    """

    body: str
    heading: str = ""
    note: str = ""
    warning: str = ""
    taped: str | None = None
    report: str = ""

    @property
    def of_call(self) -> str:
        """The text without the report, which is about other calls. Events have this one."""
        if self.taped is not None:
            return self.taped
        return self.heading + self.body + self.note + self.warning

    @property
    def in_message(self) -> str:
        """The whole text, which is the message to the model."""
        return with_report(self.of_call, self.report)


class FinishedCall(NamedTuple):
    """A call that has ended: for the caller, and for the model.

    Args:
        outcome: How it ended for the caller, with the whole text and result.
        text: What the model reads of it.
        result: The result, cut as the text is.
        handles: The handle of a large result, if it is one.
    """

    outcome: CallOutcome
    text: ModelText
    result: ToolResult | None = None
    handles: tuple[str, ...] = ()
