"""Comparisons: the same prompts in several variants, the usage of each, the cheapest one, and where discovery loses."""

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
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import ApprovalAnswered, ApprovalAsked, StepFinished, TurnFinished, TurnStarted
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ProviderError, UnknownNameError, UsageError
from casual_mcp_nb.experiments.arms import Comparing, Ways, checks_of, options_of
from casual_mcp_nb.experiments.results import ComparedRun, Comparison, Way
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}, "keyless": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}, "second": {"client": "keyless", "model": "planner"}},
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
    async with McpToolChat.from_config({}, in_process={"weather": weather(), "desk": desk()}) as chat:
        yield chat


def names(session: Session, **ways: Any) -> list[str]:
    return [way.name for way in options_of(session.parts.turn_service._chat, Ways(**ways), TurnOptions())]


async def compared(chat: McpToolChat, models: dict[str, Any], **options: Any) -> Comparison:
    """Compare models that play lists."""
    ways = {Way(name, model=name): TurnOptions(model=model) for name, model in models.items()}
    checks = checks_of(options.pop("check", None), ["Go"])
    comparing = Comparing(chat, ways, ["Go"], checks=checks, **options)
    await comparing.run()
    return comparing.comparison


def test_the_ways_are_all_combinations_and_without_discovery_there_is_one(session: Session) -> None:
    assert names(session) == ["as the session is set"]
    assert names(session, discovery=[False, True], deliveries=["definitions", "bridge"]) == [
        "discovery off",
        "discovery on · definitions",
        "discovery on · bridge",
    ]
    assert names(session, models=["planner"], strategies=["search", "browse"]) == ["search", "browse"]
    assert names(session, models=["planner"]) == ["planner"]
    assert names(session, discovery=["auto", True]) == ["discovery auto", "discovery on"]
    assert names(session, tool_sets=[None, "numbers"]) == ["all tools", "numbers"]
    assert len(names(session, models=["planner", "second"], discovery=[False, True], tool_sets=[None, "numbers"])) == 8


@pytest.mark.parametrize(
    "ways",
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
def test_wrong_arguments_are_an_error_before_anything_runs(session: Session, ways: dict[str, Any]) -> None:
    before, calls = session.experiments.comparison, len(session.consent.audit)
    with pytest.raises(UsageError):
        session.experiments.compare(ASK, **ways)
    assert (session.experiments.comparison, len(session.consent.audit)) == (before, calls)


def test_ways_that_cannot_differ_are_an_error(session: Session) -> None:
    session.selection.discovery = False
    try:
        with pytest.raises(UsageError):
            session.experiments.compare(ASK, deliveries=["definitions", "bridge"])
        assert names(session, discovery=[True], deliveries=["definitions", "bridge"])
    finally:
        session.selection.discovery = True


@pytest.mark.parametrize("prompt", ["", " ", [], [""], [3], 3], ids=repr)
def test_a_prompt_is_a_text_or_several(session: Session, prompt: Any) -> None:
    with pytest.raises(UsageError):
        session.experiments.compare(prompt)


async def test_the_session_stays_as_it_is_and_each_way_is_measured(session: Session) -> None:
    await session.chat_async("What is 2 + 2?")
    selection, turns, messages = session.selection.key(), list(session.turns), session.messages
    comparison = await session.experiments.compare_async(
        ASK, discovery=[False, True], deliveries=["definitions", "bridge"], repeats=2, check="391"
    )
    assert (session.selection.key(), session.turns, session.messages) == (selection, turns, messages)
    assert session.experiments.comparison == comparison
    assert not session.parts.runner.busy
    off, definitions, bridge = comparison.values()
    assert [(len(each.done), each.right, each.checked) for each in (off, definitions, bridge)] == [(2, 2, 2)] * 3
    for run in comparison.runs:
        assert run.turn is not None
        stats = run.turn.stats
        assert run.tools == ("math:evaluate_expression",)
        assert run.input_tokens == stats.sent_tokens
        assert run.tokens_reused == stats.reused_tokens > 0
        assert (run.origin, run.reused_origin) == ("estimated", "estimated")
        assert (run.calls, run.searches) == (1, int(bool(run.discovery)))
        assert run.output_tokens is run.cost is None
        assert run.turn.started.messages == (UserMessage(content=ASK),)
    assert {step.request.delivery for run in bridge.runs for step in run.turn.steps} == {"bridge"}  # type: ignore[union-attr]
    assert comparison.cheapest is not None
    assert comparison.cheapest.way == bridge.way
    assert not any(effect.loses for effect in comparison.discovery_effects)
    # The turn after it is not told of another selection.
    after = await session.chat_async("What is 3 + 3?")
    assert not [change for change in after.prefix_changes if change.cause == "selection"]
    session.conversations.new()


def test_several_prompts_have_checks_of_their_own(session: Session) -> None:
    prompts = [ASK, "What time is it in Tokyo when it is 14:30 in Oslo?"]
    checks = [re.compile(r"\b3\d1\b"), lambda turn: turn.tool_calls[-1].tool.server == "x"]
    comparison = session.experiments.compare(prompts, models=["planner", "second"], check=checks)
    assert [(run.prompt, run.right) for run in comparison.runs] == [(prompts[0], True)] * 2 + [(prompts[1], False)] * 2
    assert [result.right for result in comparison.values()] == [1, 1]
    part = comparison.of_prompt(prompts[0])
    assert [result.right for result in part.values()] == [1, 1]
    assert {run.model for run in comparison.runs} == {"planner", "second"}


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("391", "It is 391.", True),
        ("391", "It is 1391.", False),
        ("391", "It is 391.5", False),
        ("391", "1,391", False),
        ("oslo", "In Oslo it rains.", True),
        ("C++", "C++ it is", True),
        ("Os", "Oslo", False),
    ],
)
async def test_a_text_is_found_as_whole_words(chat: McpToolChat, text: str, answer: str, right: bool) -> None:
    comparison = await compared(chat, {"a": scripted_model(answer)}, check=text)
    assert comparison.runs[0].right is right


async def test_one_way_that_fails_costs_the_others_nothing(chat: McpToolChat) -> None:
    models = {"broken": scripted_model(ProviderError("No.")), "fine": scripted_model(call("desk__note", text="x"), "done")}
    comparison = await compared(chat, models, check="done")
    broken, fine = comparison.values()
    assert [run.status for run in comparison.runs] == ["failed", "done"]
    assert "No." in (broken.runs[0].error or "")
    assert (broken.right, fine.right, broken.failed) == (0, 1, 1)
    assert broken.figure("steps") is None
    assert (comparison.status, comparison.cheapest) == ("done", None)


async def test_a_check_that_raises_loses_nothing(chat: McpToolChat) -> None:
    def check(turn: Turn) -> bool:
        raise LookupError("no such thing")

    async def slowly(turn: Turn) -> bool:
        await asyncio.sleep(0)
        return turn.answer == "done"

    (run,) = (await compared(chat, {"a": scripted_model("done")}, check=check)).runs
    assert (run.status, run.right) == ("done", None)
    assert "LookupError" in run.problem
    assert (await compared(chat, {"a": scripted_model("done")}, check=slowly)).runs[0].right is True


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
        ways = {Way(name): TurnOptions(model=model) for name, model in models.items()}
        comparing = Comparing(chat, ways, ["Go"], repeats=2)
        running = asyncio.create_task(comparing.run())
        await waiting.wait()
        assert comparing.comparison.status == "running"
        assert comparing.comparison.running is not None
        assert comparing.comparison.running.steps == 1
        running.cancel()
        await asyncio.wait({running})
        comparison = comparing.comparison
        assert running.cancelled()
    assert comparison.status == "stopped"
    assert [run.status for run in comparison.runs] == ["done", "stopped", "stopped", "stopped"]
    stopped = comparison.runs[1].turn
    assert stopped is not None
    assert stopped.status == "stopped"
    assert [message.role for message in stopped.messages] == ["user", "assistant", "tool"]
    assert comparison["b"].figure("steps") is None


def test_approvals_of_a_comparison_stay_in_it() -> None:
    server: FastMCP[Any] = FastMCP("shop")

    @server.tool(annotations={"destructiveHint": True})
    def burn() -> str:
        """Burn it."""
        return "burnt"

    with Session.from_config({}, in_process={"shop": server}, approval={"shop": "destructive"}) as session:
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
        comparison = session.experiments.compare("Go", models=[model], repeats=2)
        assert [run.status for run in comparison.runs] == ["done", "done"]
        assert len(questions) == 1
        session.submit("Go", model=model).result(30)
        assert len(questions) == 2


def measured(name: str, **figures: Any) -> ComparedRun:
    """A run with these figures."""
    values = {"status": "done", "tokens_in_full": 100, "tokens_reused": 0, "discovery": "on" in name, "deferred": 5, **figures}
    return ComparedRun(Way(name, discovery="on" in name), values.pop("prompt", "p"), **values)


def of(*runs: ComparedRun, **fields: Any) -> Comparison:
    ways, prompts = dict.fromkeys(run.way for run in runs), dict.fromkeys(run.prompt for run in runs)
    return Comparison(runs, tuple(ways), tuple(prompts), **fields)


def test_discovery_loses_where_it_costs_more_or_answers_wrong() -> None:
    dear = of(measured("off"), measured("on", tokens_in_full=150))
    (effect,) = dear.discovery_effects
    assert effect.loses
    assert effect.costs_more
    assert (effect.price, effect.every_tool_loaded, effect.fewer_right) == (150, 100, None)
    wrong = of(measured("off", right=True), measured("on", tokens_in_full=20, right=False))
    (effect,) = wrong.discovery_effects
    assert effect.loses
    assert not effect.costs_more
    assert effect.fewer_right == 1
    # The cheaper way is not the cheapest of those that are right.
    assert wrong.cheapest is not None
    assert wrong.cheapest.way.name == "off"
    (effect,) = of(measured("on", undeferred_tokens=80)).discovery_effects
    assert (effect.off, effect.loses, effect.every_tool_loaded) == (None, True, 80)
    assert of(measured("off"), measured("on", deferred=0)).discovery_effects == ()
    for comparison in (dear, wrong):
        html = comparison._repr_html_()
        assert "loses" in html
        assert "loses" in str(comparison)


def test_costs_decide_where_all_ways_have_one() -> None:
    cheap, dear = Cost(0.01, "USD"), Cost(0.02, "USD")
    both = of(measured("a", tokens_in_full=900, cost=cheap), measured("b", cost=dear))
    assert both.cheapest is not None
    assert both.cheapest.way.name == "a"
    one = of(measured("a", tokens_in_full=900, cost=cheap), measured("b"))
    assert one.cheapest is not None
    assert one.cheapest.way.name == "b"
    assert one["b"].figure("cost") is None
    assert of(measured("a", cost=cheap), measured("a", cost=Cost(1, "EUR")))["a"].figure("cost") is None


def test_a_way_has_its_cost_from_the_price_table_and_its_tokens_from_the_provider() -> None:
    prices = {"m-1": {"input": 1_000, "output": 10_000, "currency": "EUR"}}
    with (
        Provider(answer("openai", "Hi.")) as server,
        Session(server.config("openai"), in_process={}, prices=prices, quiet=True) as session,
    ):
        free = scripted_model("Hi.")
        paid = session.experiments.compare("Hello", repeats=2)
        mixed = session.experiments.compare("Hello", models=[*session.config.models, free])
    (result,) = paid.values()
    cost = result.figure("cost")
    assert cost is not None
    assert (cost.mean, result.currency, result.origin) == (pytest.approx(0.1), "EUR", "reported")
    assert [run.output_tokens for run in paid.runs] == [7, 7]
    assert "0.1000 EUR" in paid._repr_html_()
    # Without a cost for each way, tokens decide.
    assert mixed["scripted"].figure("cost") is None
    assert mixed.cheapest is not None


def test_only_prompts_that_all_ways_answered_are_compared() -> None:
    runs = (
        measured("a", prompt="p", tokens_in_full=10),
        measured("b", prompt="p", tokens_in_full=20),
        measured("a", prompt="long", tokens_in_full=1_000),
        measured("b", prompt="long", status="stopped"),
    )
    comparison = of(*runs, status="stopped")
    assert comparison.cheapest is not None
    assert comparison.cheapest.way.name == "a"
    assert [len(result.runs) for result in comparison.comparable] == [1, 1]


def test_means_spread_and_unknown_figures() -> None:
    result = of(measured("a", seconds=1.0, steps=2), measured("a", seconds=3.0, steps=2, output_tokens=5))["a"]
    seconds = result.figure("seconds")
    assert seconds is not None
    assert (seconds.mean, seconds.low, seconds.high, seconds.runs) == (2.0, 1.0, 3.0, 2)
    assert result.figure("output_tokens") is None
    assert result.weighted_tokens == 100
    assert of(measured("a", tokens_reused=100))["a"].weighted_tokens == pytest.approx(110)


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
    assert ComparedRun(Way("a"), "p", turn=Turn(trace)).measured().seconds == pytest.approx(3.0)


async def test_reused_tokens_are_those_that_the_provider_reports(chat: McpToolChat) -> None:
    model = scripted_model("done")
    answered = (await compared(chat, {"a": model})).runs[0].turn
    assert answered is not None
    usage = TokenUsage(1_000, 20, 400)
    events = [replace(event, usage=usage) if isinstance(event, StepFinished) else event for event in answered.trace]
    run = ComparedRun(Way("a"), "p", turn=Turn(Trace(events))).measured()
    assert (run.tokens_in_full, run.tokens_reused, run.output_tokens) == (600, 400, 20)
    assert (run.origin, run.reused_origin) == ("reported", "reported")


def test_it_is_exported(session: Session, tmp_path: Path) -> None:
    comparison = session.experiments.compare(ASK, discovery=[False, True], check="391")
    page = comparison.export(tmp_path / "c.html").read_text("utf-8")
    assert "<script" not in page
    assert "://" not in page
    with comparison.export(tmp_path / "c.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == ["discovery off", "discovery on"]
    assert {row["right"] for row in rows} == {"True"}
    data = json.loads(comparison.export(tmp_path / "c.json").read_text("utf-8"))
    assert data["runs"] == json.loads(json.dumps(comparison.rows()))
    with pytest.raises(UsageError):
        comparison.export(tmp_path / "c.json")
    with pytest.raises(UsageError):
        comparison.export(tmp_path / "c.xlsx")
    assert of(measured("a", answer="=1+1")).export(tmp_path / "e.csv").read_text("utf-8").count("'=1+1") == 1


def test_its_forms_say_the_same_and_hostile_text_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>\x1b[2J"
    runs = measured("a", answer=evil, tools=(evil,), error=evil), measured("b", prompt=evil, status="failed", error=evil)
    comparison = of(*runs)
    bundle = comparison._repr_mimebundle_()
    assert "<img" not in bundle["text/html"]
    assert "\x1b" not in "".join(bundle.values())
    many = of(*(measured(f"way {number}", answer="word " * 2_000) for number in range(100)))
    assert sum(len(form.encode()) for form in many._repr_mimebundle_().values()) <= 64 * 1024


def test_an_unknown_model_is_named_with_the_closest(session: Session) -> None:
    with pytest.raises(UnknownNameError) as caught:
        session.experiments.compare(ASK, models=["planer", "second"])
    assert "planner" in caught.value.matches
