"""An arm's runs and their figures, and the comparison of two arms over the same cases."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, get_args

from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.tokens import Origin
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS, FailureGroup
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.statistics import (
    SHARES,
    Interval,
    PairedDifference,
    mean_interval,
    paired_difference,
    pass_hat_k,
    share_interval,
)

MeasureName = Literal[
    "right",
    "tokens_in_full",
    "tokens_reused",
    "input_tokens",
    "output_tokens",
    "steps",
    "calls",
    "searches",
    "seconds",
    "cost",
]
MEASURES: tuple[MeasureName, ...] = get_args(MeasureName)


@dataclass(frozen=True)
class Spread:
    """A figure over several runs.

    Args:
        low: The lowest value.
        mean: The mean.
        high: The highest value.
    """

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class ArmResults:
    """One arm's runs. Arms differ in model, delivery, toolset, descriptions and so on.

    Args:
        arm: The arm.
        records: Its runs.
    """

    arm: Arm
    records: tuple[RunRecord, ...]

    @property
    def name(self) -> str:
        """The arm's name."""
        return self.arm.name

    @property
    def done(self) -> tuple[RunRecord, ...]:
        """The completed runs. All figures are about these."""
        return tuple(record for record in self.records if record.made)

    @property
    def judged(self) -> tuple[RunRecord, ...]:
        """The completed runs that are right or wrong."""
        return tuple(record for record in self.records if record.right is not None)

    @property
    def not_made(self) -> int:
        """How many runs could not be completed."""
        return sum(not record.made for record in self.records)

    @property
    def not_graded(self) -> int:
        """How many runs still need a judge model's grade. They are neither right nor wrong."""
        return sum(record.ungraded for record in self.records)

    @property
    def by_case(self) -> dict[str, tuple[RunRecord, ...]]:
        """Each case's completed runs."""
        return by_case_of(self.done)

    def of_cases(self, cases: Container[str]) -> ArmResults:
        """Select some cases' runs."""
        return ArmResults(
            self.arm, tuple(record for record in self.records if record.case in cases)
        )

    @property
    def right(self) -> Interval | None:
        """The share of right runs with its interval, each case counting the same.

        Only judged runs count: a run that was not made or not graded is neither right nor wrong.
        None if none was judged.
        """
        groups = by_case_of(self.judged)
        return share_of(groups, _is_right) if groups else None

    def pass_hat(self, k: int) -> float | None:
        """Estimate how many cases have k right runs in k, as a share, or return None if no case has
        k runs.

        Cases with fewer runs are left out, see `cases_short_of`.
        """
        groups = [records for records in by_case_of(self.judged).values() if len(records) >= k]
        return pass_hat_k([*map(_right_runs, groups)], [*map(len, groups)], k)

    def cases_short_of(self, k: int) -> int:
        """Count the cases with fewer than k judged runs."""
        groups = by_case_of(self.judged)
        cases = {record.case for record in self.records}
        return sum(len(groups.get(case, ())) < k for case in cases)

    def means(self, name: MeasureName) -> dict[str, float]:
        """Compute a figure's mean by case. Cases in which it is unknown are left out.

        So are all costs if they have several currencies.
        """
        means: dict[str, float] = {}
        if name == "cost" and self.currency is None:
            return means
        for case, records in self.by_case.items():
            values = [getattr(record, name) for record in records]
            if None not in values:
                means[case] = math.fsum(values) / len(values)
        return means

    def mean(self, name: MeasureName) -> Interval | None:
        """Compute a figure's mean with its interval, or None if it is unknown."""
        means = self.means(name)
        if not means:
            return None
        by_case = self.by_case
        clusters = [by_case[case][0].cluster for case in means]
        return mean_interval([*means.values()], clusters)

    def spread(self, name: MeasureName) -> Spread | None:
        """Find a figure's lowest and highest value over all runs, or None if there are none, or any
        lacks it.
        """
        values = [getattr(record, name) for record in self.done]
        if not values or None in values or (name == "cost" and self.currency is None):
            return None
        return Spread(min(values), fmean(values), max(values))

    @property
    def currency(self) -> str | None:
        """The costs' currency, None if there are none or several."""
        currencies = {record.currency for record in self.done if record.currency}
        return currencies.pop() if len(currencies) == 1 else None

    @property
    def origin(self) -> Origin:
        """Who counted the input tokens."""
        return _origin_of(record.origin for record in self.done)

    @property
    def reused_origin(self) -> Origin:
        """Who counted the reused tokens."""
        return _origin_of(record.reused_origin for record in self.done)

    @property
    def ranked_by(self) -> str | None:
        """How its runs' searches ranked, or None if there was none."""
        rankings = {record.ranked_by for record in self.done if record.ranked_by}
        return ", ".join(sorted(rankings)) or None

    @property
    def failures(self) -> dict[FailureGroup, int]:
        """How many runs failed, by reason."""
        counts = Counter(record.failure for record in self.done if record.failure)
        return {group: counts[group] for group in FAILURE_GROUPS if counts[group]}


def share_of(
    groups: Mapping[str, Sequence[RunRecord]], has_it: Callable[[RunRecord], bool]
) -> Interval:
    """Compute the share of runs that have something, with its interval, each case counting the
    same.
    """
    successes, runs, clusters = [], [], []
    for records in groups.values():
        successes.append(sum(map(has_it, records)))
        runs.append(len(records))
        clusters.append(records[0].cluster)
    return share_interval(successes, runs, clusters)


def _is_right(record: RunRecord) -> bool:
    return record.right is True


def _right_runs(records: Sequence[RunRecord]) -> int:
    return sum(map(_is_right, records))


def _origin_of(origins: Iterable[Origin]) -> Origin:
    """Name who counted tokens: with one estimate in it, a sum is an estimate."""
    return "estimated" if "estimated" in origins else "reported"


def clusters_of(records: Iterable[RunRecord]) -> dict[Hashable, Hashable]:
    """Look up each case's cluster."""
    return {record.case: record.cluster for record in records}


def by_case_of(records: Sequence[RunRecord]) -> dict[str, tuple[RunRecord, ...]]:
    """Group runs by case."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.case, []).append(record)
    return {case: tuple(group) for case, group in groups.items()}


@dataclass(frozen=True)
class ArmComparison(Displayable):
    """Two arms over the same cases. All differences are the second minus the first.

    Args:
        first: The arm to compare with.
        second: The other one.
        right: The difference in right runs, as a share.
        measures: Differences in all other figures that both arms have, by name.
    """

    first: str
    second: str
    right: PairedDifference
    measures: Mapping[MeasureName, PairedDifference] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Collect its fields as plain values."""
        return {"first": self.first, "second": self.second, **dataclasses.asdict(self.right)}


@dataclass(frozen=True)
class ArmComparisons(DisplayableList[ArmComparison], items="comparisons"):
    """Each other arm compared with the first one, by `RunResults.comparisons`.

    Args:
        comparisons: In the order of the arms.
    """

    comparisons: tuple[ArmComparison, ...]


def compare_arms(
    first: ArmResults, second: ArmResults, *, seed: int = 0, tests: int = 1
) -> ArmComparison | None:
    """Compare two arms by the cases that both have, which may be from different results.

    See `RunResults.compare`.
    """
    right = difference_between(first, second, "right", seed=seed, tests=tests)
    if right is None:
        return None
    measures = {}
    for name in MEASURES[1:]:
        each = difference_between(first, second, name, seed=seed, tests=tests)
        if each is None:
            continue
        if name != "tokens_reused":
            # Less is better.
            each = dataclasses.replace(each, better=each.worse, worse=each.better)
        measures[name] = each
    return ArmComparison(first.name, second.name, right, measures)


def difference_between(
    first: ArmResults, second: ArmResults, name: MeasureName, *, seed: int = 0, tests: int = 1
) -> PairedDifference | None:
    """Compare two arms by one figure. None if they have no case in common.

    See `RunResults.compare`. None too for costs in two currencies.
    """
    if name == "cost" and first.currency != second.currency:
        return None
    clusters = clusters_of((*first.records, *second.records))
    bounds = SHARES if name == "right" else None
    return paired_difference(
        first.means(name), second.means(name), clusters, seed=seed, tests=tests, bounds=bounds
    )
