"""Comparisons: the same prompts in several variants, the usage of each, the cheapest one, and where
discovery loses.
"""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.provider import Provider, answer
from kit.weather import desk, weather

from casual_mcp_nb import McpToolChat, Session
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import (
    ApprovalAnswered,
    ApprovalAsked,
    StepFinished,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ProviderError, UnknownNameError, UsageError
from casual_mcp_nb.experiments.arms import Arm, ArmSetup, cases_of_prompts, factors_of, options_of
from casual_mcp_nb.experiments.measuring import measured as with_figures
from casual_mcp_nb.experiments.plan import Plan
from casual_mcp_nb.experiments.price_conclusions import price_conclusions
from casual_mcp_nb.experiments.pricing import best_of
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.runs import CaseRuns
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}, "keyless": {"provider": "offline"}},
    "models": {
        "planner": {"client": "offline", "model": "planner"},
        "second": {"client": "keyless", "model": "planner"},
    },
    "servers": {
        "math": {"bundled": "math", "transport": "in-process", "defer_loading": True},
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
        "units": {"bundled": "units", "transport": "in-process", "defer_loading": True},
    },
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
}
ASK = "What is 17 * 23?"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        yield session


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    async with McpToolChat.from_config(
        {}, in_process={"weather": weather(), "desk": desk()}
    ) as chat:
        yield chat


def names(session: Session, **factors: Any) -> list[str]:
    return [
        arm.name
        for arm in options_of(
            session.parts.turn_service._chat, factors_of(**factors), TurnOptions()
        )
    ]


def shares(results: RunResults) -> dict[str, float | None]:
    """Each arm's share of right runs."""
    return {name: arm.right and arm.right.value for name, arm in results.items()}


def comparison(chat: McpToolChat, models: dict[str, Any], check: Any, repeats: int = 1) -> CaseRuns:
    """Compare models that play lists."""
    arms = [
        ArmSetup(Arm(name, model=name), TurnOptions(model=model)) for name, model in models.items()
    ]
    cases = cases_of_prompts("Go", check)
    plan = Plan(cases=cases, factors={}, options={}, repeats=repeats, max_runs=100)
    return CaseRuns(chat, plan, arms)


async def compared(chat: McpToolChat, models: dict[str, Any], check: Any = None) -> RunResults:
    comparing = comparison(chat, models, check)
    await comparing.prepare()
    await comparing.run()
    return comparing.results


def test_the_arms_are_all_combinations_and_without_discovery_there_is_one(session: Session) -> None:
    assert names(session) == ["as the session is set"]
    assert names(session, discovery=[False, True], delivery=["definitions", "bridge"]) == [
        "discovery off",
        "discovery on · definitions",
        "discovery on · bridge",
    ]
    assert names(session, model=["planner"], strategy=["search", "browse"]) == [
        "search",
        "browse",
    ]
    assert names(session, model=["planner"]) == ["planner"]
    assert names(session, discovery=["auto", True]) == ["discovery auto", "discovery on"]
    assert names(session, tool_set=[None, "numbers"]) == ["all tools", "numbers"]
    assert (
        len(
            names(
                session,
                model=["planner", "second"],
                discovery=[False, True],
                tool_set=[None, "numbers"],
            )
        )
        == 8
    )


@pytest.mark.parametrize(
    "factors",
    [
        {"models": ["planer"]},
        {"models": ["planner", 3]},
        {"models": None},
        {"tool_sets": ["number"]},
        {"strategies": ["serch"]},
        {"deliveries": ["brige"]},
        {"discovery": ["on"]},
        {"temprature": 0},
        {"repeats": 0},
        {"check": 3},
        {"check": ["1", "2"]},
        {"repeats": 101},
        {"discovery": [False, True], "max_runs": 1},
    ],
    ids=str,
)
def test_wrong_arguments_are_an_error_before_anything_runs(
    session: Session, factors: dict[str, Any]
) -> None:
    before, calls = session.experiments.results, len(session.consent.audit)
    with pytest.raises(UsageError):
        session.experiments.compare(ASK, **factors)
    assert (session.experiments.results, len(session.consent.audit)) == (before, calls)


def test_arms_that_cannot_differ_are_an_error(session: Session) -> None:
    session.selection.discovery = False
    try:
        with pytest.raises(UsageError):
            session.experiments.compare(ASK, deliveries=["definitions", "bridge"])
        assert names(session, discovery=[True], delivery=["definitions", "bridge"])
    finally:
        session.selection.discovery = True


@pytest.mark.parametrize("prompt", ["", " ", [], [""], [3], 3], ids=repr)
def test_a_prompt_is_a_text_or_several(session: Session, prompt: Any) -> None:
    with pytest.raises(UsageError):
        session.experiments.compare(prompt)


async def test_the_session_stays_as_it_is_and_each_arm_is_measured(session: Session) -> None:
    await session.chat_async("What is 2 + 2?")
    selection, turns, messages = session.selection.key(), list(session.turns), session.messages
    results = await session.experiments.compare_async(
        ASK, discovery=[False, True], deliveries=["definitions", "bridge"], repeats=2, check="391"
    )
    assert (session.selection.key(), session.turns, session.messages) == (
        selection,
        turns,
        messages,
    )
    assert session.experiments.results == results
    assert not session.parts.runner.busy
    off, definitions, bridge = results.values()
    for arm in (off, definitions, bridge):
        assert arm.right is not None
        assert (len(arm.done), arm.right.value, len(arm.judged)) == (2, 1, 2)
    for run in results.records:
        assert run.turn is not None
        stats = run.turn.stats
        assert run.called == ("math:evaluate_expression",)
        assert run.input_tokens == stats.sent_tokens
        assert run.tokens_reused == stats.reused_tokens > 0
        assert run.tokens_reused == run.cold_reused < (run.warm_reused or 0)
        assert (run.origin, run.reused_origin) == ("estimated", "estimated")
        assert (run.calls, run.searches) == (1, int(bool(run.discovery)))
        assert run.output_tokens is run.cost is None
        assert run.turn.started.messages == (UserMessage(content=ASK),)
    assert {step.request.delivery for run in bridge.records for step in run.turn.steps} == {
        "bridge"
    }  # type: ignore[union-attr]
    # After an interrupt each arm has runs: they alternate.
    assert [run.arm for run in results.records] == [*results] * 2
    # The turn after it is not told of another selection.
    after = await session.chat_async("What is 3 + 3?")
    assert not [change for change in after.prefix_changes if change.cause == "selection"]
    session.conversations.new()


def test_several_prompts_have_checks_of_their_own(session: Session) -> None:
    prompts = [ASK, "What time is it in Tokyo when it is 14:30 in Oslo?"]
    checks = [re.compile(r"\b3\d1\b"), lambda turn: turn.tool_calls[-1].tool.server == "x"]
    results = session.experiments.compare(prompts, models=["planner", "second"], check=checks)
    assert [(run.message, run.right) for run in results.records] == [(prompts[0], True)] * 2 + [
        (prompts[1], False)
    ] * 2
    assert [results[name] is arm for name, arm in results.items()] == [True] * 2
    part = results.of_cases(results.cases[:1])
    assert results.of_cases(iter(results.cases[:1])) == part
    assert results.of_cases(case for case in results.cases).cases == results.cases
    assert shares(results) == {"planner": 0.5, "second": 0.5}
    assert shares(part) == {"planner": 1, "second": 1}
    assert {run.model for run in results.records} == {"planner", "second"}


def test_a_prompt_without_a_check_is_compared_and_not_judged(session: Session) -> None:
    results = session.experiments.compare(ASK, discovery=[False, True])
    assert [(run.made, run.right, run.outcome) for run in results.records] == [
        (True, None, "not judged")
    ] * 2
    assert (results.judged, results.problems(), results.not_made) == (False, [], ())
    assert "not checked" in str(results)


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("391", "It is 391.", True),
        ("391", "It is 1391.", False),
        ("391", "It is 391.5", False),
        ("391", "1,391", False),
        ("391", "It is -391.", False),
        ("391", "390-391", True),
        ("oslo", "In Oslo it rains.", True),
        ("C++", "C++ it is", True),
        ("Os", "Oslo", False),
    ],
)
async def test_a_text_is_found_as_whole_words(
    chat: McpToolChat, text: str, answer: str, right: bool
) -> None:
    results = await compared(chat, {"a": scripted_model(answer)}, check=text)
    assert results.records[0].right is right


async def test_one_arm_that_fails_costs_the_others_nothing(chat: McpToolChat) -> None:
    models = {
        "broken": scripted_model(ProviderError("No.")),
        "fine": scripted_model(call("desk__note", text="x"), "done"),
    }
    results = await compared(chat, models, check="done")
    broken = results["broken"]
    assert [run.made for run in results.records] == [False, True]
    assert "No." in broken.records[0].detail
    assert (shares(results), broken.not_made) == ({"broken": None, "fine": 1}, 1)
    assert broken.spread("steps") is None
    assert (results.status, results.cheapest) == ("done", None)


async def test_a_check_that_raises_ends_nothing_and_one_may_be_awaited(chat: McpToolChat) -> None:
    def check(turn: Turn) -> bool:
        raise LookupError("no such thing")

    async def slowly(turn: Turn) -> bool:
        await asyncio.sleep(0)
        return turn.answer == "done"

    (run,) = (await compared(chat, {"a": scripted_model("done")}, check=check)).records
    assert (run.made, run.right) == (True, False)
    for text in ("done", "not yet"):
        (run,) = (await compared(chat, {"a": scripted_model(text)}, check=slowly)).records
        assert run.right is (text == "done")


async def test_a_cancelled_comparison_keeps_completed_runs() -> None:
    waiting = asyncio.Event()
    server: FastMCP[Any] = FastMCP("slow")

    @server.tool
    async def wait() -> str:
        """Wait."""
        waiting.set()
        await asyncio.Event().wait()
        return ""

    async with McpToolChat.from_config({}, in_process={"slow": server}) as chat:
        models = {"a": scripted_model("one", "two"), "b": scripted_model(call("slow__wait"))}
        comparing = comparison(chat, models, None, 2)
        await comparing.prepare()
        running = asyncio.create_task(comparing.run())
        await waiting.wait()
        now = comparing.results
        assert (now.status, {arm for _, arm in now.active}) == ("running", {"b"})
        assert "b: " in str(now)
        running.cancel()
        await asyncio.wait({running})
        results = comparing.results
        assert running.cancelled()
    assert (results.status, results.active) == ("stopped", frozenset())
    assert [run.arm for run in results.records] == ["a"]
    assert results["b"].spread("steps") is None


def test_approvals_of_a_comparison_stay_in_it() -> None:
    server: FastMCP[Any] = FastMCP("shop")

    @server.tool(annotations={"destructiveHint": True})
    def burn() -> str:
        """Burn it."""
        return "burnt"

    with Session.from_config(
        {}, in_process={"shop": server}, approval={"shop": "destructive"}
    ) as session:
        session.questions.panel_opened()
        questions: list[str] = []

        def answer() -> None:
            for question in session.questions:
                if question.kind == "approval" and not question.future.done():
                    questions.append(question.id)
                    question.approve(for_conversation=True)  # type: ignore[attr-defined]

        session.observe(changes=answer)
        session.questions._channel = lambda: "panel"  # type: ignore[method-assign]
        model = scripted_model(*[call("shop__burn"), "done"] * 3)
        results = session.experiments.compare("Go", models=[model], repeats=2)
        assert [run.made for run in results.records] == [True, True]
        assert len(questions) == 1
        session.submit("Go", model=model).result(30)
        assert len(questions) == 2


def measured(name: str, prompt: str = "p", **figures: Any) -> RunRecord:
    """A run with these figures."""
    values = {"input_tokens": 100, "discovery": "on" in name, "searchable": 5, **figures}
    reused = {
        "tokens_reused": 0,
        "cold_reused": values.pop("cold", 0),
        "warm_reused": values.pop("warm", 0),
    }
    if "cost" in values:
        values |= {
            "cold_cost": values["cost"],
            "warm_cost": values["cost"],
            "currency": values.get("currency", "USD"),
        }
    return RunRecord(f"{name} {prompt}", prompt, name, 0, prompt, (prompt,), **{**reused, **values})


def of(*runs: RunRecord, **fields: Any) -> RunResults:
    arms = [Arm(name, discovery="on" in name) for name in dict.fromkeys(run.arm for run in runs)]
    return RunResults(runs, tuple(arms), tuple(dict.fromkeys(run.case for run in runs)), **fields)


def test_discovery_loses_where_it_costs_more_or_answers_wrong() -> None:
    dear = of(measured("off"), measured("on", input_tokens=150))
    (effect,) = dear.discovery_effects
    assert effect.loses
    assert effect.costs_more
    assert (effect.price.cold, effect.every_tool_loaded.cold, effect.fewer_right) == (
        150,
        100,
        None,
    )
    wrong = of(measured("off", right=True), measured("on", input_tokens=20, right=False))
    (effect,) = wrong.discovery_effects
    assert effect.loses
    assert not effect.costs_more
    assert effect.fewer_right == 1
    # The cheaper arm is not the cheapest of those that are right.
    assert wrong.cheapest is not None
    assert wrong.cheapest.arm.name == "off"
    (effect,) = of(measured("on", undeferred_tokens=80)).discovery_effects
    assert (effect.off, effect.loses, effect.every_tool_loaded.cold) == (None, True, 80)
    assert of(measured("off"), measured("on", searchable=0)).discovery_effects == ()
    for results in (dear, wrong):
        html = results._repr_html_()
        assert "loses" in html
        assert "loses" in str(results)


@pytest.mark.parametrize(
    "fields", [{"made": False, "detail": "502"}, {"made": True, "detail": "Not graded yet."}]
)
def test_a_run_without_a_verdict_counts_neither_as_right_nor_as_wrong(
    fields: dict[str, Any],
) -> None:
    """A third run of the cheap arm has no verdict, whatever the dear arm's runs are."""

    def repeat(number: int, arm: str, right: bool | None, **figures: Any) -> RunRecord:
        tokens = 20 if arm == "on" else 100
        return replace(
            measured(arm, input_tokens=tokens, right=right, **figures),
            key=f"{arm} {number}",
            repeat=number,
        )

    for rights in ([True, True], [True, False]):
        runs = [repeat(number, "off", right) for number, right in enumerate(rights)]
        runs += [repeat(number, "on", right) for number, right in enumerate(rights)]
        runs.append(repeat(2, "on", None, **fields))
        results = of(*runs)
        assert shares(results) == dict.fromkeys(["off", "on"], sum(rights) / 2)
        assert results.cheapest is not None
        assert results.cheapest.arm.name == "on"
        (effect,) = results.discovery_effects
        assert (effect.fewer_right, effect.loses) == (0, False)
        assert "less often right" not in " ".join(price_conclusions(results))
        # They are counted beside the share.
        on = results["on"]
        assert (on.not_made, on.not_graded) == (int(not fields["made"]), int(fields["made"]))
        assert "neither right nor wrong" in str(results)


def test_arms_are_ranked_by_the_cases_in_which_all_have_a_verdict() -> None:
    """A hard case that only one arm was graded in costs that arm nothing."""
    results = of(
        measured("off", "easy", right=True),
        measured("on", "easy", input_tokens=20, right=True),
        measured("off", "hard", right=None, detail="Not graded yet."),
        measured("on", "hard", input_tokens=20, right=False),
    )
    (effect,) = results.discovery_effects
    assert effect.fewer_right == 0
    assert [arm.arm.name for arm in best_of(results.comparable)] == ["off", "on"]
    # Without such a case nothing ranks them.
    apart = results.of_cases(["hard"])
    (effect,) = apart.discovery_effects
    assert effect.fewer_right is None
    assert [arm.arm.name for arm in best_of(apart.comparable)] == ["off", "on"]


def test_costs_decide_where_all_runs_have_one() -> None:
    both = of(measured("a", input_tokens=900, cost=0.01), measured("b", cost=0.02))
    assert both.cheapest is not None
    assert both.cheapest.arm.name == "a"
    one = of(measured("a", input_tokens=900, cost=0.01), measured("b"))
    assert one.cheapest is not None
    assert one.cheapest.arm.name == "b"
    assert one["b"].spread("cost") is None
    assert (
        of(measured("a", cost=0.01), measured("a", cost=1, currency="EUR"))["a"].spread("cost")
        is None
    )


def test_more_reused_tokens_are_better() -> None:
    runs = [measured("a", right=True), measured("b", right=True)]
    runs[1] = replace(runs[1], tokens_reused=50)
    comparison = of(*runs).compare("a", "b")
    assert comparison is not None
    reused = comparison.measures["tokens_reused"]
    assert (reused.better, reused.worse) == (1, 0)


def test_costs_in_several_currencies_are_not_compared() -> None:
    mixed = of(measured("a", cost=1), measured("a", prompt="q", cost=150, currency="JPY"))
    assert mixed["a"].mean("cost") is None
    judged = [measured("a", cost=1, right=True), measured("b", cost=150, right=True)]
    same = of(*judged).compare("a", "b")
    assert same is not None
    assert same.measures["cost"].mean == 149
    other = replace(judged[1], currency="JPY")
    different = of(judged[0], other).compare("a", "b")
    assert different is not None
    assert "cost" not in different.measures


@pytest.mark.parametrize("count", [0, -1, 1.5, "2"])
def test_a_number_of_tests_is_a_whole_number_from_1(count: Any) -> None:
    results = of(measured("a", right=True), measured("b", right=True))
    with pytest.raises(UsageError, match="tests"):
        results.compare("a", "b", tests=count)
    with pytest.raises(UsageError, match="looks"):
        results.comparisons(looks=count)


def test_an_arm_has_its_cost_from_the_price_table_and_its_tokens_from_the_provider() -> None:
    prices = {"m-1": {"input": 1_000, "output": 10_000, "currency": "EUR"}}
    with (
        Provider(answer("openai", "Hi.")) as server,
        Session(server.config("openai"), in_process={}, prices=prices, quiet=True) as session,
    ):
        free = scripted_model("Hi.")
        paid = session.experiments.compare("Hello", repeats=2)
        mixed = session.experiments.compare("Hello", models=[*session.config.models, free])
    (arm,) = paid.values()
    cost = arm.spread("cost")
    assert cost is not None
    assert (cost.mean, arm.currency, arm.origin) == (pytest.approx(0.1), "EUR", "reported")
    assert [run.output_tokens for run in paid.records] == [7, 7]
    assert "0.1000 EUR" in paid._repr_html_()
    # Without a cost for each run, tokens decide.
    assert mixed["scripted"].spread("cost") is None
    assert mixed.cheapest is not None


def test_only_prompts_that_all_arms_answered_are_compared() -> None:
    results = of(
        measured("a", prompt="p", input_tokens=10),
        measured("b", prompt="p", input_tokens=20),
        measured("a", prompt="long", input_tokens=1_000),
        measured("b", prompt="long", made=False),
    )
    assert [len(arm.records) for arm in results.comparable] == [1, 1]
    # It is the cheaper one there.
    assert results.cheapest is not None
    assert results.cheapest.arm.name == "a"


def test_means_spread_and_unknown_figures() -> None:
    arm = of(
        measured("a", seconds=1.0, steps=2), measured("a", seconds=3.0, steps=2, output_tokens=5)
    )["a"]
    seconds = arm.spread("seconds")
    assert seconds is not None
    assert (seconds.mean, seconds.low, seconds.high) == (2.0, 1.0, 3.0)
    assert arm.spread("output_tokens") is None
    assert measured("a", cold=100).priced_tokens("cold") == pytest.approx(10)


def test_waiting_for_the_person_is_not_counted_as_run_time() -> None:
    trace = Trace([TurnStarted((), "m")])
    for event in (
        ApprovalAsked("1", at=1.0),
        ApprovalAsked("2", at=2.0),
        ApprovalAnswered("1", at=5.0),
        ApprovalAnswered("2", at=6.0),
        TurnFinished("done", at=8.0),
    ):
        trace.append(event)
    assert with_figures(measured("a"), [Turn(trace)], scripted_model("")).seconds == pytest.approx(
        3.0
    )


async def test_reused_tokens_are_those_that_the_provider_reports(chat: McpToolChat) -> None:
    model = scripted_model("done")
    answered = (await compared(chat, {"a": model})).records[0].turn
    assert answered is not None
    usage = TokenUsage(1_000, 20, 400)
    events = [
        replace(event, usage=usage) if isinstance(event, StepFinished) else event
        for event in answered.trace
    ]
    run = with_figures(measured("a"), [Turn(Trace(events))], model)
    assert (run.tokens_in_full, run.tokens_reused, run.output_tokens) == (600, 400, 20)
    assert (run.origin, run.reused_origin) == ("reported", "reported")


def test_it_is_exported(session: Session, tmp_path: Path) -> None:
    comparison = session.experiments.compare(ASK, discovery=[False, True], check="391")
    page = comparison.export(tmp_path / "c.html").read_text("utf-8")
    assert "<script" not in page
    assert "://" not in page
    with comparison.export(tmp_path / "c.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == ["discovery off", "discovery on"]
    assert {row["right"] for row in rows} == {"True"}
    data = json.loads(comparison.export(tmp_path / "c.json").read_text("utf-8"))
    assert data["runs"] == json.loads(json.dumps(comparison.rows()))
    with pytest.raises(UsageError):
        comparison.export(tmp_path / "c.json")
    with pytest.raises(UsageError):
        comparison.export(tmp_path / "c.xlsx")
    assert (
        of(measured("a", answer="=1+1"))
        .export(tmp_path / "e.csv")
        .read_text("utf-8")
        .count("'=1+1")
        == 1
    )


def test_results_without_a_run_are_exported_with_their_columns(tmp_path: Path) -> None:
    nothing = RunResults((), (Arm("a"),), ("c",), status="stopped")
    head, *rows = nothing.export(tmp_path / "c.csv").read_text("utf-8").splitlines()
    assert rows == []
    assert head.split(",") == list(of(measured("a")).rows()[0]) == list(nothing.frame())


def test_its_forms_say_the_same_and_hostile_text_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>\x1b[2J"
    runs = (
        measured("a", answer=evil, called=(evil,), detail=evil),
        measured("b", prompt=evil, made=False, detail=evil),
    )
    bundle = of(*runs)._repr_mimebundle_()
    assert "<img" not in bundle["text/html"]
    assert "\x1b" not in "".join(bundle.values())
    many = of(*(measured(f"arm {number}", answer="word " * 2_000) for number in range(100)))
    assert sum(len(form.encode()) for form in many._repr_mimebundle_().values()) <= 64 * 1024


def test_an_unknown_model_is_named_with_the_closest(session: Session) -> None:
    with pytest.raises(UnknownNameError) as caught:
        session.experiments.compare(ASK, models=["planer", "second"])
    assert "planner" in caught.value.matches
