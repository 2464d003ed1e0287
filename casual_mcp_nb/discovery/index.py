"""Finding tools by words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.types.search import Explanation, SearchHit, SearchResults
from casual_mcp_nb.types.tool import Catalog, ToolSpec

if TYPE_CHECKING:
    from casual_mcp_nb.discovery._engine import Engine


class ToolSearchIndex:
    """Ranks tools by the words of a query: BM25 over their names, servers, descriptions and parameters.

    A name that the query calls comes first; of a request with several parts each part counts by itself; a tool whose server is
    about the request gains by it; a tool that says the same as a better one stands back. Equal scores are ranked by wire name.
    A tool with none of the query's terms, or of their synonyms, is not found. The same tools and query give the same answer
    everywhere.

    Args:
        tools: The tools; of two with the same server and name the first counts. Of long texts only the beginning is read.
        embed: Makes an array with a row for each text, such as a provider's embeddings. What it says about meaning is added
            to the score: the nearest tool gets six tenths of the best score by words, a tool of mean nearness or less gets
            nothing. It is called for all tools here, in batches, and once in each search; when it fails, words alone decide
            and a warning is logged.
    """

    def __init__(self, tools: Iterable[ToolSpec], *, embed: Callable[[list[str]], Any] | None = None) -> None:
        unique: dict[tuple[str, str], ToolSpec] = {}
        for tool in tools:
            unique.setdefault((tool.server, tool.name), tool)
        self.tools: tuple[ToolSpec, ...] = tuple(unique.values())
        self._engine = _engine(self.tools, embed) if self.tools else None

    def __len__(self) -> int:
        return len(self.tools)

    def __repr__(self) -> str:
        return f"<ToolSearchIndex: {len(self)} tools>"

    def search(self, query: str, max_results: int = 5, server: str | None = None) -> list[SearchHit]:
        """Return the best tools for a query.

        Args:
            query: What is looked for, in words or as a name; its first 8,000 characters count.
            max_results: How many tools at most.
            server: Only tools of this server.

        Returns:
            The hits, best first, all with a score above 0; fewer than `max_results`, or none, where the words are not found.
        """
        if self._engine is None or max_results < 1:
            return []
        ranked = self._engine.ranked(query, server, max_results)
        return [
            SearchHit(tool, score, rank, partial(self.explain, query, tool, max_results, server))
            for rank, (tool, score) in enumerate(ranked, 1)
        ]

    def explain(self, query: str, tool: ToolSpec, max_results: int = 5, server: str | None = None) -> Explanation:
        """Why a tool has its place in a search, or none.

        Args:
            query: What was looked for.
            tool: Any tool of this index, found or not.
            max_results: How many were asked for.
            server: The server that the search was limited to.

        Returns:
            The parts of its score, which add up to it, and the query's terms that it does not have.

        Raises:
            UnknownNameError: The tool is not in this index.
        """
        if self._engine is None or not self._engine.has(tool):
            raise UnknownNameError("tool", str(tool.tool_name), [str(known.tool_name) for known in self.tools])
        return self._engine.explain(query, tool, max_results, server)

    def find(self, query: str, max_results: int = 5, server: str | None = None) -> SearchResults:
        """Return the best tools for a query as a value that displays; arguments as for `search`.

        Returns:
            The hits; its `why_not(name)` takes a name in any form that `Catalog.resolve` knows, and raises as that does.
        """
        hits = tuple(self.search(query, max_results, server))
        searched = len(self) if server is None else sum(tool.server == server for tool in self.tools)

        def why_not(name: str) -> Explanation:
            return self.explain(query, self._catalog.resolve(name), max_results, server)

        return SearchResults(query, hits, max_results, searched, why_not)

    @cached_property
    def _catalog(self) -> Catalog:
        return Catalog(self.tools)


def _engine(tools: Sequence[ToolSpec], embed: Callable[[list[str]], Any] | None) -> Engine:
    from casual_mcp_nb.discovery._engine import Engine

    return Engine(tools, embed)
