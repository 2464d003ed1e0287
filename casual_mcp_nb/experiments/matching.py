"""Judge a model's calls in a case: whether they are right, and if not, why. No other model is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN, StepStarted, ToolsSearched
from casual_mcp_nb.conversation.step import calls_of_model
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.cases import (
    MAX_TEXT,
    AnswerCheck,
    ExpectedCall,
    Matcher,
    ToolUseCase,
    is_named,
    wrong_parameters,
)

FailureGroup = Literal[
    "not found by search",
    "found and not called",
    "wrong tool",
    "wrong arguments",
    "arguments against the schema",
    "no tool used",
    "forbidden tool called",
    "extra calls",
    "tool error not recovered from",
    "step limit",
    "wrong answer",
]
"""Why a run is wrong. Each wrong run has exactly one reason.

- `not found by search`: the expected tool was deferred, and no search returned it.
- `found and not called`: the model had its definition, made other expected calls or none, and not this one.
- `wrong tool`: another tool was called in its place, or the right ones in another order.
- `wrong arguments`: the tool was called with arguments that the case does not expect.
- `arguments against the schema`: it was called with arguments that its schema does not allow.
- `no tool used`: nothing was called or searched for, or nothing was called where any call would have done.
- `forbidden tool called`: a tool was called that the case forbids.
- `extra calls`: there were more other calls than the case allows, or a call where there should be none.
- `tool error not recovered from`: the right call failed and was not repeated with success.
- `step limit`: the turn ended at a limit, such as the maximum number of steps.
- `wrong answer`: the calls are right and the answer fails its check.
"""
FAILURE_GROUPS: tuple[FailureGroup, ...] = get_args(FailureGroup)

LIMITS = ("max_iterations", "answer_cut", "repeated_call")
"""The kinds of errors that mean a turn ended at a limit."""

AgainstSchema = Callable[[ToolName, Mapping[str, Any]], bool]
"""Checks whether a tool's schema refuses arguments."""


@dataclass(frozen=True)
class Judgement:
    """Whether a run is right, and why not.

    Args:
        right: Whether the calls, and the answer if the case checks it, are right. None if the case is not judged.
        failure: Why it is wrong, or None if it is right.
        detail: The failure in a sentence.
        tool: The tool concerned.
        parameters: The parameters concerned.
        matched: How many expected calls were made.
        expected: How many calls were expected.
        extra: How many other calls were made.
    """

    right: bool | None
    failure: FailureGroup | None = None
    detail: str = ""
    tool: str | None = None
    parameters: tuple[str, ...] = ()
    matched: int = 0
    expected: int = 0
    extra: int = 0


@dataclass(frozen=True)
class _Call:
    """A model's call, with its turn, from 1."""

    tool: ToolName
    arguments: Mapping[str, Any] | str
    ok: bool
    turn: int


@dataclass
class _Matched:
    """How one acceptable list matched: for each expected call the index of the actual one."""

    expected: Sequence[ExpectedCall]
    pairs: dict[int, int] = field(default_factory=dict)
    extra: list[int] = field(default_factory=list)


def judge_turns(
    case: ToolUseCase, turns: Sequence[Turn], against_schema: AgainstSchema = lambda tool, arguments: False
) -> Judgement:
    """Judge a case's turns.

    Args:
        case: The case.
        turns: Its turns, one per message, or fewer if one failed.
        against_schema: Checks whether a tool's schema refuses arguments.
    """
    if not case.judged:
        return Judgement(None)
    calls = [
        _Call(call.tool, call.arguments, call.status == "ok", number)
        for number, turn in enumerate(turns, 1)
        for call in calls_of_model(turn.tool_calls)
        if call.tool.server != SYNTHETIC
    ]
    options = [_match(case, expected, calls) for expected in case.acceptable]
    best = min(options, key=lambda each: (len(each.expected) - len(each.pairs), len(each.extra)))
    figures: dict[str, Any] = {"matched": len(best.pairs), "expected": len(best.expected), "extra": len(best.extra)}

    def wrong(failure: FailureGroup, detail: str, tool: str | None = None, parameters: tuple[str, ...] = ()) -> Judgement:
        return Judgement(False, failure, detail, tool, parameters, **figures)

    if not turns:
        return wrong("no tool used", "There is no turn.")
    for call in calls:
        if any(is_named(name, call.tool) for name in case.forbidden):
            return wrong("forbidden tool called", f"It called {call.tool}.", str(call.tool))
    limit = next((turn for turn in turns if turn.failure is not None and turn.failure.kind in LIMITS), None)
    if limit is not None:
        return wrong("step limit", limit.error or "")
    if case.no_call and calls:
        return wrong("extra calls", f"It called {calls[0].tool}, and no call was expected.", str(calls[0].tool))
    if case.any_call and not any(call.tool.server != UNKNOWN for call in calls):
        return wrong("no tool used", "It called no tool, and at least one call was expected.")
    missing = next((number for number in range(len(best.expected)) if number not in best.pairs), None)
    if missing is not None:
        return wrong(*_why_missing(case, best, best.expected[missing], calls, turns, against_schema))
    most = 0 if case.order == "exact" and case.acceptable != ((),) else case.extra_calls
    if most is not None and len(best.extra) > most:
        extra = calls[best.extra[most]]
        return wrong("extra calls", f"It made {len(best.extra)} other calls, such as {extra.tool}.", str(extra.tool))
    for check in case.checks:
        if not answer_fits(check, turns[-1]):
            return wrong("wrong answer", "The calls are right, but the answer fails its check.")
    return Judgement(True, **figures)


def _match(case: ToolUseCase, expected: Sequence[ExpectedCall], calls: Sequence[_Call]) -> _Matched:
    """Pair as many expected calls as possible with actual ones."""
    matched = _Matched(expected)
    fitting = [[number for number, call in enumerate(calls) if _fits(case, each, call)] for each in expected]
    if case.order == "exact":
        matched.pairs = {number: number for number in range(len(expected)) if number in fitting[number]}
    elif case.order == "in_order":
        after = -1
        for number, options in enumerate(fitting):
            index = next((option for option in options if option > after), None)
            if index is not None:
                matched.pairs[number], after = index, index
    else:
        owners: dict[int, int] = {}

        def assign(number: int, tried: set[int]) -> bool:
            """Find a call for an expected one. Move others if necessary (Kuhn's maximum bipartite matching)."""
            for option in fitting[number]:
                if option not in tried:
                    tried.add(option)
                    if option not in owners or assign(owners[option], tried):
                        owners[option] = number
                        return True
            return False

        for number in range(len(expected)):
            assign(number, set())
        matched.pairs = {number: option for option, number in owners.items()}
    used = set(matched.pairs.values())
    matched.extra = [number for number in range(len(calls)) if number not in used]
    return matched


def _fits(case: ToolUseCase, expected: ExpectedCall, call: _Call) -> bool:
    right = expected.names(call.tool) and (call.ok or expected.may_fail) and expected.turn in (None, call.turn)
    return right and not _wrong(case, expected, call)


def _wrong(case: ToolUseCase, expected: ExpectedCall, call: _Call) -> tuple[str, ...]:
    """List a call's parameters that are not as expected."""
    mode = expected.match or case.arguments
    if mode == "ignore":
        return ()
    given = call.arguments if isinstance(call.arguments, Mapping) else {}
    return wrong_parameters(expected.arguments, given, exact=mode == "exact")


def _why_missing(
    case: ToolUseCase,
    matched: _Matched,
    expected: ExpectedCall,
    calls: Sequence[_Call],
    turns: Sequence[Turn],
    against_schema: AgainstSchema,
) -> tuple[FailureGroup, str, str | None, tuple[str, ...]]:
    """Find out why an expected call was not made."""
    name = " or ".join(expected.tools)
    visible, searched = visible_tools(turns)
    is_visible = any(_is_visible(each, visible) for each in expected.tools)
    others = [calls[number] for number in matched.extra if calls[number].tool.server != UNKNOWN]
    attempts = [call for call in others if expected.names(call.tool)]
    if not calls and not searched:
        return "no tool used", f"It answered without a call. {name} was expected.", name, ()
    if not is_visible and searched:
        return "not found by search", f"No search returned {name}.", name, ()
    if attempts:
        attempt = min(attempts, key=lambda call: (len(_wrong(case, expected, call)), not call.ok))
        parameters, tool = _wrong(case, expected, attempt), str(attempt.tool)
        if isinstance(attempt.arguments, str):
            return "arguments against the schema", f"The arguments of {tool} are not a JSON object.", tool, ()
        if not attempt.ok and against_schema(attempt.tool, attempt.arguments):
            return "arguments against the schema", f"The schema of {tool} refuses the arguments.", tool, parameters
        if parameters:
            return "wrong arguments", f"It called {tool} with another value for {', '.join(parameters)}.", tool, parameters
        if not attempt.ok:
            return "tool error not recovered from", f"The call of {tool} failed.", tool, ()
        return "wrong tool", f"It called {tool} in another order.", tool, ()
    others = [call for call in others if not expected.names(call.tool)]
    if others:
        return "wrong tool", f"It called {others[0].tool}, and not {name}.", name, ()
    return "found and not called", f"It had {name}, and did not call it.", name, ()


def visible_tools(turns: Iterable[Turn]) -> tuple[frozenset[str], bool]:
    """List the wire names of the tools that a model had or found, and whether it searched."""
    names: set[str] = set()
    searched = False
    for turn in turns:
        for step in turn.trace.all_of(StepStarted):
            names.update(str(tool["name"]) for tool in (*step.request.tools, *step.request.found))
        for search in turn.trace.all_of(ToolsSearched):
            searched = True
            names.update(wire_name(row.tool) for row in search.rows)
    return frozenset(names), searched


def _is_visible(name: str, visible: frozenset[str]) -> bool:
    return any(is_named(name, ToolName.split(each)) or wire_name(ToolName.split(name)) == each for each in visible)


def answer_fits(check: AnswerCheck, turn: Turn) -> bool:
    """Check a turn's answer. A function that raises fails."""
    answer = turn.answer[:MAX_TEXT]
    if isinstance(check, str | re.Pattern):
        pattern = contains(check) if isinstance(check, str) else check
        return pattern.search(answer) is not None
    if isinstance(check, Matcher):
        return check.fits(answer)
    try:
        return bool(check(turn))
    except Exception:
        return False


def contains(text: str) -> re.Pattern[str]:
    """Compile a pattern for a text as whole words and whole numbers: `391` is not found in `1391` or `391.5`."""
    return re.compile(rf"(?<!\w)(?<!\d[.,]){re.escape(text.strip())}(?!\w)(?![.,]\d)", re.IGNORECASE)
