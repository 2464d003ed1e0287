"""Statistics for repeated case runs. The unit is the case, or a cluster of cases about one need.

A case's repeats are not independent, so its mean counts, and clusters widen intervals. Formulas:
Miller (2024), "Adding Error Bars to Evals", arXiv 2411.00640.

Two arms are compared by one test, which gives both p and the interval. Each choice of signs for the
clusters divides them into two groups. Without any effect but a shift of all cases, the two groups'
mean differences would be alike, so the true difference lies between them. A difference that lies
between them for few choices only is rejected; the interval is what is not rejected.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

__all__ = ["cases_needed", "smallest_difference"]

LEVEL = 0.95
RISK = 0.05
"""How often a difference may be reported where there is none, over all candidates and looks."""
POWER = 0.8
_SAME = 1e-12
"""Up to which difference a case counts as unchanged."""
EXACT_CLUSTERS = 12
"""Up to how many clusters all sign flips are counted: 4,096."""
DRAWS = 10_000
SHARE_CHANGED = 0.25
"""How many cases a change is assumed to help before the runs, as a share."""
SHARES = (-1.0, 1.0)
"""The bounds of a difference between two shares."""
_SIMULATED_CLUSTERS = 150
"""Up to how many clusters the power is simulated. Beyond it sums are normal."""
_EXPERIMENTS = 1_000
_SIMULATED_RUNS = 300_000
"""About how many runs of one arm are simulated at most, for speed."""
MOST_CASES = 100_000
"""The largest number of cases that `cases_needed` proposes."""
_FURTHER = 8
"""With how many more cases `cases_needed` tries the same."""


def t_quantile(p: float, df: float) -> float:
    """Compute a quantile of Student's t, for p from .5 on, by the incomplete beta function (DLMF
    8.17).
    """
    if math.isinf(df):
        return NormalDist().inv_cdf(p)
    x = _beta_quantile(2 * (1 - p), df / 2, 0.5)
    return math.sqrt(df * (1 - x) / x)


def _beta_quantile(p: float, a: float, b: float) -> float:
    def is_below(share: float) -> bool:
        return _incomplete_beta(share, a, b) < p

    return _bisected(is_below, 60)


def _bisected(is_below: Callable[[float], bool], steps: int) -> float:
    """Find where between 0 and 1 a condition stops holding, by halving so many times."""
    low, high = 0.0, 1.0
    for _ in range(steps):
        middle = (low + high) / 2
        if is_below(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Compute the regularized incomplete beta function by its continued fraction (DLMF 8.17.22,
    modified Lentz).
    """
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
    front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
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
        low: Its interval's lower end: the lowest difference that the test does not reject.
        high: The upper end.
        p: The probability of a difference this large without any effect, by flipping cluster signs.
        better: How many cases got better.
        worse: How many got worse.
        same: How many stayed.
        n: How many cases.
        clusters: How many clusters.
        adjusted_p: `p` corrected for several candidates and looks, or None if there is one of each.
        level: The interval's own level. It is higher after a correction, so that `adjusted_p` is
            at most .05 exactly if 0 is outside.
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
    level: float = LEVEL

    @property
    def corrected_p(self) -> float:
        """The p value that decides: `adjusted_p` where there is a correction."""
        return self.p if self.adjusted_p is None else self.adjusted_p

    @property
    def is_clear(self) -> bool:
        """Whether the test finds a difference, which is the same as 0 being outside the
        interval.
        """
        return self.corrected_p <= RISK


def clustered_error(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, int]:
    """Compute a mean's standard error over clusters, and the number of clusters.

    A cluster's residuals are added up before they are squared, so that its cases may depend on each
    other in any way. The factor G / (G - 1) corrects for few clusters.
    """
    mean = math.fsum(values) / len(values)
    sums = _sums_by_cluster([value - mean for value in values], clusters)
    count = len(sums)
    if count < 2:
        return math.inf, count
    variance = math.fsum(total * total for total in sums.values()) * count / (count - 1)
    return math.sqrt(variance) / len(values), count


def _sums_by_cluster(
    values: Iterable[float], clusters: Iterable[Hashable]
) -> dict[Hashable, float]:
    sums: dict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value
    return sums


def mean_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """Compute the mean of one value per case, such as tokens or costs, with its t interval over
    clusters.
    """
    mean = math.fsum(values) / len(values)
    error, count = clustered_error(values, clusters)
    margin = t_quantile(0.5 + LEVEL / 2, count - 1) * error if count > 1 else math.inf
    return Interval(mean, mean - margin, mean + margin, len(values), count)


def share_interval(
    successes: Sequence[int], runs: Sequence[int], clusters: Sequence[Hashable]
) -> Interval:
    """Compute the share of right runs, each case counting the same, with Wilson's interval for the
    effective sample size.

    The effective size is how many independent runs would have the same standard error (Kish's
    design effect). For few clusters it is lowered by the ratio between the normal and the t
    quantile (Korn and Graubard, 1998). If all runs are the same, it is the number of clusters.

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
    """Estimate the share of cases whose k runs are all right: the mean of C(c, k) / C(n, k), or
    None with fewer runs.
    """
    if k < 1 or not runs or min(runs) < k:
        return None
    return math.fsum(
        math.comb(right, k) / math.comb(total, k)
        for right, total in zip(successes, runs, strict=True)
    ) / len(runs)


def paired_difference(
    first: Mapping[Any, float],
    second: Mapping[Any, float],
    clusters: Mapping[Any, Hashable] | None = None,
    *,
    seed: int = 0,
    tests: int = 1,
    bounds: tuple[float, float] | None = None,
) -> PairedDifference | None:
    """Compare two arms by each case's mean.

    Args:
        first: Each case's mean in the first arm.
        second: The same in the second one. Cases that only one arm has are left out.
        clusters: Each case's cluster, or None if each is its own.
        seed: For the random flips.
        tests: By how many tests, of candidates and looks, the risk of .05 is divided (Bonferroni).
        bounds: The lowest and highest possible difference, as `SHARES`. Where cases changed in one
            direction only, or none did, the interval then includes what so few cases cannot rule
            out.

    Returns:
        The difference, or None if the arms have no case in common.
    """
    cases = [case for case in first if case in second]
    if not cases:
        return None
    differences = [second[case] - first[case] for case in cases]
    groups = [(clusters or {}).get(case, case) for case in cases]
    sums, sizes = _sums_by_cluster(differences, groups), Counter(groups)
    flips = sign_flips(tuple(sums.values()), tuple(sizes.values()), seed)
    risk = RISK / tests
    mean = math.fsum(differences) / len(cases)
    low, high = flips.interval(risk)
    # The mean is between the groups' means, up to rounding.
    low, high = min(low, mean), max(high, mean)
    if bounds is not None:
        unseen = _one_sided(mean, list(sums.values()), risk)
        low = max(min(low, unseen[0]), bounds[0])
        high = min(max(high, unseen[1]), bounds[1])
    return PairedDifference(
        mean,
        low,
        high,
        flips.p,
        better=sum(difference > _SAME for difference in differences),
        worse=sum(difference < -_SAME for difference in differences),
        same=sum(abs(difference) <= _SAME for difference in differences),
        n=len(cases),
        clusters=len(sums),
        adjusted_p=min(1.0, flips.p * tests) if tests > 1 else None,
        level=1 - risk,
    )


@dataclass(frozen=True)
class SignFlips:
    """The sign flips of one comparison.

    Args:
        low: For each choice of signs, sorted, the lower of both groups' means.
        high: The higher one, sorted on its own.
        mean: The mean difference of all.
    """

    low: Any
    high: Any
    mean: float

    @property
    def p(self) -> float:
        """How often 0 is between both groups' means.

        At least twice in all flips, so p is never 0.
        """
        if self.mean > 0:
            return float(np.mean(self.low <= 0))
        return float(np.mean(self.high >= 0))

    def interval(self, risk: float) -> tuple[float, float]:
        """Compute the lowest and the highest difference that lie between both groups' means for
        more than this share of choices.
        """
        index = math.floor(risk * len(self.low))
        return float(self.low[index]), float(self.high[-1 - index])


@lru_cache(maxsize=16)
def sign_flips(sums: tuple[float, ...], sizes: tuple[int, ...], seed: int = 0) -> SignFlips:
    """Flip clusters' signs: in all ways if at most 12 of them differ, else in 10,000 drawn ones.

    With drawn signs the observed choice is counted with them (Phipson and Smyth, 2010).

    Args:
        sums: The sum of the differences in each cluster.
        sizes: How many cases each has.
        seed: For the drawn signs.
    """
    table = np.array([sums, sizes], dtype=float)
    total = table.sum(axis=1)
    lows, highs = [], []
    for chosen in _choices(np.abs(table[0]) > _SAME, seed):
        # A product of matrices would start threads for two columns, and wait for them.
        flipped = np.einsum("ij,kj->ki", chosen.astype(float), table)
        kept = total[:, None] - flipped
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.stack([flipped[0] / flipped[1], kept[0] / kept[1]])
        # A group without a cluster rules out nothing.
        is_empty = (flipped[1] < 0.5) | (kept[1] < 0.5)
        lows.append(np.where(is_empty, -math.inf, means.min(axis=0)))
        highs.append(np.where(is_empty, math.inf, means.max(axis=0)))
    rounding = 1e-9 * float(np.abs(table[0] / table[1]).max())
    low, high = map(np.concatenate, (lows, highs))
    for each in (low, high):
        each[np.abs(each) <= rounding] = 0.0
        each.sort()
    mean = float(total[0] / total[1])
    return SignFlips(low, high, mean if abs(mean) > rounding else 0.0)


def _choices(differs: Any, seed: int) -> Any:
    """Yield which clusters are flipped, a row per choice, at most about 4,096 rows at a time.

    Those that do not differ change nothing for a difference of 0, so that p stays exact if their
    signs are drawn.
    """
    count, differing = len(differs), int(differs.sum())
    generator = np.random.default_rng(seed)
    if count <= EXACT_CLUSTERS:
        yield np.arange(2**count)[:, None] >> np.arange(count) & 1
    elif differing <= EXACT_CLUSTERS:
        exact = np.arange(2**differing)[:, None] >> np.arange(differing) & 1
        repeats = -(-DRAWS // len(exact))
        step = max(1, 4_096 // len(exact))
        for start in range(0, repeats, step):
            rows = np.tile(exact, (min(step, repeats - start), 1))
            chosen = _drawn_signs(generator, len(rows), count)
            chosen[:, differs] = rows
            yield chosen
    else:
        yield np.zeros((1, count), dtype=np.uint8)
        for _ in range(DRAWS // 1_000):
            yield _drawn_signs(generator, 1_000, count)


def _drawn_signs(generator: np.random.Generator, rows: int, count: int) -> Any:
    packed = generator.integers(0, 256, (rows, -(-count // 8)), dtype=np.uint8)
    return np.unpackbits(packed, axis=1, count=count)


def _one_sided(mean: float, sums: Sequence[float], risk: float) -> tuple[float, float]:
    """Compute what cannot be ruled out if clusters changed in one direction only, or none did.

    It is the exact interval (Clopper and Pearson, 1934) for the share of changed clusters, times
    how much these changed. As many more clusters may change in the direction that was not seen as
    the rule of three allows. If none changed, a change of all runs in either direction is taken.
    """
    up, down = sum(each > _SAME for each in sums), sum(each < -_SAME for each in sums)
    if up and down:
        return mean, mean
    changed, count = up + down, len(sums)
    low, high = share_bounds(changed, count, risk)
    _, unseen = share_bounds(0, count, risk)
    change = abs(mean) * count / changed if changed else 1.0
    least = min(low * change, abs(mean) - unseen * change)
    if down:
        return -high * change, -least
    return least, high * change


def share_bounds(successes: int, total: int, risk: float = RISK) -> tuple[float, float]:
    """Compute the exact interval for a share of independent cases (Clopper and Pearson, 1934)."""
    low = 0.0
    if successes:
        low = _beta_quantile(risk / 2, successes, total - successes + 1)
    high = 1.0
    if successes < total:
        high = _beta_quantile(1 - risk / 2, successes + 1, total - successes)
    return low, high


def holm(values: Sequence[float], looks: int = 1) -> list[tuple[float, int]]:
    """Correct p values for several candidates (Holm, 1979) and looks (Bonferroni), in the order
    given.

    Args:
        values: The p values.
        looks: How often these data are looked at, in all.

    Returns:
        For each, the corrected p value, and by how many tests the risk is divided at its step. At
        the step at which Holm's method ends, all that remain are judged alike, so that an interval
        of that level excludes 0 exactly if the corrected p value is at most .05.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected = [(1.0, 1)] * len(values)
    least, tests = 0.0, 1
    for rank, index in enumerate(order):
        if least <= RISK:
            tests = (len(values) - rank) * looks
        least = min(1.0, max(least, values[index] * (len(values) - rank) * looks))
        corrected[index] = least, tests
    return corrected


def false_alarms(looks: int) -> float:
    """Bound how often a difference is reported where there is none, if the runs stop at the first
    one.

    One look was planned. Look number k beyond it is judged at .05 / k, which is on top.

    Args:
        looks: How often the growing data were looked at.
    """
    return min(1.0, RISK * math.fsum(1 / look for look in range(1, looks + 1)))


def least_clusters(tests: int = 1) -> int:
    """Compute with how many clusters the test can find anything: one sign of all flips has p = 2^(1
    - n).
    """
    return math.ceil(1 + math.log2(tests / RISK))


@lru_cache(maxsize=256)
def smallest_difference(
    clusters: int, repeats: int, *, candidates: int = 1, looks: int = 1
) -> float | None:
    """Compute the smallest mean gain that four of five experiments find, before anything runs.

    It is for the test that is used: sign flips of independent cases, the risk divided by candidates
    and looks. The assumption: the change helps a quarter of the cases, all of them by the same
    amount (more of them where a quarter could not bring the gain), and leaves the others as they
    are. How often a case is right without it is anything from never to always, mostly near one of
    these (Jeffreys' density; a helped case anything that leaves room).

    Args:
        clusters: How many independent cases or clusters.
        repeats: How often each case is run in each arm.
        candidates: How many arms are compared with the first.
        looks: How many looks at the growing data are planned.

    Returns:
        The gain, from 0 to 1, or None if the test finds nothing with so few cases.
    """
    tests = candidates * looks
    if clusters < least_clusters(tests) or RISK / tests * (DRAWS + 1) < 1:
        return None
    is_simulated = clusters <= _SIMULATED_CLUSTERS
    power = (_simulated_power if is_simulated else _normal_power)(clusters, repeats, tests)

    def is_below(gain: float) -> bool:
        return bool(power(gain) < POWER)

    return _bisected(is_below, 9 if is_simulated else 30)


def cases_needed(
    difference: float, repeats: int = 1, *, candidates: int = 1, looks: int = 1
) -> int | None:
    """Compute how many independent cases, and any more, find a mean gain in four of five
    experiments.

    Args:
        difference: The gain, from 0 to 1, under the assumption of `smallest_difference`.
        repeats: How often each case is run in each arm.
        candidates: How many arms are compared with the first.
        looks: How many looks at the growing data are planned.

    Returns:
        The number, or None if it is beyond 100,000.
    """

    def finds(clusters: int) -> bool:
        smallest = smallest_difference(clusters, repeats, candidates=candidates, looks=looks)
        return smallest is not None and smallest <= difference

    low, high = least_clusters(candidates * looks) - 1, 16
    while not finds(high):
        low, high = high, high * 2
        if high > MOST_CASES:
            return None
    found = bisect_left(range(high + 1), True, lo=low + 1, key=finds)
    # The flips of few cases have few values, so that with one case more the test can find less.
    for more in range(found + _FURTHER, found, -1):
        if not finds(more):
            return more + 1
    return found


def _helped(gain: float) -> tuple[float, float]:
    """Compute which share of the cases the change helps, and by how much each."""
    share = max(SHARE_CHANGED, gain)
    return share, gain / share


def _normal_power(clusters: int, repeats: int, tests: int) -> Any:
    """Build the power as a function of the gain, for so many cases that sums are normal."""
    z = NormalDist().inv_cdf(1 - RISK / tests / 2)

    def power(gain: float) -> float:
        share, help_ = _helped(gain)
        room = 1 - help_
        # The mean of p (1 - p): for Jeffreys' density, and for even chances in the room that is
        # left.
        chance = (1 - share) / 8 + share * (room / 2 - room**2 / 3)
        variance = 2 * chance / repeats + help_**2 * share * (1 - share)
        if variance <= 0:
            return 1.0
        # A flipped sum has the variance of the squares, which has the gain in it.
        needed = z * math.sqrt(variance + gain**2)
        return NormalDist().cdf((math.sqrt(clusters) * gain - needed) / math.sqrt(variance))

    return power


def _simulated_power(clusters: int, repeats: int, tests: int) -> Any:
    """Build the power as a function of the gain, by experiments that share their random numbers."""
    generator = np.random.default_rng(clusters * 1_000 + repeats)
    experiments = min(_EXPERIMENTS, max(300, _SIMULATED_RUNS // (clusters * repeats)))
    shape = (experiments, clusters)
    helped, place = generator.random(shape), generator.random(shape)
    usual = np.sin(place * (math.pi / 2)) ** 2
    first, second = (generator.random((repeats, *shape), dtype=np.float32) for _ in range(2))

    def power(gain: float) -> float:
        share, help_ = _helped(gain)
        is_helped = helped < share
        before = np.where(is_helped, place * (1 - help_), usual).astype(np.float32)
        after = (before + help_ * is_helped).astype(np.float32)
        differences = (second < after).sum(axis=0) - (first < before).sum(axis=0)
        return float(np.mean(_rejected(differences, RISK / tests)))

    return power


def _rejected(differences: Any, risk: float) -> Any:
    """Tell for each row of whole numbers whether sign flips reject it, in favour of a gain."""
    sums = differences.sum(axis=1)
    count = differences.shape[1]
    if count <= 8:
        # Half of all flips: the others are their mirror images. Whole numbers need no threads.
        signs = 1 - 2 * (np.arange(2 ** (count - 1))[:, None] >> np.arange(count) & 1)
        reached = np.abs(differences @ signs.T) >= sums[:, None]
        return (reached.mean(axis=1) <= risk) & (sums > 0)
    # Flipped sums are normal, and two apart.
    z = NormalDist().inv_cdf(1 - risk / 2)
    enough = (differences != 0).sum(axis=1) >= 1 - math.log2(risk)
    return enough & (sums - 1 >= z * np.sqrt((differences**2).sum(axis=1)))
