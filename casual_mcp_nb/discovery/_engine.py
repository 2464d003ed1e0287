"""Ranking engine of an index. Imported only where an index is built, because it needs numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from casual_mcp_nb.discovery._bm25 import FieldedBM25, Floats
from casual_mcp_nb.discovery._embedding import EmbeddingScorer
from casual_mcp_nb.discovery._exact import ExactNames
from casual_mcp_nb.discovery._fields import texts
from casual_mcp_nb.discovery._ranker import Ranker
from casual_mcp_nb.discovery._score_explainer import ScoreExplainer
from casual_mcp_nb.discovery._scorer import Scored, Scorer
from casual_mcp_nb.discovery.text import MAX_QUERY, readable, terms
from casual_mcp_nb.types.search import Explanation, TermScore
from casual_mcp_nb.types.tool import ToolSpec


class Engine:
    """Ranks the tools of an index and explains their scores. Tools are documents, in order of wire name.

    Args:
        tools: At least one tool, all with different names.
        embed: The embedding, if any.
    """

    def __init__(self, tools: Sequence[ToolSpec], embed: Callable[[list[str]], Any] | None) -> None:
        self._tools = sorted(tools, key=lambda tool: (tool.wire_name, tool.server, tool.name))
        self._places = {tool.tool_name: index for index, tool in enumerate(self._tools)}
        corpus = [texts(tool) for tool in self._tools]
        bm25 = FieldedBM25(corpus)
        self._ranking = Ranker(bm25)
        self._names = ExactNames(self._tools)
        self._meaning = EmbeddingScorer(embed, self._tools) if embed else None
        self._servers = {server: number for number, server in enumerate(sorted({tool.server for tool in tools}))}
        self._server_of = np.array([self._servers[tool.server] for tool in self._tools])
        self._scorer = Scorer(bm25, self._server_of)
        self._last: tuple[tuple[str, str | None], Scored] | None = None

    def has(self, name: object) -> bool:
        """Check whether a tool of that name is in the index."""
        return name in self._places

    def called(self, query: str) -> list[ToolSpec]:
        """Find the tools that a query mentions by name."""
        return [self._tools[document] for document in self._names.called(query[:MAX_QUERY])]

    def known_share(self, query: str) -> float:
        """Compute the share of a query's words that occur in the tools, from 0 to 1; 1 for a query without words."""
        query_terms = set(terms(readable(query)))
        return sum(term in self._scorer.bm25.vocabulary for term in query_terms) / len(query_terms) if query_terms else 1.0

    def portable(self) -> dict[str, Any]:
        """Convert the index to plain values, without the embedding."""
        from casual_mcp_nb.discovery._portable import portable

        return portable(self._tools, self._scorer.bm25, self._ranking, self._names)

    def ranked(self, query: str, server: str | None, count: int, only: str | None = None) -> list[tuple[ToolSpec, float]]:
        """Rank the best tools with their scores, best first.

        Args:
            query: The query.
            server: Score only tools of this server.
            count: The maximum number of tools.
            only: Return only tools of this server.
        """
        scored = self._score(query, server)
        scores = scored.scores if only is None or only == server else scored.scores * self._of(only)
        return [(self._tools[document], score) for document, score in self._ranking.ranked(scores, count, scored.called)]

    def explain(self, query: str, tool: ToolSpec, cut: int, server: str | None) -> Explanation:
        """Explain a tool's score; takes the same arguments as `ToolSearchIndex.explain`."""
        document = self._places[tool.tool_name]
        scored = self._score(query, server)
        parts = ScoreExplainer(self._scorer, scored, document, self._tools[document])
        raw = float(scored.scores[document])
        if not raw:
            return Explanation(tool, query, 0.0, None, cut, (), parts.missing(), server, spelling=parts.spelling(query))
        ranked = self._ranking.ranked(scored.scores, len(self._tools), scored.called)
        rank, score = next((rank, score) for rank, (other, score) in enumerate(ranked, 1) if other == document)
        shares = parts.all()
        if score != raw:
            better = next(other for other, _ in ranked if self._ranking.same(other, document))
            name = self._tools[better].tool_name
            shares += (TermScore("says the same as a better hit", f"like {name}", 1, 0.0, score - raw),)
        return Explanation(tool, query, score, rank, cut, shares, parts.missing(), server, spelling=parts.spelling(query))

    def _score(self, query: str, server: str | None) -> Scored:
        """Score all tools. The last result is cached: a search asks for hits, then for other tools near the query."""
        last = self._last
        if last is None or last[0] != (query, server):
            self._last = last = (query, server), self._scored(query[:MAX_QUERY], server)
        return last[1]

    def _scored(self, query: str, server: str | None) -> Scored:
        meaning = self._meaning.nearness(query) if self._meaning else None
        return self._scorer.score(query, None if server is None else self._of(server), self._names.called(query), meaning)

    def _of(self, server: str) -> Floats:
        """Mark each tool of a server with 1 and the others with 0."""
        allowed: Floats = np.where(self._server_of == self._servers.get(server, -1), 1.0, 0.0)
        return allowed
