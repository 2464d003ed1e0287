"""The explorer and its parts: everything that the model sees, its cost, and how it is found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from casual_mcp_nb.base.mcp import ServerTask
from casual_mcp_nb.base.search import Explanation, SearchHit, SearchResults
from casual_mcp_nb.base.status import ExplorerSnapshot, Manifest, Servers, ToolSets
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.display.view import SIZE_TIERS, Cell, Table, TextBlock, cell_text, fit
from casual_mcp_nb.display.words import clean, first
from casual_mcp_nb.views import mimebundle, view_of
from casual_mcp_nb.widgets._rows import MAX_NAME, MAX_SUMMARY, ToolsState
from casual_mcp_nb.widgets.base import HasParts, Layout, SessionWidget, State, command
from casual_mcp_nb.widgets.limits import LimitsState
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
        """The last query's results, or empty before the first one."""
        if self._last is None:
            return ToolSearchIndex(()).find("", self.view.selection.max_search_results)
        index, query, cut = self._last
        return index.find(query, cut)

    def snapshot(self) -> dict[str, Any]:
        """Count the searchable tools, deferred ones and all that are included, with the search
        limit.
        """
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
            whole: Rank all tools that the selection includes, as if none is deferred.

        Returns:
            The `query`, so that a late answer can be recognized; `cut`; `searched`; and `hits`,
            each with `name`, `wire_name`, `server`, `summary`, `rank`, `score`, and the score
            relative to the best one, `share`; `ranked_by`; and in `note`, why meaning does not
            count, where there is an embedding model.
        """
        index, cut = await self._index(whole, query[:MAX_QUERY])
        return await asyncio.to_thread(self._ranked, index, query[:MAX_QUERY], cut)

    @command
    async def terms(self, query: str, whole: bool = False) -> dict[str, Any]:
        """List the query words that matched each tool. This takes longer than the search.

        Returns:
            The `query`, and `terms`: for each wire name the words, the most important first.
        """
        index, cut = await self._index(whole, query[:MAX_QUERY])

        def matched() -> dict[str, list[str]]:
            hits = index.search(query[:MAX_QUERY], _shown(cut))
            return {hit.tool.wire_name: _terms(hit.explain()) for hit in hits}

        return {"query": query, "terms": await asyncio.to_thread(matched)}

    @command
    async def explain(self, query: str, name: str, whole: bool = False) -> dict[str, Any]:
        """Explain a tool's rank for a query, even if the search skips the tool.

        Returns:
            `tool`, its wire name; `verdict`, in words; `html`: the explanation as it is displayed.

        Raises:
            UnknownNameError: There is no such tool.
        """
        results = await self.parts.tools.find(query[:MAX_QUERY], None, None, all_tools=whole)

        def explained() -> dict[str, Any]:
            explanation = results.why_not(name)
            html: str = mimebundle(explanation, {"text/html"})["text/html"]
            return {
                "tool": explanation.tool.wire_name,
                "verdict": explanation.verdict,
                "html": html,
            }

        return await asyncio.to_thread(explained)

    async def _index(self, whole: bool, query: str) -> tuple[ToolSearchIndex, int]:
        view = self.view
        past = await self.parts.chat.state.past_questions()
        index = await view.searchable(whole or not view.deferred, query, past)
        return index, view.selection.max_search_results

    def _ranked(self, index: ToolSearchIndex, query: str, cut: int) -> dict[str, Any]:
        hits = index.search(query, _shown(cut))
        self._last = (index, query, cut)
        self.changed()
        ranked_by, meaning = index.ranked_by(query), self.view.meaning
        ranked: dict[str, Any] = {
            "query": query,
            "cut": cut,
            "searched": len(index),
            "hits": _hits(hits),
            "ranked_by": ranked_by,
        }
        if meaning is not None and "meaning" not in ranked_by and meaning.state:
            ranked["note"] = meaning.state
        return ranked


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
    """List the query words that matched a tool, whole, the most important first."""
    weights: dict[str, float] = {}
    for share in explanation.shares:
        # A score part that is not a query word has a name with several words.
        if " " not in share.term:
            word = explanation.word(share.query_term or share.term)
            weights[word] = weights.get(word, 0.0) + share.share
    return [clean(word) for word in sorted(weights, key=weights.__getitem__, reverse=True)]


class TasksState(State):
    """The session's tasks as `%mcp tasks` shows them, with their age while they run.

    In Python: `session.servers.tasks`.
    """

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._tasks = session.parts.servers.tasks
        self._ticking = False
        self.follow(session.parts.observers.changes.add(self.changed))

    def snapshot(self) -> dict[str, Any]:
        """Collect the rows by number, the newest ones if there are many, and how many are not
        shown.
        """
        tasks = self._tasks.now
        if not tasks:
            return {"rows": {}}
        if not self._ticking and any(not task.is_over for task in tasks):
            self._ticking = True
            self.parts.engine.call_later(1.0, self._tick)
        view = fit(view_of(tasks, SIZE_TIERS[1]), SIZE_TIERS[1])
        table = next(block for block in view.blocks if isinstance(block, Table))
        shown = zip(tasks[-len(table.rows) :], table.rows, strict=True)
        rows = {str(task.number): _task_row(task, cells) for task, cells in shown}
        how_to_answer = None
        if any(task.asking for task in tasks):
            # The first text says how a question is answered. The others have buttons here.
            texts = (block.text for block in view.blocks if isinstance(block, TextBlock))
            how_to_answer = next(texts, None)
        return {
            "rows": rows,
            "more": table.more or None,
            "note": view.note,
            "how_to_answer": how_to_answer,
        }

    @command
    async def cancel(self, number: int) -> None:
        """Cancel a task at its server. In Python: `session.servers.tasks.cancel`."""
        await self._tasks.cancel_async(number)

    @command
    async def result(self, number: int) -> str:
        """Format a completed task's result as HTML. In Python: `session.servers.tasks.result`."""
        call = await self._tasks.result_async(number, 0)
        html: str = (await asyncio.to_thread(mimebundle, call))["text/html"]
        return html

    def _tick(self) -> None:
        """Draw it again, since time passes."""
        self._ticking = False
        self.changed()


def _task_row(task: ServerTask, cells: Sequence[Cell]) -> dict[str, Any]:
    _, tool, state, progress, age = cells
    return {
        "tool": cell_text(tool),
        "state": cell_text(state),
        "progress": cell_text(progress),
        "age": cell_text(age),
        "status": task.status,
        "over": task.is_over,
    }


class Explorer(SessionWidget):
    """Servers' tools, resources and prompts with their cost: the manifest, the budget, the
    toolsets, the search; the tasks.

    Args:
        session: The session. Servers are connected in the background.
    """

    bundle = "explorer"

    def __init__(self, session: HasParts, layout: Layout | None = None) -> None:
        self.selection = SelectionState(session)
        self.search = SearchState(session)
        self.resources = ResourcesState(session)
        self.tasks = TasksState(session)
        self.limits = LimitsState(session)
        super().__init__(
            session,
            layout,
            selection=self.selection,
            search=self.search,
            resources=self.resources,
            tasks=self.tasks,
            limits=self.limits,
        )

    def static(self) -> ExplorerSnapshot:
        """Build a snapshot with servers, budget, toolsets, manifest and tasks."""
        return replace(self.selection.exploration, tasks=self.session.parts.servers.tasks.now)


class ToolsetPicker(SessionWidget):
    """Chooses the toolset, and edits and saves toolsets.

    In Python: `session.selection.tool_set` and `session.tools.save_set`.
    """

    bundle = "toolset_picker"

    def __init__(self, session: HasParts, layout: Layout | None = None) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, layout, selection=self.selection)

    def static(self) -> ToolSets:
        """Get the toolsets as they are now."""
        return self.selection.tool_sets


class ServerToggles(SessionWidget):
    """Makes each server loaded, deferred or off, and shows its price.

    In Python: `session.selection.servers[name]` and `session.servers.reconnect`.
    """

    bundle = "server_toggles"

    def __init__(self, session: HasParts, layout: Layout | None = None) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, layout, selection=self.selection)

    def static(self) -> Servers:
        """Get the servers as they are now."""
        return self.selection.servers


class ManifestView(SessionWidget):
    """The current manifest as the model reads it. In Python: `session.tools.manifest`."""

    bundle = "manifest_view"

    def __init__(self, session: HasParts, layout: Layout | None = None) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, layout, selection=self.selection)

    def static(self) -> Manifest:
        """Get the manifest as it is now."""
        return self.selection.manifest


class SearchBox(SessionWidget):
    """Ranks tools as the person types, as the model's own search does.

    In Python: `session.search`.
    """

    bundle = "search_box"

    def __init__(self, session: HasParts, layout: Layout | None = None) -> None:
        self.search = SearchState(session)
        super().__init__(session, layout, search=self.search)

    def static(self) -> SearchResults:
        """Get the last query's results."""
        return self.search.results
