"""The state of the widget of runs: rows and arms while runs are made, transcripts, a file of
earlier runs.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.weather import desk, weather

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.widgets.base import merge_patch
from casual_mcp_nb.widgets.runs import RunsExplorer

EVIL = "<script>alert(1)</script>\u202e"
GREETING = ToolUseCase("Hello! " + EVIL, no_call=True, id="hello" + EVIL)
FORECAST = ToolUseCase("Forecast for Oslo", ["weather:forecast"], id="forecast")


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(
        {}, in_process={"weather": weather(), "desk": desk()}, store=None, quiet=True
    ) as session:
        yield session


def outcome(row: dict[str, Any]) -> tuple[Any, ...]:
    return row.get("right"), row.get("made"), row.get("outcomes")


async def test_a_run_without_a_verdict_is_marked_neither_as_right_nor_as_wrong(
    session: Session,
) -> None:
    runs = (
        RunRecord("0", "a", "x", 0, "a", right=True),
        RunRecord("1", "a", "x", 1, "a", detail="Not graded yet."),
        RunRecord("2", "b", "x", 0, "b", detail="Not graded yet."),
        RunRecord("3", "b", "x", 1, "b", made=False, detail="502"),
    )
    explorer = session.experiments.explore(RunResults(runs, (Arm("x"),), ("a", "b"), 2))
    shown = explorer.shown["runs"]
    rows = shown["rows"]
    assert {key: (*outcome(row), row["judged"]) for key, row in rows.items()} == {
        "0.0": (1, 2, ["not judged"], 1),
        "1.0": (0, 1, ["not judged", "not made"], 0),
    }
    assert rows["0.0"]["detail"] == "Not graded yet."
    arm = shown["arms"]["0"]
    assert (arm["right"], arm["made"], arm["not_graded"], arm["not_made"]) == (1, 3, 2, 1)
    detail = await asyncio.wrap_future(
        session.parts.engine.submit(explorer.runs.call("open", {"row": "0.0"}))[0]
    )
    marks = [each["mark"] for each in detail["repeats"]]
    assert (marks, detail["outcome"], "right" in detail) == (["✓", "?"], "not judged", False)


async def test_rows_and_arms_match_the_results_and_a_row_opens(session: Session) -> None:
    model = scripted_model(
        EVIL,
        call("weather__forecast", city="Oslo"),
        "Sunny",
        call("desk__note", text=EVIL),
        EVIL,
        EVIL,
    )
    results = await session.experiments.run_async(
        [GREETING, FORECAST], models=model, repeats=2, concurrency=1
    )
    explorer = session.experiments.explore()
    shown = explorer.shown["runs"]
    assert (shown["status"], shown["ended"], shown["planned"], shown["groups"]) == (
        "done",
        4,
        4,
        list(FAILURE_GROUPS),
    )
    assert {key: outcome(row) for key, row in shown["rows"].items()} == {
        "0.0": (1, 2, ["extra calls"]),
        "1.0": (1, 2, ["no tool used"]),
    }
    right = results[next(iter(results))].right
    assert right is not None
    arm = shown["arms"]["0"]
    assert (arm["right"], arm["low"], arm["high"], arm["made"]) == (
        right.value,
        right.low,
        right.high,
        4,
    )
    assert "\u202e" not in shown["rows"]["0.0"]["message"]
    # The first wrong one.
    run = await asyncio.wrap_future(
        session.parts.engine.submit(explorer.runs.call("open", {"row": "0.0"}))[0]
    )
    assert (run["repeat"], run["right"], run["called"]) == (1, False, ["desk:note"])
    assert [each["mark"] for each in run["repeats"]] == ["✓", "✗"]
    assert "<script" not in run["turns"][0]["html"]
    assert "desk" in run["turns"][0]["html"]
    other = await asyncio.wrap_future(
        session.parts.engine.submit(explorer.runs.call("open", {"row": "0.0", "repeat": 0}))[0],
    )
    assert (other["repeat"], other["right"]) == (0, True)
    html = explorer._static_bundle()["text/html"]
    assert "<script" not in html
    assert explorer.footer.split(":")[0] in html
    explorer.close()


async def test_runs_are_shown_while_they_are_made_and_stopped(session: Session) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def forever(_messages: Any, _tools: Any) -> str:
        loop.call_soon_threadsafe(begun.set)
        await asyncio.Event().wait()
        return ""

    model = scripted_model("Hi.", forever)
    work = asyncio.ensure_future(
        session.experiments.run_async([GREETING, FORECAST], models=model, repeats=2, concurrency=1)
    )
    await begun.wait()
    explorer = session.experiments.explore()
    rows = explorer.runs.snapshot()["rows"]
    assert (rows["0.0"]["right"], rows["0.0"]["ended"], rows["1.0"]["active"]) == (1, 1, True)
    with pytest.raises(UsageError):
        await explorer.runs.open("1.0")
    await asyncio.wrap_future(session.parts.engine.submit(explorer.runs.call("stop", {}))[0])
    results = await work
    assert results.status == "stopped"
    snapshot = explorer.runs.snapshot()
    assert (snapshot["status"], snapshot["rows"]["1.0"].get("active")) == ("stopped", None)
    assert results.active == frozenset()
    explorer.close()


def many(cases: int) -> RunResults:
    """Results of one run, many times."""
    with Session({}, in_process={"desk": desk()}, store=None, quiet=True) as session:
        results = session.experiments.run([GREETING], models=scripted_model("Hi."))
    (record,) = results.records
    names = tuple(f"case {number}" for number in range(cases))
    records = [
        dataclasses.replace(record, case=name, arm=arm, key=f"{name} {arm}")
        for name in names
        for arm in ("a", "b")
    ]
    return RunResults(
        tuple(records), (Arm("a"), Arm("b")), names, status="running", planned=2 * cases
    )


def test_a_run_that_ends_changes_one_of_thousands_of_rows(session: Session) -> None:
    results = many(1_500)
    shown = dataclasses.replace(results, records=results.records[:-1])
    explorer = RunsExplorer(session, lambda: shown)
    before = explorer.runs.snapshot()
    assert len(before["rows"]) == 3_000
    shown = results
    assert list(merge_patch(before["rows"], explorer.runs.snapshot()["rows"])) == ["1499.1"]
    explorer.close()


def test_a_file_of_earlier_runs_is_looked_through(
    session: Session, tmp_path: Path, do: Callable[..., Any]
) -> None:
    path = tmp_path / "runs.jsonl"
    with pytest.raises(UsageError):
        session.experiments.explore()
    session.experiments.run([GREETING], models=scripted_model("Hi."), results=path)
    explorer = session.experiments.explore(path)
    assert do(explorer.runs, "open", row="0.0")["turns"][0]["prompt"].startswith("Hello!")
    assert explorer.static().status == "done"
    explorer.close()
