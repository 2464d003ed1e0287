"""How much each server and tool is worth: the effect of leaving it out, and whether to load it,
defer it or turn it off.

Tools that do the same are each worth nothing, and together much. So what is to go is judged
together, in an arm without all of it. Cases that this arm loses show which tools have to come back:
the cheapest with which they were right. Further arms follow until nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.base.displayable import DisplayableList, count
from casual_mcp_nb.base.iterables import by_name
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import REUSED_WEIGHT, total_tokens
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec, tool_names
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.arm_results import (
    ArmResults,
    MeasureName,
    difference_between,
    share_of,
)
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.statistics import Interval, PairedDifference

Advice = Literal["load", "defer", "off"]

SEARCH_TOKENS = 1_100
"""The cost of a search: about 440 tokens for text and 650 for definitions, measured with real MCP
servers.
"""
EXPENSIVE_SHARE = 0.05
"""A tool with at least this share of all definition tokens is measured even if no case expects it.
"""
NOTHING = 0.02
"""A tool that gains no more right calls than this counts as useless."""


@dataclass(frozen=True)
class ToolWorth:
    """A server's or tool's gain and cost.

    Args:
        name: The server, or the tool as `server:tool`.
        tokens: Its definitions' estimated tokens.
        right: How much it raises the share of right runs: with it minus without it.
        input_tokens: How many input tokens it adds to a run, as the session is set.
        used: How often it is called, as a share of runs, once what is to go is off.
        needed: How many cases expect it.
        advice: Whether to load it, to defer it, or to turn it off.
        certain: Whether all runs were made, and the whole intervals lead to the same advice. To
            turn something off, that of everything that goes counts as well. If no case changes,
            that takes 183 cases.
        loaded_price: Estimated input tokens that it adds to a run if it is loaded, reused ones
            counted as a tenth.
        deferred_price: The same if it is deferred, for a search in each run that calls it. No arm
            measures it.
        deferred_range: The same at both ends of the interval for `used`.
        redundant_with: What does the same for these cases: one of all these is kept.
        is_server: Whether it is a whole server.
    """

    name: str
    tokens: int
    right: PairedDifference
    input_tokens: PairedDifference | None
    used: Interval
    needed: int
    advice: Advice
    certain: bool
    loaded_price: float
    deferred_price: float
    deferred_range: tuple[float, float]
    redundant_with: tuple[str, ...] = ()
    is_server: bool = False


@dataclass(frozen=True, repr=False)
class Worth(DisplayableList[ToolWorth], items="worths"):
    """How much a session's servers and tools are worth for the cases.

    Args:
        worths: Servers, then tools, the most useful first.
        results: The runs.
        servers: All servers that were in use.
        plan: What can go together, as it was measured.
    """

    worths: tuple[ToolWorth, ...]
    results: RunResults
    servers: tuple[str, ...]
    plan: JointPlan
    _apply: Callable[[Worth, str | None], None] | None = field(
        default=None, repr=False, compare=False
    )

    def __repr__(self) -> str:
        advice = Counter(worth.advice for worth in self.worths)
        return (
            f"<Worth: {count(len(self), 'server or tool')}, load {advice['load']}, defer"
            f" {advice['defer']}, off {advice['off']}>"
        )

    def __reduce__(self) -> Any:
        # The session stays in its process.
        return Worth, (self.worths, self.results, self.servers, self.plan)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return by_name(self.worths)[key]
        return super().__getitem__(key)

    @property
    def off(self) -> tuple[str, ...]:
        """What is to be turned off, as it was measured together."""
        return tuple(worth.name for worth in self.worths if worth.advice == "off")

    @property
    def tool_set(self) -> ToolSetConfig:
        """A toolset without those to turn off."""
        rules: dict[str, Any] = dict.fromkeys(self.servers, True)
        excluded: dict[str, list[str]] = {}
        off = [worth for worth in self.worths if worth.advice == "off"]
        for worth in sorted(off, key=attrgetter("name")):
            if not worth.is_server:
                tool = ToolName.split(worth.name, self.servers)
                excluded.setdefault(tool.server, []).append(tool.tool)
                rules[tool.server] = ExcludeSpec(exclude=tuple(excluded[tool.server]))
        for worth in off:
            if worth.is_server:
                rules.pop(worth.name, None)
        return ToolSetConfig(
            description=f"Measured over {count(len(self.results.cases), 'case')}", servers=rules
        )

    def applied_to(self, selection: Selection) -> Selection:
        """Apply the advice to a copy of a selection: toolset, server modes, and tools to keep
        loaded.
        """
        changed = selection.snapshot()
        changed.tool_set = self.tool_set
        for worth in self.worths:
            if worth.is_server:
                if worth.advice != "off":
                    changed.servers[worth.name] = "loaded" if worth.advice == "load" else "deferred"
            elif worth.advice == "load" and worth.name not in changed.always_loaded:
                changed.always_loaded = (*changed.always_loaded, worth.name)
        if "deferred" in changed.servers.values():
            changed.discovery = True
        return changed

    def apply(self, name: str | None = None) -> None:
        """Use the advice in the session: write the toolset, and load or defer servers and tools.

        Args:
            name: Save the toolset in the config file under this name, or None to use it without
                saving.

        Raises:
            UsageError: The session is in another process, not all runs were made, or the toolset
                cannot be saved.
        """
        if self._apply is None:
            raise UsageError(
                "These results have no session.",
                hint="Apply them yourself: session.selection = worth.applied_to(…).",
            )
        if not self.worths:
            raise UsageError(
                "Nothing was measured, so there is no advice.",
                hint="worth.results.problem, or the detail of worth.results.not_made, says why.",
            )
        if self.results.status != "done":
            raise UsageError(
                "Not all runs were made, so the advice rests on a part of them.",
                hint=(
                    "With results=FILE, the same call with a higher limit makes only the others. To"
                    " use it as it is: session.selection = worth.applied_to(session.selection)."
                ),
            )
        self._apply(self, name)

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per server or tool, for a DataFrame or a CSV file."""
        return list(map(_row_of, self.worths))


def _row_of(worth: ToolWorth) -> dict[str, Any]:
    return {
        "name": worth.name,
        "advice": worth.advice,
        "certain": worth.certain,
        "gain": worth.right.mean,
        "gain_low": worth.right.low,
        "gain_high": worth.right.high,
        "p": worth.right.p,
        "tokens": worth.tokens,
        "added_tokens": worth.input_tokens.mean if worth.input_tokens else None,
        "used": worth.used.value,
        "needed": worth.needed,
        "loaded_price": worth.loaded_price,
        "deferred_price": worth.deferred_price,
        "deferred_low": worth.deferred_range[0],
        "deferred_high": worth.deferred_range[1],
        "redundant_with": ", ".join(worth.redundant_with),
    }


def targets_of(cases: Iterable[ToolUseCase], tools: Sequence[ToolSpec]) -> list[str]:
    """List the candidates to measure: each server, and each tool that is expensive or expected in a
    case.

    Args:
        cases: The cases.
        tools: The tools that the model can see.
    """
    catalog = Catalog(tools)
    total = total_tokens(tools)
    expected = set()
    for case in cases:
        for name in case.tools:
            expected.update(tool_names(catalog.matches(name)[:1]))
    targets = list(catalog.by_server)
    for tool in catalog:
        # An only tool is worth what its server is.
        is_only = len(catalog.by_server[tool.server]) == 1
        is_candidate = tool.tool_name in expected or tool.tokens >= EXPENSIVE_SHARE * total
        if is_candidate and not is_only:
            targets.append(str(tool.tool_name))
    return targets


@dataclass(frozen=True)
class JointPlan:
    """What is to go together.

    Args:
        off: What is to be turned off. Nothing of it is said before `missing` has run.
        missing: What the next arm has to leave out, or empty if all was measured.
        redundant: Servers and tools that do the same for these cases, the kept one first.
        joint: What all that is to be turned off brings together, with it minus without it.
        measured: What the arm left out that measured it.
    """

    off: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    redundant: tuple[tuple[str, ...], ...] = ()
    joint: PairedDifference | None = None
    measured: tuple[str, ...] = ()


def plan_joint(results: RunResults, tools: Sequence[ToolSpec]) -> JointPlan:
    """Find out what can go together, and which arm has to run before that is known.

    Args:
        results: Results with an arm for everything, one without each target, and those that earlier
            plans requested.
        tools: The tools that the model could see.
    """
    arms = _Arms(results, tools)
    off: set[str] = set()
    hurting = []
    for name, arm in arms.singles():
        reason = arms.why_it_goes(name, arm)
        if reason is not None:
            off.add(name)
        if reason == "hurts":
            hurting.append(arm)
    groups: dict[str, set[str]] = {}
    while off:
        without = _outermost(off)
        together = arms.others.get(without)
        if together is None or not arms.is_whole(together):
            return JointPlan(tuple(sorted(off)), without)
        joint = arms.gain(together)
        back = arms.put_back(arms.lost_cases(together, hurting), together, off, groups)
        if not back and joint is not None and joint.low > 0:
            # No run tells which of them is missed.
            called = set[str]().union(*(record.called for record in arms.base.done))
            back = set(_names(called, off)) or off
        if not back:
            return JointPlan(tuple(sorted(off)), (), _redundant(groups, off), joint, without)
        off = off - back
    return JointPlan()


def worth_of(
    results: RunResults, tools: Sequence[ToolSpec], plan: JointPlan
) -> tuple[ToolWorth, ...]:
    """Compute how much each server or tool is worth, if an arm leaves it out.

    Args:
        results: Results with an arm for everything, one without each, and those of `plan_joint`.
        tools: The tools that the model could see.
        plan: What can go together.
    """
    arms = _Arms(results, tools)
    worths = []
    for name, arm in arms.singles():
        if (each := arms.worth(name, arm, plan)) is not None:
            # A part of the runs, up to a limit or a stop, is certain of nothing.
            worths.append(replace(each, certain=each.certain and results.status == "done"))
    worths.sort(key=lambda worth: (not worth.is_server, -worth.right.mean, worth.tokens))
    return tuple(worths)


def advice_of(
    right: PairedDifference,
    *,
    loaded: float,
    deferred: tuple[float, float, float],
    joint: PairedDifference | None = None,
) -> tuple[Advice, bool]:
    """Decide what to do with a server or tool, and whether that is certain.

    Args:
        right: What it brings.
        loaded: Its price if it is loaded.
        deferred: Its price if it is deferred, and the same at both ends of its interval.
        joint: What everything that is to go brings together, if this is part of it.

    Returns:
        The advice, and whether the whole intervals lead to it.
    """
    if joint is not None:
        return "off", max(right.high, joint.high) <= NOTHING
    price, low, high = deferred
    certain = (loaded <= low) == (loaded <= high) and right.low > 0
    return ("load" if loaded <= price else "defer"), certain


class _Arms:
    """The arm with everything, and the others by what they leave out."""

    def __init__(self, results: RunResults, tools: Sequence[ToolSpec]) -> None:
        self.others = {tuple(sorted(arm.arm.without)): arm for arm in results.values()}
        self.base = self.others.pop(())
        self.tools = tools

    def singles(self) -> Iterator[tuple[str, ArmResults]]:
        """Yield each arm that leaves out one server or tool, with its name."""
        for (name, *others), arm in self.others.items():
            if not others:
                yield name, arm

    def gain(self, arm: ArmResults, name: MeasureName = "right") -> PairedDifference | None:
        """Compute what is gained with that which an arm leaves out."""
        return difference_between(arm, self.base, name)

    def is_whole(self, arm: ArmResults) -> bool:
        """Check whether an arm has all cases."""
        return set(arm.by_case) >= set(self.base.by_case)

    def own(self, name: str) -> dict[str, ToolSpec]:
        """List the tools that a server or tool consists of."""
        own = {}
        for tool in self.tools:
            if name in (tool.server, str(tool.tool_name)):
                own[str(tool.tool_name)] = tool
        return own

    def why_it_goes(
        self, name: str, arm: ArmResults
    ) -> Literal["hurts", "unused", "not missed"] | None:
        """Tell why a server or tool may go, judged alone, or return None if it may not."""
        right = self.gain(arm)
        if right is None or not self.is_whole(arm):
            return None
        if right.high < 0:
            return "hurts"
        names, runs = self.own(name).keys(), self.base.done
        needing = {record.case for record in runs if not names.isdisjoint(record.needed)}
        is_used = any(not names.isdisjoint(record.called) for record in runs)
        if not needing and not is_used:
            return "unused" if right.mean <= NOTHING else None
        if right.better:
            return None
        # A case that is wrong with it and without it does not tell whether it is needed.
        is_replaced = any(record.right for record in arm.done if record.case in needing)
        return "not missed" if is_replaced or not needing else None

    def lost_cases(self, arm: ArmResults, hurting: Sequence[ArmResults]) -> list[str]:
        """List the cases that an arm loses, without those that a tool which hurts more than it
        helps has to itself.
        """
        after = arm.means("right")
        accepted = [each.means("right") for each in hurting]
        lost = []
        for case, share in self.base.means("right").items():
            least = min([share, *(each.get(case, share) for each in accepted)])
            if after.get(case, share) < least:
                lost.append(case)
        return lost

    def put_back(
        self,
        lost: Sequence[str],
        together: ArmResults,
        off: set[str],
        groups: dict[str, set[str]],
    ) -> set[str]:
        """Choose what comes back for lost cases: for each, the cheapest tools with which it was
        right.

        Args:
            lost: The cases.
            together: The arm that lost them.
            off: What is out.
            groups: Gets for each name that comes back those that could have in its place.
        """

        def price(names: set[str]) -> int:
            """Add up the tokens of what is visible once these are back."""
            left, tokens = off - names, 0
            for tool in self.tools:
                if left.isdisjoint((tool.server, str(tool.tool_name))):
                    tokens += tool.tokens
            return tokens

        back: set[str] = set()
        for case in lost:
            right = []
            for arm in (self.base, *self.others.values()):
                if arm is not together:
                    right += [record for record in arm.by_case.get(case, ()) if record.right]
            sets = {_names(record.called, off) for record in right} - {frozenset()}
            if not sets:
                continue
            best = next((each for each in sets if each <= back), None)
            if best is None:
                best = min(sets, key=lambda names: (price(back | names), sorted(names)))
                back |= best
            _add_groups(groups, best, sets, _names(right[0].needed, off))
        return back

    def worth(self, name: str, arm: ArmResults, plan: JointPlan) -> ToolWorth | None:
        """Compute what a server or tool is worth, or None if the arms have no case in common."""
        right = self.gain(arm)
        if right is None:
            return None
        own = self.own(name)
        names = own.keys()
        as_advised = self.others.get(plan.measured, self.base)
        # Without what is to go, others may be called in its place.
        groups = (as_advised if name not in plan.off else self.base).by_case

        def is_used(record: RunRecord) -> bool:
            return not names.isdisjoint(record.called)

        used = share_of(groups, is_used)
        steps = as_advised.mean("steps")
        tokens = total_tokens(own.values())
        loaded = tokens * (1 + REUSED_WEIGHT * max((steps.value if steps else 1) - 1, 0))
        deferred, low, high = (share * SEARCH_TOKENS for share in (used.value, used.low, used.high))
        joint = plan.joint if name in plan.off and not plan.missing else None
        advice, certain = advice_of(
            right, loaded=loaded, deferred=(deferred, low, high), joint=joint
        )
        group = next((each for each in plan.redundant if name in each), ())
        return ToolWorth(
            name,
            tokens,
            right,
            self.gain(arm, "input_tokens"),
            used,
            sum(not names.isdisjoint(records[0].needed) for records in groups.values()),
            advice,
            certain,
            loaded,
            deferred,
            (low, high),
            tuple(each for each in group if each != name),
            is_server=name not in names,
        )


def _outermost(off: Set[str]) -> tuple[str, ...]:
    """List what has to be left out so that all of this is: no tool whose server is out already."""
    outermost = []
    for name in sorted(off):
        is_tool = ":" in name
        if not is_tool or ToolName.split(name, off).server not in off:
            outermost.append(name)
    return tuple(outermost)


def _names(called: Iterable[str], off: set[str]) -> frozenset[str]:
    """List what has to come back so that these tools can be called."""
    names = set()
    for tool in called:
        names |= {tool, ToolName.split(tool, off).server}
    return frozenset(names & off)


def _labels(names: Collection[str]) -> set[str]:
    """Leave out servers of which a tool is named."""
    servers = {ToolName.split(name, names).server for name in names if ":" in name}
    return set(names) - servers


def _add_groups(
    groups: dict[str, set[str]],
    best: frozenset[str],
    sets: Collection[frozenset[str]],
    needed: frozenset[str],
) -> None:
    """Note what could have come back in place of each name."""
    chosen = _labels(best)
    for kept in chosen:
        others = groups.setdefault(kept, set())
        for each in map(_labels, sets):
            if kept not in each and chosen - {kept} <= each:
                others |= each - chosen
        if len(chosen) == 1:
            # The case accepts these as well.
            others |= _labels(needed) - chosen


def _redundant(groups: dict[str, set[str]], off: set[str]) -> tuple[tuple[str, ...], ...]:
    found = ((kept, *sorted(others & off)) for kept, others in sorted(groups.items()))
    return tuple(group for group in found if len(group) > 1)
