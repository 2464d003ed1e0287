"""The explorer and its single parts: everything that the model sees, its cost, and how it is found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from casual_mcp_nb.base.search import Explanation, SearchHit, SearchResults
from casual_mcp_nb.base.status import ExplorerSnapshot, Manifest, Servers, ToolSets
from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.display.words import clean, first
from casual_mcp_nb.views import mimebundle
from casual_mcp_nb.widgets._rows import MAX_NAME, MAX_SUMMARY, ToolsState
from casual_mcp_nb.widgets.base import HasParts, SessionWidget, command
from casual_mcp_nb.widgets.resources import ResourcesState
from casual_mcp_nb.widgets.selection import SelectionState

BEHIND_THE_CUT = 5
"""How many results beyond the limit are shown."""
MAX_QUERY = 1_000
MAX_SHOWN = 200


class SearchState(ToolsState):
    """Ranks tools for a query, as `session.search` does, with a few results beyond the limit."""

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._last: tuple[ToolSearchIndex, str, int] | None = None

    @property
    def results(self) -> SearchResults:
        """The results of the last query, or empty before the first one."""
        index, query, cut = self._last or (ToolSearchIndex(()), "", self.view.selection.max_search_results)
        return index.find(query, cut)

    def snapshot(self) -> dict[str, Any]:
        """Count the tools that can be searched, deferred ones and all that are included, with the limit of a search."""
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
            query: The search words.
            whole: Rank all tools that the selection includes. The same holds if none is deferred.

        Returns:
            The `query`, so that a late answer can be recognized; `cut`; `searched`; and `hits`, each with `name`,
            `wire_name`, `server`, `summary`, `rank`, `score`, and the score relative to the best one, `share`; `ranked_by`; and
            in `note`, why meaning does not count, where there is an embedding model.
        """
        index, cut = await self._index(whole, query[:MAX_QUERY])
        return await asyncio.to_thread(self._ranked, index, query[:MAX_QUERY], cut)

    @command
    async def terms(self, query: str, whole: bool = False) -> dict[str, Any]:
        """List the words of a query that matched each tool. This takes longer than the search.

        Returns:
            The `query`, and `terms`: for each name on the wire the words, the most important first.
        """
        index, cut = await self._index(whole, query[:MAX_QUERY])

        def matched() -> dict[str, list[str]]:
            return {hit.tool.wire_name: _terms(hit.explain()) for hit in index.search(query[:MAX_QUERY], _shown(cut))}

        return {"query": query, "terms": await asyncio.to_thread(matched)}

    @command
    async def explain(self, query: str, name: str, whole: bool = False) -> dict[str, Any]:
        """Explain the rank of a tool for a query, also of one that the search skips.

        Returns:
            `tool`, its name on the wire; `verdict`, in words; `html`: the explanation as it is displayed.

        Raises:
            UnknownNameError: There is no such tool.
        """
        results = await self.parts.tools.find(query[:MAX_QUERY], None, None, all_tools=whole)

        def explained() -> dict[str, Any]:
            explanation = results.why_not(name)
            html: str = mimebundle(explanation, {"text/html"})["text/html"]
            return {"tool": explanation.tool.wire_name, "verdict": explanation.verdict, "html": html}

        return await asyncio.to_thread(explained)

    async def _index(self, whole: bool, query: str) -> tuple[ToolSearchIndex, int]:
        view = self.view
        return await view.searchable(whole or not view.deferred, query), view.selection.max_search_results

    def _ranked(self, index: ToolSearchIndex, query: str, cut: int) -> dict[str, Any]:
        hits = index.search(query, _shown(cut))
        self._last = (index, query, cut)
        self.changed()
        ranked_by, meaning = index.ranked_by(query), self.view.meaning
        note = meaning.state if meaning is not None and ranked_by == "words" else ""
        more = {"ranked_by": ranked_by, **({"note": note} if note else {})}
        return {"query": query, "cut": cut, "searched": len(index), "hits": _hits(hits), **more}


def _shown(cut: int) -> int:
    """Compute how many tools are shown for a limit."""
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
    """List the words of the query that matched a tool, whole, the most important first."""
    weights: dict[str, float] = {}
    for share in explanation.shares:
        # A part of the score that is not a word of the query has a name of several words.
        if " " not in share.term:
            word = explanation.word(share.query_term or share.term)
            weights[word] = weights.get(word, 0.0) + share.share
    return [clean(word) for word in sorted(weights, key=lambda word: -weights[word])]


class Explorer(SessionWidget):
    """Tools, resources and prompts of servers with their cost: the manifest, the budget, the toolsets, the search.

    Args:
        session: The session; servers that are not connected yet are connected in the background.
    """

    bundle = "explorer"

    def __init__(self, session: HasParts) -> None:
        self.selection = SelectionState(session)
        self.search = SearchState(session)
        self.resources = ResourcesState(session)
        super().__init__(session, selection=self.selection, search=self.search, resources=self.resources)

    def static(self) -> ExplorerSnapshot:
        """Build a snapshot of the servers, the budget, the toolsets and the manifest."""
        return self.selection.exploration


class ToolsetPicker(SessionWidget):
    """Chooses the toolset, and edits and saves toolsets.

    In Python: `session.selection.tool_set` and `session.tools.save_set`.
    """

    bundle = "toolset_picker"

    def __init__(self, session: HasParts) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, selection=self.selection)

    def static(self) -> ToolSets:
        """Get the toolsets as they are now."""
        return self.selection.tool_sets


class ServerToggles(SessionWidget):
    """Makes each server loaded, deferred or off, and shows its price.

    In Python: `session.selection.servers[name]` and `session.servers.reconnect`.
    """

    bundle = "server_toggles"

    def __init__(self, session: HasParts) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, selection=self.selection)

    def static(self) -> Servers:
        """Get the servers as they are now."""
        return self.selection.servers


class ManifestView(SessionWidget):
    """The present manifest as the model reads it. In Python: `session.tools.manifest`."""

    bundle = "manifest_view"

    def __init__(self, session: HasParts) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, selection=self.selection)

    def static(self) -> Manifest:
        """Get the manifest as it is now."""
        return self.selection.manifest


class SearchBox(SessionWidget):
    """Ranks tools as the person types, as the model's own search does. In Python: `session.search`."""

    bundle = "search_box"

    def __init__(self, session: HasParts) -> None:
        self.search = SearchState(session)
        super().__init__(session, search=self.search)

    def static(self) -> SearchResults:
        """Get the results of the last query."""
        return self.search.results
