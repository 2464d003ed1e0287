"""The lessons keep their promises: in their outputs as they are committed, and in their
exercises.
"""

from __future__ import annotations

import functools
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from kit.setups import MATH, OFFLINE

from casual_mcp_nb import Case, Session, ToolName
from casual_mcp_nb.display.view import SIZE_TIERS, Bar, Table
from casual_mcp_nb.views import view_of

pytestmark = pytest.mark.defect("C7")
LESSONS = Path(__file__).resolve().parents[2] / "notebooks"
CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": MATH},
}


def cells(name: str) -> dict[str, Any]:
    return {cell.id: cell for cell in nbformat.read(LESSONS / name, as_version=4).cells}  # type: ignore[no-untyped-call]


def printed(cell: Any) -> str:
    return "".join(
        output.text
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )


def test_the_quickstart_has_a_help_of_its_own() -> None:
    ran = subprocess.run(
        [sys.executable, LESSONS / "quickstart.py", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0
    assert "--headless" in ran.stdout


def test_root_starts_the_quickstart_on_this_computer_only_unless_it_is_said() -> None:
    lab_options = runpy.run_path(str(LESSONS / "quickstart.py"))["lab_options"]
    assert lab_options(["--no-browser"], is_root=True)[-3:] == [
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--no-browser",
    ]
    assert "--allow-root" not in lab_options([], is_root=False)
    given = ["--allow-root", "--ip=0.0.0.0"]
    assert lab_options(given, is_root=True)[-2:] == given
    with pytest.raises(SystemExit, match="--allow-root"):
        lab_options(["--ip=0.0.0.0"], is_root=True)


def test_the_quickstarts_jupyterlab_asks_nothing_and_shows_the_pictures_of_the_lessons(
    tmp_path: Path,
) -> None:
    quickstart = runpy.run_path(str(LESSONS / "quickstart.py"))
    python = tmp_path / "bin" / "python"
    quickstart["ask_no_questions"](python)
    (written,) = tmp_path.rglob("overrides.json")
    assert json.loads(written.read_text()) == quickstart["NO_NEWS"]
    written.write_text("{}")
    quickstart["ask_no_questions"](python)
    assert written.read_text() == "{}"
    options = quickstart["lab_options"]([], is_root=False)
    (root,) = (option.partition("=")[2] for option in options if "root_dir" in option)
    for lesson in LESSONS.glob("*.ipynb"):
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", lesson.read_text(encoding="utf-8")):
            assert (LESSONS / picture).resolve().is_relative_to(root)
            assert (LESSONS / picture).exists()


def test_the_explorer_lesson_cuts_the_first_request_as_far_as_it_says() -> None:
    lesson = cells("04_explorer.ipynb")
    now, everything = (
        int(figure.replace(",", ""))
        for figure in re.findall(r"≈ ([\d,]+)", printed(lesson["first-request"]))
    )
    assert re.search(r"over 5,000 .*less than 700\b", lesson["04-00"].source)
    assert now < 700
    assert everything > 5_000


def test_the_panel_lesson_stops_a_turn_that_runs() -> None:
    assert printed(cells("05_chat_panel.ipynb")["stopped"]).startswith("stopped")


def test_a_result_can_be_changed_before_the_model_reads_it_as_the_exercise_asks() -> None:
    with Session.from_config(CONFIG) as session:
        turn = session.submit("What is 17 * 23?", step=True)
        session.questions.wait().next()  # type: ignore[attr-defined]
        question: Any = session.questions.wait()
        (key,) = [key for key in question.texts if key]
        question.run({key: "392"})
        assert "392" in turn.result(60).answer


def test_the_lesson_of_own_tools_returns_payloads_and_runs_a_plan() -> None:
    lesson = cells("06_your_own_tools.ipynb")
    assert printed(lesson["planned"]) == "141.00 euros in 2 payments\n"
    assert printed(lesson["approved"]).splitlines()[-1].startswith("Booked 2 nights in Oslo.")
    (turn,) = (output.data["text/plain"] for output in lesson["mocked"].outputs)
    assert "mock" in turn
    (payload,) = lesson["payload"].outputs
    assert payload.data["text/html"].count("<tr") == 4


def shown(cell: Any) -> str:
    return "".join(output.data["text/plain"] for output in cell.outputs if "data" in output)


def test_the_lesson_of_replays_replays_the_same_and_names_what_differs() -> None:
    lesson = cells("07_replay_and_compare.ipynb")
    first, *_ = printed(lesson["replay"]).splitlines()
    assert first == "True"
    assert printed(lesson["differs"]).splitlines()[0] == "failed"
    assert "42.195 km" in printed(lesson["forked"])
    assert len(re.findall(r"^  discovery .* 2  100% ", shown(lesson["compare"]), re.MULTILINE)) == 3
    assert "Discovery loses here" in shown(lesson["loses"])


def test_the_lesson_for_classes_pauses_three_times_and_changes_what_the_model_reads() -> None:
    lesson = cells("08_teaching_a_class.ipynb")
    assert printed(lesson["pauses"]).count("Request ") == 3
    assert printed(lesson["believes"]).startswith("392")
    assert "no tool that certainly fits" in printed(lesson["without"])
    assert printed(lesson["player"]).startswith("lesson.html: ")


def test_the_lesson_of_evaluation_repairs_a_description() -> None:
    lesson = cells("09_evaluate_your_catalog.ipynb")
    assert len(printed(lesson["cases"]).split()) > 4
    assert printed(lesson["after"]) == "found before: 0%, now: 100%\n"
    shares = [
        int(share) for share in re.findall(r"(\d+)% of the needs met", printed(lesson["limit"]))
    ]
    assert len(shares) == 5
    assert shares == sorted(shares)


NAMES = [path.name for path in sorted(LESSONS.glob("*.ipynb"))]
TOOLS = re.compile(r"\b(\d+) (?:deferred |loaded )?(?:tools|definitions|of them)\b")
SHARES = re.compile(r"\b(\d+)%")
LABELS = re.compile(r"(?<![*\w])\*([A-Z][A-Za-z ]{2,30})\*(?![*\w])")
PACKAGE = LESSONS.parent / "casual_mcp_nb"


def prose(name: str) -> str:
    return "\n".join(cell.source for cell in cells(name).values() if cell.cell_type == "markdown")


def outputs(name: str) -> list[Any]:
    return [output for cell in cells(name).values() for output in cell.get("outputs", ())]


def output_text(name: str) -> str:
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in outputs(name)
    )


@functools.cache
def labels() -> str:
    """Every text of the front ends, of displays, and of the titles of guides."""
    sources = (
        *(PACKAGE / "widgets" / "frontend" / "src").rglob("*.ts*"),
        *(PACKAGE / "display").glob("*.py"),
        *PACKAGE.rglob("view*.py"),
    )
    guides = (LESSONS.parent / "docs" / "guides").glob("*.md")
    return "\n".join(
        [
            *(path.read_text() for path in sources),
            *(path.read_text().splitlines()[0] for path in guides),
        ]
    )


@pytest.mark.defect("F17")
@pytest.mark.parametrize("name", NAMES)
def test_numbers_and_labels_in_a_lesson_are_those_of_its_outputs_and_of_the_pages(
    name: str,
) -> None:
    text, shown = prose(name), output_text(name)
    for count in TOOLS.findall(text):
        assert re.search(rf"\b{count}\b", shown), f"{count} tools are in no output"
    for share in SHARES.findall(text):
        assert f"{share}%" in shown
    for label in LABELS.findall(text):
        assert re.search(rf"\b{label}\b", labels(), re.IGNORECASE), f"nothing is labelled {label}"


@pytest.mark.defect("F17")
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_leaves_no_box_of_errors(name: str) -> None:
    assert [output for output in outputs(name) if output.get("name") == "stderr"] == []


@pytest.mark.defect("F17")
def test_outputs_of_a_busy_machine_are_not_written() -> None:
    execute = runpy.run_path(str(LESSONS / "execute.py"))
    table = (
        "Server  State\n  math    ✓ ready  deferred  13  ≈ 1,160  stdio  24.8 s\n  time    ✓ ready "
        " off  1  ≈ 1  stdio  0.31 s"
    )
    output = nbformat.from_dict({"output_type": "display_data", "data": {"text/plain": table}})  # type: ignore[no-untyped-call]
    assert execute["startup_seconds"](output) == [24.8, 0.31]
    assert execute["MAX_STARTUP_SECONDS"] < 24.8


@pytest.mark.defect("F17")
def test_a_table_with_many_columns_of_bars_is_narrow_enough_for_a_page() -> None:
    with Session.from_config(CONFIG) as session:
        evaluation = session.experiments.evaluate(
            [Case("add", (frozenset([ToolName("math", "add")]),))], progress=False
        )
    (table,) = [
        block for block in view_of(evaluation, SIZE_TIERS[0]).blocks if isinstance(block, Table)
    ]
    for row in table.rows:
        bars = [cell for cell in row if isinstance(cell, Bar)]
        assert len(bars) > 3
        assert all(bar.narrow for bar in bars)


def test_the_lesson_on_tool_use_finds_what_is_there_and_nothing_else() -> None:
    lesson = cells("12_evaluate_tool_use.ipynb")
    mean, low, high = (int(share) for share in re.findall(r"([+-]\d+)%", printed(lesson["spoilt"])))
    assert low <= mean <= high < 0
    assert re.search(
        r"^right: \+0%, from -\d+% to \+\d+%, 20 of 20 cases stayed", printed(lesson["shorter"])
    )
    assert printed(lesson["power"]).startswith(
        "5 cases: nothing can be found\n20 cases: a difference of 49%"
    )
    assert "image/png" in lesson["by-server"]["outputs"][0]["data"]
    assert re.match(r"as listed: 95% .*, 90% now\n", printed(lesson["judge-again"]))
    assert "one of math:multiply, math:evaluate_expression" in shown(lesson["worth"])
    assert re.search(r"math:evaluate_expression +off", shown(lesson["worth"]))
    assert re.search(r"p = 0\.0[0-4]", printed(lesson["workshop-run"]))
    assert "looks: 1" in printed(lesson["verdict"])


def test_the_lesson_on_written_cells_compares_tokens_repairs_and_denies() -> None:
    lesson = cells("13_the_model_writes_a_cell.ipynb")
    calls, cell = (
        int(count.replace(",", ""))
        for count in re.findall(r"≈ ([\d,]+) tokens", printed(lesson["compared"]))
    )
    assert cell < calls / 20
    assert "-country = " in printed(lesson["repaired"])
    assert "+country = " in printed(lesson["repaired"])
    assert printed(lesson["denied"]).startswith("{'denied': 2}")
    assert "customer" not in printed(lesson["read-by-model"]).replace("customers", "").replace(
        "of the customer?", ""
    )
