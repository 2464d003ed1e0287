"""What a session shows of itself: servers, tools, toolsets, models, the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.discovery_options import Strategy
from casual_mcp_nb.types.displayable import Displayable, DisplayableList, DisplayableMapping
from casual_mcp_nb.types.selection import Mode, Selection
from casual_mcp_nb.types.tokens import estimate_tokens
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec

_MAX_REASON = 500

ServerState = Literal["starting", "ready", "failed", "closed"]


@dataclass(frozen=True)
class ServerStatus(Displayable):
    """How one server is.

    Args:
        name: Its name in the config.
        state: `starting`, `ready`, `failed` or `closed`.
        error: Why it failed, or why its tools could not be listed; None when all is well.
        stderr_tail: The last lines of its stderr, cleaned, secrets masked.
        tools: How many tools it has.
        tokens: Estimated price of the definitions of those that a model can be given.
        seconds: How long it took to be ready or to fail; None while it starts.
        transport: `stdio`, `http`, `sse` or `in-process`.
        address: Its command, or its url without credentials.
        protocol_version: As negotiated; None before.
        version: The server's own name and version, where it gives them.
        instructions: What the server says about its use; empty where it says nothing.
        capabilities: What it says that it can do, such as `tools`, `resources`, `prompts`, `logging`.
        extensions: The extensions of the protocol that it declares, such as `io.modelcontextprotocol/ui`.
        notes: What is worth knowing of how it was connected, such as that it needed the older handshake.
        app_only: Tools that it keeps for the buttons of its own app; no model is offered them.
        task_only: Tools that run only as tasks of the protocol, which this client does not start; no model is offered them.
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
    version: str | None = None
    instructions: str = ""
    capabilities: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    app_only: tuple[str, ...] = ()
    task_only: tuple[str, ...] = ()


class Servers(DisplayableMapping[ServerStatus]):
    """The servers of a session by name, in the order of the config.

    Args:
        statuses: How each is.
        modes: `loaded`, `deferred` or `off` for each.
    """

    def __init__(self, statuses: Mapping[str, ServerStatus], modes: Mapping[str, Mode]) -> None:
        super().__init__(statuses)
        self.modes = dict(modes)

    def raise_for_status(self) -> None:
        """Do nothing, unless a server failed, or its tools could not be listed.

        Raises:
            ConnectError: It did; the message has a line for each such server.
        """
        failed = [status for status in self.values() if status.state == "failed" or status.error is not None]
        if failed:
            reasons = "\n".join(f"- {status.name}: {_brief_reason(status.error)}" for status in failed)
            raise ConnectError(
                f"{len(failed)} of {len(self)} servers could not be connected:\n{reasons}\n",
                hint="Repair it and reconnect it: session.reconnect(name).",
                server=failed[0].name if len(failed) == 1 else None,
            )

    def __repr__(self) -> str:
        return f"<Servers: {', '.join(f'{name} {status.state}' for name, status in self.items())}>"


def _brief_reason(error: str | None) -> str:
    return " ".join((error or "no reason was given").split())[:_MAX_REASON]


class Tools(Sequence[ToolSpec], Displayable):
    """The tools of a session, by number or by any name that the catalog resolves.

    Args:
        catalog: All tools.
        modes: For each tool whether the model sees it at once (`loaded`), by search (`deferred`), or never (`off`).
    """

    def __init__(self, catalog: Catalog, modes: Mapping[ToolName, Mode], excluded: frozenset[ToolName] = frozenset()) -> None:
        self.catalog = catalog
        self.modes = dict(modes)
        self.excluded = excluded

    @overload
    def __getitem__(self, key: int | str) -> ToolSpec: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[ToolSpec, ...]: ...
    def __getitem__(self, key: int | str | slice) -> ToolSpec | tuple[ToolSpec, ...]:
        return self.catalog.resolve(key) if isinstance(key, str) else self.catalog[key]

    def __len__(self) -> int:
        return len(self.catalog)

    def of_server(self, name: str) -> Tools:
        """Return the tools of one server; none for a server that has none."""
        return Tools(Catalog(tool for tool in self.catalog if tool.server == name), self.modes)

    def mode(self, tool: ToolSpec) -> Mode:
        """Whether the model sees this tool at once, by search, or never."""
        return self.modes.get(tool.tool_name, "loaded")

    def __repr__(self) -> str:
        return f"<Tools: {len(self)} of {len(self.catalog.by_server)} servers>"


@dataclass(frozen=True)
class Manifest(Displayable):
    """What the model reads about the deferred tools.

    Args:
        text: Exactly that text; empty when nothing is deferred.
        tools: How many tools it stands for.
        undeferred_tokens: What their definitions would cost instead.
        finder_tokens: What the tool that carries it costs beside it: the search tool, or those for browsing.
    """

    text: str
    tools: int = 0
    undeferred_tokens: int = 0
    finder_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Its estimated price in tokens."""
        return estimate_tokens(self.text)

    def __str__(self) -> str:
        return self.text


class ToolSets(DisplayableMapping[ToolSetConfig]):
    """The toolsets of a session by name.

    Args:
        tool_sets: All of them.
        selected: Name of the selected one, `custom` for one without a name; None for all tools.
        sizes: How many tools each lets through.
        problem: Why the selected one is not in force, and a turn would refuse it; empty where it is.
    """

    def __init__(
        self, tool_sets: Mapping[str, ToolSetConfig], selected: str | None, sizes: Mapping[str, int], problem: str = ""
    ) -> None:
        super().__init__(tool_sets)
        self.selected = selected
        self.sizes = dict(sizes)
        self.problem = problem

    def __repr__(self) -> str:
        return f"<ToolSets: {', '.join(self) or 'none'}>"


@dataclass(frozen=True)
class ModelRow:
    """One model of a session: its name in the config, its client, the provider and the provider's name for it."""

    name: str
    client: str
    provider: str
    model: str
    key: Literal["set", "not set", "not needed"]
    default: bool = False


@dataclass(frozen=True)
class Models(DisplayableList[ModelRow]):
    """The models of a session; whether a key is set, never the key."""

    rows: tuple[ModelRow, ...] = ()

    @property
    def _items(self) -> tuple[ModelRow, ...]:
        return self.rows


@dataclass(frozen=True)
class ClientRow:
    """One client of a session: its provider, its address where it is not the provider's own, the models that use it."""

    name: str
    provider: str
    address: str
    key: Literal["set", "not set", "not needed"]
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Clients(DisplayableList[ClientRow]):
    """The clients of a session; whether a key is set, never the key."""

    rows: tuple[ClientRow, ...] = ()

    @property
    def _items(self) -> tuple[ClientRow, ...]:
        return self.rows


@dataclass(frozen=True)
class ExplorerSnapshot(Displayable):
    """What the model is shown, with the prices: the picture of an explorer.

    Args:
        servers: The servers with their state.
        selection: What the person chose.
        tool_sets: The toolsets.
        manifest: What the model reads about the deferred tools.
        prices: What each server's loaded tools cost in the first call.
        offered: How many tools the model sees at once.
        undeferred_tokens: What the first call would cost with nothing deferred.
    """

    servers: Servers
    selection: Selection
    tool_sets: ToolSets
    manifest: Manifest
    prices: Mapping[str, int] = field(default_factory=dict)
    offered: int = 0
    undeferred_tokens: int = 0

    @property
    def tokens(self) -> int:
        """What the first call costs before anything is said: definitions, search tool and manifest."""
        return sum(self.prices.values()) + self.manifest.finder_tokens + self.manifest.tokens


@dataclass(frozen=True)
class SystemPrompt(Displayable):
    """The system prompt that a model would read.

    Args:
        text: Exactly that text.
        template: Name of the template that made it; None for a text that was given as it is.
    """

    text: str
    template: str | None = None

    @property
    def tokens(self) -> int:
        """Its estimated price in tokens."""
        return estimate_tokens(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SessionStatus(Displayable):
    """A session at a glance.

    Args:
        servers: Its servers with their state.
        model: Name of the model in use; None where there is none.
        provider: Its provider; `offline` means a deterministic planner and no language model.
        tool_set: Name of the toolset in force; None for all tools.
        discovery: Whether deferred tools are hidden behind the search tool.
        offered: How many tools the model sees at once.
        deferred: How many it can find.
        tokens: What those offered cost together with the manifest, before anything is said.
        undeferred_tokens: What they would cost with nothing deferred.
        turns: How many turns the conversation has.
        strategy: How deferred tools are found.
        notes: What the person should know: how the config was read, and what the selection names that is not there any more.
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
