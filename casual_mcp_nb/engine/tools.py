"""A chat's current tools: listed, excluded, checked for changes, and compiled into views."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import EmbeddingConfig, ServerConfig, ToolSetConfig, ToolTexts
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import (
    MAX_TOOLS_ON_LOOP,
    Catalog,
    ToolChange,
    ToolName,
    ToolSpec,
    forget_server,
)
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.discovery.synthetic import SyntheticTool
from casual_mcp_nb.discovery.toolsets import check_tool_set, resolve_tool_set
from casual_mcp_nb.engine.instructions import are_enabled
from casual_mcp_nb.engine.options import always_loaded, mode_of
from casual_mcp_nb.engine.tool_view import CustomTool, OnLog, ToolView, ViewCache, ViewSources
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief, closest, did_you_mean, shown
from casual_mcp_nb.own_tools.toolbox import ALL_TOOLS, NOTEBOOK
from casual_mcp_nb.servers.server_manager import ServerManager

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.meaning import Meaning
    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.providers.factory import ModelFactory


class Exclusions:
    """The tools that `include_tools` and `exclude_tools` exclude from a catalog, computed once per
    catalog.
    """

    def __init__(self, config_of: Callable[[str], ServerConfig | None]) -> None:
        self._config_of = config_of
        self._catalog: Catalog | None = None
        self._excluded: frozenset[ToolName] = frozenset()
        self._notices: tuple[Notice, ...] = ()

    def of(self, catalog: Catalog) -> frozenset[ToolName]:
        """Find a catalog's excluded tools."""
        self._update(catalog)
        return self._excluded

    def notices(self, catalog: Catalog) -> tuple[Notice, ...]:
        """Build a notice for each list that names tools which its server does not have."""
        self._update(catalog)
        return self._notices

    def _update(self, catalog: Catalog) -> None:
        if catalog is self._catalog:
            return
        excluded: set[ToolName] = set()
        notices: list[Notice] = []
        for server, tools in catalog.by_server.items():
            config = self._config_of(server)
            if config is None:
                continue
            for tool in tools:
                if not config.offers(tool.name):
                    excluded.add(tool.tool_name)
            notices.extend(_on_unknown_tools(server, config, tools))
            notices.extend(_on_unknown_parameters(server, config, tools))
        self._excluded = frozenset(excluded)
        self._notices = tuple(notices)
        self._catalog = catalog


def _on_unknown_tools(
    server: str, config: ServerConfig, tools: Iterable[ToolSpec]
) -> Iterator[Notice]:
    """Yield a notice for each list in a server's config that names tools which it does not have."""
    names = [tool.name for tool in tools]
    listed: dict[str, Iterable[str]] = {
        "include_tools": config.include_tools or (),
        "exclude_tools": config.exclude_tools,
        "descriptions": config.descriptions,
    }
    for key, patterns in listed.items():
        unknown = []
        for pattern in patterns:
            if not any(_fits(name, pattern) for name in names):
                unknown.append(pattern)
        if unknown:
            hint = did_you_mean(closest(unknown[0], names), names)
            listed_names = ", ".join(map(shown, unknown[:8]))
            text = (
                f"{key} of server {shown(server)} names tools that it does not have:"
                f" {listed_names}. {hint}"
            )
            yield Notice(text, server=server)


def _on_unknown_parameters(
    server: str, config: ServerConfig, tools: Iterable[ToolSpec]
) -> Iterator[Notice]:
    """Yield a notice for each parameter that a server's config describes and its tool does not
    have.
    """
    for tool in tools:
        texts = config.descriptions.get(tool.name)
        if texts is None:
            continue
        properties = tool.input_schema.get("properties") or {}
        for name in texts.parameters:
            if name not in properties:
                hint = did_you_mean(closest(name, properties), properties)
                text = (
                    f"descriptions of server {shown(server)}: {shown(tool.name)} has no"
                    f" parameter {shown(name)}. {hint}"
                )
                yield Notice(text, server=server)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


_NONE = frozenset[ToolName]()


class ToolChangeTracker:
    """Remembers each tool's definition, even while the tool is gone, and reports each change.

    Args:
        pinned: Returns for a server whether to block a changed tool until somebody accepts the
            change.
        unwatched: Servers whose changes are the person's own.
    """

    def __init__(self, pinned: Callable[[str], bool], unwatched: Collection[str] = ()) -> None:
        self._pinned = pinned
        self._unwatched = unwatched
        self.catalog = Catalog()
        self._accepted: dict[ToolName, ToolSpec] = {}
        self._riskiest: dict[ToolName, ToolSpec] = {}
        self._changes: dict[ToolName, ToolChange] = {}
        self._unreported: list[ToolChange] = []

    @property
    def changes(self) -> MappingProxyType[ToolName, ToolChange]:
        """Each tool's last change that nobody has accepted since, with old and new definition."""
        return MappingProxyType(self._changes)

    @property
    def blocked(self) -> frozenset[ToolName]:
        """The tools that are not offered until somebody accepts their change."""
        if not self._changes:
            return _NONE
        return frozenset(name for name, change in tuple(self._changes.items()) if change.blocked)

    def riskiest(self, tool: ToolSpec) -> ToolSpec:
        """Find a tool's riskiest definition since the last accepted one, or the first of several
        that are equally risky.
        """
        return self._riskiest.get(tool.tool_name, tool)

    def last_of(self, server: str) -> dict[ToolName, ToolSpec]:
        """List all tools that a server has ever offered, with their last definitions."""
        return {name: tool for name, tool in self._accepted.items() if name.server == server}

    def update(self, catalog: Catalog) -> None:
        """Compare a catalog with the previous one."""
        if catalog is self.catalog:
            return
        self.catalog = catalog
        for tool in catalog:
            if tool.server in self._unwatched:
                self._accepted[tool.tool_name] = self._riskiest[tool.tool_name] = tool
                continue
            before = self._accepted.setdefault(tool.tool_name, tool)
            if before is not tool and before.as_listed != tool.as_listed:
                self._changed(before, tool)
            elif tool.tool_name in self._changes and self._changes[tool.tool_name].blocked:
                # Its definition is the accepted one again.
                del self._changes[tool.tool_name]
            seen = self._accepted[tool.tool_name]
            if seen.risk > self._riskiest.setdefault(tool.tool_name, seen).risk:
                self._riskiest[tool.tool_name] = seen

    def accept(self, name: ToolName) -> None:
        """Accept a tool's present definition."""
        if name not in self._changes:
            raise UnknownNameError("changed tool", str(name), map(str, self._changes))
        self._accepted[name] = self._riskiest[name] = self._changes.pop(name).after

    def forget(self, server: str) -> None:
        """Forget a removed server's tools."""
        self._unreported = [change for change in self._unreported if change.tool.server != server]
        for tools in (self._accepted, self._riskiest, self._changes):
            forget_server(tools, server)

    def notices(self) -> list[Notice]:
        """Collect the notices on changes: each change once, and a blocked tool as long as it stays
        blocked.
        """
        if not self._changes and not self._unreported:
            return []
        changes, self._unreported = self._unreported, []
        blocked = [change for change in self._changes.values() if change.blocked]
        return [_notice(change) for change in dict.fromkeys([*changes, *blocked])]

    def _changed(self, before: ToolSpec, after: ToolSpec) -> None:
        change = ToolChange(before, after, blocked=self._pinned(after.server))
        if self._changes.get(after.tool_name) == change:
            return
        self._changes[after.tool_name] = change
        if not change.blocked:
            self._accepted[after.tool_name] = after
            self._unreported.append(change)


def _notice(change: ToolChange) -> Notice:
    server, tool = change.tool.server, change.tool.tool
    text = f"Server {shown(server)} changed the definition of tool {shown(tool)}."
    if change.blocked:
        text += " It is not offered until the change is accepted."
    return Notice(text, server=server)


@dataclass(eq=False, repr=False)
class ChatNames:
    """Checks the names in a selection when the person changes it, as `SelectionNames` declares.

    A server that has not listed its tools may have any tool.
    """

    server_manager: ServerManager
    tool_sets: Mapping[str, ToolSetConfig]
    catalog: Callable[[], Catalog]

    def check_tool_set(self, tool_set: str | ToolSetConfig) -> None:
        """Check that a toolset exists, and that the servers and tools it names do."""
        catalog = self.catalog()
        # The first function may be added later.
        servers = {NOTEBOOK: ServerStatus(NOTEBOOK, "starting")}
        for server, status in self.server_manager.statuses.items():
            has_listed = server in catalog.by_server
            servers[server] = status if has_listed else replace(status, state="starting")
        name = tool_set if isinstance(tool_set, str) else None
        check_tool_set(resolve_tool_set(tool_set, self.tool_sets), servers, catalog, name=name)

    def check_server(self, name: str) -> None:
        """Check that a server exists."""
        if name not in self.server_manager.names:
            raise UnknownNameError("server", str(name), self.server_manager.names)

    def check_stubs(self, names: Iterable[str]) -> None:
        """Check the names for which stubs answer: tools, `server:*` and `*`."""
        for name in names:
            server, separator, tool = name.rpartition(":")
            if separator and tool == ALL_TOOLS:
                self.check_server(server)
            elif name != ALL_TOOLS:
                self.check_tool(name)

    def check_tool(self, name: str) -> None:
        """Check that a tool exists, unless it can belong to a server that has not listed its
        tools.
        """
        catalog = self.catalog()
        owner = ToolName.split(name, self.server_manager.names).server
        if ":" in name:
            self.check_server(owner)
        all_listed = self.server_manager.names <= catalog.by_server.keys()
        if all_listed or owner in catalog.by_server or catalog.named(name):
            catalog.resolve(name)


Described = str | Mapping[str, Any]
"""A tool's description, or a mapping with `description` and `parameters`, the texts by parameter.
"""


def described_tool(tool: ToolSpec, text: Described) -> ToolSpec:
    """Copy a tool with another description, or with other parameter descriptions.

    Raises:
        UsageError: It has no such parameter, or the text is not one.
    """
    given: Mapping[str, Any] = text if isinstance(text, Mapping) else {"description": text}
    if not _are_descriptions(given):
        raise UsageError(
            f"The description of {shown(str(tool.tool_name))} cannot be {brief(text)}.",
            hint="Give a text, or {'description': text, 'parameters': {name: text}}.",
        )
    description = given.get("description", tool.description)
    parameters = given.get("parameters")
    if not parameters:
        return replace(tool, description=description)
    properties = dict(tool.input_schema.get("properties") or {})
    for name, value in parameters.items():
        if name not in properties:
            raise UnknownNameError(f"parameter of {tool.tool_name}", str(name), properties)
        schema = properties[name] if isinstance(properties[name], Mapping) else {}
        properties[name] = {**schema, "description": value}
    input_schema = {**tool.input_schema, "properties": properties}
    return replace(tool, description=description, input_schema=input_schema)


def _configured_tool(tool: ToolSpec, texts: ToolTexts) -> ToolSpec:
    """Copy a tool with the texts in its server's config, except those for parameters that it does
    not have.
    """
    properties = tool.input_schema.get("properties") or {}
    parameters = {name: text for name, text in texts.parameters.items() if name in properties}
    return described_tool(tool, {**texts.texts, "parameters": parameters})


def _are_descriptions(given: Mapping[str, Any]) -> bool:
    """Check whether a mapping has only texts, as `Described` says."""
    parameters = given.get("parameters") or {}
    if not given.keys() <= {"description", "parameters"} or not isinstance(parameters, Mapping):
        return False
    texts = [given.get("description", ""), *parameters.values()]
    return all_are(texts, str)


class WrittenTexts:
    """Remembers for which definition of a tool the person wrote own texts, and which texts no longer
    fit because the definition has changed.
    """

    def __init__(self, meant: Mapping[ToolName, str] | None = None) -> None:
        self._meant = dict(meant or {})
        self._stale: dict[ToolName, str] = {}

    def copy(self, written_now: Mapping[ToolName, str]) -> WrittenTexts:
        """Copy it, with the meanings of the definitions for which other texts were just written."""
        return WrittenTexts({**self._meant, **written_now})

    def fit(self, tool: ToolSpec, written_for: str | None = None) -> bool:
        """Check whether the texts for a tool were written for its present definition."""
        meant = self._meant.setdefault(tool.tool_name, written_for or tool.meaning)
        if meant == tool.meaning:
            self._stale.pop(tool.tool_name, None)
            return True
        self._stale[tool.tool_name] = tool.meaning
        return False

    def accept(self, name: ToolName) -> bool:
        """Have a tool's texts used for its present definition. Return whether they were left out
        until now.
        """
        meaning = self._stale.pop(name, None)
        if meaning is None:
            return False
        self._meant[name] = meaning
        return True

    def forget(self, server: str) -> None:
        """Forget a removed server's tools."""
        for tools in (self._meant, self._stale):
            forget_server(tools, server)

    def notices(self) -> list[Notice]:
        """Collect a notice for each tool whose texts are left out."""
        return [_stale_notice(name, meaning) for name, meaning in self._stale.items()]


def changed_skill_notice(server: str, name: str, *, blocked: bool) -> Notice:
    """Create the notice that a server changed a skill, with the digests by which it would be
    noticed.
    """
    text = f"Server {shown(server)} changed skill {shown(name)}, with the digests of its files."
    block = " The model cannot read it until the change is accepted." if blocked else ""
    return Notice(
        f"{text}{block} To accept it: session.consent.accept({f'{server}:{name}'!r}).",
        server=server,
    )


def _stale_notice(name: ToolName, meaning: str) -> Notice:
    text = (
        f"Your own texts for tool {shown(str(name))} are left out, because its server has changed"
        " what the tool does since they were written. The model reads the server's. If yours still"
        f" fit: session.consent.accept({str(name)!r}), and in the config's descriptions"
        f' "written_for": "{meaning}".'
    )
    return Notice(text, server=name.server)


RELIST_SECONDS = 3.0
"""How long a step waits for servers that list their tools again."""
_LOOP_ITERATIONS = 3


EmbeddingLike = EmbeddingConfig | Callable[[list[str]], Any] | None
"""An embedding model as in a config, or a function from texts to an array with one row for each, or
none.
"""


@dataclass(eq=False, repr=False)
class ChatTools:
    """The tools of a chat's servers, and the views that a model sees under a selection.

    Args:
        window: Returns the context window in tokens, or None if unknown, for the model that turns
            use unless they name another.
    """

    server_manager: ServerManager
    tool_sets: Mapping[str, ToolSetConfig]
    window: Callable[[], int | None]
    strict: bool = False
    custom: tuple[CustomTool, ...] = ()

    def __post_init__(self) -> None:
        self.changes = ToolChangeTracker(self._is_pinned, unwatched={NOTEBOOK})
        self.exclusions = Exclusions(self.server_manager.config_of)
        self._views = ViewCache()
        self._relisting = Relisting(self._is_fresh, self.update)
        self._instruction_texts: tuple[Catalog, Mapping[str, str]] = Catalog(), {}
        self._last_view: tuple[str, tuple[CustomTool, ...], ToolView | None] = "", (), None
        self._descriptions: Mapping[ToolName, Described] = {}
        self._described: tuple[Catalog, Catalog] = Catalog(), Catalog()
        self.written_texts = WrittenTexts()
        self._meaning: Meaning | None = None
        self.embedding: EmbeddingLike = None

    @property
    def meaning(self) -> Meaning | None:
        """The embedding model with which searches compare meanings too, or None."""
        return self._meaning

    def use_embedding(
        self, model: EmbeddingLike, models: ModelFactory, changed: Callable[[], None] = ignore
    ) -> None:
        """Have searches compare meanings with a model, or only words if it is None.

        Args:
            model: The embedding model.
            models: Creates it, if it comes from a config.
            changed: Called when there is progress with the embedding of tools.
        """
        self.embedding, meaning = model, None
        if model is not None:
            # It needs numpy, which takes a while to import.
            from casual_mcp_nb.discovery.meaning import Meaning, of_function
            from casual_mcp_nb.discovery.vector_file import VectorFile, cache_path

            if isinstance(model, EmbeddingConfig):
                file, load = VectorFile(cache_path()), partial(models.embedding_model, model)
                meaning = Meaning(
                    load,
                    model.label,
                    file=file,
                    timeout=model.timeout,
                    changed=changed,
                )
            else:
                function = of_function(model)
                meaning = Meaning(lambda: function, function.label, changed=changed)
        self._meaning = meaning
        self.abandon()

    def beside(self, server_manager: ServerManager) -> ChatTools:
        """Create the tools of other servers, with the same embedding model and synthetic tools."""
        other = replace(self, server_manager=server_manager)
        other.embedding, other._meaning = self.embedding, self._meaning
        return other

    def described(self, descriptions: Mapping[ToolName, Described]) -> ChatTools:
        """Copy these tools with some descriptions replaced, which only the model reads."""
        other = copy.copy(self)
        other._descriptions = dict(descriptions)
        other.abandon()
        other._described = Catalog(), Catalog()
        written_now = {}
        for tool in self.changes.catalog:
            if tool.tool_name in descriptions:
                written_now[tool.tool_name] = tool.meaning
        other.written_texts = self.written_texts.copy(written_now)
        return other

    def accept(self, name: ToolName) -> None:
        """Accept a tool's present definition, and have the person's own texts used for it.

        Raises:
            UnknownNameError: It has not changed.
        """
        accepted = self.written_texts.accept(name)
        if not accepted or name in self.changes.changes:
            self.changes.accept(name)
        self._described = Catalog(), Catalog()

    def change_notices(self) -> list[Notice]:
        """Collect the notices on changed tools, and on texts of the person's that do not fit them
        any more.
        """
        # Which texts fit is found out when the catalog is described.
        _ = self.catalog
        return [*self.changes.notices(), *self.written_texts.notices(), *self.skill_notices()]

    def skill_notices(self) -> list[Notice]:
        """Collect a notice for each skill that its server has changed since it was first listed."""
        notices = []
        for server, reader in self.server_manager.resources.items():
            for name in reader.changed_skills:
                notices.append(changed_skill_notice(server, name, blocked=self._is_pinned(server)))
        return notices

    @property
    def catalog(self) -> Catalog:
        """The current tools, with the descriptions that the model reads."""
        catalog = self.changes.catalog
        if self._described[0] is not catalog:
            self._described = catalog, self._with_own_texts(catalog)
        return self._described[1]

    def _with_own_texts(self, catalog: Catalog) -> Catalog:
        """Replace the server's texts by the person's own. The same catalog if there are none."""
        changed: dict[ToolName, ToolSpec] = {}
        for server, tools in catalog.by_server.items():
            config = self.server_manager.config_of(server)
            texts = config.descriptions if config is not None else {}
            for tool in tools:
                described = tool
                own = texts.get(tool.name)
                if own is not None and self.written_texts.fit(tool, own.written_for):
                    described = _configured_tool(tool, own)
                if tool.tool_name in self._descriptions and self.written_texts.fit(tool):
                    described = described_tool(described, self._descriptions[tool.tool_name])
                if described is not tool:
                    changed[tool.tool_name] = described
        if not changed:
            return catalog
        return Catalog((changed.get(tool.tool_name, tool) for tool in catalog), catalog.absent)

    async def update(self) -> None:
        """Update the tools of the servers that are ready, listing again if a list is stale.

        Does not connect.
        """
        catalog = await self.server_manager.list_tools()
        if catalog is not self.changes.catalog and len(catalog) > MAX_TOOLS_ON_LOOP:
            await asyncio.to_thread(self.changes.update, catalog)
        else:
            self.changes.update(catalog)

    async def update_known(self) -> None:
        """Update the tools to the servers' last lists, after a change to the notebook's tools.

        Sends no request.
        """
        self.changes.update(self.server_manager.known_tools)

    async def connected_view(
        self, selection: Selection, model: ChatModel | None = None
    ) -> ToolView:
        """Connect the servers that a selection needs, and compile the model's view under it."""
        self._enable(selection)
        # Each turn calls this, and usually there is nothing to do.
        if not self.server_manager.is_current(self.changes.catalog):
            await self.server_manager.connect()
            await self.update()
        if self.server_manager.skill_readers:
            await self.server_manager.refresh_skills()
        auto = selection.discovery == "auto"
        window = model.window if auto and model is not None else None
        if auto and len(self.changes.catalog) > MAX_TOOLS_ON_LOOP:
            view = await asyncio.to_thread(self.view, selection, window)
        else:
            view = self.view(selection, window)
        if "undeferred_tokens" not in view.__dict__:
            await view.measure()
        view.embed_tools()
        return view

    def _enable(self, selection: Selection) -> None:
        if self.server_manager.disabled:
            self.server_manager.enable(
                name for name, mode in selection.servers.items() if mode != "off"
            )

    async def current_view(self, selection: Selection) -> ToolView:
        """Compile a selection's current view: connect the servers it needs, or wait a few seconds
        for new lists.
        """
        self._enable(selection)
        if self.server_manager.waiting:
            return await self.connected_view(selection)
        await self.relist()
        view = self.view(selection)
        await view.measure()
        return view

    async def relist(self) -> None:
        """List the tools again that servers have changed. Wait a few seconds at most."""
        if self.server_manager.has_streams:
            # A notification that came with a result is read by another task, just after it.
            for _ in range(_LOOP_ITERATIONS):
                await asyncio.sleep(0)
        if self.server_manager.is_current(self.changes.catalog):
            return
        if await self._relisting.wait():
            # Also what changed without a listing, such as the functions of the notebook.
            await self.update()

    async def refreshed_view(self, view: ToolView) -> ToolView:
        """Update a running turn's view after changes by servers. The same view if nothing changed.

        Waits for servers that list their tools again, for a few seconds at most.
        """
        await self.relist()
        if self.server_manager.skill_readers:
            await self.server_manager.refresh_skills()
        if (
            self.catalog is view.catalog
            and self.changes.blocked == view.blocked
            and view.custom is self.custom
            and self.server_manager.known_skills is view.listed_skills
        ):
            return view
        refreshed = self.view(self._with_new_servers(view.selection))
        await refreshed.measure()
        refreshed.embed_tools()
        return refreshed

    def _with_new_servers(self, selection: Selection) -> Selection:
        """Add the servers that are new to a running turn's selection, as their configs have
        them.
        """
        configs = {}
        for name in self.changes.catalog.by_server:
            config = self.server_manager.config_of(name)
            if name not in selection.servers and config is not None:
                configs[name] = config
        if not configs:
            return selection
        selection = selection.snapshot()
        for name, config in configs.items():
            selection.servers[name] = mode_of(config)
            if always := always_loaded(name, config):
                selection.always_loaded = (*selection.always_loaded, *always)
        return selection

    def view(self, selection: Selection, window: int | None = None) -> ToolView:
        """Compile the view from the current tools. Does not connect and does not wait.

        For any thread.
        """
        catalog, key = self.catalog, selection.key()
        blocked, custom = self.changes.blocked, self.custom
        last_key, last_custom, last = self._last_view
        skills = self.server_manager.known_skills
        if (
            last is not None
            and key is last_key
            and catalog is last.catalog
            and blocked is last.blocked
            and custom is last_custom
            and skills is last.listed_skills
        ):
            return last
        sources = ViewSources(
            catalog=catalog,
            tool_sets=self.tool_sets,
            blocked=blocked,
            excluded=self.exclusions.of(catalog),
            custom=custom,
            instructions=self._instructions(catalog),
            window=window or self.window(),
            meaning=self._meaning,
            skills=skills,
        )
        view = self._views.get(sources, selection)
        # A toolset can be given another content under the same name, and models have other windows.
        if selection.tool_set is None and selection.discovery != "auto" and selection.key() is key:
            self._last_view = key, custom, view
        return view

    def _instructions(self, catalog: Catalog) -> Mapping[str, str]:
        """Collect the server instructions. They stay the same with the catalog, so that the manifest
        does too.
        """
        if self._instruction_texts[0] is not catalog:
            # Those of a server that is gone for a moment stay.
            texts = {
                name: text
                for name, text in self._instruction_texts[1].items()
                if name in catalog.by_server
            }
            for name, text in self.server_manager.instructions.items():
                if text.strip() and are_enabled(name, self.server_manager):
                    texts[name] = text
            self._instruction_texts = catalog, texts
        return self._instruction_texts[1]

    def add_custom(self, tool: SyntheticTool, on_log: OnLog) -> None:
        """Add the person's own synthetic tool. It replaces one with the same name."""
        added = CustomTool(tool, on_log)
        added.check(self.changes.catalog)
        others = [each for each in self.custom if each.spec.name != added.spec.name]
        self.custom = (*others, added)

    def remove_custom(self, name: str) -> None:
        """Remove the person's own synthetic tool."""
        names = [each.spec.name for each in self.custom]
        if name not in names:
            raise UnknownNameError("synthetic tool", name, names)
        self.custom = tuple(each for each in self.custom if each.spec.name != name)

    async def close(self) -> None:
        """Cancel a listing in progress, and the embedding model's work."""
        self._relisting.close()
        if self._meaning is not None:
            await self._meaning.close()

    def abandon(self) -> None:
        """Forget the views, even in a forked child: the parent may have held the cache's lock at
        the fork.
        """
        self._views, self._last_view = ViewCache(), ("", (), None)

    def _is_fresh(self) -> bool:
        return self.server_manager.fresh

    def _is_pinned(self, server: str) -> bool:
        config = self.server_manager.config_of(server)
        return self.strict or (config is not None and config.pin_tools)


class Relisting:
    """Lists tools again if a server reported a change or its list has expired.

    Args:
        relist: Refreshes stale lists. It keeps running when it takes too long: the next step may
            use the result.
    """

    def __init__(self, is_fresh: Callable[[], bool], relist: Callable[[], Awaitable[None]]) -> None:
        self._is_fresh = is_fresh
        self._relist = relist
        self._task: asyncio.Future[None] | None = None

    async def wait(self) -> bool:
        """Wait until the lists are current, a few seconds at most. Return whether they are.

        While a listing from an earlier call still runs, this does not wait again.
        """
        if self._task is not None and not self._task.done():
            return self._is_fresh()
        if self._is_fresh():
            return True
        self._task = asyncio.ensure_future(self._relist())
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({self._task}, timeout=RELIST_SECONDS)
        return self._is_fresh()

    def close(self) -> None:
        """Cancel a listing in progress."""
        if self._task is not None:
            self._task.cancel()
