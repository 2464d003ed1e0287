"""Sentences about results: what was found, under which assumption, and what this size could find.

Every figure in them can be recomputed from `cases_frame()`, whose columns `RECOMPUTE` names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from casual_mcp_nb.display import words
from casual_mcp_nb.experiments.arm_results import ArmComparison
from casual_mcp_nb.experiments.percentage_points import points, span
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.statistics import (
    LEVEL,
    RISK,
    SHARE_CHANGED,
    PairedDifference,
    cases_needed,
    false_alarms,
    least_clusters,
    smallest_difference,
)

PROPOSED = 0.2
"""The difference for which a number of cases is proposed where only a larger one can be found."""
RECOMPUTE = (
    "To recompute it: cases_frame() has each arm's share of right runs by case. The difference is"
    " the mean of one column minus the other. Add these up by cluster and flip the signs: p is how"
    " often a flipped sum is as large."
)


def conclusions(results: RunResults) -> Iterator[str]:
    """Write which arms are right more often than the first one, and what this size can find."""
    if not results.judged:
        return
    comparisons = results.comparisons()
    compared = {each.second for each in comparisons}
    first, *others = results
    for name in others:
        if name not in compared:
            yield f"{name} and {first} have no judged case in common, so nothing compares them."
    if not comparisons:
        return
    candidates, looks, repeats = len(others), results.looks, results.repeats
    if len(results.cases) == 1:
        least = least_clusters(candidates * looks)
        yield f"It takes at least {least:,} cases to test which arm is right more often."
        return
    for each in comparisons:
        yield of_difference(each, candidates=candidates, looks=looks)
    if any(each.right.clusters < least_clusters(_tests(each.right)) for each in comparisons):
        # That it can find nothing is said of each.
        yield _proposal(repeats, candidates, looks)
    else:
        clusters = results.clusters or len({record.cluster for record in results.records})
        yield of_size(len(results.cases), clusters, repeats, candidates=candidates, looks=looks)
    if any(each.right.better or each.right.worse for each in comparisons):
        yield RECOMPUTE
    if looks > 1:
        yield of_looks(looks)


def of_difference(comparison: ArmComparison, *, candidates: int = 1, looks: int = 1) -> str:
    """Write whether the second arm is right more often than the first one.

    Args:
        comparison: The two arms.
        candidates: How many arms were compared with the first.
        looks: How many looks were planned.
    """
    first, second, difference = comparison.first, comparison.second, comparison.right
    counts = (
        f"{difference.better:,} better, {difference.worse:,} worse, {difference.same:,} the same"
    )
    units = _units(difference.n, difference.clusters)
    least = least_clusters(_tests(difference))
    if difference.clusters < least:
        return (
            f"{units} cannot tell {second} from {first}, whatever the runs show ({counts}). "
            f"The test takes at least {least:,}{_unit(difference.n, difference.clusters)}."
        )
    if not difference.better and not difference.worse:
        unseen = points(max(-difference.low, difference.high))
        not_ruled_out = f"{units.capitalize()} do not rule out a difference of {unseen}."
        return f"{second} is right as often as {first} in each case. {not_ruled_out}"
    interval = f"{level_words(difference.level)} interval {span(difference.low, difference.high)}"
    p = f"p = {difference.corrected_p:.2g}"
    if tests := _tests_in_words(candidates, looks):
        p = f"{p} corrected for {tests}"
    figures = f"{interval}, {p}; {counts}"
    if not difference.is_clear:
        return f"{second}: no clear difference from {first} ({figures})."
    verdict = "more" if difference.mean > 0 else "less"
    amount = points(abs(difference.mean))
    return (
        f"{second} is right {amount} {verdict} often than {first} ({figures}), if"
        f" {_represents(difference)}."
    )


def of_size(cases: int, clusters: int, repeats: int, *, candidates: int = 1, looks: int = 1) -> str:
    """Write which difference so many cases find. Known before any run.

    Args:
        cases: How many cases there are.
        clusters: How many clusters they form.
        repeats: How often each is run in each arm.
        candidates: How many arms are compared with the first.
        looks: How many looks are planned.
    """
    size = f"{_units(cases, clusters)} with {words.count(repeats, 'repeat')}"
    if tests := _tests_in_words(candidates, looks):
        size = f"{size}, {tests},"
    smallest = smallest_difference(clusters, repeats, candidates=candidates, looks=looks)
    if smallest is None:
        least = least_clusters(candidates * looks)
        return (
            f"{size} can find no difference between the arms, whatever the runs show: the test"
            f" takes at least {least:,}{_unit(cases, clusters)}."
            f" {_proposal(repeats, candidates, looks)}"
        )
    found = (
        f"{size} find a difference of {points(smallest)} in four of five experiments, a smaller one"
        " less often"
    )
    sentence = f"{found}, if {_assumed(smallest)}."
    if smallest > PROPOSED:
        sentence = f"{sentence} {_proposal(repeats, candidates, looks)}"
    return sentence


def of_looks(looks: int) -> str:
    """Write how looks at growing data that were not planned change the risk.

    Args:
        looks: How often the cases were looked at.
    """
    return (
        f"Look {looks:,}, and 1 planned: over all of them a difference that does not exist is"
        f" reported in up to {false_alarms(looks) * 100:.2g}% of experiments. Plan the looks before"
        " the first run."
    )


def of_redundant(groups: Sequence[Sequence[str]]) -> Iterator[str]:
    """Write which tools do the same for these cases.

    Args:
        groups: The tools of each group, the one that is kept first.
    """
    for kept, *others in groups:
        names = words.listed([kept, *others], 5)
        yield (
            f"Keep one of {names}: without each alone nothing is lost, without all of them it is."
            f" The advice keeps {kept}."
        )


def of_joint(off: Sequence[str], joint: PairedDifference | None) -> str:
    """Write what was measured with everything off that is to go.

    Args:
        off: What is to go.
        joint: What all of it brings together: with everything minus without it. None if it was not
            measured.
    """
    if not off:
        return ""
    if joint is None:
        return (
            f"Without {words.listed(off, 5)} together nothing was measured, so none is to be turned"
            " off."
        )
    interval = f"{level_words(joint.level)} interval {span(-joint.high, -joint.low)}"
    change = f"the share of right runs changes by {points(-joint.mean)} ({interval})"
    return f"Without {words.listed(off, 5)} together, {change}, if {_represents(joint)}."


def _units(cases: int, clusters: int) -> str:
    if clusters == cases:
        return words.count(cases, "case")
    return f"{words.count(cases, 'case')} in {words.count(clusters, 'cluster')}"


def _unit(cases: int, clusters: int) -> str:
    return " cases" if clusters == cases else " clusters"


def _represents(difference: PairedDifference) -> str:
    unit = "cases" if difference.clusters == difference.n else "clusters of cases"
    return (
        f"these {difference.clusters:,} {unit} represent those to come and do not depend on each"
        " other"
    )


def _assumed(gain: float) -> str:
    others = "and leaves the others as they are"
    if gain > SHARE_CHANGED:
        return (
            f"the change makes {words.percent(gain)} of the cases always right that never were,"
            f" {others}"
        )
    return f"the change helps a quarter of the cases, all by the same amount, {others}"


def _proposal(repeats: int, candidates: int, looks: int) -> str:
    needed = cases_needed(PROPOSED, repeats, candidates=candidates, looks=looks)
    if needed is None:
        return "Compare fewer candidates."
    return (
        f"To find a difference of {points(PROPOSED)}, if {_assumed(PROPOSED)}, take {needed:,}"
        " cases."
    )


def _tests_in_words(candidates: int, looks: int) -> str:
    """Write how many tests share the risk, or nothing if there is one."""
    parts = []
    if candidates > 1:
        parts.append(f"{candidates:,} candidates")
    if looks > 1:
        parts.append(f"{looks:,} looks")
    return " and ".join(parts)


def _tests(difference: PairedDifference) -> int:
    return max(1, round(RISK / (1 - difference.level)))


def level_words(level: float) -> str:
    """Write an interval's level in percent, with digits only where a correction raised it."""
    return f"{LEVEL:.0%}" if math.isclose(level, LEVEL) else f"{level * 100:.3g}%"
