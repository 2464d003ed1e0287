"""What the model sees: compiled from the catalog and the selection, and kept until one of the two changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery import SearchToolsTool, generate_manifest, partition_tools
from casual_mcp_nb.toolsets import filter_tools, resolve_tool_set
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.event import SYNTHETIC
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.tokens import estimate_tokens
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex


@dataclass(frozen=True)
class ToolView:
    """What a selection makes of a catalog.

    Args:
        catalog: All tools.
        loaded: The tools that are offered at once.
        deferred: The tools that a search can find.
        max_search_results: How many one search finds at most.
    """

    catalog: Catalog
    loaded: tuple[ToolSpec, ...]
    deferred: tuple[ToolSpec, ...]
    max_search_results: int = 5

    @cached_property
    def definitions(self) -> tuple[Mapping[str, Any], ...]:
        """The definitions of the loaded tools."""
        return tuple(tool.definition for tool in self.loaded)

    @cached_property
    def loaded_by_name(self) -> Mapping[str, ToolSpec]:
        """The loaded tools by their names on the wire."""
        return {tool.wire_name: tool for tool in self.loaded}

    @cached_property
    def deferred_by_name(self) -> Mapping[str, ToolSpec]:
        """The deferred tools by their names on the wire."""
        return {tool.wire_name: tool for tool in self.deferred}

    @cached_property
    def manifest(self) -> str:
        """What the model reads about the deferred tools; empty when there are none."""
        return generate_manifest(self.deferred) if self.deferred else ""

    @cached_property
    def index(self) -> ToolSearchIndex:
        """The search index over the deferred tools, built when it is first needed."""
        from casual_mcp_nb.discovery.index import ToolSearchIndex

        return ToolSearchIndex(self.deferred)

    @cached_property
    def whole_index(self) -> ToolSearchIndex:
        """The search index over everything that the selection lets through."""
        from casual_mcp_nb.discovery.index import ToolSearchIndex

        return ToolSearchIndex((*self.loaded, *self.deferred)) if self.loaded else self.index

    @cached_property
    def loaded_tokens(self) -> int:
        """Estimated price of the loaded tools' definitions."""
        return sum(tool.tokens for tool in self.loaded)

    @cached_property
    def manifest_tokens(self) -> int:
        """Estimated price of the manifest."""
        return estimate_tokens(self.manifest)

    @cached_property
    def search_tool_tokens(self) -> int:
        """Estimated price of the search tool without the manifest in it; 0 when nothing is deferred."""
        return max(self.search_spec.tokens - self.manifest_tokens, 0) if self.search_spec else 0

    @cached_property
    def search_spec(self) -> ToolSpec | None:
        """The search tool as a tool among others, or None when nothing is deferred."""
        tool = self.search_tool()
        if tool is None:
            return None
        said = tool.definition
        return ToolSpec(SYNTHETIC, tool.name, said["description"], said["parameters"], wire_name=tool.name)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        """What a conversation begins with: the loaded tools, and the search tool."""
        return (*self.loaded, self.search_spec) if self.search_spec else self.loaded

    @cached_property
    def undeferred_tokens(self) -> int:
        """Estimated price of all definitions, were nothing deferred."""
        return self.loaded_tokens + sum(tool.tokens for tool in self.deferred)

    @property
    def first_call_tokens(self) -> int:
        """Estimated price of what a conversation starts with: definitions, search tool and manifest."""
        return self.loaded_tokens + self.search_tool_tokens + self.manifest_tokens

    def search_tool(self, discovered: Iterable[ToolName] = ()) -> SearchToolsTool | None:
        """The search tool for one turn, or None when nothing is deferred.

        Args:
            discovered: What the conversation has found already.
        """
        if not self.deferred:
            return None
        return SearchToolsTool(
            self.deferred,
            index=lambda: self.index,
            manifest=self.manifest,
            max_search_results=self.max_search_results,
            loaded=discovered,
            always=self.loaded,
        )


def compile_view(catalog: Catalog, selection: Selection, tool_sets: Mapping[str, ToolSetConfig]) -> ToolView:
    """Apply a selection to a catalog: toolset first, then single tools, then loaded or deferred.

    Args:
        catalog: All tools.
        selection: What the person chose; every server of the catalog has a mode in it or counts as loaded.
        tool_sets: The toolsets that the selection can name.

    Raises:
        UnknownNameError: The selection names a toolset that does not exist.
    """
    off = {tool.tool_name for tool in map(catalog.get, selection.tools_off) if tool}
    permitted = [
        tool for tool in filter_tools(catalog, resolve_tool_set(selection.tool_set, tool_sets)) if tool.tool_name not in off
    ]
    loaded, deferred = partition_tools(
        permitted, selection.servers, discovery=selection.discovery, defer_all=selection.defer_all
    )
    return ToolView(catalog, loaded, deferred, selection.max_search_results)


class ViewCache:
    """Keeps the last compiled views: those of the session's selection and of single turns that differ from it."""

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self.catalog = Catalog()
        self._views: dict[str, ToolView] = {}

    def get(self, catalog: Catalog, selection: Selection, tool_sets: Mapping[str, ToolSetConfig]) -> ToolView:
        """The view for these, compiled if they have changed."""
        if catalog is not self.catalog:
            self.catalog, self._views = catalog, {}
        key = selection.key()
        view = self._views.get(key)
        if view is None:
            view = compile_view(catalog, selection, tool_sets)
            if len(self._views) >= self._size:
                self._views.pop(next(iter(self._views)))
            self._views[key] = view
        return view
