"""A program that a model wrote for a notebook cell: a person reads it before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.iterables import attributes
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.event import CallStatus
from casual_mcp_nb.conversation.stats import ChatStats


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
            **attributes(self, names),
            "calls": calls,
            "may_call_any_tool": self.may_call_any_tool,
            "remarks": [{"line": line, "text": text} for line, text in self.remarks],
            "call_counts": dict(self.call_counts),
            **written,
        }
