"""Statistics of repeated runs: against tables, closed forms and enumeration."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from casual_mcp_nb.experiments.statistics import (
    RISK,
    SHARES,
    cases_needed,
    clustered_error,
    false_alarms,
    holm,
    least_clusters,
    mean_interval,
    paired_difference,
    pass_hat_k,
    share_bounds,
    share_interval,
    sign_flips,
    smallest_difference,
    t_quantile,
)


def sign_flip_p(sums: list[float]) -> float:
    """Compute the two-sided p value of clusters of one size."""
    return sign_flips(tuple(sums), (1,) * len(sums), 0).p


@pytest.mark.parametrize(
    ("p", "df", "value"),
    [
        # Abramowitz and Stegun, table 26.10, and the closed forms for one and two degrees of
        # freedom.
        (0.975, 1, math.tan(math.pi * 0.475)),
        (0.975, 2, 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025)) / 1),
        (0.975, 4, 2.776445),
        (0.995, 10, 3.169273),
        (0.95, 30, 1.697261),
        (0.975, 120, 1.979930),
        (0.9, 5, 1.475884),
        (0.975, math.inf, 1.959964),
        (0.5, 7, 0.0),
    ],
)
def test_quantiles_of_students_t_are_those_of_the_tables(p: float, df: float, value: float) -> None:
    assert t_quantile(p, df) == pytest.approx(value, abs=1e-6)


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
    # Repeats that always agree tell nothing new, and where all is right nobody knows it for
    # certain.
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
        sum(sign * value for sign, value in zip(signs, sums, strict=True))
        for signs in itertools.product((1, -1), repeat=5)
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
    # At the second step .03 * 2 is more than .05, so Holm's method ends there.
    found = [holm([0.01, 0.04, 0.03]), holm([0.5, 0.9]), holm([0.01, 0.02], looks=2)]
    assert [[p for p, _ in each] for each in found] == [
        pytest.approx([0.03, 0.06, 0.06]),
        [1, 1],
        pytest.approx([0.04, 0.04]),
    ]
    assert [[tests for _, tests in each] for each in found] == [[3, 2, 2], [2, 2], [4, 2]]
    assert holm([]) == []


def test_more_cases_or_repeats_find_smaller_differences() -> None:
    by_cases = [smallest_difference(n, 3) or 1 for n in (6, 10, 20, 50, 100, 200, 500)]
    by_repeats = [smallest_difference(50, r) or 1 for r in (1, 3, 5, 10)]
    assert by_cases == sorted(by_cases, reverse=True)
    assert by_repeats == sorted(by_repeats, reverse=True)
    assert 0.12 < (smallest_difference(50, 5) or 1) < 0.15
    # The simulated and the normal power meet.
    assert smallest_difference(150, 3) == pytest.approx(smallest_difference(151, 3), abs=0.008)


def random_differences(seed: int) -> tuple[list[float], list[int], dict[str, str]]:
    """Draw differences of cases in clusters: rare, common, one-sided or unchanged."""
    chance = random.Random(seed)
    clusters = chance.choice([1, 4, 5, 6, 7, 9, 12, 13, 20, 40])
    kind = chance.choice(["any", "rare", "better", "none", "all", "thirds"])
    differences, of = [], {}
    for cluster in range(clusters):
        for number in range(chance.choice([1, 1, 1, 3])):
            of[f"{cluster}.{number}"] = str(cluster)
            value = {
                "any": chance.uniform(-1, 1),
                "rare": chance.choice([0, 0, 0, 0, 0, 1, -1]),
                "better": chance.choice([0, 1, 1]),
                "none": 0,
                "all": 1,
                "thirds": chance.choice([-1, 0, 1, 2, 3]) / 3,
            }[kind]
            differences.append(float(value))
    return differences, [chance.choice([1, 2, 3, 6]), chance.choice([1, 2])], of


@pytest.mark.defect("P9")
@pytest.mark.parametrize("bounds", [None, SHARES])
def test_p_and_interval_never_contradict_each_other(bounds: tuple[float, float] | None) -> None:
    outcomes = set()
    for seed in range(300):
        differences, (candidates, looks), of = random_differences(seed)
        first = dict.fromkeys(of, 0.0)
        second = dict(zip(of, differences, strict=True))
        for tests in (1, candidates * looks):
            each = paired_difference(first, second, of, tests=tests, bounds=bounds)
            assert each is not None
            is_outside = each.low > 0 or each.high < 0
            assert is_outside == (each.corrected_p <= RISK) == each.is_clear
            assert each.low <= each.mean <= each.high
            if each.clusters < least_clusters(tests):
                assert (each.low, each.high) == (bounds or (-math.inf, math.inf))
            outcomes.add(is_outside)
    assert outcomes == {True, False}


@pytest.mark.defect("P9")
@pytest.mark.parametrize("looks", [1, 3])
def test_holms_decisions_are_those_of_the_intervals(looks: int) -> None:
    decisions = set()
    for seed in range(100):
        chance = random.Random(seed)
        arms = [
            [chance.gauss(shift, 1) for _ in range(11)]
            for shift in chance.choices([0, 0.7, 1, 1.5], k=4)
        ]
        flips = [sign_flips(tuple(each), (1,) * 11) for each in arms]
        corrected = holm([each.p for each in flips], looks)
        for each, (p, tests) in zip(flips, corrected, strict=True):
            low, high = each.interval(RISK / tests)
            assert (low > 0 or high < 0) == (p <= RISK)
        decisions.add(sum(p <= RISK for p, _ in corrected))
    # Holm's method ended at different steps.
    assert len(decisions) >= 3


@pytest.mark.defect("P9")
def test_the_interval_is_the_inversion_of_the_test() -> None:
    chance = random.Random(4)
    sums = [chance.choice([-1, 0, 1, 2, 3]) / 3 for _ in range(9)]
    sizes = [chance.choice([1, 2, 3]) for _ in sums]

    def p(delta: float) -> float:
        residuals = [total - delta * size for total, size in zip(sums, sizes, strict=True)]
        flips = [
            abs(sum(sign * value for sign, value in zip(signs, residuals, strict=True)))
            for signs in itertools.product((1, -1), repeat=9)
        ]
        return sum(flip >= abs(sum(residuals)) - 1e-9 for flip in flips) / len(flips)

    flips = sign_flips(tuple(sums), tuple(sizes))
    assert flips.p == p(0)
    low, high = flips.interval(RISK)
    for end, outwards in ((low, -1e-6), (high, 1e-6)):
        assert p(end) > RISK >= p(end + outwards)


@pytest.mark.defect("P9")
def test_with_few_changes_the_interval_has_what_they_cannot_rule_out() -> None:
    unchanged = paired_difference(
        dict.fromkeys(range(12), 1.0), dict.fromkeys(range(12), 1.0), bounds=SHARES
    )
    assert unchanged is not None
    # The rule of three: 1 - (.025)^(1/12).
    assert (unchanged.low, unchanged.high) == pytest.approx((-0.2646, 0.2646), abs=1e-4)
    all_better = paired_difference(
        dict.fromkeys(range(12), 0.0), dict.fromkeys(range(12), 1.0), bounds=SHARES
    )
    assert all_better is not None
    assert (all_better.low, all_better.high) == pytest.approx((1 - 0.2646, 1), abs=1e-4)
    assert share_bounds(1, 10) == pytest.approx((0.00253, 0.44502), abs=1e-5)
    five = paired_difference(
        dict.fromkeys(range(5), 0.0), dict.fromkeys(range(5), 1.0), bounds=SHARES
    )
    assert five is not None
    assert (five.p, five.low, five.high, five.is_clear) == (0.0625, -1, 1, False)


def gains(chance: np.random.Generator, cases: int, repeats: int, gain: float) -> tuple[float, ...]:
    """Draw the differences of an experiment under the assumption of `smallest_difference`."""
    share = max(0.25, gain)
    help_ = gain / share
    helped = chance.random(cases) < share
    before = np.where(helped, chance.random(cases) * (1 - help_), chance.beta(0.5, 0.5, cases))
    after = np.minimum(np.where(helped, before + help_, before), 1)
    return tuple((chance.binomial(repeats, after) - chance.binomial(repeats, before)) / repeats)


@pytest.mark.slow
@pytest.mark.defect("P9")
@pytest.mark.parametrize("repeats", [1, 3, 5])
@pytest.mark.parametrize("cases", [6, 8, 10, 12, 20, 50, 100])
def test_the_announced_difference_is_found_by_the_test_in_four_of_five_experiments(
    cases: int, repeats: int
) -> None:
    gain = smallest_difference(cases, repeats)
    assert gain is not None
    chance = np.random.default_rng(cases + repeats)
    experiments = 400
    found = 0
    for number in range(experiments):
        flips = sign_flips(gains(chance, cases, repeats, gain), (1,) * cases, number)
        found += flips.p <= RISK and flips.mean > 0
    # .05, and two standard errors of this simulation.
    assert found / experiments == pytest.approx(0.8, abs=0.05 + 0.04)


@pytest.mark.defect("P9")
def test_nothing_is_announced_where_the_test_cannot_reject() -> None:
    assert [smallest_difference(n, 5) is None for n in (1, 3, 5, 6)] == [True, True, True, False]
    assert [least_clusters(tests) for tests in (1, 2, 3, 10)] == [6, 7, 7, 9]
    # Candidates and looks take more cases, and larger differences.
    assert smallest_difference(6, 5, candidates=2) is None
    alone = smallest_difference(50, 3) or 1
    assert (
        alone
        < (smallest_difference(50, 3, candidates=4) or 1)
        < (smallest_difference(50, 3, candidates=4, looks=5) or 1)
    )


@pytest.mark.defect("P9")
@pytest.mark.parametrize(
    ("difference", "repeats", "candidates"), [(0.1, 3, 1), (0.2, 1, 1), (0.2, 3, 4), (0.9, 1, 1)]
)
def test_as_many_cases_as_proposed_find_the_difference(
    difference: float, repeats: int, candidates: int
) -> None:
    cases = cases_needed(difference, repeats, candidates=candidates)
    assert cases is not None
    assert (smallest_difference(cases, repeats, candidates=candidates) or 1) <= difference
    fewer = smallest_difference(round(cases * 0.8), repeats, candidates=candidates)
    assert fewer is None or fewer > difference
    assert cases_needed(0.0001) is None


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_more_cases_than_needed_find_the_same(candidates: int) -> None:
    cases = cases_needed(0.2, candidates=candidates)
    assert cases is not None
    for more in range(cases, cases + 6):
        assert (smallest_difference(more, 1, candidates=candidates) or 1) <= 0.2


@pytest.mark.slow
@pytest.mark.defect("P9")
def test_looks_at_growing_data_share_the_risk() -> None:
    chance = np.random.default_rng(3)
    experiments, looks = 400, 5
    alarms = {1: 0, looks: 0}
    for number in range(experiments):
        differences = chance.choice([-1.0, 0.0, 1.0], 10 * looks, p=[0.3, 0.4, 0.3])
        ps = [
            sign_flips(tuple(differences[: 10 * look]), (1,) * 10 * look, number).p
            for look in range(1, looks + 1)
        ]
        for divided in alarms:
            alarms[divided] += min(ps) <= RISK / divided
    uncorrected, corrected = alarms[1] / experiments, alarms[looks] / experiments
    assert uncorrected > 0.07
    assert corrected <= RISK
    assert false_alarms(1) == RISK
    assert false_alarms(2) == pytest.approx(0.075)
