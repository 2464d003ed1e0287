"""The state behind the explorer: the model's tools and their cost, and the commands that change
them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence, Set
from dataclasses import asdict
from typing import Any

from casual_mcp_nb.base.config import (
    Discovery,
    DiscoveryOptions,
    ExcludeSpec,
    ToolSetConfig,
    option_limits,
)
from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.selection import Mode, Selection
from casual_mcp_nb.base.tokens import TurnCosts
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec, servers_of, tool_names
from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.config.saving import plain_tool_set, saved_names
from casual_mcp_nb.discovery.toolsets import filter_tools, resolve_tool_set
from casual_mcp_nb.display import words
from casual_mcp_nb.display.words import call_code, clean
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.errors import ConnectError, UsageError
from casual_mcp_nb.notebook.status import estimated_budget
from casual_mcp_nb.notebook.usage import UsageChange, WithoutThem
from casual_mcp_nb.views import mimebundle
from casual_mcp_nb.widgets._rows import (
    MAX_NAME,
    Rows,
    ToolsState,
    budget_of,
    call_row,
    not_connected,
    rows_of,
    server_row,
    tool_detail,
    tool_statuses,
    undeferred_budget_of,
    wire_rows,
)
from casual_mcp_nb.widgets.base import AcceptsConfig, HasParts, command, unaccepted
from casual_mcp_nb.widgets.tool_form import arguments_of

Rule = bool | tuple[str, ...] | ExcludeSpec


def rule_for(tools: Sequence[ToolSpec], included: Set[ToolName]) -> Rule:
    """Find the shortest rule that includes exactly a server's `included` tools.

    A tool that the server adds later is included only by the rules "all" and "all but some".
    """
    inside = tuple(tool.name for tool in tools if tool.tool_name in included)
    outside = tuple(tool.name for tool in tools if tool.tool_name not in included)
    if not outside:
        return True
    if len(outside) < len(inside):
        return ExcludeSpec(exclude=outside)
    return inside


def with_tools(
    tool_set: ToolSetConfig, tools: Collection[ToolSpec], catalog: Catalog
) -> ToolSetConfig:
    """Add these tools to a toolset."""
    included = tool_names(filter_tools(catalog, tool_set))
    included |= tool_names(tools)
    changed = servers_of(tools)
    rules = {server: rule_for(catalog.by_server[server], included) for server in changed}
    return tool_set.model_copy(update={"servers": {**tool_set.servers, **rules}})


def toolset_from_selection(
    selection: Selection, tool_set: ToolSetConfig | None, catalog: Catalog, off: Set[ToolName]
) -> ToolSetConfig:
    """Combine a selection's toolset, servers and single tools into one toolset.

    A toolset's rule stays as it is if nothing was ticked or unticked. Servers that are off are not
    part of a toolset.
    """
    included = tool_names(filter_tools(catalog, tool_set)) - off
    description = ""
    rules: dict[str, Rule] = {}
    if tool_set is not None:
        description = tool_set.description
        rules.update(tool_set.servers)
    for server, tools in catalog.by_server.items():
        if tool_set is None:
            has_own_rule = selection.servers.get(server) != "off"
        else:
            has_own_rule = any(tool.tool_name in off for tool in tools)
        if has_own_rule:
            rules[server] = rule_for(tools, included)
    not_empty = {server: rule for server, rule in rules.items() if rule}
    return ToolSetConfig(description=description, servers=not_empty)


_OPTIONS = {"discovery", *DiscoveryOptions.model_fields}


class SelectionState(AcceptsConfig, ToolsState):
    """The servers with their tools and prices, the toolsets, the manifest, and the budget before
    and after a change.

    Its commands change `session.selection`. Changes from elsewhere show the same way.

    Args:
        session: The session.
        tools: Whether single tools are shown. Without them a snapshot stays small, however many
            there are.
    """

    def __init__(self, session: HasParts, *, tools: bool = True) -> None:
        super().__init__(session)
        self._with_tools = tools
        self._selection = self._chat.selection.snapshot()
        self._before: Selection | None = None
        self._rows: tuple[Catalog | None, Rows] = (None, {})
        self._sizes: dict[str, tuple[Catalog, ToolSetConfig, int]] = {}
        self._unused: dict[WithoutThem, UsageChange] = {}

    def snapshot(self) -> dict[str, Any]:
        """Collect the whole state as JSON. Prices are estimated tokens."""
        selection = self._chat.selection.snapshot()
        if selection != self._selection:
            self._before, self._selection = self._selection, selection
        view = self._chat.current_view(selection)
        servers = self._server_rows(selection, view)
        limits = {}
        for name, limit in option_limits():
            limits[name] = {"label": limit.label, "help": limit.help}
        calls = Counter(direct_call.call.name for direct_call in self.parts.tools.recorded.list())
        state: dict[str, Any] = {
            "order": list(servers),
            "servers": servers,
            "options": selection.model_dump(include=_OPTIONS),
            "limits": limits,
            "tool_sets": self._tool_sets(selection, view),
            "budget": self._budget(view),
            "manifest": {
                "text": clean(view.manifest),
                "tokens": view.manifest_tokens,
                "tools": len(view.deferred),
            },
            "bundled_names": {name: server.summary for name, server in BUNDLED.items()},
            "unaccepted": unaccepted(self.parts),
            "calls": dict(calls),
        }
        if self._with_tools:
            state["tools"] = self._rows_of(view.catalog)
            state["fates"] = tool_statuses(view, selection.servers, self._off(selection))
        if view.problem:
            state["problem"] = view.problem
        return state

    def _server_rows(self, selection: Selection, view: ToolView) -> dict[str, dict[str, Any]]:
        inside = defaultdict[str, list[ToolSpec]](list)
        for tool in view.included:
            inside[tool.server].append(tool)
        servers = self.servers
        rows = {}
        for name, status in servers.items():
            rows[name] = server_row(status, selection, servers.modes[name], inside[name])
        return rows

    @command
    def set_mode(self, server: str, mode: Mode) -> None:
        """Make a server loaded, deferred or off.

        Deferring turns discovery on, without which nothing is deferred.

        Raises:
            UnknownNameError: There is no such server.
        """
        selection = self._chat.selection
        selection.servers[server] = mode
        if mode == "deferred" and not selection.discovery:
            selection.discovery = True

    @command
    def set_tool(self, name: str, on: bool) -> None:
        """Include or exclude one tool.

        Including one that the toolset lacks makes it a custom toolset.

        Raises:
            UnknownNameError: There is no such tool.
        """
        self._set_tools([self.catalog.resolve(name)], on)

    @command
    def set_tools(self, server: str, on: bool) -> None:
        """Include or exclude all of a server's tools.

        Raises:
            UnknownNameError: There is no such server.
        """
        self._chat.names.check_server(server)
        self._set_tools(list(self.catalog.by_server.get(server, ())), on)

    @command
    def set_discovery(self, on: Discovery) -> None:
        """Choose whether deferred tools are hidden behind the search tool."""
        self._chat.selection.discovery = on

    @command
    def set_option(self, name: str, value: bool | int | str) -> None:
        """Set one of the `DiscoveryOptions`.

        Raises:
            UsageError: There is no such option, or the value is not valid.
        """
        self._chat.selection.set_option(name, value)

    @command
    def set_tool_set(self, name: str | None = None) -> None:
        """Use a toolset, or None for all tools.

        Raises:
            UnknownNameError: There is no such toolset.
        """
        self._chat.selection.tool_set = name

    @command
    def draft(self) -> dict[str, Any]:
        """Combine toolset, servers and single tools into a toolset to edit.

        The state has single tools from now on.

        Returns:
            `description` and `servers`, its rules; `ticked`: the wire names of each server's tools
            in it.
        """
        selection, catalog = self._chat.selection, self.catalog
        chosen = resolve_tool_set(selection.tool_set, self._chat.tool_sets)
        tool_set = toolset_from_selection(selection, chosen, catalog, self._off(selection))
        ticked = defaultdict[str, list[str]](list)
        for tool in filter_tools(catalog, tool_set):
            ticked[tool.server].append(tool.wire_name)
        if not self._with_tools:
            self._with_tools = True
            self.changed()
        return {**plain_tool_set(tool_set), "ticked": dict(ticked)}

    @command
    def edit_tool_set(
        self,
        servers: dict[str, Any],
        description: str = "",
        ticked: dict[str, list[str]] | None = None,
    ) -> None:
        """Use a custom toolset: for each server `true`, a list of tools, or `{"exclude": [tools]}`.

        Args:
            servers: The rules.
            description: The toolset's purpose.
            ticked: For servers that get the shortest rule instead, the wire names of all tools to
                include. Only those whose ticks were touched: a rule that is kept still includes
                tools that are added later.

        Raises:
            ToolSetError: It is not valid, or has unknown names. The message has the closest ones.
        """
        self._use(self._resolved(servers, description, ticked))

    @command
    async def save_tool_set(
        self,
        name: str,
        servers: dict[str, Any],
        description: str = "",
        ticked: dict[str, list[str]] | None = None,
        overwrite: bool = False,
    ) -> dict[str, str]:
        """Write a toolset into the config file, and use it.

        See `edit_tool_set` for what it includes.

        Returns:
            `saved`: the file's name, or `question`, if there is another toolset with that name and
            `overwrite` is not set.

        Raises:
            UsageError: The config has no file. See `session.tools.save_set` for other errors.
        """
        tool_set = self._resolved(servers, description, ticked)
        path = self.parts.config.path
        if path and not overwrite and name in await asyncio.to_thread(saved_names, path):
            return {"question": f"There is a toolset “{name}” in {path.name}. Replace it?"}
        saved = await asyncio.to_thread(
            self.parts.tools.save_set, name, tool_set, overwrite=overwrite
        )
        self._use(name)
        return {"saved": saved.name}

    @command
    async def unused(self) -> dict[str, Any]:
        """Find the loaded tools that the saved conversations never used, and what a turn would cost
        without them. In Python: `session.tools.usage()`.

        Returns:
            `text`: how many there are, and their price; for `deferred` and `off`, the difference as
            HTML. Nothing, if there are none.
        """
        usage = await asyncio.to_thread(self.parts.tools.usage)
        try:
            self._unused = {"deferred": usage.defer(), "off": usage.turn_off()}
        except UsageError:
            self._unused = {}
            return {}
        change = self._unused["off"]
        tools = words.count(len(change.tools), "tool")
        tokens = words.about(sum(tool.definition for tool in change.tools), "estimated")
        turns = words.count(change.turns, "turn")
        shown = {
            "text": f"Loaded now, and never used in {turns}: {tools}, {tokens} tokens a request.",
            "tools": tools,
        }
        return {**shown, **{mode: _html(change) for mode, change in self._unused.items()}}

    @command
    def leave_unused(self, mode: WithoutThem) -> None:
        """Defer the tools that `unused` found, or turn them off.

        Raises:
            UsageError: It found none.
        """
        if mode not in self._unused:
            raise UsageError("There are no unused tools.")
        self._unused.pop(mode).apply()

    @command
    async def reconnect(self, server: str) -> None:
        """Close the connection to one server and connect again.

        Raises:
            UnknownNameError: There is no such server.
            ConnectError: It could not be connected.
        """
        try:
            await self.parts.servers.reconnect_async(server)
        except ConnectError:
            raise not_connected(self._chat.server_manager.status_of(server)) from None
        finally:
            self.changed()

    @command
    async def tool(self, name: str) -> dict[str, Any]:
        """Collect all details of a tool.

        Raises:
            UnknownNameError: There is no such tool.
        """
        tool = self.catalog.resolve(name)
        change = self.parts.tools.changed.get(tool.tool_name)
        return await asyncio.to_thread(tool_detail, tool, change)

    @command
    def accept_change(self, name: str) -> None:
        """Accept a changed tool as its server describes it now.

        Raises:
            UnknownNameError: There is no such tool, or it has not changed.
        """
        self.parts.consent.accept(name)
        self.changed()

    @command
    async def try_tool(self, name: str, filled: dict[str, str]) -> dict[str, str]:
        """Call a tool with a form's values.

        Returns:
            `html`: the call as displayed; `status`: how it ended; `id`: its id in `calls`.

        Raises:
            UsageError: A text is not valid for its field.
            ServerError: The server failed.
        """
        tool = self.catalog.resolve(name)
        arguments = arguments_of(tool, filled)
        try:
            direct_call = await self.parts.tools.call_recorded(tool.wire_name, arguments)
        finally:
            self.changed()
        return {
            "html": await asyncio.to_thread(_html, direct_call.call),
            "status": direct_call.call.status,
            "id": direct_call.id,
        }

    @command
    def code_of(self, name: str, filled: dict[str, str]) -> str:
        """Write the call that `try_tool` would make, as Python.

        Raises:
            UsageError: A text is not valid for its field.
        """
        tool = self.catalog.resolve(name)
        return call_code(tool.tool_name, arguments_of(tool, filled))

    @command
    def calls(self, name: str | None = None) -> list[dict[str, Any]]:
        """List the last calls that the person made, the newest first, without their results.

        Args:
            name: Only calls to this tool, or None for all.

        Raises:
            UnknownNameError: There is no such tool.
        """
        tool = self.catalog.resolve(name).tool_name if name else None
        return list(map(call_row, self.parts.tools.recorded.list(tool)))

    @command
    async def call_html(self, id: str) -> str:
        """Render one call as displayed, with its result.

        Raises:
            UnknownNameError: It is not recorded any more.
        """
        return await asyncio.to_thread(_html, self.parts.tools.recorded.by_id(id).call)

    @command
    async def add_server(self, text: str, name: str | None = None) -> dict[str, str]:
        """Add a server, and wait until it is ready or has failed. The state shows it before.

        Args:
            text: A command line, which is run, an address, or a bundled server's name.
            name: Its name, or None for one made from the text.

        Returns:
            `server`: its name; `state`: `ready`, or `failed`, and then its row has the reason.

        Raises:
            UsageError: The text is not valid, or there is a server with that name.
            ConfigError: The server is not valid.
        """
        status = await self.parts.servers.add_async(name or None, text)
        return {"server": status.name, "state": status.state}

    @command
    async def remove_server(self, server: str) -> None:
        """End a server and forget it.

        Raises:
            UnknownNameError: There is no such server.
        """
        await self.parts.servers.remove_async(server)

    @command
    def server_log(self, server: str) -> dict[str, Any]:
        """Read a server's last log lines.

        Returns:
            `lines`: for each `at` (seconds since 1970), `level` and `text`, the newest last;
            `dropped`: how many came before.

        Raises:
            UnknownNameError: There is no such server.
        """
        log = self.parts.servers.log(server)
        lines = []
        for line in log:
            lines.append({"at": line.at, "level": clean(line.level), "text": clean(line.text)})
        return {"lines": lines, "dropped": log.dropped}

    @command
    async def messages(self, server: str, tool: str | None = None) -> list[dict[str, Any]]:
        """List the last JSON-RPC messages to and from a server, the newest last.

        Args:
            server: The server.
            tool: Only those about this tool, or None for all.

        Returns:
            For each `at` (seconds since 1970), `direction` (`sent` or `received`), `method`, `tool`
            and `text`.

        Raises:
            UnknownNameError: There is no such server or tool.
        """
        messages = await asyncio.to_thread(self.parts.servers.messages, server, tool)
        return list(map(asdict, messages))

    @command
    async def wire(self, server: str, method: str = "", text: str = "") -> dict[str, Any]:
        """List the last messages to and from a server, grouped by request, the newest first.

        Args:
            server: The server.
            method: Only groups with a message with this method, or empty. `*` matches any
                characters.
            text: Only groups with a message or a header that contains this text.

        Returns:
            See `wire_rows`.

        Raises:
            UnknownNameError: There is no such server.
        """

        def rows() -> dict[str, Any]:
            wire = self.parts.servers.wire(
                server, method=method or None, text=text[:MAX_NAME] or None
            )
            return wire_rows(wire)

        return await asyncio.to_thread(rows)

    def _set_tools(self, tools: list[ToolSpec], on: bool) -> None:
        selection, catalog = self._chat.selection, self.catalog
        tool_set = resolve_tool_set(selection.tool_set, self._chat.tool_sets)
        names = tool_names(tools)
        if on and tool_set is not None:
            missing = names - tool_names(filter_tools(tools, tool_set))
            if missing:
                selection.tool_set = with_tools(tool_set, tools, catalog)
        off = set()
        for name in selection.tools_off:
            tool = catalog.get(name)
            if tool is None or tool.tool_name not in names:
                off.add(name)
        if not on:
            off |= {tool.wire_name for tool in tools}
        selection.tools_off = off  # type: ignore[assignment]

    def _use(self, tool_set: ToolSetConfig | str) -> None:
        """Use an edited toolset. Its rules now include the tools that were excluded one by one."""
        self._chat.selection.tool_set = tool_set
        self._chat.selection.tools_off = set()  # type: ignore[assignment]

    def _resolved(
        self, servers: dict[str, Any], description: str, ticked: dict[str, list[str]] | None
    ) -> ToolSetConfig:
        view = self.view
        rules: dict[str, Any] = dict(servers)
        for server, names in (ticked or {}).items():
            tools = []
            for tool in view.catalog.by_server.get(server, ()):
                if tool.restriction is None and tool.tool_name not in view.excluded:
                    tools.append(tool)
            wanted = {view.catalog.resolve(name).tool_name for name in names}
            rule = rule_for(tools, wanted)
            if rule:
                rules[server] = rule
        tool_set = resolve_tool_set({"servers": rules, "description": description}, {})
        assert tool_set is not None
        return tool_set

    def _rows_of(self, catalog: Catalog) -> Rows:
        cached, rows = self._rows
        if cached is not catalog:
            fresh = rows_of(catalog)
            for server, new in fresh.items():
                # What did not change stays the same object, so that it is not sent again.
                if rows.get(server) == new:
                    fresh[server] = rows[server]
            self._rows = (catalog, fresh)
            return fresh
        return rows

    def _budget(self, view: ToolView) -> dict[str, Any]:
        turns = estimated_budget(self._chat, view)
        budget = {
            "now": {**budget_of(view), **_turn_costs(turns.now)},
            "undeferred": {**undeferred_budget_of(view), **_turn_costs(turns.undeferred)},
        }
        if self._before is not None:
            before = self._chat.current_view(self._before)
            costs = estimated_budget(self._chat, before).now
            budget["before"] = {**budget_of(before), **_turn_costs(costs)}
        return budget

    def _tool_sets(self, selection: Selection, view: ToolView) -> dict[str, Any]:
        path = self.parts.config.path
        tool_sets = {}
        for name, tool_set in tuple(self._chat.tool_sets.items()):
            size = self._size(name, tool_set, view.catalog)
            tool_sets[name] = {**plain_tool_set(tool_set), "size": size}
        state: dict[str, Any] = {
            "order": list(tool_sets),
            "known": tool_sets,
            "file": path.name if path else "",
        }
        if isinstance(selection.tool_set, ToolSetConfig):
            state["own"] = plain_tool_set(selection.tool_set)
        elif selection.tool_set is not None:
            state["selected"] = selection.tool_set
        return state

    def _size(self, name: str, tool_set: ToolSetConfig, catalog: Catalog) -> int:
        """Count how many tools a toolset includes, each once."""
        cached = self._sizes.get(name)
        if cached is None or cached[0] is not catalog or cached[1] is not tool_set:
            cached = self._sizes[name] = (catalog, tool_set, len(filter_tools(catalog, tool_set)))
        return cached[2]


def _html(value: Displayable) -> str:
    return mimebundle(value, {"text/html"})["text/html"]


def _turn_costs(costs: TurnCosts) -> dict[str, int]:
    return {
        "first_request": costs.first_request,
        "turn": costs.turn,
        "ten_turns": costs.ten_turns,
        "ten_turns_worst": costs.ten_turns_worst,
    }
