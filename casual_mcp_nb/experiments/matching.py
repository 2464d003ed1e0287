"""Judge a model's calls in a case: whether they are right, and if not, why.

No other model is asked.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from casual_mcp_nb.base.patterns import MAX_TEXT
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN, StepStarted, ToolsSearched
from casual_mcp_nb.conversation.step import calls_of_model
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import shown
from casual_mcp_nb.experiments.cases import (
    AnswerCheck,
    ExpectedCall,
    ToolUseCase,
    contains,
    names_of,
)
from casual_mcp_nb.experiments.checks import Caller, CheckError, direct
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
    case: ToolUseCase,
    turns: Sequence[Turn],
    against_schema: AgainstSchema = lambda tool, arguments: False,
    call: Caller = direct,
    verdicts: Mapping[Graded, Verdict] | None = None,
) -> Judgement:
    """Judge a case's turns.

    Checks have a time limit, so this takes seconds at most, but blocks for that long.

    Args:
        case: The case.
        turns: Its turns, one per message, or fewer if one failed.
        against_schema: Checks whether a tool's schema refuses arguments.
        call: Calls the case's functions. See `direct`.
        verdicts: What a judge model said of the last answer. It is not asked here.
    """
    if not case.judged:
        return Judgement(None)
    try:
        return _Judging(case, turns, against_schema, call).judged(verdicts or {})
    except CheckError as error:
        return Judgement(False, "check failed", f"A check could not tell: {error}.")


class _Judging:
    """One case's calls beside those expected."""

    def __init__(
        self, case: ToolUseCase, turns: Sequence[Turn], against_schema: AgainstSchema, call: Caller
    ) -> None:
        self._case, self._turns, self._against_schema, self._call = (
            case,
            turns,
            against_schema,
            call,
        )
        self._calls = [
            _Call(each.tool, each.arguments, each.status == "ok", number)
            for number, turn in enumerate(turns, 1)
            for each in calls_of_model(turn.tool_calls)
            if each.tool.server != SYNTHETIC
        ]
        self._wrong_parameters: dict[tuple[int, int], tuple[str, ...] | CheckError] = {}

    def judged(self, verdicts: Mapping[Graded, Verdict]) -> Judgement:
        """Judge it.

        Raises:
            CheckError: A check could not tell.
        """
        case, turns, calls = self._case, self._turns, self._calls
        options = [self._match(expected) for expected in case.acceptable]
        best = min(
            options, key=lambda each: (len(each.expected) - len(each.pairs), len(each.extra))
        )
        figures: dict[str, Any] = {
            "matched": len(best.pairs),
            "expected": len(best.expected),
            "extra": len(best.extra),
        }

        def wrong(
            failure: FailureGroup,
            detail: str,
            tool: str | None = None,
            parameters: tuple[str, ...] = (),
        ) -> Judgement:
            return Judgement(False, failure, detail, tool, parameters, **figures)

        if not turns:
            return wrong("no tool used", "There is no turn.")
        for call in calls:
            if any(name in names_of(call.tool) for name in case.forbidden):
                return wrong("forbidden tool called", f"It called {call.tool}.", str(call.tool))
        limit = next(
            (turn for turn in turns if turn.failure is not None and turn.failure.kind in LIMITS),
            None,
        )
        if limit is not None:
            return wrong("step limit", limit.error or "")
        if case.no_call and calls:
            return wrong(
                "extra calls",
                f"It called {calls[0].tool}, and no call was expected.",
                str(calls[0].tool),
            )
        if case.any_call and not any(call.tool.server != UNKNOWN for call in calls):
            return wrong("no tool used", "It called no tool, and at least one call was expected.")
        missing = next(
            (number for number in range(len(best.expected)) if number not in best.pairs), None
        )
        if missing is not None:
            return wrong(*self._why_missing(best, best.expected[missing]))
        most = 0 if case.order == "exact" and case.acceptable != ((),) else case.extra_calls
        if most is not None and len(best.extra) > most:
            extra = calls[best.extra[most]]
            return wrong(
                "extra calls",
                f"It made {len(best.extra)} other calls, such as {extra.tool}.",
                str(extra.tool),
            )
        graded = [check for check in case.checks if isinstance(check, Graded)]
        for check in case.checks:
            if isinstance(check, Graded):
                continue
            try:
                if not answer_fits(check, turns[-1], self._call):
                    return wrong(
                        "wrong answer", "The calls are right, but the answer fails its check."
                    )
            except CheckError as error:
                return wrong(
                    "check failed",
                    f"The calls are right, but the answer's check could not tell: {error}.",
                )
        if not all(check in verdicts for check in graded):
            detail = (
                "The calls are right, and the answer is not graded yet. To have it graded: run(…,"
                " judge=MODEL)."
            )
            return Judgement(None, None, detail, **figures)
        for check in graded:
            verdict = verdicts[check]
            if not verdict.asked:
                continue
            if verdict.label is None:
                return wrong(
                    "check failed",
                    f"The calls are right, and the answer could not be graded: {verdict.reason}.",
                )
            if verdict.label not in check.right_labels:
                detail = (
                    f"The calls are right, and the judge calls the answer {verdict.label}:"
                    f" {shown(verdict.reason, 500)}."
                )
                return wrong("wrong answer", detail)
        unasked = next((verdicts[check] for check in graded if not verdicts[check].asked), None)
        if unasked is not None:
            detail = f"The calls are right, and the answer is not graded: {unasked.reason}."
            return Judgement(None, None, detail, **figures)
        return Judgement(True, **figures)

    def _match(self, expected: Sequence[ExpectedCall]) -> _Matched:
        """Pair as many expected calls as possible with actual ones."""
        matched = _Matched(expected)
        fitting = [
            [number for number in range(len(self._calls)) if self._fits(each, number)]
            for each in expected
        ]
        match self._case.order:
            case "exact":
                matched.pairs = {
                    number: number for number in range(len(expected)) if number in fitting[number]
                }
            case "in_order":
                after = -1
                for number, options in enumerate(fitting):
                    index = next((option for option in options if option > after), None)
                    if index is not None:
                        matched.pairs[number], after = index, index
            case _:
                matched.pairs = _paired(fitting)
        used = set(matched.pairs.values())
        matched.extra = [number for number in range(len(self._calls)) if number not in used]
        return matched

    def _fits(self, expected: ExpectedCall, number: int) -> bool:
        """Check whether a call is an expected one. If a check raises, it is not."""
        call = self._calls[number]
        right = (
            expected.names(call.tool)
            and (call.ok or expected.may_fail)
            and expected.turn in (None, call.turn)
        )
        return right and self._wrong(expected, number) == ()

    def _wrong(self, expected: ExpectedCall, number: int) -> tuple[str, ...] | CheckError:
        """List a call's parameters that are not as expected, or return why a check could not
        tell.
        """
        key = id(expected), number
        if key not in self._wrong_parameters:
            call = self._calls[number]
            mode = expected.match or self._case.arguments
            given = call.arguments if isinstance(call.arguments, Mapping) else {}
            try:
                wrong: tuple[str, ...] | CheckError = ()
                if mode != "ignore":
                    wrong = wrong_parameters(
                        expected.arguments, given, exact=mode == "exact", call=self._call
                    )
            except CheckError as error:
                if error.slow:
                    raise
                wrong = error
            self._wrong_parameters[key] = wrong
        return self._wrong_parameters[key]

    def _why_missing(
        self, matched: _Matched, expected: ExpectedCall
    ) -> tuple[FailureGroup, str, str | None, tuple[str, ...]]:
        """Find out why an expected call was not made."""
        calls, name = self._calls, " or ".join(expected.tools)
        visible, searched = visible_tools(self._turns)
        is_visible = any(_is_visible(each, visible) for each in expected.tools)
        others = [number for number in matched.extra if calls[number].tool.server != UNKNOWN]
        attempts = {
            number: self._wrong(expected, number)
            for number in others
            if expected.names(calls[number].tool)
        }
        if not calls and not searched:
            return "no tool used", f"It answered without a call. {name} was expected.", name, ()
        if not is_visible and searched:
            return "not found by search", f"No search returned {name}.", name, ()
        for number, problem in attempts.items():
            if isinstance(problem, CheckError):
                return (
                    "check failed",
                    f"A check of the arguments could not tell: {problem}.",
                    str(calls[number].tool),
                    (),
                )
        if attempts:
            return self._why_another(attempts)
        if others:
            return "wrong tool", f"It called {calls[others[0]].tool}, and not {name}.", name, ()
        return "found and not called", f"It had {name}, and did not call it.", name, ()

    def _why_another(
        self, attempts: Mapping[int, Any]
    ) -> tuple[FailureGroup, str, str | None, tuple[str, ...]]:
        """Tell what is wrong with the nearest of several calls of the expected tool, by their wrong
        parameters.
        """
        nearest = min(
            attempts, key=lambda number: (len(attempts[number]), not self._calls[number].ok)
        )
        call, parameters = self._calls[nearest], attempts[nearest]
        tool = str(call.tool)
        if isinstance(call.arguments, str):
            return (
                "arguments against the schema",
                f"The arguments of {tool} are not a JSON object.",
                tool,
                (),
            )
        if not call.ok and self._against_schema(call.tool, call.arguments):
            return (
                "arguments against the schema",
                f"The schema of {tool} refuses the arguments.",
                tool,
                parameters,
            )
        if parameters:
            detail = f"It called {tool} with another value for {', '.join(parameters)}."
            return "wrong arguments", detail, tool, parameters
        if not call.ok:
            return "tool error not recovered from", f"The call of {tool} failed.", tool, ()
        return "wrong tool", f"It called {tool} in another order.", tool, ()


def _paired(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """Give as many as possible one of the calls that fit each (maximum bipartite matching).

    Each takes a free call, or one whose owner can move to another one, however many have to move.
    """
    pairs: dict[int, int] = {}
    owners: dict[int, int] = {}
    for number in range(len(fitting)):
        takers: dict[int, int] = {}
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
    searches = [search for turn in turns for search in turn.trace.all_of(ToolsSearched)]
    names.update(wire_name(row.tool) for search in searches for row in search.rows)
    return frozenset(names), bool(searches)


def tools_sent(turns: Iterable[Turn]) -> Iterator[Mapping[str, Any]]:
    """Yield the definitions that a model was sent, with each request."""
    for turn in turns:
        for step in turn.trace.all_of(StepStarted):
            yield from (*step.request.tools, *step.request.found)


def _is_visible(name: str, visible: frozenset[str]) -> bool:
    if wire_name(ToolName.split(name)) in visible:
        return True
    return any(name in names_of(ToolName.split(each)) for each in visible)


def answer_fits(check: AnswerCheck, turn: Turn, call: Caller = direct) -> bool:
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
        return check.fits(answer, call)
    return call(check, turn)
