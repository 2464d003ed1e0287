"""Judge a model's calls in a case: whether they are right, and if not, why.

No other model is asked.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.patterns import MAX_TEXT
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN, StepStarted, ToolsSearched
from casual_mcp_nb.conversation.step import ToolCall, calls_of_model
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import shown
from casual_mcp_nb.experiments.cases import (
    AnswerCheck,
    ExpectedCall,
    ToolUseCase,
    contains,
    names_of,
)
from casual_mcp_nb.experiments.checks import CheckError, holds
from casual_mcp_nb.experiments.graded import Verdict
from casual_mcp_nb.experiments.matchers import Graded, Matcher, found_in_time, wrong_parameters

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
    "check failed",
]
"""Why a run is wrong. Each wrong run has exactly one reason.

- `not found by search`: the expected tool was deferred, and no search returned it.
- `found and not called`: the model had its definition, made other expected calls or none, and not
  this one.
- `wrong tool`: another tool was called in its place, or the right ones in another order.
- `wrong arguments`: the tool was called with arguments that the case does not expect.
- `arguments against the schema`: it was called with arguments that its schema does not allow.
- `no tool used`: nothing was called or searched for, or nothing was called where any call would
  have done.
- `forbidden tool called`: a tool was called that the case forbids.
- `extra calls`: there were more other calls than the case allows, or a call where there should be
  none.
- `tool error not recovered from`: the right call failed and was not repeated with success.
- `step limit`: the turn ended at a limit, such as the maximum number of steps.
- `wrong answer`: the calls are right and the answer fails its check.
- `check failed`: a check raised, or took too long, so that it is not known whether the run is
  right.
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
        right: Whether the calls, and the answer if the case checks it, are right. None if the case
            is not judged, or if nothing is wrong and its answer is not graded yet.
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
class _Matched:
    """How one acceptable list matched.

    Args:
        expected: The list.
        pairs: For each expected call that was made, the index of the actual one.
        extra: The indices of the other calls.
    """

    expected: Sequence[ExpectedCall]
    pairs: Mapping[int, int]
    extra: Sequence[int]

    @property
    def missing(self) -> list[ExpectedCall]:
        """The expected calls that were not made."""
        return [each for number, each in enumerate(self.expected) if number not in self.pairs]


def judge_turns(
    case: ToolUseCase,
    turns: Sequence[Turn],
    against_schema: AgainstSchema = lambda tool, arguments: False,
    verdicts: Mapping[Graded, Verdict] | None = None,
) -> Judgement:
    """Judge a case's turns.

    Checks have a time limit, so this takes seconds at most, but blocks for that long.

    Args:
        case: The case.
        turns: Its turns, one per message, or fewer if one failed.
        against_schema: Checks whether a tool's schema refuses arguments.
        verdicts: What a judge model said of the last answer. It is not asked here.
    """
    if not case.judged:
        return Judgement(None)
    try:
        return _Judging(case, turns, against_schema).judged(verdicts or {})
    except CheckError as error:
        return Judgement(False, "check failed", f"A check could not tell: {error}.")


class _Judging:
    """One case's calls beside those expected."""

    def __init__(
        self, case: ToolUseCase, turns: Sequence[Turn], against_schema: AgainstSchema
    ) -> None:
        self._case = case
        self._turns = turns
        self._against_schema = against_schema
        self._calls: list[ToolCall] = []
        self._turn_numbers: list[int] = []
        for number, turn in enumerate(turns, 1):
            for call in calls_of_model(turn.tool_calls):
                if call.tool.server != SYNTHETIC:
                    self._calls.append(call)
                    self._turn_numbers.append(number)
        self._wrong_parameters: dict[tuple[int, int], tuple[str, ...] | CheckError] = {}

    def judged(self, verdicts: Mapping[Graded, Verdict]) -> Judgement:
        """Judge it.

        Raises:
            CheckError: A check could not tell.
        """
        options = list(map(self._match, self._case.acceptable))
        best = min(options, key=lambda each: (len(each.missing), len(each.extra)))
        judgement = self._wrong_calls(best) or self._wrong_answer() or self._graded(verdicts)
        return replace(
            judgement,
            matched=len(best.pairs),
            expected=len(best.expected),
            extra=len(best.extra),
        )

    def _wrong_calls(self, best: _Matched) -> Judgement | None:
        """Tell what is wrong with the calls, or return None if nothing is."""
        case, turns, calls = self._case, self._turns, self._calls
        if not turns:
            return _failed("no tool used", "There is no turn.")
        for call in calls:
            if any(name in names_of(call.tool) for name in case.forbidden):
                return _failed("forbidden tool called", f"It called {call.tool}.", str(call.tool))
        for turn in turns:
            if turn.failure is not None and turn.failure.kind in LIMITS:
                return _failed("step limit", turn.error or "")
        if case.no_call and calls:
            tool = str(calls[0].tool)
            return _failed("extra calls", f"It called {tool}, and no call was expected.", tool)
        if case.any_call and not any(call.tool.server != UNKNOWN for call in calls):
            return _failed("no tool used", "It called no tool, and at least one call was expected.")
        if best.missing:
            return self._why_missing(best, best.missing[0])
        most = case.extra_calls
        if case.order == "exact" and case.acceptable != ((),):
            most = 0
        if most is not None and len(best.extra) > most:
            tool = str(calls[best.extra[most]].tool)
            detail = f"It made {len(best.extra)} other calls, such as {tool}."
            return _failed("extra calls", detail, tool)
        return None

    def _wrong_answer(self) -> Judgement | None:
        """Tell which check the answer fails, or return None if it passes those that need no
        judge.
        """
        for check in self._case.checks:
            if isinstance(check, Graded):
                continue
            try:
                passes = answer_fits(check, self._turns[-1])
            except CheckError as error:
                return _failed(
                    "check failed",
                    f"The calls are right, but the answer's check could not tell: {error}.",
                )
            if not passes:
                detail = "The calls are right, but the answer fails its check."
                return _failed("wrong answer", detail)
        return None

    def _graded(self, verdicts: Mapping[Graded, Verdict]) -> Judgement:
        """Judge the answer, in which nothing else is wrong, by a judge's verdicts."""
        graded = of_type(self._case.checks, Graded)
        if not all(check in verdicts for check in graded):
            detail = (
                "The calls are right, and the answer is not graded yet. To have it graded: run(…,"
                " judge=MODEL)."
            )
            return Judgement(None, detail=detail)
        unasked = []
        for check in graded:
            verdict = verdicts[check]
            if not verdict.asked:
                unasked.append(verdict)
            elif verdict.label is None:
                return _failed(
                    "check failed",
                    f"The calls are right, and the answer could not be graded: {verdict.reason}.",
                )
            elif verdict.label not in check.right_labels:
                detail = (
                    f"The calls are right, and the judge calls the answer {verdict.label}:"
                    f" {shown(verdict.reason, 500)}."
                )
                return _failed("wrong answer", detail)
        if unasked:
            detail = f"The calls are right, and the answer is not graded: {unasked[0].reason}."
            return Judgement(None, detail=detail)
        return Judgement(True)

    def _match(self, expected: Sequence[ExpectedCall]) -> _Matched:
        """Pair as many expected calls with actual ones as the case's order allows."""
        numbers = range(len(self._calls))
        fitting = []
        for each in expected:
            fitting.append([number for number in numbers if self._fits(each, number)])
        match self._case.order:
            case "exact":
                pairs = {number: number for number, each in enumerate(fitting) if number in each}
            case "in_order":
                pairs = _in_order(fitting)
            case _:
                pairs = _paired(fitting)
        used = set(pairs.values())
        return _Matched(expected, pairs, [number for number in numbers if number not in used])

    def _fits(self, expected: ExpectedCall, number: int) -> bool:
        """Check whether a call is an expected one. If a check raises, it is not."""
        call = self._calls[number]
        right = (
            expected.names(call.tool)
            and (call.status == "ok" or expected.may_fail)
            and expected.turn in (None, self._turn_numbers[number])
        )
        return right and self._wrong(expected, number) == ()

    def _wrong(self, expected: ExpectedCall, number: int) -> tuple[str, ...] | CheckError:
        """List a call's parameters that are not as expected, or return why a check could not
        tell.
        """
        key = id(expected), number
        if key not in self._wrong_parameters:
            try:
                wrong: tuple[str, ...] | CheckError = self._compared(expected, number)
            except CheckError as error:
                if error.slow:
                    raise
                wrong = error
            self._wrong_parameters[key] = wrong
        return self._wrong_parameters[key]

    def _compared(self, expected: ExpectedCall, number: int) -> tuple[str, ...]:
        mode = expected.match or self._case.arguments
        if mode == "ignore":
            return ()
        given = self._calls[number].arguments
        if not isinstance(given, Mapping):
            given = {}
        return wrong_parameters(expected.arguments, given, exact=mode == "exact")

    def _why_missing(self, matched: _Matched, expected: ExpectedCall) -> Judgement:
        """Find out why an expected call was not made."""
        calls, name = self._calls, " or ".join(expected.tools)
        visible, searched = visible_tools(self._turns)
        is_visible = any(_is_visible(each, visible) for each in expected.tools)
        others = [number for number in matched.extra if calls[number].tool.server != UNKNOWN]
        if not calls and not searched:
            return _failed(
                "no tool used", f"It answered without a call. {name} was expected.", name
            )
        if not is_visible and searched:
            return _failed("not found by search", f"No search returned {name}.", name)
        attempts = {}
        for number in others:
            if not expected.names(calls[number].tool):
                continue
            problem = self._wrong(expected, number)
            if isinstance(problem, CheckError):
                detail = f"A check of the arguments could not tell: {problem}."
                return _failed("check failed", detail, str(calls[number].tool))
            attempts[number] = problem
        if attempts:
            return self._why_another(attempts)
        if others:
            detail = f"It called {calls[others[0]].tool}, and not {name}."
            return _failed("wrong tool", detail, name)
        return _failed("found and not called", f"It had {name}, and did not call it.", name)

    def _why_another(self, attempts: Mapping[int, tuple[str, ...]]) -> Judgement:
        """Tell what is wrong with the nearest of several calls of the expected tool, by their wrong
        parameters.
        """
        nearest = min(
            attempts, key=lambda number: (len(attempts[number]), self._calls[number].status != "ok")
        )
        call, parameters = self._calls[nearest], attempts[nearest]
        tool = str(call.tool)
        if isinstance(call.arguments, str):
            detail = f"The arguments of {tool} are not a JSON object."
            return _failed("arguments against the schema", detail, tool)
        is_ok = call.status == "ok"
        if not is_ok and self._against_schema(call.tool, call.arguments):
            detail = f"The schema of {tool} refuses the arguments."
            return _failed("arguments against the schema", detail, tool, parameters)
        if parameters:
            detail = f"It called {tool} with another value for {', '.join(parameters)}."
            return _failed("wrong arguments", detail, tool, parameters)
        if not is_ok:
            return _failed("tool error not recovered from", f"The call of {tool} failed.", tool)
        return _failed("wrong tool", f"It called {tool} in another order.", tool)


def _failed(
    failure: FailureGroup, detail: str, tool: str | None = None, parameters: tuple[str, ...] = ()
) -> Judgement:
    return Judgement(False, failure, detail, tool, parameters)


def _in_order(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """Give as many as possible a fitting call, each a later one than those before (longest common
    subsequence).

    Of several ways, the first expected calls get the first fitting ones.
    """
    calls = 1 + max((options[-1] for options in fitting if options), default=-1)
    # most[number][index]: how many of the expected calls from `number` on can have one of the calls
    # from `index` on.
    most = [[0] * (calls + 1) for _ in range(len(fitting) + 1)]
    for number in reversed(range(len(fitting))):
        for index in reversed(range(calls)):
            if index in fitting[number]:
                most[number][index] = 1 + most[number + 1][index + 1]
            else:
                most[number][index] = max(most[number + 1][index], most[number][index + 1])
    pairs = {}
    number = index = 0
    while most[number][index]:
        if index in fitting[number]:
            pairs[number] = index
            number, index = number + 1, index + 1
        elif most[number][index + 1] >= most[number + 1][index]:
            index += 1
        else:
            number += 1
    return pairs


def _paired(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """Give as many as possible one of the calls that fit each (maximum bipartite matching).

    Each takes a free call, or one whose owner can move to another one, however many have to move.
    """
    pairs: dict[int, int] = {}
    owners: dict[int, int] = {}
    for number in range(len(fitting)):
        takers = {}
        waiting = deque([number])
        while waiting:
            taker = waiting.popleft()
            options = [option for option in fitting[taker] if option not in takers]
            takers.update(dict.fromkeys(options, taker))
            free = next((option for option in options if option not in owners), None)
            if free is not None:
                _take(free, number, takers, pairs, owners)
                break
            waiting += [owners[option] for option in options]
    return pairs


def _take(
    option: int, last: int, takers: dict[int, int], pairs: dict[int, int], owners: dict[int, int]
) -> None:
    """Give a free call to its taker, the taker's earlier one to the next, and so on to the last."""
    while True:
        taker = takers[option]
        earlier = pairs.get(taker)
        pairs[taker], owners[option] = option, taker
        if taker == last or earlier is None:
            return
        option = earlier


def visible_tools(turns: Sequence[Turn]) -> tuple[frozenset[str], bool]:
    """List the wire names of the tools that a model had or found, and whether it searched."""
    names = {str(tool["name"]) for tool in tools_sent(turns)}
    searched = False
    for turn in turns:
        for search in turn.trace.all_of(ToolsSearched):
            searched = True
            names.update(wire_name(row.tool) for row in search.rows)
    return frozenset(names), searched


def tools_sent(turns: Iterable[Turn]) -> Iterator[Mapping[str, Any]]:
    """Yield the definitions that a model was sent, with each request."""
    for turn in turns:
        for step in turn.trace.all_of(StepStarted):
            yield from (*step.request.tools, *step.request.found)


def _is_visible(name: str, visible: frozenset[str]) -> bool:
    if wire_name(ToolName.split(name)) in visible:
        return True
    return any(name in names_of(ToolName.split(each)) for each in visible)


def answer_fits(check: AnswerCheck, turn: Turn) -> bool:
    """Check a turn's answer.

    Raises:
        CheckError: It could not tell.
    """
    answer = turn.answer[:MAX_TEXT]
    if isinstance(check, str):
        return found_in_time(contains(check), answer)
    if isinstance(check, re.Pattern):
        return found_in_time(check, answer)
    if isinstance(check, Matcher):
        return check.fits(answer)
    return holds(check, turn)
