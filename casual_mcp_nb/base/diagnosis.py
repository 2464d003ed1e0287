"""A session's findings: `doctor`'s checks, the cost of a host's config, and `%mcp help`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Displayable, DisplayableList, display
from casual_mcp_nb.base.status import ServerState
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.doors import in_words_of

CheckStatus = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One check's result: its part, such as `servers`, its subject, the finding and the remedy.

    `warn` means that something optional does not work.
    """

    part: str
    name: str
    verdict: CheckStatus
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advice", in_words_of(self.advice))


@dataclass(frozen=True)
class Diagnosis(DisplayableList[Check], items="findings"):
    """Results from `session.servers.doctor()`, grouped by part."""

    findings: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything needed works."""
        return all(finding.verdict != "fail" for finding in self.findings)


Stage = Literal["listed", "selected", "searchable", "sent", "called"]
"""A stage between a tool's server and a call by the model."""

StageState = Literal["ok", "not needed", "not yet", "stopped", "not reached"]
"""`not needed`: a tool that is sent with every request is not searched. `not yet`: the next step is up to the model. `stopped`:
the tool gets no further. `not reached`: it stopped earlier."""


@dataclass(frozen=True)
class StageCheck:
    """Whether a tool passed a stage: how, or why not, and the remedy if it needs one."""

    stage: Stage
    state: StageState
    found: str = ""
    advice: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advice", in_words_of(self.advice))


@dataclass(frozen=True)
class ToolDiagnosis(Displayable):
    """How far a tool gets: whether its server lists it, and the model can find it, is sent it, and has called it.

    A tool that the server does not list has no wire name and no tokens. `rank` is from a search for the query. `calls` counts
    the conversation's calls by how they ended.
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
        """The stage where something keeps it from the model, or None if nothing does."""
        return next((check for check in self.stages if check.state == "stopped"), None)

    @property
    def ends_at(self) -> Stage | None:
        """The first stage that it has not passed, or None if the model has called it."""
        return next((check.stage for check in self.stages if check.state in ("stopped", "not yet")), None)

    @property
    def end(self) -> StageCheck:
        """The check for the stage where it ends, or else for its calls."""
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
class ServerDiagnosis(DisplayableList[ToolDiagnosis], items="tools"):
    """How far a server's tools get, including listed ones that cannot be used."""

    server: str
    listed: StageCheck
    tools: tuple[ToolDiagnosis, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether something keeps the server, or one of its tools, from the model."""
        return self.listed.state == "stopped" or any(tool.stopped for tool in self.tools)

    def as_dict(self) -> dict[str, Any]:
        """Convert it to plain values, for JSON."""
        return {
            "server": self.server,
            "stopped": self.stopped,
            "listed": vars(self.listed),
            "tools": [tool.as_dict() for tool in self.tools],
        }


@dataclass(frozen=True)
class ToolTokens:
    """A tool's cost."""

    tool: ToolName
    tokens: int


@dataclass(frozen=True)
class ServerTokens:
    """A server's cost by tool, the most expensive first.

    `instructions` are tokens, too: hosts add them to the system prompt. `left_out` has the reason for each listed tool that
    cannot be used.
    """

    server: str
    state: ServerState
    tools: tuple[ToolTokens, ...] = ()
    error: str | None = None
    instructions: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict, hash=False)
    stderr_tail: str = ""

    @property
    def tokens(self) -> int:
        """Its definitions' estimated tokens."""
        return sum(tool.tokens for tool in self.tools)


@dataclass(frozen=True)
class HostAudit(DisplayableList[ServerTokens], items="servers"):
    """What an MCP host's config costs in each request, and what deferring all its tools saves.

    The most expensive server comes first. `deferred_tokens` counts `search_tools` with the manifest, and the tools that the
    config always loads. `budget` is for whole turns.
    """

    source: str
    servers: tuple[ServerTokens, ...] = ()
    deferred_tokens: int = 0
    budget: Budget | None = None
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Estimated definition tokens, sent with every request."""
        return sum(server.tokens for server in self.servers)

    @property
    def saved(self) -> float | None:
        """The share that deferring saves in the first request, below 0 if it costs more, or None without tools."""
        return 1 - self.deferred_tokens / self.tokens if self.tokens else None

    @property
    def failed(self) -> tuple[ServerTokens, ...]:
        """The servers whose tools are not known."""
        return tuple(server for server in self.servers if server.error is not None)

    def to_frame(self) -> Any:
        """Build a pandas DataFrame with one row per tool."""
        return display().frame_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Convert it to plain values, for JSON."""
        return {
            "source": self.source,
            "tokens": self.tokens,
            "deferred_tokens": self.deferred_tokens,
            "saved": self.saved,
            "turn": None if self.budget is None else self.budget.undeferred.turn,
            "deferred_turn": None if self.budget is None else self.budget.now.turn,
            "notes": list(self.notes),
            "servers": [
                {
                    "name": server.server,
                    "state": server.state,
                    "error": server.error,
                    "stderr_tail": server.stderr_tail,
                    "tokens": server.tokens,
                    "instructions": server.instructions,
                    "tools": [{"name": each.tool.tool, "tokens": each.tokens} for each in server.tools],
                    "left_out": dict(server.left_out),
                }
                for server in self.servers
            ],
        }


@dataclass(frozen=True)
class HelpRow:
    """One command: its syntax, its purpose, and an example."""

    usage: str
    summary: str
    example: str = ""


@dataclass(frozen=True)
class Help(Displayable):
    """Commands by group."""

    title: str
    groups: tuple[tuple[str, tuple[HelpRow, ...]], ...]
