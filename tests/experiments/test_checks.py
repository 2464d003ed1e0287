"""Checks that cannot tell: patterns and functions that take for ever, or raise, fail their case,
and the run goes on.
"""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base import patterns
from casual_mcp_nb.base.patterns import is_found
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments import checks
from casual_mcp_nb.experiments.case_files import load_tool_cases
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.checks import CheckError, holds
from casual_mcp_nb.experiments.matchers import IfGiven, OneOf, Regex, Satisfies
from casual_mcp_nb.experiments.matching import judge_turns
from casual_mcp_nb.providers.scripted import call, scripted_model

pytestmark = pytest.mark.defect("P5")
TEXT = "a" * 40 + "!"
SLOW = [r"(a|aa)+$", r"((a{1,9}){1,9}){1,9}$", r"^(a|a|aa)+$"]
EXPONENTIAL = [
    r"^(a+)+$",
    r"^([a-zA-Z]+)*$",
    r"^(a|a?)+$",
    r"(.*a){20}$",
    r"^(\w+\s?)*$",
    r"(a+a+)+b",
    *SLOW,
]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "PATTERN_SECONDS", 0.1)
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.3)


@pytest.fixture(scope="module")
def turn(weather_session: Session) -> Turn:
    model = scripted_model(call("weather__forecast", city=TEXT), TEXT)
    return weather_session.chat("Go", model=model, echo="none")


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "an argument": lambda pattern: {"calls": [("weather:forecast", {"city": Regex(pattern)})]},
    "a nested argument": lambda pattern: {
        "calls": [("weather:forecast", {"city": IfGiven(OneOf(["x", Regex(pattern)]))})]
    },
    "another list of calls": lambda pattern: {
        "alternatives": [[("weather:forecast", {"city": Regex(pattern)})]]
    },
    "the answer": lambda pattern: {"answer": Regex(pattern)},
    "a compiled pattern": lambda pattern: {"answer": re.compile(pattern)},
    "one of several answers": lambda pattern: {
        "answer": [Regex("a"), OneOf(["x", Regex(pattern)])]
    },
}


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_no_pattern_holds_a_run(turn: Turn, place: str, pattern: str) -> None:
    judgement = judge_turns(ToolUseCase("Go", **PLACES[place](pattern)), [turn])
    assert judgement.right is not None
    if pattern in SLOW:
        assert (judgement.right, judgement.failure) == (False, "check failed")
        assert pattern[:20] in judgement.detail


@pytest.mark.usefixtures("soon")
def test_a_pattern_from_a_file_has_the_same_limit(turn: Turn, tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(
        f"- message: Go\n  answer: {{$regex: '{SLOW[0]}'}}\n- message: Go\n  calls: [{{tool:"
        f" 'weather:forecast', arguments: {{city: {{$one_of: [{{$regex: '{SLOW[0]}'}}]}}}}}}]\n"
    )
    assert [judge_turns(case, [turn]).failure for case in load_tool_cases(path)] == [
        "check failed"
    ] * 2


async def test_other_threads_go_on_while_a_pattern_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "PATTERN_SECONDS", 0.5)
    search = asyncio.create_task(asyncio.to_thread(is_found, SLOW[0], "a" * 60 + "!"))
    turns = 0
    while not search.done():
        turns += 1
        await asyncio.sleep(0.001)
    with pytest.raises(patterns.SlowPatternError):
        await search
    assert turns > 10


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (re.compile("^b$", re.MULTILINE), "a\nb", True),
        (re.compile("a.b", re.DOTALL | re.IGNORECASE), "A\nB", True),
        (re.compile(r"^\w$", re.ASCII), "é", False),
        (re.compile(r"a  b # two", re.VERBOSE), "ab", True),
        ("^a", "\ud800a", False),
        ("b", "a" * patterns.MAX_TEXT + "b", False),
    ],
)
def test_a_compiled_pattern_keeps_its_meaning(pattern: Any, text: str, found: bool) -> None:
    assert is_found(pattern, text) is found


@pytest.mark.parametrize(
    "pattern", ["(", "a" * (patterns.MAX_PATTERN + 1), "(" * 5_000 + ")" * 5_000, re.compile(b"a")]
)
def test_a_pattern_that_cannot_be_compiled_is_refused_before_the_run(pattern: Any) -> None:
    with pytest.raises(UsageError):
        ToolUseCase("Go", answer=Regex(pattern) if isinstance(pattern, str) else pattern)


def endless(value: Any) -> bool:
    while True:
        pass


def waits(value: Any) -> bool:
    return threading.Event().wait()


def raises(value: Any) -> bool:
    raise ValueError("no idea")


def leaves(value: Any) -> bool:
    raise SystemExit


async def sleeps(value: Any) -> bool:
    await asyncio.get_running_loop().create_future()
    return True


async def computes(value: Any) -> bool:
    return endless(value)


async def fails(value: Any) -> bool:
    raise LookupError


class Neither:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def unclear(value: Any) -> Any:
    return Neither()


async def agrees(value: Any) -> bool:
    await asyncio.sleep(0)
    return True


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def unreadable(value: Any) -> bool:
    raise UnreadableError


def yields(value: Any) -> Any:
    yield False


async def yields_later(value: Any) -> Any:
    yield False


UNABLE = [
    *(endless, waits, raises, leaves, sleeps, computes, fails, unclear),
    *(unreadable, yields, yields_later),
]


@pytest.mark.defect("P5")
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("function", UNABLE)
@pytest.mark.parametrize("place", ["answer", "argument", "matcher"])
def test_a_function_that_cannot_tell_fails_its_case_with_the_reason(
    turn: Turn, function: Any, place: str
) -> None:
    case = {
        "answer": {"answer": ["a" * 40, function]},
        "matcher": {"answer": OneOf([Satisfies(function)])},
        "argument": {"calls": [("weather:forecast", {"city": OneOf(["x", Satisfies(function)])})]},
    }[place]
    judgement = judge_turns(ToolUseCase("Go", **case), [turn])
    assert (judgement.right, judgement.failure) == (False, "check failed")
    assert function.__name__ in judgement.detail


@pytest.mark.usefixtures("soon")
def test_a_function_that_computes_for_ever_is_interrupted() -> None:
    before = set(threading.enumerate())
    with pytest.raises(CheckError) as raised:
        holds(endless, None)
    assert raised.value.slow
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_one_that_waits_ends_with_its_event_loop_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.01)
    for _ in range(30):
        with pytest.raises(CheckError) as raised:
            holds(sleeps, None)
        assert raised.value.slow
    # A loop that is left open is a warning here, and fails the test.
    gc.collect()


def test_a_function_that_can_tell_is_asked_in_its_own_thread(turn: Turn) -> None:
    asked: list[threading.Thread] = []

    def check(value: Any) -> bool:
        asked.append(threading.current_thread())
        return value is turn

    assert judge_turns(ToolUseCase("Go", answer=[check, agrees]), [turn]).right
    assert threading.current_thread() not in asked


def test_a_call_that_fits_counts_although_another_could_not_be_checked(
    weather_session: Session,
) -> None:
    model = scripted_model(
        call("weather__forecast", city="x"), call("weather__forecast", city="3"), "Done"
    )
    turn = weather_session.chat("Go", model=model, echo="none")
    case = ToolUseCase(
        "Go", [("weather:forecast", {"city": Satisfies(lambda city: int(city) == 3)})]
    )
    assert judge_turns(case, [turn]).failure is None
    assert judge_turns(
        ToolUseCase("Go", [("weather:forecast", {"city": OneOf([Satisfies(raises), "x"])})]), [turn]
    ).right


@pytest.mark.usefixtures("soon")
def test_the_other_cases_are_run(weather_session: Session) -> None:
    cases = [
        ToolUseCase("One", answer=endless, id="endless"),
        ToolUseCase("Two", answer=Regex(SLOW[0]), id="slow"),
        ToolUseCase("Three", answer=raises, id="raises"),
        ToolUseCase("Four", answer=Regex("a{40}!"), id="right"),
    ]
    results = weather_session.experiments.run(
        cases, models=scripted_model(*[TEXT] * 4), concurrency=1, progress=False
    )
    assert [(record.case, record.right, record.failure) for record in results.records] == [
        ("endless", False, "check failed"),
        ("slow", False, "check failed"),
        ("raises", False, "check failed"),
        ("right", True, None),
    ]


def test_a_run_can_be_stopped_while_a_check_takes_its_time(weather_session: Session) -> None:
    entered, leave, ended = threading.Event(), threading.Event(), threading.Event()

    def check(value: Any) -> bool:
        entered.set()
        return leave.wait(60)

    def run() -> None:
        try:
            weather_session.experiments.run(
                [ToolUseCase("Go", answer=check)], models=scripted_model(TEXT), progress=False
            )
        except BaseException:
            pass
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    try:
        assert entered.wait(30)
        weather_session.stop()
        # The check still waits.
        assert ended.wait(30)
        assert not leave.is_set()
    finally:
        leave.set()
    assert weather_session.experiments.results is not None
    assert weather_session.experiments.results.records == ()


async def test_checks_that_hang_leave_the_loop_its_threads(
    weather_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CHECK_SECONDS", 60)
    free, hanging = threading.Event(), threading.Semaphore(0)

    def hangs(turn: Turn) -> bool:
        hanging.release()
        return free.wait(60)

    count = 40
    cases = [ToolUseCase(f"Go {number}", answer=hangs) for number in range(count)]
    running = asyncio.ensure_future(
        weather_session.experiments.run_async(
            cases, models=scripted_model(*["Yes"] * count), concurrency=count, progress=False
        )
    )
    try:
        for _ in range(count):
            assert await asyncio.to_thread(hanging.acquire, timeout=30)
        # Names are looked up in the loop's own threads.
        found = weather_session.parts.engine.submit(asyncio.to_thread(str, 1))[0]
        assert await asyncio.to_thread(found.result, 10) == "1"
    finally:
        free.set()
    assert {record.right for record in (await running).records} == {True}
