"""Sentences about results: they agree with the test, say their assumption, and propose a size."""

from __future__ import annotations

import random
import re

import pytest

from casual_mcp_nb.experiments import conclusions
from casual_mcp_nb.experiments.arm_results import ArmComparison
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.statistics import (
    SHARES,
    PairedDifference,
    least_clusters,
    paired_difference,
    smallest_difference,
)


def difference_of(values: list[float], tests: int = 1) -> PairedDifference:
    first = dict.fromkeys(range(len(values)), 0.0)
    found = paired_difference(first, dict(enumerate(values)), tests=tests, bounds=SHARES)
    assert found is not None
    return found


@pytest.mark.defect("P9")
@pytest.mark.parametrize("candidates", [1, 3])
def test_no_sentence_contradicts_itself(candidates: int) -> None:
    kinds = set()
    for seed in range(200):
        chance = random.Random(seed)
        count = chance.choice([2, 5, 6, 7, 8, 12, 20])
        kind = chance.choice([[1.0], [0.0, 1.0], [-1.0, 0.0, 1.0], [0.0]])
        values = [chance.choice(kind) for _ in range(count)]
        each = difference_of(values, candidates)
        text = conclusions.of_difference(ArmComparison("A", "B", each), candidates=candidates)
        has_zero = each.low <= 0 <= each.high
        if "cannot tell" in text:
            kinds.add("few")
            assert count < least_clusters(candidates)
        elif "as often as" in text:
            kinds.add("same")
            assert not any(values)
        elif "no clear difference" in text:
            kinds.add("unclear")
            assert has_zero
            assert each.corrected_p > 0.05
        else:
            kinds.add("clear")
            assert not has_zero
            assert each.corrected_p <= 0.05
            assert "represent" in text
        if candidates > 1 and ("p =" in text):
            assert "3 candidates" in text
            assert "98.3% interval" in text
    assert kinds == {"few", "same", "unclear", "clear"}


@pytest.mark.defect("P9")
def test_five_cases_that_all_got_better_are_too_few_for_the_test() -> None:
    text = conclusions.of_difference(ArmComparison("A", "B", difference_of([1.0] * 5)))
    assert "5 cases cannot tell B from A" in text
    assert "at least 6 cases" in text
    # Before the runs it is known as well, with a number of cases that is enough.
    before = conclusions.of_size(5, 5, 3)
    assert "no difference" in before
    assert "at least 6 cases" in before
    assert "take 45 cases" in before
    assert (smallest_difference(45, 3) or 1) <= conclusions.PROPOSED


@pytest.mark.defect("P9")
def test_a_size_says_its_assumption_and_counts_candidates_and_looks() -> None:
    small, large = (
        conclusions.of_size(10, 10, 1),
        conclusions.of_size(100, 100, 3, candidates=2, looks=3),
    )
    assert "never were" in small
    assert "cases." in small
    assert "a quarter of the cases" in large
    assert "2 candidates and 3 looks" in large
    assert conclusions.of_size(12, 4, 1).startswith(
        "12 cases in 4 clusters with 1 repeat can find no difference"
    )


def results_of(*arms: str) -> RunResults:
    """Twelve cases: the first arm is never right, the others in eight of them."""
    cases = [f"case {number}" for number in range(12)]
    records = []
    for arm in arms:
        for number, case in enumerate(cases):
            right = arm != arms[0] and number < 8
            records.append(RunRecord(f"{arm} {case}", case, arm, 0, case, right=right))
    return RunResults(tuple(records), tuple(map(Arm, arms)), tuple(cases))


def test_all_sentences_of_a_result() -> None:
    found = list(conclusions.conclusions(results_of("A", "B")))
    assert [text.split(" ")[0] for text in found] == ["B", "12", "To"]
    assert "66.7 points more often" in found[0]
    assert "cases_frame()" in found[-1]
    assert list(conclusions.conclusions(results_of("A"))) == []


def test_of_one_case_nothing_is_tested() -> None:
    records = []
    for arm in "AB":
        records.append(RunRecord(f"{arm} case", "case", arm, 0, "case", right=arm == "B"))
    results = RunResults(tuple(records), (Arm("A"), Arm("B")), ("case",))
    (text,) = conclusions.conclusions(results)
    assert re.findall(r"\d+", text) == ["6"]


def test_looks_that_were_not_planned_are_told() -> None:
    assert "up to 9.2% of experiments" in conclusions.of_looks(3)
