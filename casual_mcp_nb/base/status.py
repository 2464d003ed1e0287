"""A session's displayable values: servers, tools, toolsets, models, the manifest, and the findings
of `doctor` and audits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Never, overload

from casual_mcp_nb.base.config import LimitKind, Period, Policies, Strategy, ToolSetConfig
from casual_mcp_nb.base.displayable import (
    Displayable,
    DisplayableList,
    DisplayableMapping,
    count,
    display,
)
from casual_mcp_nb.base.elsewhere import Affected, Elsewhere, affected
from casual_mcp_nb.base.iterables import attributes
from casual_mcp_nb.base.mcp import Tasks
from casual_mcp_nb.base.selection import Mode, Selection
from casual_mcp_nb.base.tokens import Budget, estimate_tokens, total_tokens
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec, of_server
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.errors import ConnectError, UnknownNameError, UsageError, shown

MAX_JUDGED = 300
"""How many of a server's tools are judged for its card."""
_MAX_REASON = 500
_MAX_NAMES = 12

Agreement = Literal["", "discover", "handshake"]
"""How a protocol version was agreed: by `server/discover`, or by the older handshake `initialize`.
"""

ServerState = Literal["starting", "ready", "unlisted", "failed", "closed"]


@dataclass(frozen=True)
class ServerStatus(Displayable):
    """One server's state.

    Args:
        name: Its name in the config.
        state: `starting`, `ready`, `unlisted` (connected, but its tools could not be listed),
            `failed` or `closed`.
        error: Why it failed, or why its tools could not be listed, or None if all is well.
        stderr_tail: The last lines on stderr, cleaned and with secrets masked.
        tools: How many tools it has.
        tokens: Estimated tokens for the tool definitions that a model can be offered.
        seconds: Time until it was ready or failed, or None while it starts.
        transport: `stdio`, `http`, `sse` or `in-process`.
        address: Its command, or its URL without credentials.
        protocol_version: The negotiated version, or None before that.
        agreed: How that was agreed: `discover` or `handshake`, or empty before that.
        list_seconds: How long its list of tools is used, in seconds, if the server said so.
        list_scope: Who may share that list, if the server said so: `public` or `private`.
        deprecated: Features in use that MCP 2026-07-28 deprecates, such as `sampling`.
        version: The server's own name and version, if given.
        instructions: The server's instructions, if any.
        capabilities: Its declared capabilities, such as `tools`, `resources`, `prompts`, `logging`.
        extensions: The protocol extensions that it declares, such as `io.modelcontextprotocol/ui`.
        notes: Remarks on the connection, such as the use of the older handshake.
        app_only: Tools meant only for its app's user interface. Never offered to a model.
        apps: Tools whose results an app shows, see `session.tools.app`.
        task_only: Tools that run only as protocol tasks, which this client does not start. Never
            offered to a model.
        left_out: Listed tools that cannot be used, each with the reason. If one is listed twice,
            the first counts.
        ignored: Fields of its messages that are not valid, each with the reason. They are left out
            or replaced.
        specs: Its tools as last listed.
    """

    name: str
    state: ServerState
    error: str | None = None
    stderr_tail: str = ""
    tools: int = 0
    tokens: int = 0
    seconds: float | None = None
    transport: str = ""
    address: str = ""
    protocol_version: str | None = None
    agreed: Agreement = ""
    list_seconds: float | None = None
    list_scope: str = ""
    deprecated: tuple[str, ...] = ()
    version: str | None = None
    instructions: str = ""
    capabilities: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    app_only: tuple[str, ...] = ()
    task_only: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict, hash=False)
    apps: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict, hash=False)
    specs: tuple[ToolSpec, ...] = field(default=(), repr=False, compare=False)

    @cached_property
    def affected(self) -> tuple[Affected, ...]:
        """The tools that providers and other hosts take only in part, or not at all, among the
        first `MAX_JUDGED`, and what becomes of the instructions.
        """
        return affected(self.specs[:MAX_JUDGED], self.instructions)


class Servers(DisplayableMapping[ServerStatus]):
    """A session's servers by name, in config order."""

    def __init__(self, statuses: Mapping[str, ServerStatus], modes: Mapping[str, Mode]) -> None:
        super().__init__(statuses)
        self.modes = dict(modes)

    def __setitem__(self, name: str, value: object) -> Never:
        raise UsageError(
            "This lists the servers and changes nothing.",
            hint=(
                "To change the model's tools: session.selection.servers[name] = 'loaded',"
                " 'deferred' or 'off'."
            ),
        )

    def raise_for_status(self) -> None:
        """Raise a ConnectError with a line for each server that failed, or whose tools could not be
        listed.
        """
        failed: list[str] = []
        reasons = ""
        for status in self.values():
            if status.state == "failed" or status.error is not None:
                failed.append(status.name)
                reasons += f"- {status.name}: {_brief_reason(status.error)}\n"
        if failed:
            raise ConnectError(
                f"{len(failed)} of {len(self)} servers could not be connected:\n{reasons}",
                hint="Fix it and reconnect: session.servers.reconnect(name).",
                server=failed[0] if len(failed) == 1 else None,
            )

    def __repr__(self) -> str:
        return f"<Servers: {', '.join(f'{name} {status.state}' for name, status in self.items())}>"


def not_connected(servers: Sequence[str]) -> str:
    """Format a notice that servers are not connected yet, and how to connect them."""
    names = ", ".join(map(shown, servers[:_MAX_NAMES]))
    if len(servers) > _MAX_NAMES:
        names = f"{names}, …"
    return in_words_of(f"Not connected yet: {names}. To connect: session.connect()")


def _brief_reason(error: str | None) -> str:
    return " ".join((error or "no reason was given").split())[:_MAX_REASON]


class Tools(Sequence[ToolSpec], Displayable):
    """A session's tools, by number or by any name that the catalog resolves.

    Each is sent with every request (`loaded`), found by search (`deferred`), or never offered
    (`off`). The config can exclude some. Unconnected servers' tools are unknown.
    """

    def __init__(
        self,
        catalog: Catalog,
        modes: Mapping[ToolName, Mode],
        excluded: frozenset[ToolName] = frozenset(),
        unconnected: Sequence[str] = (),
    ) -> None:
        self.catalog = catalog
        self.modes = dict(modes)
        self.excluded = excluded
        self.unconnected = tuple(unconnected)

    @overload
    def __getitem__(self, key: int | str) -> ToolSpec: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[ToolSpec, ...]: ...
    def __getitem__(self, key: int | str | slice) -> ToolSpec | tuple[ToolSpec, ...]:
        if not isinstance(key, str):
            return self.catalog[key]
        try:
            return self.catalog.resolve(key)
        except UnknownNameError:
            if not self.unconnected:
                raise
            raise UnknownNameError("tool", key, (), hint=not_connected(self.unconnected)) from None

    def __len__(self) -> int:
        return len(self.catalog)

    def of_server(self, name: str) -> Tools:
        """Select one server's tools."""
        unconnected = tuple(each for each in self.unconnected if each == name)
        absent = {each: why for each, why in self.catalog.absent().items() if each == name}
        tools = Catalog(of_server(self.catalog, name), absent.copy)
        return Tools(tools, self.modes, unconnected=unconnected)

    def mode(self, tool: ToolSpec) -> Mode:
        """Look up a tool's mode."""
        return self.modes.get(tool.tool_name, "loaded")

    def __repr__(self) -> str:
        return f"<Tools: {len(self)} of {count(len(self.catalog.by_server), 'server')}>"


@dataclass(frozen=True)
class Manifest(Displayable):
    """The manifest, which lists deferred tools for the model.

    Args:
        text: The exact text, or empty if nothing is deferred.
        tools: How many tools are deferred.
        undeferred_tokens: Their definitions' tokens, for comparison.
        finder_tokens: Tokens for the search or browsing tools, without the manifest in them.
        unconnected: Servers that were not connected yet, and whose tools are missing from it.
    """

    text: str
    tools: int = 0
    undeferred_tokens: int = 0
    finder_tokens: int = 0
    unconnected: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Its estimated size in tokens."""
        return estimate_tokens(self.text)

    def __str__(self) -> str:
        return self.text


class ToolSets(DisplayableMapping[ToolSetConfig]):
    """A session's toolsets by name, and how many tools each includes.

    The selected one is `custom` if it has no name. `problem` is why a turn would refuse it.
    Unconnected servers' tools are not counted.
    """

    def __init__(
        self,
        tool_sets: Mapping[str, ToolSetConfig],
        selected: str | None,
        sizes: Mapping[str, int],
        problem: str = "",
        unconnected: Sequence[str] = (),
    ) -> None:
        super().__init__(tool_sets)
        self.selected = selected
        self.sizes = dict(sizes)
        self.problem = problem
        self.unconnected = tuple(unconnected)

    def __repr__(self) -> str:
        return f"<ToolSets: {', '.join(self) or 'none'}>"


@dataclass(frozen=True)
class ModelRow:
    """A model in a session: its config name, client, provider, the provider's name for it, and its
    template.
    """

    name: str
    client: str
    provider: str
    model: str
    key: Literal["set", "not set", "not needed"]
    default: bool = False
    template: str | None = None


@dataclass(frozen=True)
class Models(DisplayableList[ModelRow], items="rows"):
    """A session's models. Whether a key is set, never the key."""

    rows: tuple[ModelRow, ...] = ()


@dataclass(frozen=True)
class ClientRow:
    """A client in a session: its provider, its URL if not the provider's own, its models, and its
    timeout in seconds.
    """

    name: str
    provider: str
    address: str
    key: Literal["set", "not set", "not needed"]
    models: tuple[str, ...] = ()
    timeout: float = 60.0


@dataclass(frozen=True)
class Clients(DisplayableList[ClientRow], items="rows"):
    """A session's clients. Whether a key is set, never the key."""

    rows: tuple[ClientRow, ...] = ()


@dataclass(frozen=True)
class ExplorerSnapshot(Displayable):
    """An explorer's static snapshot: the tools that the model sees, and their cost.

    `prices` are each server's loaded tools in tokens, and `undeferred_tokens` the first request's
    size if every tool were loaded.
    """

    servers: Servers
    selection: Selection
    tool_sets: ToolSets
    manifest: Manifest
    prices: Mapping[str, int] = field(default_factory=dict)
    offered: int = 0
    undeferred_tokens: int = 0
    budget: Budget | None = None
    tools: Tools | None = None
    tasks: Tasks = field(default_factory=Tasks)

    @property
    def tokens(self) -> int:
        """Tokens in the first request, before any message: definitions, search tool and
        manifest.
        """
        return sum(self.prices.values()) + self.manifest.finder_tokens + self.manifest.tokens


@dataclass(frozen=True)
class SystemPrompt(Displayable):
    """The system prompt that a model would read, and the template that generated it."""

    text: str
    template: str | None = None

    @property
    def tokens(self) -> int:
        """Its estimated size in tokens."""
        return estimate_tokens(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ConsentStatus(Displayable):
    """A session's rights, and when it asks first.

    Until the config is accepted, starting a server asks. If it is strict, every call asks unless
    its policy was set to `never`. `policies` are those that were set in Python or with a magic, by
    server. `effective` are those that apply, `default` if nothing is set: of each server, and of
    its tools that have their own. `problems` are tool names in the config that do not exist.
    """

    accepted: bool
    strict: bool = False
    step_mode: bool = False
    calls: int = 0
    changed: tuple[ToolName, ...] = ()
    problems: tuple[str, ...] = ()
    policies: Mapping[str, Policies] = field(default_factory=dict)
    effective: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def amount(kind: LimitKind, *values: float) -> str:
    """Write what a kind of spend limit counts, such as `$0.21` or `210 of 5,000 tokens`."""
    if kind == "max_total_tokens":
        return f"{' of '.join(f'{value:,.0f}' for value in values)} tokens"
    return " of ".join(map(_dollars, values))


def _dollars(value: float) -> str:
    digits = 2 if value >= 0.1 or not value else 4
    return f"${value:,.{digits}f}"


@dataclass(frozen=True)
class SpendRow:
    """What requests to models took in a period, and its limits.

    Args:
        period: The last `turn`, this `conversation`, or this `day`.
        cost: US dollars, with what is reserved for requests that still run.
        max_cost: Their limit, or None for no limit.
        tokens: Tokens, input and output.
        max_total_tokens: Their limit, or None for no limit.
        unpriced: How many requests are missing in the cost, since their model has no price.
        reserved: How many requests still run.
    """

    period: Period
    cost: float = 0.0
    max_cost: float | None = None
    tokens: int = 0
    max_total_tokens: int | None = None
    unpriced: int = 0
    reserved: int = 0


@dataclass(frozen=True)
class SpendStatus(DisplayableList[SpendRow], items="rows"):
    """What a session's requests to models took, and the spend limits.

    `place` is the file in which they are counted, or empty if this session counts only its own.
    """

    rows: tuple[SpendRow, ...]
    place: str = ""


@dataclass(frozen=True)
class SessionStatus(Displayable):
    """An overview of a session, before the first message.

    The provider `offline` is a deterministic planner, not a language model. `auto` is the
    percentage of the model's context window above which deferred tools are hidden, or None if that
    does not matter. `notes` are remarks on the config, and names in the selection that no longer
    exist.
    """

    servers: Servers
    model: str | None = None
    provider: str | None = None
    tool_set: str | None = None
    discovery: bool = False
    offered: int = 0
    deferred: int = 0
    tokens: int = 0
    undeferred_tokens: int = 0
    turns: int = 0
    notes: tuple[str, ...] = field(default_factory=tuple)
    strategy: Strategy = "search"
    budget: Budget | None = None
    closed: bool = False
    auto: float | None = None


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
"""`not needed`: a tool that is sent with every request is not searched.

`not yet`: the next step is up to the model. `stopped`: the tool gets no further. `not reached`: it
stopped earlier.
"""


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
    """How far a tool gets: whether its server lists it, and the model can find it, is sent it, and
    has called it.

    A tool that the server does not list has no wire name and no tokens. `rank` is from a search for
    the query. `calls` counts the conversation's calls by how they ended. `elsewhere` has the
    providers and hosts that take it only in part, or not at all.
    """

    tool: ToolName
    stages: tuple[StageCheck, ...]
    wire_name: str = ""
    tokens: int | None = None
    rank: int | None = None
    calls: Mapping[str, int] = field(default_factory=dict)
    elsewhere: tuple[Elsewhere, ...] = ()

    def __getitem__(self, stage: Stage) -> StageCheck:
        return next(check for check in self.stages if check.stage == stage)

    @property
    def stopped(self) -> StageCheck | None:
        """The stage where something keeps it from the model, or None if nothing does."""
        return next((check for check in self.stages if check.state == "stopped"), None)

    @property
    def ends_at(self) -> Stage | None:
        """The first stage that it has not passed, or None if the model has called it."""
        return next(
            (check.stage for check in self.stages if check.state in ("stopped", "not yet")), None
        )

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
            "elsewhere": list(map(vars, self.elsewhere)),
            "rank": self.rank,
            "calls": dict(self.calls),
            "stages": list(map(vars, self.stages)),
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

    `instructions` are tokens, too: hosts add them to the system prompt. `left_out` has the reason
    for each listed tool that cannot be used.
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
        return total_tokens(self.tools)

    def as_dict(self) -> dict[str, Any]:
        """Convert it to plain values, for JSON."""
        return {
            "name": self.server,
            **attributes(self, ("state", "error", "stderr_tail", "tokens", "instructions")),
            "tools": [{"name": each.tool.tool, "tokens": each.tokens} for each in self.tools],
            "left_out": dict(self.left_out),
        }


@dataclass(frozen=True)
class HostAudit(DisplayableList[ServerTokens], items="servers"):
    """What an MCP host's config costs in each request, and what deferring all its tools saves.

    The most expensive server comes first. `deferred_tokens` counts `search_tools` with the
    manifest, and the tools that the config always loads. `budget` is for whole turns. `affected`
    are the tools that providers and other hosts take only in part, or not at all.
    """

    source: str
    servers: tuple[ServerTokens, ...] = ()
    deferred_tokens: int = 0
    budget: Budget | None = None
    notes: tuple[str, ...] = ()
    affected: tuple[Affected, ...] = ()

    @property
    def tokens(self) -> int:
        """Estimated definition tokens, sent with every request."""
        return total_tokens(self.servers)

    @property
    def saved(self) -> float | None:
        """The share that deferring saves in the first request, below 0 if it costs more, or None
        without tools.
        """
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
            **attributes(self, ("source", "tokens", "deferred_tokens", "saved")),
            "turn": None if self.budget is None else self.budget.undeferred.turn,
            "deferred_turn": None if self.budget is None else self.budget.now.turn,
            "notes": list(self.notes),
            "affected": [{**vars(each), "tools": list(each.tools)} for each in self.affected],
            "servers": [server.as_dict() for server in self.servers],
        }


@dataclass(frozen=True)
class HelpRow:
    """One command: its syntax, its purpose, and an example."""

    usage: str
    summary: str
    example: str = ""


@dataclass(frozen=True)
class Help(Displayable):
    """Commands by group.

    Args:
        title: What it is about.
        groups: The title and the rows of each group.
        folded: Whether the groups after the first are folded, since there are many.
    """

    title: str
    groups: tuple[tuple[str, tuple[HelpRow, ...]], ...]
    folded: bool = False
