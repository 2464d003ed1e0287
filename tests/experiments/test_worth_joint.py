"""What can go together, planned over runs of drawn catalogs: nothing is lost, and few further arms
are taken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.results import ResultsStatus, RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.worth import JointPlan, plan_joint, worth_of


@dataclass(frozen=True)
class World:
    """A catalog, cases with their needs, and a model that always calls the first tool that meets a
    need.

    Args:
        tools: The tools.
        cases: For each case its needs: tools of which one is called.
        hurting: A tool that spoils each run in which it is there, but in some cases.
        noise: How often a run is wrong by chance.
        seed: For the noise.
    """

    tools: tuple[ToolSpec, ...]
    cases: tuple[tuple[tuple[str, ...], ...], ...]
    hurting: str = ""
    spoiled: frozenset[int] = frozenset()
    noise: float = 0.0
    seed: int = 0

    @property
    def targets(self) -> list[str]:
        servers = dict.fromkeys(tool.server for tool in self.tools)
        return [*servers, *(str(tool.tool_name) for tool in self.tools)]

    def records(self, arm: str, without: tuple[str, ...]) -> list[RunRecord]:
        names = [str(tool.tool_name) for tool in self.tools]
        there = [name for name in names if not {name, name.split(":")[0]} & set(without)]
        chance = random.Random(f"{self.seed} {arm}")
        made = []
        for number, needs in enumerate(self.cases):
            called = [next((tool for tool in need if tool in there), "") for need in needs]
            right = all(called) and chance.random() >= self.noise
            if self.hurting in there and number in self.spoiled:
                right, called = False, [self.hurting]
            needed = tuple(need[0] for need in needs)
            case = str(number)
            made.append(
                RunRecord(
                    arm + case,
                    case,
                    arm,
                    0,
                    case,
                    right=right,
                    needed=needed,
                    called=tuple(filter(None, called)),
                )
            )
        return made

    def results(self, without: list[tuple[str, ...]]) -> RunResults:
        arms = {"with all": (), **{", ".join(each): each for each in without}}
        records = [
            record for arm, left_out in arms.items() for record in self.records(arm, left_out)
        ]
        ways = tuple(Arm(arm, without=left_out) for arm, left_out in arms.items())
        return RunResults(tuple(records), ways, tuple(map(str, range(len(self.cases)))))

    def planned(self) -> tuple[RunResults, JointPlan, int]:
        """Run arms until the plan asks for no more. Count those that it asked for."""
        without: list[tuple[str, ...]] = [(name,) for name in self.targets]
        begun = len(without)
        while True:
            results = self.results(without)
            plan = plan_joint(results, self.tools)
            if not plan.missing:
                return results, plan, len(without) - begun
            assert plan.missing not in without
            without.append(plan.missing)


def drawn(seed: int, noise: float = 0.0) -> World:
    """Draw a catalog of some servers, and cases with one to three needs, each met by one to three
    tools.
    """
    chance = random.Random(seed)
    tools = [
        ToolSpec(f"s{server}", f"t{number}", "Does it. " * chance.randint(1, 40))
        for server in range(chance.randint(1, 4))
        for number in range(chance.randint(1, 4))
    ]
    names = [str(tool.tool_name) for tool in tools]
    needs = [
        tuple(chance.sample(names, min(len(names), chance.randint(1, 3))))
        for _ in range(chance.randint(1, 5))
    ]
    cases = [
        tuple(chance.sample(needs, min(len(needs), chance.choice([1, 1, 1, 2, 3]))))
        for _ in range(30)
    ]
    return World(tuple(tools), tuple(cases), noise=noise, seed=seed)


@pytest.mark.slow
@pytest.mark.defect("P1")
def test_what_is_turned_off_together_loses_nothing() -> None:
    went = grouped = 0
    for seed in range(80):
        world = drawn(seed)
        results, plan, further = world.planned()
        outcome = {record.case: record.right for record in world.records("as advised", plan.off)}
        before = {record.case: record.right for record in results["with all"].records}
        assert outcome == before
        # The joint arm, then one for each round of what came back.
        assert further <= 4
        assert plan.off == tuple(
            sorted(
                each.name for each in worth_of(results, world.tools, plan) if each.advice == "off"
            )
        )
        for kept, *others in plan.redundant:
            assert kept not in plan.off
            assert set(others) <= set(plan.off)
        went += bool(plan.off)
        grouped += bool(plan.redundant)
    assert went > 50
    assert grouped > 15


@pytest.mark.defect("P1")
def test_chance_keeps_tools_rather_than_loses_cases() -> None:
    for seed in range(20):
        world = drawn(seed, noise=0.15)
        _, plan, further = world.planned()
        needs = {need for needs in world.cases for need in needs}
        there = {
            name
            for name in world.targets
            if ":" in name and not {name, name.split(":")[0]} & set(plan.off)
        }
        # A need of many cases is never without a tool.
        common = [need for need in needs if sum(need in case for case in world.cases) >= 6]
        assert all(there & set(need) for need in common)
        assert further <= 6


@pytest.mark.defect("P1")
def test_a_tool_that_hurts_goes_beside_redundant_ones() -> None:
    tools = tuple(ToolSpec("s", name, "Does it.") for name in ("find", "lookup", "trap"))
    cases = tuple((("s:find", "s:lookup"),) for _ in range(40))
    world = World(tools, cases, hurting="s:trap", spoiled=frozenset(range(20)))
    results, plan, _ = world.planned()
    assert "s:trap" in plan.off
    assert len(plan.off) == 2
    worths = {each.name: each for each in worth_of(results, tools, plan)}
    assert worths["s:trap"].right.high < 0
    assert plan.joint is not None
    assert plan.joint.mean == -0.5


@pytest.mark.defect("P1")
def test_advice_is_certain_only_with_enough_cases() -> None:
    tools = (ToolSpec("s", "find", "Does it."), ToolSpec("idle", "wait", "Does it."))
    for count, certain in ((12, False), (182, False), (183, True)):
        world = World(tools, tuple((("s:find",),) for _ in range(count)))
        results, plan, further = world.planned()
        assert plan.off == ("idle", "idle:wait")
        assert further == 0
        (idle,) = (each for each in worth_of(results, tools, plan) if each.name == "idle")
        assert (idle.advice, idle.certain) == ("off", certain)


@pytest.mark.defect("P1")
def test_a_part_of_the_runs_makes_no_advice_certain() -> None:
    tools = (ToolSpec("s", "find", "Does it."), ToolSpec("idle", "wait", "Does it."))
    results, plan, _ = World(tools, tuple((("s:find",),) for _ in range(183))).planned()
    assert any(each.certain for each in worth_of(results, tools, plan))
    statuses: tuple[ResultsStatus, ...] = ("over budget", "stopped")
    for status in statuses:
        part = RunResults(results.records, results.arms, results.cases, status=status)
        assert not any(each.certain for each in worth_of(part, tools, plan))
