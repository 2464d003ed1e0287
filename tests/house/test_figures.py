"""The pages say the figures that were measured, and each of them can be measured again."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURES = runpy.run_path(str(ROOT / "docs" / "figures.py"))
PROBLEMS: Callable[..., list[str]] = FIGURES["problems"]


@pytest.fixture
def record() -> dict[str, Any]:
    """The figures as they were measured."""
    return dict(json.loads((ROOT / "docs" / "figures.json").read_text()))


def test_the_pages_say_what_was_measured(record: dict[str, Any]) -> None:
    assert PROBLEMS(record) == []


@pytest.mark.slow
def test_a_turn_in_a_shell_still_has_these_figures(record: dict[str, Any]) -> None:
    now = FIGURES["measured"](FIGURES["SOURCES"]["shell"], ROOT)["figures"]
    assert {name: list(value) for name, value in now.items()} == record["shell"]["figures"]


def test_nothing_about_the_computer_is_a_name(record: dict[str, Any]) -> None:
    for entry in record.values():
        assert set(entry) == {"command", "date", "machine", "versions", "figures"}
        assert "/" not in entry["machine"].replace("(R)", "")
        assert {"python", "casual-mcp-nb"} <= set(entry["versions"])


def test_another_value_is_noticed_on_every_page_that_says_it(record: dict[str, Any]) -> None:
    for entry in record.values():
        entry["figures"] = {
            name: [f"{value}1" if isinstance(value, str) else value + 1, unit]
            for name, (value, unit) in entry["figures"].items()
        }
    wrong = "\n".join(PROBLEMS(record))
    for page in FIGURES["PAGES"]:
        assert f"{page} does not say" in wrong


def test_a_figure_that_is_not_measured_and_one_that_nobody_says_are_noticed(
    record: dict[str, Any],
) -> None:
    del record["shell"]
    record["more"] = {"figures": {"more": [1, "tools"]}}
    wrong = PROBLEMS(record)
    for problem in (
        "shell: it was never measured. Run: python docs/figures.py shell",
        "docs/guides/command-line.md: there is no figure shell_tokens.",
        "more: nobody measures it.",
        "more: no page says it.",
    ):
        assert problem in wrong


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the pages and of the commands."""
    files = {*FIGURES["PAGES"], *(source.file for source in FIGURES["SOURCES"].values())}
    for source in FIGURES["SOURCES"].values():
        files |= {word for word in source.command.split() if word.endswith(".py")}
    for file in files - {""}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_a_command_that_is_gone_is_noticed(record: dict[str, Any], copy: Path) -> None:
    assert PROBLEMS(record, copy) == []
    (copy / "benchmarks" / "second_search.py").unlink()
    cost = copy / "benchmarks" / "cost.py"
    cost.write_text(cost.read_text().replace("--loops", "--rounds"))
    assert PROBLEMS(record, copy) == [
        "second: its command is gone, benchmarks/second_search.py.",
        "loops: benchmarks/cost.py has no option --loops.",
    ]


@pytest.mark.parametrize(
    "sentence", ["It saves 35%.", "A search takes 3 ms.", "The share is 0.71.", "It takes 40 MB."]
)
def test_a_figure_that_somebody_only_writes_is_noticed(
    record: dict[str, Any], copy: Path, sentence: str
) -> None:
    page = copy / "README.md"
    page.write_text(f"{page.read_text()}\n{sentence}\n")
    (problem,) = PROBLEMS(record, copy)
    assert sentence.rstrip(".") in problem
