"""Search tools by words, and by meaning where there is an embedding model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.search import Explanation, RankedBy, SearchHit, SearchResults
from casual_mcp_nb.base.tool import Catalog, ToolSpec, by_server
from casual_mcp_nb.discovery.text import is_foreign, languages
from casual_mcp_nb.errors import UnknownNameError

if TYPE_CHECKING:
    from casual_mcp_nb.discovery._engine import Engine
    from casual_mcp_nb.discovery.meaning import Meaning

_MAX_SHARE = 0.5
"""A query that looks like another language counts as one only if tools have at most this share of its words."""
_SAMPLE = 100
"""How many descriptions to check for their language."""


class ToolSearchIndex:
    """Ranks tools by a query's words: BM25 over their names, servers, descriptions and parameters.

    Tools that the query mentions by name come first. If a request has several clauses, each counts separately. A tool gains if
    its server is about the request, and loses if it duplicates a better one. Ties are ordered by wire name. A tool without any
    query term or synonym is not returned. Results are deterministic.

    Args:
        tools: The tools. The first counts if two have the same server and name. The index has only the beginning of long texts.
        embed: Returns an array with one row for each text, such as a provider's embeddings. Similarity adds to the score: the
            closest tool gets three tenths of the best score by words, a tool with average similarity or less gets nothing.
            Called for all tools here, in batches, and once per search. If it fails, only words count, with a warning in the
            log. Or a session's `Meaning`, which works in the background: `prepare` a query before searching.
    """

    def __init__(self, tools: Iterable[ToolSpec], *, embed: Callable[[list[str]], Any] | Meaning | None = None) -> None:
        unique: dict[tuple[str, str], ToolSpec] = {}
        for tool in tools:
            unique.setdefault((tool.server, tool.name), tool)
        self.tools: tuple[ToolSpec, ...] = tuple(unique.values())
        self._engine = _engine(self.tools, embed) if self.tools else None

    def __len__(self) -> int:
        return len(self.tools)

    def __contains__(self, name: object) -> bool:
        return self._engine is not None and self._engine.has(name)

    def __repr__(self) -> str:
        return f"<ToolSearchIndex: {len(self)} tools>"

    def search(self, query: str, max_results: int = 5, server: str | None = None) -> list[SearchHit]:
        """Find the best tools for a query.

        Args:
            query: The search, in words or as a name. Only its first 8,000 characters count.
            max_results: Maximum number of tools.
            server: Return only this server's tools.

        Returns:
            The hits, best first, all with a score above 0. Possibly fewer than `max_results`, or none.
        """
        if self._engine is None or max_results < 1:
            return []
        ranked = self._engine.ranked(query, server, max_results)
        return [
            SearchHit(tool, score, rank, partial(self.explain, query, tool, max_results, server))
            for rank, (tool, score) in enumerate(ranked, 1)
        ]

    async def prepare(self, query: str) -> None:
        """Get ready to search by meaning too. Waits for a session's embedding model, but not long."""
        meaning = self._engine.meaning if self._engine else None
        if meaning is not None and (prepare := getattr(meaning.vectors, "prepare", None)) is not None:
            await prepare(query)

    def nearest_in_meaning(self, query: str) -> dict[str, float]:
        """Find the tools that a search ranks higher by their meaning: how much, from 0 to 1, by wire name.

        Empty where searches rank by words.
        """
        return self._engine.nearest(query) if self._engine else {}

    def recall(self, query: str, nearest: Mapping[str, float]) -> None:
        """Search for a query with these recorded results from `nearest_in_meaning`. Embeds nothing."""
        if self._engine:
            self._engine.recall(query, nearest)

    def ranked_by(self, query: str) -> RankedBy:
        """Check whether a search ranks by words only, or by meaning too."""
        return "words and meaning" if self.nearest_in_meaning(query) else "words"

    def to_plain(self) -> dict[str, Any]:
        """Convert the index to plain values that JSON can hold, for a page that ranks without Python and gets the same scores.

        See `discovery/_engine.py`. Excludes any embedding. Empty without tools.
        """
        return self._engine.portable() if self._engine else {}

    def other_language(self, query: str) -> bool:
        """Check whether a query seems to be in another language than the descriptions.

        Then tools have at most half its words, and its script or its common words belong to another language.
        """
        return self._engine is not None and self._engine.known_share(query) <= _MAX_SHARE and is_foreign(query, self.languages)

    def called(self, query: str) -> list[ToolSpec]:
        """Find the tools that a query mentions by name, which come first in its results, ordered by wire name."""
        return self._engine.called(query) if self._engine else []

    def nearest(self, query: str, server: str, count: int, searched: str | None = None) -> list[ToolSpec]:
        """Find a server's tools closest to a query, by their scores in a search, limited to `searched` if given."""
        if self._engine is None:
            return []
        return [tool for tool, _ in self._engine.ranked(query, searched, count, only=server)]

    def explain(self, query: str, tool: ToolSpec, max_results: int = 5, server: str | None = None) -> Explanation:
        """Explain why a tool in this index ranks where it does in a search, or does not appear.

        The search returns at most `max_results` tools, on one server if given. The explanation's parts add up to the score.
        """
        if self._engine is None or not self._engine.has(tool.tool_name):
            raise UnknownNameError("tool", str(tool.tool_name), [str(each.tool_name) for each in self.tools])
        return self._engine.explain(query, tool, max_results, server)

    def find(self, query: str, max_results: int = 5, server: str | None = None) -> SearchResults:
        """Find the best tools for a query as a displayable value. Takes the same arguments as `search`.

        Its `why_not(name)` accepts a name in any form that `Catalog.resolve` does, and raises the same errors.
        """
        hits = tuple(self.search(query, max_results, server))
        searched = len(self) if server is None else sum(tool.server == server for tool in self.tools)

        def why_not(name: str) -> Explanation:
            return self.explain(query, self._catalog.resolve(name), max_results, server)

        return SearchResults(query, hits, max_results, searched, why_not, self.ranked_by(query))

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The descriptions' languages, the most frequent first, or empty where they do not show."""
        return languages(tool.description for tool in self.tools[:: -(-len(self.tools) // _SAMPLE) or 1])

    @cached_property
    def by_server(self) -> Mapping[str, Sequence[ToolSpec]]:
        """The tools by server, in the order given."""
        return by_server(self.tools)

    @cached_property
    def _catalog(self) -> Catalog:
        return Catalog(self.tools)


def _engine(tools: Sequence[ToolSpec], embed: Callable[[list[str]], Any] | Meaning | None) -> Engine:
    from casual_mcp_nb.discovery._engine import EmbeddedTexts, Engine

    if embed is None:
        return Engine(tools, None)
    from casual_mcp_nb.discovery.meaning import Meaning

    return Engine(tools, embed.over if isinstance(embed, Meaning) else partial(EmbeddedTexts, embed))
