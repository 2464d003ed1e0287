"""The model's view of the tools: compiled from the catalog and the selection, and cached until one of them changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery import (
    LOAD_TOOLS,
    SearchToolsTool,
    SyntheticTool,
    browse_tools,
    generate_manifest,
    list_servers,
    manifest_budget,
    partition_tools,
)
from casual_mcp_nb.engine.bridge import CallTool
from casual_mcp_nb.engine.own_tools import GuardedTool, OwnTool
from casual_mcp_nb.errors import UnknownNameError, shown
from casual_mcp_nb.toolsets import filter_tools, resolve_tool_set
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.delivery import Delivery
from casual_mcp_nb.types.event import SYNTHETIC, Notice
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.tokens import estimate_tokens
from casual_mcp_nb.types.tool import MAX_TOOLS_ON_LOOP, Catalog, ToolName, ToolSpec

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex

ASSUMED_WINDOW = 128_000
"""The context window, in tokens, of a model whose own is unknown, for deciding whether to defer."""
MAX_NOTICES = 20


@dataclass(frozen=True)
class ToolView:
    """The tools of a catalog under a selection.

    Args:
        catalog: All tools.
        selection: What the person chose, as it was when the view was compiled, with an `auto` decided; not to be edited.
        loaded: The tools whose definitions are sent with every request.
        deferred: The tools that a search can find.
        blocked: Tools that are not offered because their definitions changed and nobody accepted the change.
        problem: Why nothing is offered: the selection's toolset does not exist any more; else empty.
        excluded: Tools that are not offered because the config leaves them out.
        own: The person's own synthetic tools, which are always loaded.
        instructions: By server, what it says about its use, for the manifest.
    """

    catalog: Catalog
    selection: Selection
    loaded: tuple[ToolSpec, ...]
    deferred: tuple[ToolSpec, ...]
    blocked: frozenset[ToolName] = frozenset()
    problem: str = ""
    excluded: frozenset[ToolName] = frozenset()
    own: tuple[OwnTool, ...] = ()
    instructions: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def measure(self) -> None:
        """Count all tokens, on another thread if there are many tools."""
        if len(self.catalog) > MAX_TOOLS_ON_LOOP and "undeferred_tokens" not in self.__dict__:
            await asyncio.to_thread(lambda: (self.undeferred_tokens, self.search_tool_tokens, self.notices))

    async def searchable(self, whole: bool = False) -> ToolSearchIndex:
        """Build the search index on another thread, so that the event loop is not held; the same one every time.

        Args:
            whole: Whether it covers the loaded tools too.
        """
        name = "whole_index" if whole else "index"
        if name not in self.__dict__:
            await asyncio.to_thread(getattr, self, name)
        index: ToolSearchIndex = getattr(self, name)
        return index

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """The notices on loaded tools whose definitions are too long for a model."""
        return cut_notices(self.loaded)

    @cached_property
    def selection_key(self) -> str:
        """The key of the selection."""
        return self.selection.key()

    @cached_property
    def definitions(self) -> tuple[Mapping[str, Any], ...]:
        """The definitions that a conversation starts with: the loaded tools, and the search or browsing tools."""
        synthetic = (tool.definition for tool in self.synthetic_tools().values())
        return (*(tool.definition for tool in self.loaded), *synthetic)

    @cached_property
    def loaded_by_name(self) -> Mapping[str, ToolSpec]:
        """The loaded tools by wire name."""
        return {tool.wire_name: tool for tool in self.loaded}

    @cached_property
    def deferred_by_name(self) -> Mapping[str, ToolSpec]:
        """The deferred tools by wire name."""
        return {tool.wire_name: tool for tool in self.deferred}

    @cached_property
    def manifest(self) -> str:
        """The manifest of the deferred tools; empty if there are none."""
        budget = manifest_budget(self.undeferred_tokens - self.loaded_tokens, self.selection.manifest_max_tokens)
        if self.selection.strategy == "browse":
            return list_servers(self.deferred, budget)
        return generate_manifest(self.deferred, budget, self.instructions)

    @cached_property
    def index(self) -> ToolSearchIndex:
        """The search index over the deferred tools, built when it is first needed."""
        from casual_mcp_nb.discovery.index import ToolSearchIndex

        return ToolSearchIndex(self.deferred)

    @cached_property
    def whole_index(self) -> ToolSearchIndex:
        """The search index over all tools that the selection includes."""
        from casual_mcp_nb.discovery.index import ToolSearchIndex

        return ToolSearchIndex((*self.loaded, *self.deferred)) if self.loaded else self.index

    @cached_property
    def loaded_tokens(self) -> int:
        """Estimated tokens of the definitions of the loaded tools and of the person's own."""
        return sum(tool.tokens for tool in (*self.loaded, *self.own_specs))

    @cached_property
    def manifest_tokens(self) -> int:
        """Estimated tokens of the manifest."""
        return estimate_tokens(self.manifest)

    @cached_property
    def search_tool_tokens(self) -> int:
        """Estimated tokens of the search or browsing tools, without the manifest; 0 if there are none."""
        return max(sum(tool.tokens for tool in self.synthetic_specs) - self.manifest_tokens, 0)

    @cached_property
    def own_specs(self) -> tuple[ToolSpec, ...]:
        """The definitions of the person's own synthetic tools, as the model reads them."""
        return tuple(own.spec for own in self.own)

    @cached_property
    def synthetic_specs(self) -> tuple[ToolSpec, ...]:
        """The search or browsing tools as specs; none if nothing is deferred."""
        own = {spec.name for spec in self.own_specs}
        definitions = [tool.definition for name, tool in self.synthetic_tools().items() if name not in own]
        return tuple(
            ToolSpec(SYNTHETIC, d["name"], d["description"], d["parameters"], wire_name=d["name"]) for d in definitions
        )

    @cached_property
    def offered(self) -> tuple[ToolSpec, ...]:
        """The tools that a conversation starts with: the loaded tools and the synthetic ones."""
        return (*self.loaded, *self.own_specs, *self.synthetic_specs)

    @cached_property
    def undeferred_tokens(self) -> int:
        """Estimated tokens of all definitions if every tool were loaded."""
        return self.loaded_tokens + sum(tool.tokens for tool in self.deferred)

    @property
    def first_call_tokens(self) -> int:
        """Estimated tokens with which a conversation starts: definitions, search tool and manifest."""
        return self.loaded_tokens + self.search_tool_tokens + self.manifest_tokens

    @property
    def bridged(self) -> bool:
        """Whether the model calls the tools that it finds through `call_tool`."""
        return self.selection.delivery == "bridge" and bool(self.deferred)

    def synthetic_tools(
        self,
        discovered: Iterable[ToolName] = (),
        delivery: Delivery | None = None,
        used: Set[ToolName] = frozenset(),
    ) -> dict[str, SyntheticTool]:
        """Create the synthetic tools for one turn: the person's own, and those for search or browsing if any are deferred.

        Args:
            discovered: The tools that the conversation has already loaded.
            delivery: How the model gets what it finds; None for what follows from the selection alone.
            used: The tools that it has called; may grow.

        Returns:
            The tools by name.
        """
        discovered = tuple(discovered)
        delivery = delivery or ("bridge" if self.bridged else "definitions")
        own: dict[str, SyntheticTool] = {
            each.spec.name: GuardedTool(each, self.deferred, discovered, delivery) for each in self.own
        }
        if not self.deferred:
            return own
        if delivery == "bridge":
            own[CallTool.name] = CallTool()
        if self.selection.strategy == "browse":
            return own | browse_tools(
                self.deferred,
                categories=self.manifest,
                index=lambda: self.index,
                max_active_tools=self.selection.max_active_tools,
                max_active_tokens=self.selection.max_active_tokens,
                loaded=discovered,
                always=self.loaded,
                delivery=delivery,
                instructions=self.instructions,
            )
        search = SearchToolsTool(
            self.deferred,
            index=lambda: self.index,
            manifest=self.manifest,
            max_search_results=self.selection.max_search_results,
            max_search_tokens=self.selection.max_search_tokens,
            loaded=discovered,
            used=used,
            always=self.loaded,
            delivery=delivery,
        )
        return own | {search.name: search}

    @property
    def loader(self) -> str:
        """Name of the tool that loads deferred tools."""
        return LOAD_TOOLS if self.selection.strategy == "browse" else SearchToolsTool.name


def cut_notices(tools: Iterable[ToolSpec]) -> tuple[Notice, ...]:
    """Build a notice for each tool whose definition is too long for a model; the last one counts those over a limit."""
    cut = [tool for tool in tools if tool.cuts]
    notices = [
        Notice(f"Tool {shown(tool.name)} is too long for a model; cut: {', '.join(tool.cuts)}.", server=tool.server)
        for tool in cut[:MAX_NOTICES]
    ]
    more = [Notice(f"{len(cut) - MAX_NOTICES:,} more tools are too long for a model and were cut.")]
    return (*notices, *more) if len(cut) > MAX_NOTICES else tuple(notices)


def compile_view(
    catalog: Catalog,
    selection: Selection,
    tool_sets: Mapping[str, ToolSetConfig],
    blocked: frozenset[ToolName] = frozenset(),
    excluded: frozenset[ToolName] = frozenset(),
    own: tuple[OwnTool, ...] = (),
    instructions: Mapping[str, str] | None = None,
    window: int | None = None,
) -> ToolView:
    """Apply a selection to a catalog: toolset first, then single tools, then loaded or deferred.

    A toolset that does not exist any more includes nothing; a turn refuses it, and displays show the problem.

    Args:
        catalog: All tools.
        selection: What the person chose; every server of the catalog has a mode in it or counts as loaded.
        tool_sets: The toolsets that the selection can name.
        blocked: Tools that are left out because they changed.
        excluded: Tools that are left out by the config.
        own: The person's own synthetic tools; a toolset without servers offers none of them, nor does one have the name of
            another tool.
        instructions: By server, what it says about its use; for the manifest, if the selection allows it.
        window: Context window of the model in tokens; None if unknown.
    """
    selection = selection.snapshot()
    problem = ""
    try:
        tool_set = resolve_tool_set(selection.tool_set, tool_sets)
    except UnknownNameError as error:
        tool_set, problem = ToolSetConfig(), str(error)
    off = blocked.union(excluded, (tool.tool_name for tool in map(catalog.get, selection.tools_off) if tool))
    permitted = [tool for tool in filter_tools(catalog, tool_set) if tool.tool_name not in off]
    if selection.discovery == "auto":
        _decide(selection, permitted, window or ASSUMED_WINDOW)
    loaded, deferred = partition_tools(
        permitted,
        selection.servers,
        discovery=selection.discovery is True,
        defer_all=selection.defer_all,
        always_loaded=selection.always_loaded,
    )
    if tool_set is not None and not tool_set.servers:
        own = ()
    elif any(each.spec.name in catalog.by_wire_name for each in own):
        own = tuple(each for each in own if each.spec.name not in catalog.by_wire_name)
    shown_instructions = instructions if instructions and selection.instructions else {}
    return ToolView(catalog, selection, loaded, deferred, blocked, problem, excluded, own, shown_instructions)


def _decide(selection: Selection, tools: Iterable[ToolSpec], window: int) -> None:
    """Decide whether a selection with `auto` discovery defers: whether all definitions exceed their share of the window."""
    tools = [tool for tool in tools if tool.restriction is None and selection.servers.get(tool.server) != "off"]
    selection.discovery = sum(tool.tokens for tool in tools) > window * selection.auto_threshold / 100
    if selection.discovery and not any(selection.servers.get(tool.server) == "deferred" for tool in tools):
        selection.defer_all = True


class ViewCache:
    """Caches the last compiled views: those of the chat's selection and of single turns that differ from it."""

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self._lock = threading.Lock()
        self.catalog = Catalog()
        self._blocked: frozenset[ToolName] = frozenset()
        self._own: tuple[OwnTool, ...] = ()
        self._views: dict[str, ToolView] = {}

    def get(
        self,
        catalog: Catalog,
        selection: Selection,
        tool_sets: Mapping[str, ToolSetConfig],
        blocked: frozenset[ToolName] = frozenset(),
        excluded: frozenset[ToolName] = frozenset(),
        own: tuple[OwnTool, ...] = (),
        instructions: Mapping[str, str] | None = None,
        window: int | None = None,
    ) -> ToolView:
        """Compile the view for these, or reuse it if they have not changed; for any thread.

        The instructions of servers are those of the catalog: another text needs another catalog.
        """
        with self._lock:
            return self._get(catalog, selection, tool_sets, blocked, excluded, own, instructions, window)

    def _get(
        self,
        catalog: Catalog,
        selection: Selection,
        tool_sets: Mapping[str, ToolSetConfig],
        blocked: frozenset[ToolName],
        excluded: frozenset[ToolName],
        own: tuple[OwnTool, ...],
        instructions: Mapping[str, str] | None,
        window: int | None,
    ) -> ToolView:
        if catalog is not self.catalog or blocked != self._blocked or own is not self._own:
            self.catalog, self._blocked, self._own, self._views = catalog, blocked, own, {}
        # A toolset can be given another content under the same name.
        named = tool_sets.get(selection.tool_set) if isinstance(selection.tool_set, str) else None
        window = window if selection.discovery == "auto" else None
        view = self._views.get(f"{selection.key()} {named!r} {window}")
        if view is None:
            # A copy: the selection can be edited meanwhile.
            selection = selection.snapshot()
            view = compile_view(catalog, selection, tool_sets, blocked, excluded, own, instructions, window)
            if len(self._views) >= self._size:
                self._views.pop(next(iter(self._views)))
            self._views[f"{selection.key()} {named!r} {window}"] = view
        return view
