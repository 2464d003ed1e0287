"""Judge runs by their transcripts: right after a run, and again whenever an expectation has
changed.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from casual_mcp_nb.base.arguments_by_schema import problems
from casual_mcp_nb.base.iterables import by_id
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.budget import Budget
from casual_mcp_nb.experiments.cases import ToolUseCase, names_of
from casual_mcp_nb.experiments.graded import Judge, task_hashes
from casual_mcp_nb.experiments.matchers import Graded, Satisfies
from casual_mcp_nb.experiments.matching import Judgement, judge_turns, tools_sent
from casual_mcp_nb.experiments.run_record import RunRecord, Setup
from casual_mcp_nb.isolation.worker import Worker

AT_ONCE = 4
"""How many answers are graded at the same time."""


def judged(
    record: RunRecord, case: ToolUseCase, turns: Sequence[Turn], setup: Setup, worker: Worker
) -> RunRecord:
    """Judge a run by a case. Not for an event loop's thread: patterns and functions may take long.

    Args:
        record: The run, as it was asked.
        case: The case.
        turns: Its turns.
        setup: What its arm offered.
        worker: Checks arguments against schemas.
    """
    needed = tuple(map(str, _needed(case, setup)))
    names = dict.fromkeys((*needed, *record.found, *record.called))
    record = replace(
        record,
        case=case.id,
        cluster=case.unit,
        tags=tuple(case.tags),
        reference=str(case.metadata.get("label") or ""),
        judged_by=case.digest,
        needed=needed,
        deferred=tuple(name for name in names if name in setup.deferred),
    )
    if not record.made:
        return replace(record, **{**vars(Judgement(None)), "detail": record.detail})
    schemas = _schemas(turns)
    given = {verdict.task: verdict for verdict in record.grades}
    verdicts = {}
    for check, task in task_hashes(case, turns).items():
        if task in given:
            verdicts[check] = given[task]

    def against_schema(name: ToolName, arguments: Mapping[str, Any]) -> bool:
        schema = schemas.get(wire_name(name))
        return schema is not None and bool(problems(schema, arguments, worker))

    judgement = judge_turns(case, turns, against_schema, verdicts=verdicts)
    return replace(record, **vars(judgement), grades=tuple(verdicts.values()))


@dataclass(frozen=True)
class Judging:
    """Judges runs by rules, and where an answer is to be graded, by a judge.

    Args:
        worker: Checks arguments against schemas.
        threads: Where rules are applied. They are not the loop's own, which look up names for
            requests, since a check may hang.
        judge: Grades answers, or None.
        budget: What that counts against.
    """

    worker: Worker
    threads: ThreadPoolExecutor
    judge: Judge | None = None
    budget: Budget | None = None

    async def judged(
        self, record: RunRecord, case: ToolUseCase, turns: Sequence[Turn], setup: Setup
    ) -> RunRecord:
        """Judge a run by rules. If nothing is wrong, and its answer is to be graded, ask the judge.

        Verdicts that the run has from this judge are kept, so that it is not asked again. For the
        arguments, see the function `judged`.

        Raises:
            SpendLimitError: The judge's request could pass the budget, or a spend limit.
        """
        judge = self.judge
        if judge is None:
            return await self.by_rules(record, case, turns, setup)
        record = replace(record, grades=tuple(filter(judge.gave, record.grades)))
        by_rules = await self.by_rules(record, case, turns, setup)
        if by_rules.right is not None or not by_rules.made or not case.judged:
            return by_rules
        verdicts = {each.task: each for each in record.grades}
        for check, task in task_hashes(case, turns).items():
            if task not in verdicts:
                verdicts[task] = await judge.grade(check, case, turns, self.budget)
        record = replace(record, grades=tuple(verdicts.values()))
        return await self.by_rules(record, case, turns, setup)

    async def by_rules(
        self, record: RunRecord, case: ToolUseCase, turns: Sequence[Turn], setup: Setup
    ) -> RunRecord:
        """Judge a run, and ask no judge."""
        context = contextvars.copy_context()
        work = partial(context.run, judged, record, case, turns, setup, self.worker)
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)


async def turns_of(record: RunRecord) -> tuple[Turn, ...]:
    """Read a run's turns in a thread, since that takes a while."""
    turns: tuple[Turn, ...] = await asyncio.to_thread(attrgetter("turns"), record)
    return turns


def _needed(case: ToolUseCase, setup: Setup) -> list[ToolName]:
    """Find the tools that a case expects first of all."""
    by_word: dict[str, ToolName] = {}
    for name in (*setup.loaded, *setup.deferred):
        tool = ToolName.split(name)
        for word in names_of(tool):
            by_word.setdefault(word, tool)
    needed: dict[ToolName, None] = {}
    for call in case.acceptable[0]:
        name = call.tools[0]
        if name in by_word:
            needed[by_word[name]] = None
        elif ":" in name:
            needed[ToolName.split(name)] = None
    return list(needed)


def _schemas(turns: Sequence[Turn]) -> dict[str, Mapping[str, Any]]:
    """Collect the schemas that the model was sent, by wire name."""
    schemas = {}
    for tool in tools_sent(turns):
        parameters = tool.get("parameters")
        if isinstance(parameters, Mapping):
            schemas[str(tool["name"])] = parameters
    return schemas


def may_change(case: ToolUseCase) -> bool:
    """Check whether a case's verdict depends on more than its hash has: functions, whose code may
    have changed, or a judge.
    """
    text = json.dumps(case.plain(), default=str)
    return any(f'"{kind.key}"' in text for kind in (Satisfies, Graded))


def places_of(cases: Sequence[ToolUseCase]) -> list[int]:
    """Number the cases among those with the same messages, which are asked separately."""
    counts: Counter[tuple[str, ...]] = Counter()
    places = []
    for case in cases:
        places.append(counts[case.messages])
        counts[case.messages] += 1
    return places


def judged_again(
    records: Sequence[RunRecord], setups: Mapping[str, Setup], cases: Sequence[ToolUseCase]
) -> tuple[RunRecord, ...]:
    """Judge runs by other cases with the same messages. Others are left out.

    See `RunResults.judge`.
    """
    worker = Worker()
    try:
        return tuple(
            judged(record, case, record.turns, setup, worker)
            for record, case, setup in _with_cases(records, setups, cases)
        )
    finally:
        worker.close()


async def graded_again(
    records: Sequence[RunRecord],
    setups: Mapping[str, Setup],
    cases: Sequence[ToolUseCase],
    judge: Judge,
    keep: Callable[[RunRecord], None],
) -> tuple[RunRecord, ...]:
    """Judge runs like `judged_again`, and have a judge model grade answers.

    Args:
        records: The runs.
        setups: What their arms offered.
        cases: The cases.
        judge: The judge.
        keep: Gets each run when it was judged, so that a grade is not lost if a later one fails.
    """
    worker = Worker()
    few = asyncio.Semaphore(AT_ONCE)
    threads = ThreadPoolExecutor(AT_ONCE, "casual-mcp-judging")
    judging = Judging(worker, threads, judge)

    async def again(record: RunRecord, case: ToolUseCase, setup: Setup) -> RunRecord:
        async with few:
            new = await judging.judged(record, case, await turns_of(record), setup)
            keep(new)
            return new

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(again(*each)) for each in _with_cases(records, setups, cases)
            ]
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None
    finally:
        threads.shutdown(wait=False)
        await worker.aclose()
    return tuple(task.result() for task in tasks)


def _with_cases(
    records: Sequence[RunRecord], setups: Mapping[str, Setup], cases: Sequence[ToolUseCase]
) -> Iterator[tuple[RunRecord, ToolUseCase, Setup]]:
    """Yield the runs with the cases that have their messages, and what their arms offered."""
    by_messages = {
        (case.messages, place): case for case, place in zip(cases, places_of(cases), strict=True)
    }
    cases_by_id = by_id(cases)
    for record in records:
        # The first format has only the last message.
        case = by_messages.get((record.messages, record.place))
        if case is None and not record.setup:
            case = cases_by_id.get(record.case)
        if case is not None:
            yield record, case, setups.get(record.setup, Setup())
