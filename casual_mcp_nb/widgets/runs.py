"""The runs explorer: case runs by case and arm, each with its transcript."""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import attrgetter
from typing import Any

from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.display.render import style
from casual_mcp_nb.display.words import clean, first
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.arm_results import ArmResults, MeasureName
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.views import transcript_html
from casual_mcp_nb.widgets._rows import MAX_NAME
from casual_mcp_nb.widgets.base import HasParts, Layout, SessionWidget, State, command, without_none

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
        self._active: frozenset[str] = frozenset()
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
            self._begin(results)
        ended = self._count(results.records)
        active = self._rows_of(results.active) if running else frozenset()
        for key in ended | (active ^ self._active):
            runs = self._runs.get(key, ())
            self._rows[key] = _run_row(self._rows[key], runs, active=key in active)
        self._active = active
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

    def _begin(self, results: RunResults) -> None:
        """Build a row for each case and arm."""
        for case_number, case in enumerate(results.cases):
            for number, arm in enumerate(results):
                key = self._keys[case, arm] = f"{case_number}.{number}"
                self._rows[key] = {
                    "case": first(case, MAX_NAME),
                    "arm": number,
                    "planned": results.repeats,
                }

    def _count(self, records: Sequence[RunRecord]) -> set[str]:
        """Note the records that are new, and return the rows that have them."""
        changed = set()
        for record in records:
            run = record.case, record.arm, record.repeat
            row = self._keys.get((record.case, record.arm))
            if row is None or run in self._counted:
                continue
            self._counted.add(run)
            self._runs.setdefault(row, []).append(record)
            changed.add(row)
        return changed

    def _rows_of(self, runs: Collection[tuple[str, str]]) -> frozenset[str]:
        return frozenset(self._keys[run] for run in runs if run in self._keys)

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
        runs = sorted(self._runs.get(row, ()), key=attrgetter("repeat"))
        chosen = _chosen(runs, repeat)
        detail = await asyncio.to_thread(_run_detail, row, chosen, runs)
        shown: dict[str, Any] = without_none(detail)
        return shown

    @command
    def stop(self) -> None:
        """Stop the runs. Completed ones stay."""
        if self.results.status == "running":
            self.parts.turn_service.stop()


def _chosen(runs: Sequence[RunRecord], repeat: int | None) -> RunRecord:
    """Find a run, or without `repeat` the first wrong one, or else the first."""
    for record in runs:
        if record.repeat == repeat or (repeat is None and record.right is not True):
            return record
    if repeat is None and runs:
        return runs[0]
    raise UsageError("This run has not ended yet.")


def _run_row(row: dict[str, Any], runs: Sequence[RunRecord], *, active: bool) -> dict[str, Any]:
    done = [record for record in runs if record.made]
    others = [record for record in runs if record.right is not True]
    called: dict[str, None] = {}
    for record in runs:
        called |= dict.fromkeys(record.called)
    new: dict[str, Any] = {
        "case": row["case"],
        "arm": row["arm"],
        "planned": row["planned"],
        "active": active or None,
        "ended": len(runs),
        "right": sum(record.right is True for record in done),
        "judged": sum(record.right is not None for record in done),
        "made": len(done),
        "outcomes": list(dict.fromkeys(record.outcome for record in others)),
        "message": "",
        "detail": "",
        "tools": first(", ".join(called), MAX_TEXT),
        "tokens": _mean(done, "input_tokens"),
        "origin": _origin(done),
        "cost": _mean(done, "cost"),
        "seconds": _mean(done, "seconds"),
    }
    if runs:
        new["case"] = first(runs[0].label, MAX_NAME)
        new["message"] = first(runs[0].message, MAX_TEXT)
    if others:
        new["detail"] = first(others[0].detail, MAX_TEXT)
    return new


def _arm_row(arm: ArmResults) -> dict[str, Any]:
    done, right = arm.done, arm.right
    all_tokens, all_cost = 0, 0.0
    for record in arm.records:
        all_tokens += (record.input_tokens or 0) + (record.output_tokens or 0)
        all_cost += record.cost or 0.0
    return {
        "name": first(arm.arm.name, MAX_NAME),
        "made": len(done),
        "not_made": arm.not_made,
        "not_graded": arm.not_graded,
        "right": right and right.value,
        "low": right and right.low,
        "high": right and right.high,
        "tokens": _mean(done, "input_tokens"),
        "all_tokens": all_tokens,
        "origin": arm.origin,
        "cost": _mean(done, "cost"),
        "all_cost": all_cost or None,
        "currency": arm.currency,
        "seconds": _mean(done, "seconds"),
    }


def _origin(records: Sequence[RunRecord]) -> str:
    if any(record.origin == "estimated" for record in records):
        return "estimated"
    return "reported"


def _mean(records: Sequence[RunRecord], name: MeasureName) -> float | None:
    """Compute a figure's mean, or None if there are no runs or it is unknown of one."""
    values: list[float | None] = [getattr(record, name) for record in records]
    known = present(values)
    if not known or len(known) < len(values):
        return None
    return round(sum(known) / len(known), 6)


def _mark(record: RunRecord) -> str:
    if not record.made:
        return "!"
    if record.right is None:
        return "?"
    return "✓" if record.right else "✗"


def _run_detail(row: str, record: RunRecord, runs: Sequence[RunRecord]) -> dict[str, Any]:
    turns = []
    for turn in record.turns:
        turns.append({"prompt": clean(turn.prompt), "html": transcript_html(turn)})
    turns += _grades(record)
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
        "turns": turns,
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
