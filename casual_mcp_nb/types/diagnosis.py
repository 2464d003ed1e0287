"""Results of `session.doctor()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.tool import ToolName

CheckStatus = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Args:
        part: The group it belongs to, such as `packages` or `servers`.
        name: What was checked.
        verdict: `ok`; `warn`, if something that may not be needed does not work; `fail`, if something needed does not work.
        found: The finding, in words.
        advice: What to do about it; empty if nothing.
    """

    part: str
    name: str
    verdict: CheckStatus
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advice", in_words_of(self.advice))


@dataclass(frozen=True)
class Diagnosis(DisplayableList[Check]):
    """The results of `session.doctor()`.

    Args:
        findings: One for each check, grouped by part.
    """

    findings: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything needed works."""
        return all(finding.verdict != "fail" for finding in self.findings)

    @property
    def _items(self) -> tuple[Check, ...]:
        return self.findings


Stage = Literal["listed", "selected", "searchable", "sent", "called"]
"""A station of a tool on its way from its server to a call by the model."""

StageState = Literal["ok", "not needed", "not yet", "stopped", "not reached"]
"""`not needed`: a tool that is sent with every request is not searched. `not yet`: what comes next is up to the model.
`stopped`: the way ends here. `not reached`: it ended before."""


@dataclass(frozen=True)
class StageCheck:
    """Whether a tool has passed one stage.

    Args:
        stage: The stage.
        state: Whether it has.
        found: How, or why not, in words.
        advice: What to do about it; empty if nothing.
    """

    stage: Stage
    state: StageState
    found: str = ""
    advice: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advice", in_words_of(self.advice))


@dataclass(frozen=True)
class ToolDiagnosis(Displayable):
    """How far a tool gets: whether its server lists it, and the model can find it, is sent it, and has called it.

    Args:
        tool: The tool; its server need not list it.
        stages: All stages, in order.
        wire_name: The name under which a model is sent it; empty if it is not listed.
        tokens: Estimated tokens of its definition; None if it is not listed.
        rank: Its rank in a search for the query; None without a query, or if the search does not find it.
        calls: How many calls of it the conversation has, by how they ended.
    """

    tool: ToolName
    stages: tuple[StageCheck, ...]
    wire_name: str = ""
    tokens: int | None = None
    rank: int | None = None
    calls: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, stage: Stage) -> StageCheck:
        return next(check for check in self.stages if check.stage == stage)

    @property
    def stopped(self) -> StageCheck | None:
        """The stage where something keeps it from the model; None if nothing does."""
        return next((check for check in self.stages if check.state == "stopped"), None)

    @property
    def ends_at(self) -> Stage | None:
        """The first stage that it has not passed; None if the model has called it."""
        return next((check.stage for check in self.stages if check.state in ("stopped", "not yet")), None)

    @property
    def end(self) -> StageCheck:
        """The check of the stage where it ends, or else of its calls."""
        return self[self.ends_at or "called"]

    def as_dict(self) -> dict[str, Any]:
        """Convert it to plain values, for JSON."""
        return {
            "server": self.tool.server,
            "tool": self.tool.tool,
            "wire_name": self.wire_name or None,
            "tokens": self.tokens,
            "ends_at": self.ends_at,
            "stopped": self.stopped is not None,
            "rank": self.rank,
            "calls": dict(self.calls),
            "stages": [vars(check) for check in self.stages],
        }


@dataclass(frozen=True)
class ServerDiagnosis(DisplayableList[ToolDiagnosis]):
    """How far each tool of a server gets.

    Args:
        server: The server.
        listed: Whether it lists its tools, and what to do if not.
        tools: Its tools, also those of its list that cannot be used.
    """

    server: str
    listed: StageCheck
    tools: tuple[ToolDiagnosis, ...] = ()

    @property
    def _items(self) -> tuple[ToolDiagnosis, ...]:
        return self.tools

    @property
    def stopped(self) -> bool:
        """Whether something keeps the server, or a tool of it, from the model."""
        return self.listed.state == "stopped" or any(tool.stopped for tool in self.tools)

    def as_dict(self) -> dict[str, Any]:
        """Convert it to plain values, for JSON."""
        return {
            "server": self.server,
            "stopped": self.stopped,
            "listed": vars(self.listed),
            "tools": [tool.as_dict() for tool in self.tools],
        }
