"""`casual-mcp-nb evaluate`: thresholds, files of results, baselines and cassettes, with an exit
code for CI.
"""

from __future__ import annotations

import json
from pathlib import Path

from casual_mcp_nb.cli.app import FAILED, WRONG_USAGE
from tests.cli.conftest import Run

CASES = """
- message: What is 17 * 24?
  calls: [math:evaluate_expression]
  answer: "408"
- message: What is 3 + 4?
  calls: [math:evaluate_expression]
  answer: "8"
"""


def test_it_measures_and_fails_below_a_threshold(config: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(CASES)
    code, out, err = run(
        "evaluate", "cases.yaml", "--results", "runs.jsonl", "--repeats", "2", "--min-right", "0.5"
    )
    assert (code, err) == (0, "")
    assert "50%" in out
    assert "wrong answer" in out.lower()
    code, out, err = run(
        "evaluate",
        "cases.yaml",
        "--results",
        "runs.jsonl",
        "--repeats",
        "2",
        "--min-right",
        "0.9",
        "--json",
    )
    report = json.loads(out)
    assert code == FAILED
    assert (report["status"], len(report["runs"]), report["arms"][0]["failures"]) == (
        "done",
        4,
        {"wrong answer": 2},
    )
    assert report["problems"] == err.strip().splitlines()
    assert len(report["problems"]) == 1
    assert run("evaluate", "cases.yaml", "--baseline", "runs.jsonl")[0] == 0


def test_it_answers_from_a_cassette_without_a_config(
    config: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "cases.yaml").write_text(CASES)
    assert (
        run(
            "evaluate",
            "cases.yaml",
            "--cassette",
            "recorded.json",
            "--record",
            "--delivery",
            "bridge",
        )[0]
        == 0
    )
    config.unlink()
    code, out, _ = run(
        "evaluate", "cases.yaml", "--cassette", "recorded.json", "--delivery", "bridge", "--json"
    )
    assert code == 0
    assert [run["right"] for run in json.loads(out)["runs"]] == [True, False]


def test_wrong_words_are_wrong_usage(config: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(CASES)
    for words in (
        ["absent.yaml"],
        ["cases.yaml", "--model", "gtp"],
        ["cases.yaml", "--record"],
        ["cases.yaml", "--baseline", "x"],
    ):
        assert run("evaluate", *words)[0] == WRONG_USAGE


def test_a_judge_grades_with_the_runs_or_afterwards(config: Path, run: Run, tmp_path: Path) -> None:
    rubric = "answer: {$graded: It names the result., labels: [good, bad]}\n  label: good"
    (tmp_path / "cases.yaml").write_text(CASES.replace('answer: "408"', rubric))
    assert run("evaluate", "cases.yaml", "--results", "runs.jsonl")[0] == WRONG_USAGE
    assert not (tmp_path / "runs.jsonl").exists()
    (tmp_path / "plain.yaml").write_text(CASES)
    assert run("evaluate", "plain.yaml", "--results", "runs.jsonl")[0] == 0
    # The judge here is a planner, whose answer is no verdict: a failed check.
    for words in (["--judge-only", "--judge", "planner"], ["--judge", "planner"]):
        code, out, _ = run("evaluate", "cases.yaml", "--results", "runs.jsonl", *words, "--json")
        assert code == 0
        # A file has the runs as they ended.
        second, first = sorted(json.loads(out)["runs"], key=lambda each: "17" in each["messages"])
        assert (first["failure"], first["grade"], second["grade"]) == ("check failed", None, None)
        assert first["judge_tokens"] > 0
    assert (
        "planner graded 0 of 1 answer"
        in run("evaluate", "cases.yaml", "--results", "runs.jsonl", "--judge", "planner")[1]
    )
