"""The search, its tool and the manifest with casual-mcp's names and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import DiscoveryConfig
from casual_mcp_nb.base.search import SearchHit
from casual_mcp_nb.base.tool import ToolSpec, by_server
from casual_mcp_nb.compat._tools import specs
from casual_mcp_nb.discovery import manifest, search_tools
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult

if TYPE_CHECKING:
    import mcp
    from casual_llm import Tool


def generate_manifest(
    deferred_by_server: Mapping[str, Sequence[ToolSpec | mcp.Tool]] | Iterable[ToolSpec],
) -> str:
    """List deferred servers with their tools' names and a summary, as the model reads it.

    Args:
        deferred_by_server: The deferred tools by server, or the tools themselves.
    """
    return manifest.generate_manifest(_flat(deferred_by_server))


@dataclass(frozen=True, eq=False)
class PairedHit(SearchHit):
    """A hit that unpacks as casual-mcp's pair: the server, and the tool as it was given to the
    index.
    """

    given: Any = None

    @property
    def pair(self) -> tuple[str, Any]:
        """The server and the tool."""
        return self.tool.server, self.given


class ToolSearchIndex(search_tools.ToolSearchIndex):
    """Ranks tools by a query's words, with casual-mcp's methods in addition to the index's own.

    Args:
        tools: The tools.
        tool_server_map: Each MCP SDK tool's server, by its name. Other tools know theirs.
        embed: Returns an array with one row per text. See the guide to discovery.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec | mcp.Tool],
        tool_server_map: Mapping[str, str] | None = None,
        *,
        embed: Callable[[list[str]], Any] | None = None,
    ) -> None:
        tools, servers = list(tools), tool_server_map or {}
        converted = specs(tools, lambda name: servers.get(name, "unknown"))
        super().__init__(converted, embed=embed)
        self._given = {spec.tool_name: tool for tool, spec in zip(tools, converted, strict=True)}

    def search(  # type: ignore[override]
        self,
        query: str,
        max_results: int = 5,
        server_filter: str | None = None,
        *,
        server: str | None = None,
    ) -> list[PairedHit]:
        """Find the best tools for a query.

        Each hit has `tool`, `score` and `explain`, and unpacks as server and tool.

        Args:
            query: The search words.
            max_results: How many tools to return at most.
            server_filter: Return only this server's tools.
            server: The same.
        """
        hits = super().search(query, max_results, server_filter if server is None else server)
        return [
            PairedHit(hit.tool, hit.score, hit.rank, hit.explain, self._given[hit.tool.tool_name])
            for hit in hits
        ]

    def get_by_server(self, server_name: str) -> list[tuple[str, Any]]:
        """List all tools on a server, each after the server's name."""
        return [
            (server_name, self._given[tool.tool_name])
            for tool in self.tools
            if tool.server == server_name
        ]

    def get_by_names(self, tool_names: Sequence[str]) -> tuple[list[tuple[str, Any]], list[str]]:
        """Find the tools with these names, each after its server's name, and list the names that no
        tool has.

        Args:
            tool_names: Wire names, or any unique spelling.
        """
        matches, missing = [], []
        for name in tool_names:
            owners = [tool for tool in self.tools if name == tool.wire_name]
            if not owners:
                owners = [tool for tool in self.tools if name in tool.aliases]
            matches += [(tool.server, self._given[tool.tool_name]) for tool in owners]
            missing += [] if owners else [name]
        return matches, missing

    @property
    def tool_count(self) -> int:
        """The number of tools."""
        return len(self.tools)

    @property
    def server_names(self) -> list[str]:
        """The tools' servers."""
        return list(by_server(self.tools))


class SearchToolsTool(search_tools.SearchToolsTool):
    """The search tool with casual-mcp's arguments.

    Args:
        deferred_tools: The deferred tools by server.
        server_names: Ignored: the tools know their servers.
        search_index: Their index. Built if not given.
        config: Defines how many tools a query returns.
    """

    def __init__(
        self,
        deferred_tools: Mapping[str, Sequence[ToolSpec | mcp.Tool]],
        server_names: Sequence[str] = (),
        search_index: ToolSearchIndex | None = None,
        config: DiscoveryConfig | None = None,
    ) -> None:
        converted = _flat(deferred_tools)
        super().__init__(
            converted,
            index=(lambda: search_index) if search_index is not None else None,
            max_search_results=config.max_search_results if config is not None else 5,
            max_search_tokens=config.max_search_tokens if config is not None else 20_000,
        )
        given = chain.from_iterable(deferred_tools.values())
        self._given = {spec.tool_name: tool for spec, tool in zip(converted, given, strict=True)}

    @property
    def definition(self) -> Tool:  # type: ignore[override]
        """The definition sent to the model, in casual-llm's form, with the manifest in its
        description.
        """
        from casual_llm import Tool

        plain = super().definition
        return Tool.from_input_schema(plain["name"], plain["description"], plain["parameters"])

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Search the deferred tools. It loads the tools that it was given.

        Args:
            args: `query`, `server_name` and `tool_names`, at least one of them.
        """
        result = await super().execute(args)
        loaded = [self._given[tool.tool_name] for tool in result.newly_loaded_tools]
        return SyntheticToolResult(result.content, loaded, result.rows, result.unloaded)  # type: ignore[arg-type]

    @property
    def system_prompt(self) -> str:
        """The manifest.

        `definition` includes it here, so nothing needs to be added to the system prompt.
        """
        return self._manifest


def _flat(
    tools: Mapping[str, Sequence[ToolSpec | mcp.Tool]] | Iterable[ToolSpec],
) -> list[ToolSpec]:
    if not isinstance(tools, Mapping):
        return list(tools)
    listed: list[ToolSpec] = []
    for server, owned in tools.items():

        def owner(_: str, server: str = server) -> str:
            return server

        listed += specs(owned, owner)
    return listed
