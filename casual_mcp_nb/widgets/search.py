"""Searching for tools as the model does, at each key: what is found, why, and what the cut leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.display.text import clean, first
from casual_mcp_nb.types.search import Explanation, SearchHit, SearchResults
from casual_mcp_nb.widgets._rows import MAX_NAME, MAX_SUMMARY
from casual_mcp_nb.widgets._tools_state import ToolsState
from casual_mcp_nb.widgets.state import SessionParts, command

BEHIND_THE_CUT = 5
"""How many tools are shown that a search would leave out."""
MAX_QUERY = 1_000
MAX_SHOWN = 200


class SearchState(ToolsState):
    """Ranks tools for a query. The answer is that of `session.search`, with those behind the cut.

    Args:
        session: What it is about.
    """

    def __init__(self, session: SessionParts) -> None:
        super().__init__(session)
        self._last: tuple[ToolSearchIndex, str, int] | None = None

    @property
    def results(self) -> SearchResults:
        """What the last query found; nothing before the first one."""
        index, query, cut = self._last or (ToolSearchIndex(()), "", self.view.selection.max_search_results)
        return index.find(query, cut)

    def snapshot(self) -> dict[str, Any]:
        """How many tools there are to be found, deferred ones and all that are let through, and where the cut falls."""
        view = self.view
        return {
            "deferred": len(view.deferred),
            "all": len(view.loaded) + len(view.deferred),
            "cut": view.selection.max_search_results,
        }

    @command
    async def search(self, query: str, whole: bool = False) -> dict[str, Any]:
        """Rank the deferred tools for a query, as the model's own search does.

        Args:
            query: What is looked for, in words.
            whole: Rank all tools that the selection lets through; so it is also where none is deferred.

        Returns:
            The `query`, so that an answer that comes late is known as such; `cut`; `searched`; and `hits`, each with `name`,
            `wire_name`, `server`, `summary`, `rank`, `score`, and the score's part of the best one, `share`.
        """
        index, cut = await self._index(whole)
        return await asyncio.to_thread(self._found, index, query[:MAX_QUERY], cut)

    @command
    async def terms(self, query: str, whole: bool = False) -> dict[str, Any]:
        """The words of a query that count for each tool found: what takes longer than finding them.

        Returns:
            The `query`, and `terms`: for each name on the wire the words, the most important first.
        """
        index, cut = await self._index(whole)

        def matched() -> dict[str, list[str]]:
            return {hit.tool.wire_name: _terms(hit.explain()) for hit in index.search(query[:MAX_QUERY], _shown(cut))}

        return {"query": query, "terms": await asyncio.to_thread(matched)}

    @command
    async def explain(self, query: str, name: str, whole: bool = False) -> dict[str, Any]:
        """Why a tool has its place for a query, or none.

        Returns:
            `tool`, its name on the wire; `verdict`, `score`, `missing` terms, and `shares`: each part of the score with `term`,
            `field`, `frequency`, `idf`, `share`, its `part` of the whole.

        Raises:
            UnknownNameError: There is no such tool.
        """
        tool = self.catalog.resolve(name)
        index, cut = await self._index(whole)
        if tool.tool_name not in {known.tool_name for known in index.tools}:
            return {"tool": tool.wire_name, "verdict": self._why_outside(whole), "score": 0.0, "missing": [], "shares": []}
        return _explained(await asyncio.to_thread(index.explain, query[:MAX_QUERY], tool, cut))

    async def _index(self, whole: bool) -> tuple[ToolSearchIndex, int]:
        view = self.view
        return await view.searchable(whole=whole or not view.deferred), view.selection.max_search_results

    def _found(self, index: ToolSearchIndex, query: str, cut: int) -> dict[str, Any]:
        hits = index.search(query, _shown(cut))
        self._last = (index, query, cut)
        self.changed()
        return {"query": query, "cut": cut, "searched": len(index), "hits": _hits(hits)}

    @staticmethod
    def _why_outside(whole: bool) -> str:
        return "Not found: the selection does not let it through." if whole else "Not found: it is not deferred."


def _shown(cut: int) -> int:
    """How many tools are shown for a cut."""
    return min(cut + BEHIND_THE_CUT, MAX_SHOWN)


def _hits(hits: Sequence[SearchHit]) -> list[dict[str, Any]]:
    best = hits[0].score if hits else 0.0
    return [_hit(hit, best) for hit in hits]


def _hit(hit: SearchHit, best: float) -> dict[str, Any]:
    return {
        "name": first(hit.tool.name, MAX_NAME),
        "wire_name": hit.tool.wire_name,
        "server": first(hit.tool.server, MAX_NAME),
        "summary": first(hit.tool.description, MAX_SUMMARY),
        "rank": hit.rank,
        "score": round(hit.score, 3),
        "share": round(hit.score / best, 3) if best > 0 else 0.0,
    }


def _terms(explanation: Explanation) -> list[str]:
    """The query's terms that count for a tool, the most important first."""
    weights: dict[str, float] = {}
    for share in explanation.shares:
        # A part of the score that is no word of the query is named in several words.
        if " " not in share.term:
            term = share.asked or share.term
            weights[term] = weights.get(term, 0.0) + share.share
    return [clean(term) for term in sorted(weights, key=lambda term: -weights[term])]


def _explained(explanation: Explanation) -> dict[str, Any]:
    score = explanation.score
    return {
        "tool": explanation.tool.wire_name,
        "verdict": explanation.verdict,
        "score": round(score, 3),
        "missing": [clean(term) for term in explanation.missing],
        "shares": [
            {
                "term": clean(f"{share.term} (for {share.asked})" if share.asked else share.term),
                "field": share.field,
                "frequency": share.frequency if share.idf else "",
                "idf": round(share.idf, 3) if share.idf else "",
                "share": round(share.share, 3),
                "part": round(share.share / score, 3) if score > 0 else 0.0,
            }
            for share in sorted(explanation.shares, key=lambda share: -share.share)
        ],
    }
