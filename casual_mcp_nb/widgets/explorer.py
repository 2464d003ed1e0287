"""The explorer and its parts: everything that the model sees, its cost, and how it is found.

The runs explorer.
"""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from casual_mcp_nb.base.mcp import ServerTask
from casual_mcp_nb.base.search import Explanation, SearchHit, SearchResults
from casual_mcp_nb.base.status import ExplorerSnapshot, Manifest, Servers, ToolSets
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.display.render import style
from casual_mcp_nb.display.view import SIZE_TIERS, Cell, Table, TextBlock, cell_text, fit
from casual_mcp_nb.display.words import clean, first
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.arm_results import ArmResults
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS
from casual_mcp_nb.experiments.records import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.views import mimebundle, transcript_html, view_of
from casual_mcp_nb.widgets._rows import MAX_NAME, MAX_SUMMARY, ToolsState
from casual_mcp_nb.widgets.base import HasParts, Layout, SessionWidget, State, command, without_none
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
        index, query, cut = self._last or (
            ToolSearchIndex(()),
            "",
            self.view.selection.max_search_results,
        )
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
            return {
                hit.tool.wire_name: _terms(hit.explain())
                for hit in index.search(query[:MAX_QUERY], _shown(cut))
            }

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
        return (
            await view.searchable(whole or not view.deferred, query),
            view.selection.max_search_results,
        )

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
    """List the query words that matched a tool, whole, the most important first."""
    weights: dict[str, float] = {}
    for share in explanation.shares:
        # A score part that is not a query word has a name with several words.
        if " " not in share.term:
            word = explanation.word(share.query_term or share.term)
            weights[word] = weights.get(word, 0.0) + share.share
    return [clean(word) for word in sorted(weights, key=lambda word: -weights[word])]


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
        # The first text says how a question is answered. The others have buttons here.
        texts = (block.text for block in view.blocks if isinstance(block, TextBlock))
        how_to_answer = next(texts, None) if any(task.asking for task in tasks) else None
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
    texts = {"tool": tool, "state": state, "progress": progress, "age": age}
    return {
        **{key: cell_text(cell) for key, cell in texts.items()},
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
        super().__init__(
            session,
            layout,
            selection=self.selection,
            search=self.search,
            resources=self.resources,
            tasks=self.tasks,
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


MAX_TEXT = 160
_PAUSE = 20
"""How much longer than computing the arms' figures, which need all records, the pause after it is.
"""


class RunsState(State):
    """Case runs, as a row for each case and arm. In Python: `session.experiments.results`.

    Args:
        session: The session.
        source: Returns the results as they are now.
    """

    def __init__(self, session: HasParts, source: Callable[[], RunResults]) -> None:
        super().__init__(session)
        self._source = source
        self._rows: dict[str, dict[str, Any]] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._runs: dict[str, list[RunRecord]] = {}
        self._counted: set[tuple[str, str, int]] = set()
        self._active: frozenset[tuple[str, str]] = frozenset()
        self._arms: dict[str, dict[str, Any]] = {}
        self._arms_from = 0.0
        self._ticking = False

    @property
    def results(self) -> RunResults:
        """The results as they are now."""
        return self._source()

    def snapshot(self) -> dict[str, Any]:
        """Collect the progress, the arms with their figures, and the rows by case and arm.

        Rows that did not change are the same objects, so that patches of thousands of rows take
        little time.
        """
        results = self.results
        running = results.status == "running"
        if not self._rows:
            for case_number, case in enumerate(results.cases):
                for number, arm in enumerate(results):
                    key = self._keys[case, arm] = f"{case_number}.{number}"
                    self._rows[key] = {
                        "case": first(case, MAX_NAME),
                        "arm": number,
                        "planned": results.repeats,
                    }
        changed = set()
        for record in results.records:
            run = record.case, record.arm, record.repeat
            if run not in self._counted and (row_key := self._keys.get(run[:2])) is not None:
                self._counted.add(run)
                self._runs.setdefault(row_key, []).append(record)
                changed.add(row_key)
        active = results.active if running else frozenset()
        changed |= {self._keys[each] for each in active ^ self._active if each in self._keys}
        self._active = active
        under_way = {self._keys[each] for each in active if each in self._keys}
        for key in changed:
            self._rows[key] = _run_row(
                self._rows[key], self._runs.get(key, ()), active=key in under_way
            )
        if not running or time.monotonic() > self._arms_from:
            began = time.monotonic()
            self._arms = {str(number): _arm_row(arm) for number, arm in enumerate(results.values())}
            self._arms_from = time.monotonic() + _PAUSE * (time.monotonic() - began)
        if running and not self._ticking:
            self._ticking = True
            self.parts.engine.call_later(1.0, self._tick)
        return {
            "status": results.status,
            "problem": clean(results.problem),
            "ended": len(results.records),
            "planned": max(results.planned, len(results.records)),
            "reused": results.reused,
            "seconds": round(results.seconds, 1),
            "groups": list(FAILURE_GROUPS),
            "arms": self._arms,
            "rows": dict(self._rows),
        }

    def _tick(self) -> None:
        """Draw it again, since time passes."""
        self._ticking = False
        self.changed()

    @command
    async def open(self, row: str, repeat: int | None = None) -> dict[str, Any]:
        """Show a run with its transcript.

        Args:
            row: A row's key.
            repeat: Which run, from 0, or None for the first wrong one, or else the first.

        Returns:
            The `row`; `repeat`; `repeats`, all its runs, each with its `repeat` and `mark`. The
            run's facts, and `turns`, each with its `prompt` and `html`, as displayed.

        Raises:
            UsageError: There is no such run.
        """
        runs = sorted(self._runs.get(row, ()), key=lambda record: record.repeat)
        chosen = [record for record in runs if repeat is None or record.repeat == repeat]
        if not chosen:
            raise UsageError("This run has not ended yet.")
        if repeat is None:
            chosen.sort(key=lambda record: record.right is True)
        detail: dict[str, Any] = without_none(
            await asyncio.to_thread(_run_detail, row, chosen[0], runs)
        )
        return detail

    @command
    def stop(self) -> None:
        """Stop the runs. Completed ones stay."""
        if self.results.status == "running":
            self.parts.turn_service.stop()


def _run_row(row: dict[str, Any], runs: Sequence[RunRecord], *, active: bool) -> dict[str, Any]:
    done = [record for record in runs if record.made]
    wrong = [record for record in runs if record.right is False or not record.made]
    row = {name: row[name] for name in ("case", "arm", "planned")}
    return row | {
        "case": first(runs[0].label, MAX_NAME) if runs else row["case"],
        "active": active or None,
        "ended": len(runs),
        "right": sum(record.right is True for record in done),
        "made": len(done),
        "outcomes": list(dict.fromkeys(record.outcome for record in wrong)),
        "message": first(runs[0].message, MAX_TEXT) if runs else "",
        "detail": first(wrong[0].detail, MAX_TEXT) if wrong else "",
        "tools": first(
            ", ".join(dict.fromkeys(tool for record in runs for tool in record.called)), MAX_TEXT
        ),
        "tokens": _mean([record.input_tokens for record in done]),
        "origin": _origin(done),
        "cost": _mean([record.cost for record in done]),
        "seconds": _mean([record.seconds for record in done]),
    }


def _arm_row(arm: ArmResults) -> dict[str, Any]:
    done, right = arm.done, arm.right
    return {
        "name": first(arm.arm.name, MAX_NAME),
        "made": len(done),
        "not_made": arm.not_made,
        "right": right and right.value,
        "low": right and right.low,
        "high": right and right.high,
        "tokens": _mean([record.input_tokens for record in done]),
        "all_tokens": sum(
            (record.input_tokens or 0) + (record.output_tokens or 0) for record in arm.records
        ),
        "origin": arm.origin,
        "cost": _mean([record.cost for record in done]),
        "all_cost": sum(record.cost or 0.0 for record in arm.records) or None,
        "currency": arm.currency,
        "seconds": _mean([record.seconds for record in done]),
    }


def _origin(records: Sequence[RunRecord]) -> str:
    return "estimated" if any(record.origin == "estimated" for record in records) else "reported"


def _mean(values: Sequence[float | None]) -> float | None:
    """Compute a mean, or None if there are no values or one is unknown."""
    present = [value for value in values if value is not None]
    return (
        round(sum(present) / len(present), 6) if present and len(present) == len(values) else None
    )


def _mark(record: RunRecord) -> str:
    if not record.made:
        return "!"
    return "✗" if record.right is False else "✓"


def _run_detail(row: str, record: RunRecord, runs: Sequence[RunRecord]) -> dict[str, Any]:
    return {
        "row": row,
        "repeat": record.repeat,
        "repeats": [{"repeat": each.repeat, "mark": _mark(each)} for each in runs],
        "case": first(record.label, MAX_NAME),
        "arm": first(record.arm, MAX_NAME),
        "outcome": record.outcome,
        "right": record.right,
        "detail": clean(record.detail),
        "parameters": [first(name, MAX_NAME) for name in record.parameters],
        "needed": [first(name, MAX_NAME) for name in record.needed],
        "called": [first(name, MAX_NAME) for name in record.called],
        "model": first(record.model or "", MAX_NAME),
        "tokens": record.input_tokens,
        "origin": record.origin,
        "seconds": record.seconds,
        "cost": record.cost,
        "currency": record.currency,
        "turns": [
            *(
                {"prompt": clean(turn.prompt), "html": transcript_html(turn)}
                for turn in record.turns
            ),
            *_grades(record),
        ],
    }


def _grades(record: RunRecord) -> Iterator[dict[str, str]]:
    """Show what a judge read and said, after the turns."""
    for each in record.grades:
        title = f"Graded by {each.model}: {each.label or 'no label'}"
        text = f"{each.instructions}\nRubric: {each.rubric}\n\nReason: {each.reason}"
        yield {"prompt": clean(title), "html": f"<pre>{html.escape(clean(text))}</pre>"}


class RunsExplorer(SessionWidget):
    """Shows case runs by case and arm, in progress and afterwards, each with its transcript.

    In Python: `session.experiments.results` and its `failures`, `arms_frame` and `records`.

    Args:
        session: The session.
        source: Returns the results as they are now.
    """

    bundle = "runs"
    more_css = style()
    footer = "To look at transcripts here: session.experiments.explore(results)"

    def __init__(
        self, session: HasParts, source: Callable[[], RunResults], layout: Layout | None = None
    ) -> None:
        self.runs = RunsState(session, source)
        super().__init__(session, layout, runs=self.runs)
        self._hear_during_cells()

    def static(self) -> RunResults:
        """Get the results as they are now, even if they were shown in the running cell."""
        return self.runs.results

    def draw(self) -> None:
        """Draw it soon, from any thread."""
        self.runs.changed()

    def finish(self) -> None:
        """Show how it ended, even in the picture, which a notebook may save right after its
        cell.
        """
        self.runs.changed()
        self._draw_picture()
