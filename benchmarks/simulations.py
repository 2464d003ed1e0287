"""Whether the statistics of tool use keep what they promise, in simulated experiments.

    python benchmarks/simulations.py [--experiments 1000] [--quick]

Five tables. The false alarms of comparisons without an effect, at most 5%. How often the interval
has the true difference in it, 92 to 100%. How often the difference that is announced before the
runs is found, in 75 to 85%. The false alarms of looks while cases or repeats are added. The bias of
pass^k. Each row is a number of cases times repeats. The peer is what was used before: the t
interval over clusters with the difference that its formula announces, looks that are not corrected,
and the k-th power of the share of right runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import common
import numpy as np
from common.figures import Figure, print_figures

from casual_mcp_nb.experiments.statistics import (
    LEVEL,
    RISK,
    SHARES,
    mean_interval,
    paired_difference,
    pass_hat_k,
    smallest_difference,
    t_quantile,
)

EXPERIMENTS = 1_000
SIZES = ((6, 1), (8, 3), (12, 5), (20, 1), (20, 5), (50, 3), (100, 3))
POWER_SIZES = tuple(
    (cases, repeats) for cases in (6, 8, 10, 12, 20, 50, 100) for repeats in (1, 3, 5)
)
LOOKS = 5
IN_A_CLUSTER = 3

Chances = tuple[Any, Any]
"""Each case's chance of a right run, in both arms."""


@dataclass(frozen=True)
class Population:
    """Where cases come from.

    Args:
        name: What the change does.
        gain: Its true mean.
        draw: Draws so many cases.
        of_a_cluster: How many cases are about one need.
    """

    name: str
    gain: float
    draw: Callable[[np.random.Generator, int], Chances]
    of_a_cluster: int = 1


def usual(chance: np.random.Generator, cases: int) -> Any:
    """Draw how often cases are right: mostly nearly never or nearly always."""
    return chance.beta(0.5, 0.5, cases)


def nothing(chance: np.random.Generator, cases: int) -> Chances:
    """Draw cases which the change leaves as they are."""
    first = usual(chance, cases)
    return first, first


def some_either_way(chance: np.random.Generator, cases: int) -> Chances:
    """Draw cases half of which the change helps or hurts, by nothing on average."""
    first, other = usual(chance, cases), usual(chance, cases)
    return first, np.where(chance.random(cases) < 0.5, first, other)


def a_few_hurt_much(chance: np.random.Generator, cases: int) -> Chances:
    """Draw cases three quarters of which the change helps a little; it hurts the others much."""
    first = chance.uniform(0.3, 0.9, cases)
    return first, np.where(chance.random(cases) < 0.75, first + 0.1, first - 0.3)


def in_clusters(chance: np.random.Generator, cases: int) -> Chances:
    """Draw cases in clusters: the change helps or hurts a whole cluster."""
    clusters = -(-cases // IN_A_CLUSTER)
    first = np.repeat(chance.uniform(0.3, 0.7, clusters), IN_A_CLUSTER)[:cases]
    effect = np.repeat(chance.choice([-0.3, 0.3], clusters), IN_A_CLUSTER)[:cases]
    return first, first + effect


def at_the_ceiling(chance: np.random.Generator, cases: int) -> Chances:
    """Draw cases that are nearly always right in both arms."""
    first = np.full(cases, 0.98)
    return first, first


def rarely_lost(chance: np.random.Generator, cases: int) -> Chances:
    """Draw cases that are always right; the change loses one in 25."""
    return np.ones(cases), np.where(chance.random(cases) < 0.04, 0.0, 1.0)


def helped(gain: float) -> Callable[[np.random.Generator, int], Chances]:
    """Build what draws cases under the assumption of `smallest_difference`."""
    share = max(0.25, gain)
    each = gain / share

    def draw(chance: np.random.Generator, cases: int) -> Chances:
        is_helped = chance.random(cases) < share
        first = np.where(is_helped, chance.uniform(0, 1, cases) * (1 - each), usual(chance, cases))
        return first, np.minimum(np.where(is_helped, first + each, first), 1)

    return draw


NO_EFFECT = (
    Population("no effect", 0.0, nothing),
    Population("helps some, hurts others", 0.0, some_either_way),
    Population("helps most, hurts few much", 0.0, a_few_hurt_much),
    Population("in clusters of 3", 0.0, in_clusters, IN_A_CLUSTER),
    Population("at the ceiling", 0.0, at_the_ceiling),
)
EFFECTS = (
    Population("helps a quarter by 40 points", 0.1, helped(0.1)),
    Population("one in 25 is lost", -0.04, rarely_lost),
)


@dataclass(frozen=True)
class Found:
    """What one comparison reports: with the statistics as they are, and as they were.

    Args:
        low: The interval's lower end.
        high: The upper end.
        mean: The difference.
        p: The probability of it without any effect.
        old_low: The lower end of the t interval.
        old_high: Its upper end.
    """

    low: float
    high: float
    mean: float
    p: float
    old_low: float
    old_high: float


def case_means(chance: np.random.Generator, repeats: int, chances: Any) -> dict[int, float]:
    """Run each case several times, and return its share of right runs."""
    right: Any = chance.binomial(repeats, chances)
    return {case: float(each) / repeats for case, each in enumerate(right)}


def experiments(population: Population, cases: int, repeats: int, count: int) -> Iterator[Found]:
    """Draw cases, run them in both arms, and compare these, so many times."""
    chance = np.random.default_rng(cases * 100 + repeats)
    for number in range(count):
        chances = population.draw(chance, cases)
        first, second = (case_means(chance, repeats, each) for each in chances)
        clusters = {case: case // population.of_a_cluster for case in first}
        now = paired_difference(first, second, clusters, seed=number, bounds=SHARES)
        assert now is not None
        differences = [second[case] - first[case] for case in first]
        before = mean_interval(differences, [clusters[case] for case in first])
        yield Found(now.low, now.high, now.mean, now.p, before.low, before.high)


def false_alarms(
    population: Population, cases: int, repeats: int, count: int
) -> tuple[float, float]:
    """Measure how often an interval is beside 0, in percent: now and before."""
    found = list(experiments(population, cases, repeats, count))
    assert all((each.low > 0 or each.high < 0) == (each.p <= RISK) for each in found)
    now = sum(each.p <= RISK for each in found)
    before = sum(each.old_low > 0 or each.old_high < 0 for each in found)
    return 100 * now / count, 100 * before / count


def coverage(population: Population, cases: int, repeats: int, count: int) -> tuple[float, float]:
    """Measure how often an interval has the true difference in it, in percent: now and before."""
    found = list(experiments(population, cases, repeats, count))
    now = sum(each.low <= population.gain <= each.high for each in found)
    before = sum(each.old_low <= population.gain <= each.old_high for each in found)
    return 100 * now / count, 100 * before / count


def power(cases: int, repeats: int, gain: float, count: int) -> float:
    """Measure how often the test finds a gain, in percent."""
    found = experiments(Population("", gain, helped(gain)), cases, repeats, count)
    return 100 * sum(each.p <= RISK and each.mean > 0 for each in found) / count


def announced_before(cases: int, repeats: int) -> float | None:
    """Compute the difference that the t formula announced."""
    factor = (t_quantile(0.5 + LEVEL / 2, cases - 1) + t_quantile(0.8, cases - 1)) ** 2 / cases
    chance = factor * 2 * 0.125 / repeats
    remaining = 1 - factor * 3
    gain = math.sqrt(chance / remaining) if remaining > 0 else math.inf
    if gain <= 0.25:
        return gain
    root = (factor + math.sqrt(factor * factor + 4 * (1 + factor) * chance)) / (2 * (1 + factor))
    return root if root < 1 else None


def looks(of: str, count: int) -> tuple[float, float]:
    """Measure the false alarms of five looks at growing data, in percent: now and before.

    Args:
        of: What is added between two looks, `cases` or `repeats`.
        count: How many experiments.
    """
    chance = np.random.default_rng(5)
    now = before = 0
    for number in range(count):
        cases, repeats = (10 * LOOKS, 1) if of == "cases" else (20, LOOKS)
        chances = some_either_way(chance, cases)
        first, second = (chance.random((repeats, cases)) < each for each in chances)
        ps = []
        for look in range(1, LOOKS + 1):
            runs, until = (1, 10 * look) if of == "cases" else (look, cases)
            arms = (dict(enumerate(arm[:runs, :until].mean(axis=0))) for arm in (first, second))
            difference = paired_difference(*arms, seed=number)
            assert difference is not None
            ps.append(difference.p)
        now += min(ps) <= RISK / LOOKS
        before += min(ps) <= RISK
    return 100 * now / count, 100 * before / count


def bias_of_pass(cases: int, repeats: int, k: int, count: int) -> tuple[float, float]:
    """Measure the bias of pass^k in points: now, and of the k-th power of the share of right
    runs.
    """
    chance = np.random.default_rng(k)
    # The k-th moment of the density of the chances: (1/2) (3/2) … / k!
    truth = math.prod((0.5 + number) / (1 + number) for number in range(k))
    now, before = [], []
    for _ in range(count):
        right = chance.binomial(repeats, usual(chance, cases))
        now.append(pass_hat_k([int(each) for each in right], [repeats] * cases, k) or 0.0)
        before.append(float(right.mean() / repeats) ** k)
    return tuple(100 * abs(float(np.mean(each)) - truth) for each in (now, before))  # type: ignore[return-value]


def beyond_chance(share: float, count: int) -> float:
    """Compute how far a measured share may be beside the true one: 2.6 standard errors, in
    percent.
    """
    return 260 * math.sqrt(share * (1 - share) / count)


def figures(quick: bool) -> list[Figure]:
    """All five tables."""
    return measure(20 if quick else EXPERIMENTS, quick)


def measure(count: int, quick: bool = False) -> list[Figure]:
    """The same from so many simulated experiments."""
    result = []
    sizes = SIZES[2:3] if quick else SIZES
    for population in NO_EFFECT:
        for cases, repeats in sizes:
            now, before = false_alarms(population, cases, repeats, count)
            limit = None if quick else 5.0 + beyond_chance(0.05, count)
            result.append(
                Figure(
                    f"false alarms, {population.name}, {cases} x {repeats}", now, "%", before, limit
                )
            )
    for population in (*NO_EFFECT, *EFFECTS):
        for cases, repeats in sizes:
            now, before = coverage(population, cases, repeats, count)
            limit = None if quick else 92.0 - beyond_chance(0.92, count)
            name = f"coverage, {population.name}, {cases} x {repeats}"
            result.append(Figure(name, now, "%", before, limit, more_is_better=True))
    for cases, repeats in POWER_SIZES[:1] if quick else POWER_SIZES:
        gain, old = smallest_difference(cases, repeats), announced_before(cases, repeats)
        assert gain is not None
        found = power(cases, repeats, gain, count)
        found_before = power(cases, repeats, old, count) if old is not None else None
        limit = None if quick else 75.0 - beyond_chance(0.75, count)
        name = f"{100 * gain:.1f} points announced, {cases} x {repeats}: found"
        result.append(Figure(name, found, "%", found_before, limit, more_is_better=True))
    for of in ("cases", "repeats"):
        now, before = looks(of, count)
        limit = None if quick else 5.0 + beyond_chance(0.05, count)
        result.append(
            Figure(f"false alarms of {LOOKS} looks while {of} are added", now, "%", before, limit)
        )
    for k in (2, 3, 5):
        now, before = bias_of_pass(50, 5, k, count)
        result.append(
            Figure(f"bias of pass^{k}, 50 x 5", now, "points", before, None if quick else 1.0)
        )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--experiments", type=int, default=EXPERIMENTS)
    parser.add_argument(
        "--quick", action="store_true", help="few experiments, to see that it works"
    )
    given = parser.parse_args()
    assert common.ROOT
    print_figures(measure(20, quick=True) if given.quick else measure(given.experiments))
