"""Judging runs: which calls are right, and the group that each failure belongs to, from turns of
real servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.weather import desk, weather

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.cases import ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.drafts import cases_of_turns
from casual_mcp_nb.experiments.matchers import Near, Regex, Satisfies
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS, Judgement, judge_turns
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

OSLO, BERGEN = call("weather__forecast", city="Oslo"), call("weather__forecast", city="Bergen")
PAST, NOTE = call("weather__history", city="Oslo"), call("desk__note", text="Rain")


def scales() -> FastMCP[Any]:
    """A server whose tool fails on some arguments."""
    server: FastMCP[Any] = FastMCP("scales")

    @server.tool
    def weigh(kg: int) -> int:
        """Weigh something."""
        if kg > 100:
            raise ValueError("too heavy")
        return kg

    return server


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    servers = {"weather": weather(), "desk": desk(), "scales": scales()}
    with Session({}, in_process=servers, store=None, quiet=True) as session:
        yield session


def turn_of(session: Session, *answers: Any, **options: Any) -> Turn:
    turn = session.chat("Go", model=scripted_model(*answers), echo="none", **options)
    session.undo()
    return turn


def judged(session: Session, case: dict[str, Any], *answers: Any, **options: Any) -> Judgement:
    return judge_turns(
        ToolUseCase("Go", **case), [turn_of(session, *answers, **options)], against_schema
    )


def against_schema(tool: Any, arguments: Any) -> bool:
    return tool.tool == "weigh" and not isinstance(arguments.get("kg"), int)


FORECAST = ("weather:forecast", {"city": "Oslo"})
HISTORY = ("weather:history", {"city": "Oslo"})
NOTE_TEXT = ("desk:note", {"text": "Rain"})


@pytest.mark.parametrize(
    ("case", "answers"),
    [
        ({"calls": [FORECAST]}, [OSLO, "Sunny"]),
        ({"calls": ["weather__forecast"]}, [BERGEN, "Sunny"]),
        ({"calls": ["forecast"]}, [BERGEN, "Sunny"]),
        (
            {
                "calls": [FORECAST],
                "answer": ["sunny", re.compile("S.nny"), Regex("^S"), lambda turn: turn.tool_calls],
            },
            [OSLO, "Sunny"],
        ),
        ({"calls": [FORECAST, HISTORY]}, [calls(PAST, OSLO), "Done"]),
        ({"calls": [FORECAST, HISTORY], "order": "in_order"}, [OSLO, NOTE, PAST, "Done"]),
        ({"calls": [FORECAST, HISTORY], "order": "exact"}, [OSLO, PAST, "Done"]),
        ({"calls": [FORECAST], "extra_calls": 1}, [OSLO, NOTE, "Done"]),
        ({"calls": [FORECAST], "alternatives": [[HISTORY]]}, [PAST, "Done"]),
        (
            {"calls": [ExpectedCall(["weather:history", "weather:forecast"])], "extra_calls": 0},
            [PAST, "Done"],
        ),
        ({"calls": [("weather:forecast", {}), FORECAST]}, [OSLO, BERGEN, "Done"]),
        (
            {"calls": [("weather:forecast", {"city": "Rome"})], "arguments": "ignore"},
            [OSLO, "Done"],
        ),
        ({"no_call": True}, ["Hello"]),
        ({"any_call": True}, [NOTE, "Done"]),
        ({"any_call": True, "answer": "done"}, [call("scales__weigh", kg=500), "Done"]),
        ({"forbidden": ["desk:note"]}, [OSLO, "Done"]),
        (
            {"calls": [("scales:weigh", {"kg": Near(3)})]},
            [call("scales__weigh", kg=500), call("scales__weigh", kg=3), "Done"],
        ),
        (
            {"calls": [ExpectedCall("scales:weigh", may_fail=True)]},
            [call("scales__weigh", kg=500), "Done"],
        ),
    ],
)
def test_right_calls_are_right(session: Session, case: dict[str, Any], answers: list[Any]) -> None:
    assert judged(session, case, *answers).failure is None


@pytest.mark.parametrize(
    ("answers", "matched", "detail"),
    [
        # The first expected call comes last: the two others can be paired, but not with it.
        ([calls(BERGEN, PAST), OSLO, "Done"], 2, "another order"),
        ([calls(PAST, BERGEN), OSLO, "Done"], 1, "another order"),
        ([calls(BERGEN, OSLO), PAST, "Done"], 2, "another value|another order"),
    ],
)
def test_in_order_as_many_calls_as_possible_are_matched(
    session: Session, answers: list[Any], matched: int, detail: str
) -> None:
    case = {"calls": [FORECAST, ("weather:forecast", {"city": "Bergen"}), HISTORY]}
    judgement = judged(session, {**case, "order": "in_order"}, *answers)
    assert (judgement.right, judgement.matched, judgement.expected) == (False, matched, 3)
    assert re.search(detail, judgement.detail)


def test_in_order_the_alternative_with_the_fewest_missing_calls_is_the_nearest(
    session: Session,
) -> None:
    three = [FORECAST, ("weather:forecast", {"city": "Bergen"}), HISTORY]
    case = {"calls": [NOTE_TEXT, HISTORY, HISTORY], "alternatives": [three], "order": "in_order"}
    judgement = judged(session, case, calls(BERGEN, PAST), OSLO, "Done")
    assert (judgement.matched, judgement.tool) == (2, "weather:forecast")


WRONG: list[tuple[dict[str, Any], list[Any], str, tuple[str, ...]]] = [
    ({"calls": [FORECAST]}, ["Sunny"], "no tool used", ()),
    ({"any_call": True}, ["Sunny"], "no tool used", ()),
    (
        {"any_call": True, "forbidden": ["desk:note"]},
        [call("weather__nothing"), "Hm"],
        "no tool used",
        (),
    ),
    ({"any_call": True, "forbidden": ["desk:note"]}, [NOTE, "Done"], "forbidden tool called", ()),
    ({"calls": [FORECAST]}, [NOTE, "Done"], "wrong tool", ()),
    ({"calls": [FORECAST, HISTORY], "order": "in_order"}, [PAST, OSLO, "Done"], "wrong tool", ()),
    ({"calls": [FORECAST, HISTORY], "order": "exact"}, [PAST, OSLO, "Done"], "wrong tool", ()),
    ({"calls": [FORECAST, HISTORY]}, [OSLO, "Done"], "found and not called", ()),
    ({"calls": [FORECAST]}, [BERGEN, "Done"], "wrong arguments", ("city",)),
    (
        {"calls": [("weather:forecast", {"city": "Oslo", "day": 1})]},
        [OSLO, "Done"],
        "wrong arguments",
        ("day",),
    ),
    (
        {"calls": [("weather:forecast", {})], "arguments": "exact"},
        [OSLO, "Done"],
        "wrong arguments",
        ("city",),
    ),
    (
        {"calls": ["scales:weigh"]},
        [call("scales__weigh", kg="heavy"), "Done"],
        "arguments against the schema",
        (),
    ),
    (
        {"calls": ["scales:weigh"]},
        [call("scales__weigh", kg=500), "Done"],
        "tool error not recovered from",
        (),
    ),
    (
        {"calls": [FORECAST], "forbidden": ["note"]},
        [OSLO, NOTE, "Done"],
        "forbidden tool called",
        (),
    ),
    ({"calls": [FORECAST], "extra_calls": 0}, [OSLO, NOTE, "Done"], "extra calls", ()),
    ({"calls": [FORECAST], "order": "exact"}, [OSLO, NOTE, "Done"], "extra calls", ()),
    ({"no_call": True}, [OSLO, "Done"], "extra calls", ()),
    ({"calls": [FORECAST], "answer": "snow"}, [OSLO, "Sunny"], "wrong answer", ()),
    ({"calls": [FORECAST], "answer": lambda turn: 1 / 0}, [OSLO, "Sunny"], "check failed", ()),
    (
        {"calls": [("weather:forecast", {"city": Satisfies(lambda city: city % 2)})]},
        [OSLO, "Sunny"],
        "check failed",
        (),
    ),
    ({"answer": "39"}, ["139"], "wrong answer", ()),
]


@pytest.mark.parametrize(("case", "answers", "group", "parameters"), WRONG)
def test_a_failure_belongs_to_one_group(
    session: Session,
    case: dict[str, Any],
    answers: list[Any],
    group: str,
    parameters: tuple[str, ...],
) -> None:
    judgement = judged(session, case, *answers)
    assert (judgement.right, judgement.failure, judgement.parameters) == (False, group, parameters)
    assert judgement.detail


def test_a_prompt_that_is_only_compared_is_neither_right_nor_wrong(session: Session) -> None:
    assert judged(session, {"judged": False}, "Sunny") == Judgement(None)


def test_the_calls_of_a_program_are_the_models_calls(session: Session) -> None:
    pytest.importorskip("pydantic_monty")
    program = call("run_code", code="weather__forecast(city='Oslo')\nweather__history(city='Oslo')")
    case: dict[str, Any] = {"calls": [FORECAST, HISTORY]}
    assert judged(session, case, program, "Sunny.", delivery="code") == Judgement(
        True, matched=2, expected=2
    )
    assert judged(session, {"calls": [FORECAST]}, program, "Sunny.", delivery="code").extra == 1
    (made,) = cases_of_turns([turn_of(session, program, "Sunny.", delivery="code")])
    assert [each.tool for each in made.acceptable[0]] == ["weather:forecast", "weather:history"]


def test_a_limit_is_a_failure_of_the_model(session: Session) -> None:
    judgement = judged(session, {"calls": [FORECAST]}, OSLO, NOTE, max_steps=2)
    assert judgement.failure == "step limit"


@pytest.mark.parametrize(
    ("answers", "group"),
    [
        ([call("search_tools", query="write a note"), "Nothing"], "not found by search"),
        ([call("search_tools", query="weather forecast"), "Nothing"], "found and not called"),
        ([call("search_tools", query="weather forecast"), OSLO, "Sunny"], None),
        ([call("search_tools", query="weather forecast"), BERGEN, "Sunny"], "wrong arguments"),
        ([call("weather__forecast", city="Oslo"), "Hm"], "tool error not recovered from"),
    ],
)
def test_the_trace_of_searches_tells_what_was_found(
    session: Session, answers: list[Any], group: str | None
) -> None:
    (
        session.selection.discovery,
        session.selection.defer_all,
        session.selection.max_search_results,
    ) = True, True, 1
    try:
        for delivery in ("definitions", "bridge"):
            made = [
                call("call_tool", name=each.name, arguments=dict(each.arguments))
                if delivery == "bridge" and getattr(each, "name", "").startswith("weather")
                else each
                for each in answers
            ]
            judgement = judged(session, {"calls": [FORECAST]}, *made, delivery=delivery)
            assert (delivery, judgement.failure) == (delivery, group)
    finally:
        (
            session.selection.discovery,
            session.selection.defer_all,
            session.selection.max_search_results,
        ) = False, False, 5


def test_several_messages_are_judged_together(session: Session) -> None:
    turns = [turn_of(session, OSLO, "Sunny"), turn_of(session, PAST, "Rain")]
    case = ToolUseCase(
        ["Now?", "And before?"],
        [ExpectedCall(*FORECAST, turn=1), ExpectedCall(*HISTORY, turn=2)],
        answer="rain",
    )
    assert judge_turns(case, turns).right
    assert not judge_turns(case, turns[::-1]).right
    assert judge_turns(case, turns[:1]).matched == 1


def test_every_group_can_occur() -> None:
    searched = {"not found by search", "step limit"}
    assert {group for _, _, group, _ in WRONG} | searched == set(FAILURE_GROUPS)


@pytest.mark.slow
@pytest.mark.defect("P5")
def test_a_thousand_expected_calls_are_paired(session: Session) -> None:
    number = 1_100
    expected = [ExpectedCall("weather:forecast", may_fail=True)] * number
    judgement = judged(session, {"calls": expected}, [OSLO] * number, "Done")
    assert (judgement.right, judgement.matched) == (True, number)
