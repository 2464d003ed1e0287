"""Statistics for repeated case runs. The unit is the case, or a cluster of cases about one need.

A case's repeats are not independent, so its mean counts, and clusters widen intervals. Formulas: Miller (2024), "Adding Error
Bars to Evals", arXiv 2411.00640.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
_SAME = 1e-12
"""Up to which difference a case counts as unchanged."""
EXACT_CLUSTERS = 12
"""Up to how many clusters all sign flips are counted: 4,096."""
DRAWS = 10_000
WITHIN_VARIANCE = 0.125
"""A single run's variance if nothing is known: the mean of p (1 - p) if p has Jeffreys' density."""
SHARE_CHANGED = 0.25
"""How many cases a change is assumed to help if nothing is known, as a share."""


def t_cdf(t: float, df: float) -> float:
    """Compute Student's t distribution function, by the incomplete beta function (DLMF 8.17)."""
    if math.isinf(df):
        return NormalDist().cdf(t)
    tail = _incomplete_beta(df / (df + t * t), df / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(p: float, df: float) -> float:
    """Compute a quantile of Student's t by bisecting `t_cdf`."""
    if math.isinf(df):
        return NormalDist().inv_cdf(p)
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p and high < 1e12:
        low, high = high, high * 2
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
        if middle in (low, high) and high - low <= math.ulp(high):
            break
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Compute the regularized incomplete beta function by its continued fraction (DLMF 8.17.22, modified Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    fraction = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * fraction / a


@dataclass(frozen=True)
class Interval:
    """A mean with its interval.

    Args:
        value: The mean.
        low: The lower end.
        high: The upper end.
        n: How many cases.
        clusters: How many clusters.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int


@dataclass(frozen=True)
class PairedDifference:
    """The difference between two arms over the same cases: the second minus the first.

    Args:
        mean: The mean difference by case.
        low: Its interval's lower end.
        high: The upper end.
        p: The probability of a difference this large without any effect, by flipping cluster signs.
        better: How many cases got better.
        worse: How many got worse.
        same: How many stayed.
        n: How many cases.
        clusters: How many clusters.
        adjusted_p: `p` after Holm's correction for several comparisons.
    """

    mean: float
    low: float
    high: float
    p: float
    better: int
    worse: int
    same: int
    n: int
    clusters: int
    adjusted_p: float | None = None


def clustered_error(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, int]:
    """Compute a mean's standard error over clusters, and the number of clusters.

    A cluster's residuals are added up before they are squared, so that its cases may depend on each other in any way. The
    factor G / (G - 1) corrects for few clusters.
    """
    sums: dict[Hashable, float] = {}
    mean = math.fsum(values) / len(values)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    count = len(sums)
    if count < 2:
        return math.inf, count
    variance = math.fsum(total * total for total in sums.values()) * count / (count - 1)
    return math.sqrt(variance) / len(values), count


def mean_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """Compute the mean of one value per case, such as tokens or costs, with its t interval over clusters."""
    mean = math.fsum(values) / len(values)
    error, count = clustered_error(values, clusters)
    margin = t_quantile(0.5 + LEVEL / 2, count - 1) * error if count > 1 else math.inf
    return Interval(mean, mean - margin, mean + margin, len(values), count)


def share_interval(successes: Sequence[int], runs: Sequence[int], clusters: Sequence[Hashable]) -> Interval:
    """Compute the share of right runs, each case counting the same, with Wilson's interval for the effective sample size.

    The effective size is how many independent runs would have the same standard error (Kish's design effect). For few clusters
    it is lowered by the ratio between the normal and the t quantile (Korn and Graubard, 1998). If all runs are the same, it is
    the number of clusters.

    Args:
        successes: How many runs are right, by case.
        runs: How many there are.
        clusters: Each case's cluster.
    """
    shares = [right / total for right, total in zip(successes, runs, strict=True)]
    mean = math.fsum(shares) / len(shares)
    error, count = clustered_error(shares, clusters)
    spread, total = mean * (1 - mean), sum(runs)
    effective = float(count)
    if spread > 1e-12 and 0 < error < math.inf:
        effective = min(spread / error**2, total)
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    if count > 1:
        effective *= (z / t_quantile(0.5 + LEVEL / 2, count - 1)) ** 2
    centre = mean + z * z / (2 * effective)
    margin = z * math.sqrt(spread / effective + z * z / (4 * effective**2))
    scale = 1 + z * z / effective
    low, high = max(0.0, (centre - margin) / scale), min(1.0, (centre + margin) / scale)
    return Interval(mean, min(low, mean), max(high, mean), len(shares), count)


def pass_hat_k(successes: Sequence[int], runs: Sequence[int], k: int) -> float | None:
    """Estimate the share of cases whose k runs are all right: the mean of C(c, k) / C(n, k), or None with fewer runs."""
    if k < 1 or not runs or min(runs) < k:
        return None
    return math.fsum(math.comb(right, k) / math.comb(total, k) for right, total in zip(successes, runs, strict=True)) / len(
        runs
    )


def paired_difference(
    first: Mapping[Hashable, float],
    second: Mapping[Hashable, float],
    clusters: Mapping[Hashable, Hashable] | None = None,
    *,
    seed: int = 0,
) -> PairedDifference | None:
    """Compare two arms by each case's mean.

    Args:
        first: Each case's mean in the first arm.
        second: The same in the second one. Cases that only one arm has are left out.
        clusters: Each case's cluster, or None if each is its own.
        seed: For the random flips.

    Returns:
        The difference, or None if the arms have no case in common.
    """
    cases = [case for case in first if case in second]
    if not cases:
        return None
    differences = [second[case] - first[case] for case in cases]
    groups = [(clusters or {}).get(case, case) for case in cases]
    interval = mean_interval(differences, groups)
    sums: dict[Hashable, float] = {}
    for group, difference in zip(groups, differences, strict=True):
        sums[group] = sums.get(group, 0.0) + difference
    return PairedDifference(
        interval.value,
        interval.low,
        interval.high,
        sign_flip_p(list(sums.values()), seed),
        better=sum(difference > _SAME for difference in differences),
        worse=sum(difference < -_SAME for difference in differences),
        same=sum(abs(difference) <= _SAME for difference in differences),
        n=len(cases),
        clusters=len(sums),
    )


def sign_flip_p(sums: Sequence[float], seed: int = 0) -> float:
    """Compute a two-sided p value: how often the sum is as large if each cluster's sign is chosen at random.

    Up to 12 clusters with a difference, all choices are counted. With more, 10,000 are drawn, and the observed one is counted
    with them, so that p is never 0 (Phipson and Smyth, 2010). Clusters without a difference change nothing.
    """
    values = np.array([value for value in sums if value], dtype=float)
    if not len(values):
        return 1.0
    observed = abs(values.sum()) - 1e-9 * np.abs(values).sum()
    if len(values) <= EXACT_CLUSTERS:
        bits = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float(np.mean(np.abs((1 - 2 * bits) @ values) >= observed))
    generator = np.random.default_rng(seed)
    extreme = 0
    for start in range(0, DRAWS, 1_000):
        signs = 1 - 2 * generator.integers(0, 2, (min(1_000, DRAWS - start), len(values)), dtype=np.int8)
        extreme += int(np.sum(np.abs(signs @ values) >= observed))
    return (extreme + 1) / (DRAWS + 1)


def holm(values: Sequence[float]) -> list[float]:
    """Adjust p values for several comparisons (Holm, 1979), in the order given."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, least = [1.0] * len(values), 0.0
    for rank, index in enumerate(order):
        least = adjusted[index] = min(1.0, max(least, values[index] * (len(values) - rank)))
    return adjusted


def smallest_difference(
    clusters: int,
    repeats: int,
    *,
    power: float = 0.8,
    level: float = LEVEL,
    within: float = WITHIN_VARIANCE,
    changed: float = SHARE_CHANGED,
) -> float | None:
    """Estimate the smallest mean gain that a comparison between two arms can find, before anything runs.

    A case's difference has the variance `2 within / repeats` from chance, and `gain² (1 / changed - 1)` from the effect itself,
    if it helps this share of the cases by the same amount (Miller 2024, section 5).

    Args:
        clusters: How many independent cases or clusters.
        repeats: How often each case is run in each arm.
        power: How likely the gain should be found.
        level: One minus the risk of finding a gain where there is none.
        within: A single run's variance.
        changed: Which share of the cases the change helps.

    Returns:
        The gain, from 0 to 1, or None if even the largest possible one would not be found.
    """
    if clusters < 2:
        return None
    df = clusters - 1
    factor = (t_quantile(0.5 + level / 2, df) + t_quantile(power, df)) ** 2 / clusters
    remaining = 1 - factor * (1 / changed - 1)
    gain = math.sqrt(factor * 2 * within / repeats / remaining) if remaining > 0 else math.inf
    return gain if gain <= changed else _concentrated(factor, within, repeats)


def _concentrated(factor: float, within: float, repeats: int) -> float | None:
    """Estimate the gain if it cannot be reached with the assumed share: the changed cases gain everything."""
    # With a gain of 1 in each changed case, its variance is g (1 - g): g² = factor (2 within / repeats + g - g²).
    chance = factor * 2 * within / repeats
    root = (factor + math.sqrt(factor * factor + 4 * (1 + factor) * chance)) / (2 * (1 + factor))
    return root if root < 1 else None
