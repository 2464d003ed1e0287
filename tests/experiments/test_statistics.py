"""Statistics of repeated runs: against tables, closed forms and enumeration."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from casual_mcp_nb.experiments.statistics import (
    clustered_error,
    holm,
    mean_interval,
    paired_difference,
    pass_hat_k,
    share_interval,
    sign_flip_p,
    smallest_difference,
    t_cdf,
    t_quantile,
)


@pytest.mark.parametrize(
    ("p", "df", "value"),
    [
        # Abramowitz and Stegun, table 26.10, and the closed forms for one and two degrees of freedom.
        (0.975, 1, math.tan(math.pi * 0.475)),
        (0.975, 2, 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025)) / 1),
        (0.975, 4, 2.776445),
        (0.995, 10, 3.169273),
        (0.95, 30, 1.697261),
        (0.975, 120, 1.979930),
        (0.9, 5, 1.475884),
        (0.975, math.inf, 1.959964),
        (0.025, 4, -2.776445),
        (0.5, 7, 0.0),
    ],
)
def test_quantiles_of_students_t_are_those_of_the_tables(p: float, df: float, value: float) -> None:
    assert t_quantile(p, df) == pytest.approx(value, abs=1e-6)
    assert t_cdf(t_quantile(p, df), df) == pytest.approx(p, abs=1e-10)


def test_without_clusters_the_interval_is_the_usual_one() -> None:
    values = [3.0, 5.0, 4.0, 8.0]
    error = math.sqrt(sum((value - 5) ** 2 for value in values) / 3 / 4)
    interval = mean_interval(values, range(4))
    assert (interval.value, interval.clusters) == (5, 4)
    assert interval.high - 5 == pytest.approx(3.182446 * error, rel=1e-6) == 5 - interval.low


def test_copies_of_a_case_in_its_cluster_do_not_narrow_the_interval() -> None:
    values = [0.0, 1.0, 1.0, 0.5]
    once, count = clustered_error(values, range(4))
    thrice, _ = clustered_error(values * 3, list(range(4)) * 3)
    apart, _ = clustered_error(values * 3, range(12))
    assert thrice == pytest.approx(once)
    assert apart < once
    assert count == 4
    assert clustered_error(values, [1] * 4)[0] == math.inf


def test_an_arm_has_wilsons_interval_for_as_many_runs_as_are_independent() -> None:
    one = share_interval([1, 0] * 50, [1] * 100, range(100))
    n = 99 * (1.959964 / 1.984217) ** 2
    expected = 1.959964 * math.sqrt(0.25 / n + 1.959964**2 / (4 * n * n)) / (1 + 1.959964**2 / n)
    assert (one.high - one.low) / 2 == pytest.approx(expected, rel=1e-4)
    # Repeats that always agree tell nothing new, and where all is right nobody knows it for certain.
    same = share_interval([5, 0] * 50, [5] * 100, range(100))
    assert (same.low, same.high) == pytest.approx((one.low, one.high))
    perfect = share_interval([5] * 10, [5] * 10, range(10))
    assert (perfect.value, perfect.high) == (1, 1)
    assert 0.6 < perfect.low < 0.75
    assert share_interval([3], [5], ["x"]).low < 0.2


def test_pass_hat_k_is_the_share_of_ways_to_choose_k_right_runs() -> None:
    outcomes = [[1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1]]
    for k in (1, 2, 3, 4):
        ways = [[all(chosen) for chosen in itertools.combinations(runs, k)] for runs in outcomes]
        expected = sum(sum(each) / len(each) for each in ways) / 3
        assert pass_hat_k([sum(runs) for runs in outcomes], [4, 4, 4], k) == pytest.approx(expected)
    assert pass_hat_k([1], [2], 3) is None


def test_few_clusters_are_flipped_in_all_ways() -> None:
    sums = [0.5, 0.25, 1.0, -0.25, 0.75]
    flips = [
        sum(sign * value for sign, value in zip(signs, sums, strict=True)) for signs in itertools.product((1, -1), repeat=5)
    ]
    expected = sum(abs(flip) >= abs(sum(sums)) - 1e-12 for flip in flips) / 32
    assert sign_flip_p(sums) == expected
    assert sign_flip_p([0.0, 0.0]) == 1
    assert sign_flip_p([1.0] * 5) == 2 / 32
    many = sign_flip_p([1.0] * 40 + [-1.0] * 20)
    assert 0.005 < many < 0.025
    assert many == sign_flip_p([1.0] * 40 + [-1.0] * 20)


def test_arms_are_compared_over_the_cases_that_both_have() -> None:
    chance = random.Random(1)
    first = {f"c{number}": chance.random() for number in range(30)}
    second = {name: value + 0.2 for name, value in first.items() if name != "c0"} | {"c99": 1.0}
    second["c1"] = first["c1"]
    difference = paired_difference(first, second)
    assert difference is not None
    assert (difference.n, difference.better, difference.worse, difference.same) == (29, 28, 0, 1)
    assert difference.mean == pytest.approx(0.2 * 28 / 29)
    assert difference.low < difference.mean < difference.high
    assert difference.p < 0.001
    assert paired_difference({"a": 1.0}, {"b": 1.0}) is None
    clustered = paired_difference(first, second, dict.fromkeys(first, "one"))
    assert clustered is not None
    assert (clustered.clusters, clustered.p, clustered.high) == (1, 1.0, math.inf)


def test_several_comparisons_are_corrected() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_more_cases_or_repeats_find_smaller_differences() -> None:
    by_cases = [smallest_difference(n, 3) or 1 for n in (5, 10, 20, 50, 100, 500)]
    by_repeats = [smallest_difference(50, r) or 1 for r in (1, 3, 5, 10)]
    assert by_cases == sorted(by_cases, reverse=True)
    assert by_repeats == sorted(by_repeats, reverse=True)
    assert smallest_difference(50, 5) == pytest.approx(0.127, abs=0.001)
    assert smallest_difference(1, 100) is None
