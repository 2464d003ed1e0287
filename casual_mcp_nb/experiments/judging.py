"""Judge runs by their transcripts: right after a run, and again whenever an expectation has changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from casual_mcp_nb.base.arguments_by_schema import problems
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.conversation.event import StepStarted
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.case_files import CaseSource, load_tool_cases
from casual_mcp_nb.experiments.cases import ToolUseCase, names_of
from casual_mcp_nb.experiments.checks import Functions
from casual_mcp_nb.experiments.matching import judge_turns
from casual_mcp_nb.experiments.run_record import RunRecord, Setup
from casual_mcp_nb.isolation.worker import Worker


def judged(record: RunRecord, case: ToolUseCase, turns: Sequence[Turn], setup: Setup, worker: Worker) -> RunRecord:
    """Judge a run by a case. Not for an event loop's thread: patterns and functions may take long.

    Args:
        record: The run, as it was asked.
        case: The case.
        turns: Its turns.
        setup: What its arm offered.
        worker: Checks arguments against schemas.
    """
    needed = tuple(str(tool) for tool in _needed(case, setup))
    names = dict.fromkeys((*needed, *record.found, *record.called))
    record = replace(
        record,
        case=case.id,
        cluster=case.cluster or case.id,
        tags=tuple(case.tags),
        judged_by=case.digest,
        needed=needed,
        deferred=tuple(name for name in names if name in setup.deferred),
    )
    if not record.made or not case.judged:
        return replace(record, **_NO_VERDICT, detail="" if record.made else record.detail)
    schemas = _schemas(turns)

    def against_schema(name: ToolName, arguments: Mapping[str, Any]) -> bool:
        schema = schemas.get(wire_name(name))
        return schema is not None and bool(problems(schema, arguments, worker))

    judgement = judge_turns(case, turns, against_schema)
    return replace(
        record,
        right=judgement.right,
        failure=judgement.failure,
        detail=judgement.detail,
        tool=judgement.tool,
        parameters=judgement.parameters,
        matched=judgement.matched,
        expected=judgement.expected,
        extra=judgement.extra,
    )


_NO_VERDICT: dict[str, Any] = {"right": None, "failure": None, "tool": None, "parameters": ()}


def _needed(case: ToolUseCase, setup: Setup) -> list[ToolName]:
    """Find the tools that a case expects first of all."""
    offered = [ToolName.split(name) for name in (*setup.loaded, *setup.deferred)]
    needed = []
    for call in case.acceptable[0]:
        tool = next((tool for tool in offered if call.tools[0] in names_of(tool)), None)
        if tool is None and ":" in call.tools[0]:
            tool = ToolName.split(call.tools[0])
        if tool is not None:
            needed.append(tool)
    return list(dict.fromkeys(needed))


def _schemas(turns: Sequence[Turn]) -> dict[str, Mapping[str, Any]]:
    """Collect the schemas that the model was sent, by wire name."""
    requests = [step.request for turn in turns for step in turn.trace.all_of(StepStarted)]
    tools = [tool for request in requests for tool in (*request.tools, *request.found)]
    return {str(tool["name"]): tool["parameters"] for tool in tools if isinstance(tool.get("parameters"), Mapping)}


def has_functions(case: ToolUseCase) -> bool:
    """Check whether a case's verdict depends on functions, whose code may have changed."""
    return '"$function"' in json.dumps(case.plain(), default=str)


def places_of(cases: Sequence[ToolUseCase]) -> list[int]:
    """Number the cases among those with the same messages, which are asked separately."""
    counts: Counter[tuple[str, ...]] = Counter()
    places = []
    for case in cases:
        places.append(counts[case.messages])
        counts[case.messages] += 1
    return places


def judged_again(
    records: Sequence[RunRecord], setups: Mapping[str, Setup], source: CaseSource, functions: Functions | None = None
) -> tuple[tuple[RunRecord, ...], Sequence[ToolUseCase]]:
    """Judge runs by other cases with the same messages. See `RunResults.judge`.

    Returns:
        The runs of these cases, and the cases.
    """
    cases = load_tool_cases(source, functions=functions)
    by_messages = {(case.messages, place): case for case, place in zip(cases, places_of(cases), strict=True)}
    by_id = {case.id: case for case in cases}
    worker = Worker()
    chosen = []
    try:
        for record in records:
            # The first format has only the last message.
            case = by_messages.get((record.messages, record.place)) or (None if record.setup else by_id.get(record.case))
            if case is not None:
                setup = setups.get(record.setup, Setup())
                chosen.append(judged(record, case, record.turns, setup, worker))
    finally:
        worker.close()
    return tuple(chosen), cases
