"""Build the values that a session displays, from the engine and the config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.elsewhere import affected
from casual_mcp_nb.base.selection import Mode, Selection
from casual_mcp_nb.base.status import (
    HostAudit,
    Manifest,
    Servers,
    ServerStatus,
    ServerTokens,
    SessionStatus,
    Tools,
    ToolSets,
    ToolTokens,
)
from casual_mcp_nb.base.tokens import Budget, estimate_tokens
from casual_mcp_nb.base.tool import for_models
from casual_mcp_nb.discovery.toolsets import filter_tools, unknown_servers
from casual_mcp_nb.engine.budget import turn_budget
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.instructions import with_instructions
from casual_mcp_nb.engine.system_prompt import DEFAULT_TEMPLATE
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.engine.tools import ChatNames
from casual_mcp_nb.errors import UsageError, closest, shown
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK


def servers_of(chat: McpToolChat) -> Servers:
    """List the servers with the modes that the selection gives them."""
    selection = chat.current_view().selection
    statuses = chat.server_manager.statuses
    return Servers(statuses, {name: server_mode(selection, name) for name in statuses})


def server_mode(selection: Selection, server: str) -> Mode:
    """Determine a server's effective mode, which depends on discovery and `defer_all` too."""
    mode = selection.servers.get(server, "loaded")
    if mode == "off":
        return "off"
    if not selection.discovery:
        return "loaded"
    if selection.defer_all and server not in selection.always_loaded:
        return "deferred"
    return mode


def tools_of(view: ToolView, unconnected: Sequence[str] = ()) -> Tools:
    """List all tools with their modes.

    Args:
        view: The model's view.
        unconnected: The servers that are not connected yet.
    """
    modes: dict[str, Mode] = dict.fromkeys(view.loaded_by_name, "loaded")
    modes.update(dict.fromkeys(view.deferred_by_name, "deferred"))
    by_tool = {tool.tool_name: modes.get(tool.wire_name, "off") for tool in view.catalog}
    return Tools(view.catalog, by_tool, view.excluded, unconnected)


def manifest_of(view: ToolView, unconnected: Sequence[str] = ()) -> Manifest:
    """Build the text about deferred tools that the model reads, and what it costs.

    Args:
        view: The model's view.
        unconnected: The servers that are not connected yet.
    """
    return Manifest(
        view.manifest,
        len(view.deferred),
        view.deferred_tokens,
        view.search_tool_tokens,
        tuple(unconnected),
    )


def tool_sets_of(chat: McpToolChat, view: ToolView) -> ToolSets:
    """List the toolsets, and how many tools each includes."""
    tools = for_models(view.catalog)
    sizes = {name: len(filter_tools(tools, tool_set)) for name, tool_set in chat.tool_sets.items()}
    selected, waiting = tool_set_name(view.selection), chat.server_manager.waiting
    return ToolSets(chat.tool_sets, selected, sizes, _refusal(chat, view), waiting)


def _refusal(chat: McpToolChat, view: ToolView) -> str:
    """Find the reason why a turn would refuse a view's toolset. Empty if it would not."""
    tool_set = view.selection.tool_set
    if tool_set is None:
        return ""
    names = ChatNames(chat.server_manager, chat.tool_sets, lambda: view.catalog)
    try:
        names.check_tool_set(tool_set)
    except UsageError as error:
        return str(error)
    return ""


def tool_set_name(selection: Selection) -> str | None:
    """Name the toolset in use: `custom` for one without a name, None for all tools."""
    if isinstance(selection.tool_set, ToolSetConfig):
        return "custom"
    return selection.tool_set


def status_of(
    chat: McpToolChat, config: Config, model: str | None, turns: int, budget: Budget, saving: str
) -> SessionStatus:
    """Build an overview of a session, as far as servers are connected.

    Args:
        chat: The session's chat.
        config: Its config.
        model: The name of the model in use, or None.
        turns: How many turns there are.
        budget: What a turn costs.
        saving: What the person should know about how the conversation is saved, or empty.
    """
    view = chat.current_view()
    provider = None
    if model in config.models:
        provider = config.clients[config.models[model].client].provider
    auto = None
    if chat.selection.discovery == "auto":
        auto = chat.selection.auto_threshold
    notes = [*_notes(chat, config)]
    if saving:
        notes.append(saving)
    return SessionStatus(
        servers=servers_of(chat),
        model=model,
        provider=provider,
        tool_set=tool_set_name(chat.selection),
        discovery=view.selection.discovery is True,
        auto=auto,
        offered=len(view.loaded),
        deferred=len(view.deferred),
        tokens=view.first_call_tokens,
        undeferred_tokens=view.undeferred_tokens,
        turns=turns,
        strategy=chat.selection.strategy,
        notes=tuple(notes),
        budget=budget,
    )


def _notes(chat: McpToolChat, config: Config) -> Iterator[str]:
    """Yield notes about the config, and names in the selection that no longer exist."""
    yield from config.notes
    if chat.consent.strict:
        yield "Strict: every call asks unless its policy was set to never."
    if chat.tools.meaning is not None:
        yield chat.tools.meaning.state
    servers = {*chat.server_manager.names, NOTEBOOK}
    for name, tool_set in chat.tool_sets.items():
        for server, hint in unknown_servers(tool_set, servers).items():
            if closest(server, servers):
                yield (
                    f"Toolset {shown(name)} names server {shown(server)}, which does not exist."
                    f" {hint}"
                )
    problem = chat.current_view().problem
    if problem:
        yield f"The model is offered no tools. {problem}"
    for server in chat.selection.servers:
        if server not in chat.server_manager.names:
            yield f"The selection names server {shown(server)}, which no longer exists."


def estimated_budget(chat: McpToolChat, view: ToolView) -> Budget:
    """Estimate the cost of turns with a view and the chat's system prompt."""
    instructions = estimate_tokens(with_instructions("", view, chat.server_manager))
    # Rendering here is safe and quick: the default template is our own, and the text is cached.
    system = chat.system
    if system is None:
        system = chat.templates.render(DEFAULT_TEMPLATE, tools=view.offered)
    budget = turn_budget(view, estimate_tokens(system) + instructions)
    return replace(budget, instructions=instructions)


def measure(chat: McpToolChat, config: Config) -> HostAudit:
    """Measure what the tools of a config's connected servers cost, whatever the toolset."""
    loaded = chat.selection.snapshot()
    loaded.tool_set, loaded.discovery = None, False
    deferred = loaded.snapshot()
    deferred.discovery, deferred.defer_all = True, True
    view, deferring = chat.current_view(loaded), chat.current_view(deferred)
    tools: dict[str, list[ToolTokens]] = {}
    for tool in view.loaded:
        tools.setdefault(tool.server, []).append(ToolTokens(tool.tool_name, tool.tokens))
    servers: list[ServerTokens] = []
    for name, status in chat.server_manager.statuses.items():
        if loaded.servers.get(name) != "off":
            servers.append(_server(status, tools.get(name, [])))
    servers.sort(key=attrgetter("tokens"), reverse=True)
    source = "a config made in Python"
    if config.path:
        source = config.path.name
    budget = None
    if view.loaded:
        budget = turn_budget(deferring)
    return HostAudit(
        source=source,
        servers=tuple(servers),
        deferred_tokens=deferring.first_call_tokens,
        budget=budget,
        notes=config.notes,
        affected=affected(view.loaded),
    )


def _server(status: ServerStatus, tools: list[ToolTokens]) -> ServerTokens:
    error = status.error
    if error is None and status.state != "ready":
        error = status.state
    return ServerTokens(
        server=status.name,
        state=status.state,
        tools=tuple(sorted(tools, key=attrgetter("tokens"), reverse=True)),
        error=error,
        instructions=estimate_tokens(status.instructions),
        left_out=status.left_out,
        stderr_tail=status.stderr_tail if error else "",
    )
