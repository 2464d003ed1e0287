"""Spend limits: no request to a model passes one, whoever makes it, over restarts and kernels."""

from __future__ import annotations

import ast
import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from experiments.test_runs import model_of
from kit.waiting import until
from kit.weather import weather
from pydantic import BaseModel

import casual_mcp_nb
from casual_mcp_nb import Session
from casual_mcp_nb.base.config import PERIODS, Period, SpendLimits
from casual_mcp_nb.base.mcp import SamplingRefused, SamplingRequest
from casual_mcp_nb.base.prices import Price
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.conversation.store import ConversationStore
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import (
    IncompleteStreamError,
    OverloadedError,
    ProviderError,
    SpendLimitError,
    UsageError,
)
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.graded import Judge
from casual_mcp_nb.experiments.matchers import Graded
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.providers import spending
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.providers.spending import Account, Charge, Spending

OUTPUT = 200
PLANNER = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {"math": {"bundled": "math", "transport": "in-process"}},
}
DOLLAR_FOR_EACH_TOKEN = Price(input=1e6, output=1e6, cache_write=1e6)


def answer(item: Any, tokens: int = 300, output: int = OUTPUT) -> Callable[..., ModelResponse]:
    """Answer with a text or a call, and report what it took."""
    client: Any = scripted_model().client

    def respond(_messages: Any, _tools: Any) -> ModelResponse:
        response = client._as_answer(item)
        return ModelResponse(response.message, TokenUsage(tokens, output), response.finish_reason)

    return respond


def asked(model: ChatModel) -> int:
    """How many requests reached a model."""
    client: Any = model.client
    return len(client.requests)


def session_with(store: Path | None = None, config: Any = None) -> Session:
    return Session(config or {}, in_process={"weather": weather()}, store=store, quiet=True)


def chat(session: Session, model: ChatModel, **options: Any) -> Turn:
    return session.chat("Hello", model=model, echo="none", max_tokens=OUTPUT, **options)


def used(session: Session, period: Period) -> int:
    return session.limits[PERIODS.index(period)].tokens


def is_refused(turn: Turn) -> bool:
    return turn.failure is not None and turn.failure.kind == "spend_limit"


@pytest.fixture
def session() -> Iterator[Session]:
    with session_with() as session:
        yield session


@pytest.mark.parametrize("period", PERIODS)
def test_a_limit_ends_a_turn_in_its_middle_and_is_not_passed(period: Period) -> None:
    limits = {"limits": {"max_total_tokens": {period: 2_000}}}
    model = scripted_model(*[answer(call("weather__forecast", city="Oslo"))] * 9, answer("Done"))
    with session_with(config=limits) as session:
        turn = chat(session, model)
        assert (turn.status, is_refused(turn), asked(model)) == ("failed", True, 3)
        assert used(session, period) == 1_500
        # The last step's request was not sent.
        assert (len(turn.steps), len(turn.stats.steps), turn.stats.sent_tokens) == (4, 3, 900)
        assert [message.role for message in turn.messages][-1] == "tool"
        error = turn.exception
        assert isinstance(error, SpendLimitError)
        assert f'session.limits.set("{period}"' in error.hint
        assert f"limits.max_total_tokens.{period}" in error.hint
        # The history is valid, and the conversation goes on with a higher limit.
        session.limits.set(period, max_total_tokens=10_000)
        assert session.chat("Go on", model=scripted_model("Yes"), echo="none").answer == "Yes"


def test_dollars_are_counted_by_the_price_at_most_one_answer_too_late(session: Session) -> None:
    # The answers are longer than the usual ones that are reserved at first.
    model = scripted_model(*[answer("Yes", 10, 5_000)] * 9)
    model.price = DOLLAR_FOR_EACH_TOKEN
    session.limits.set("conversation", max_cost=12_000)
    turns = [session.chat("Hello", model=model, echo="none") for _ in range(3)]
    assert [turn.status for turn in turns] == ["done", "done", "failed"]
    assert session.limits[1].cost == 10_020


def test_the_person_is_told_once_from_four_fifths_on(session: Session) -> None:
    session.limits.set("day", max_total_tokens=4_000)
    model = scripted_model(*[answer("Yes")] * 9)
    notices = [[notice.text for notice in chat(session, model).notices] for _ in range(7)]
    assert [len(texts) for texts in notices] == [0, 0, 0, 0, 0, 0, 1]
    assert "3,500 of 4,000 tokens" in notices[6][0]


@pytest.mark.parametrize(
    "price", [None, Price(input=1, output=1, currency="EUR")], ids=["none", "euro"]
)
def test_a_model_without_a_price_in_dollars_is_not_asked(
    session: Session, price: Price | None
) -> None:
    model = scripted_model(answer("Yes"), answer("Yes"))
    model.price = price
    session.limits.set("day", max_cost=5)
    turn = chat(session, model)
    assert (is_refused(turn), asked(model), turn.stats.sent_tokens) == (True, 0, 0)
    assert "prices" in str(turn.error)
    session.limits.clear("day")
    assert chat(session, model).status == "done"
    assert "1 request without a price" in str(session.limits)


def test_the_offline_planner_costs_nothing() -> None:
    with Session.demo() as session:
        session.limits.set("turn", max_cost=0.01)
        assert session.chat("What is 2 + 3?", echo="none").status == "done"
        assert session.limits[0].cost == 0
        assert session.limits[0].tokens > 0


@pytest.mark.parametrize(
    ("failure", "taken"),
    [
        (OverloadedError("Busy.", status=529), False),
        (ProviderError("The address cannot be reached."), False),
        (IncompleteStreamError("It broke off."), True),
        (RuntimeError("Unknown."), False),
    ],
    ids=["refused", "not reached", "broken off", "own client"],
)
def test_what_no_provider_asks_money_for_is_not_counted(
    session: Session, failure: Exception, taken: bool
) -> None:
    session.limits.set("day", max_total_tokens=9_000)
    assert chat(session, scripted_model(failure)).status == "failed"
    assert (used(session, "day") > OUTPUT) == taken


class City(BaseModel):
    name: str


CASE = ToolUseCase("Hello", no_call=True)
GRADED = ToolUseCase("Hello", answer=Graded("It is polite."))
GRADE = '{"reason": "It is.", "label": "right"}'
PROPOSAL = '[{"description": "Forecast the weather."}]'
PROGRAM = "```python\nresult = 1\n```"


def allow_all(session: Session) -> None:
    """Let the person allow what they are asked."""

    async def allow(_request: Any) -> bool:
        return True

    consent = session.parts.chat.consent
    consent.approver, consent.can_ask = allow, lambda: True


def sample(session: Session, model: ChatModel) -> None:
    models = session.parts.chat.models
    models._bound[model.name], models._default = model, model.name
    request = SamplingRequest((("user", "How many?"),), "", OUTPUT)
    session.parts.engine.run(session.parts.chat.sampling.answer("weather", request))


def chat_apart(session: Session, model: ChatModel) -> None:
    """As a client of the HTTP API does."""
    apart = session.parts.chat.apart(private=True)
    session.parts.engine.run(apart.chat("Hello", model=model))


def judge(session: Session, model: ChatModel) -> None:
    results = session.experiments.results
    assert results is not None
    session.experiments.judge(results, [GRADED], Judge(model))


WAYS: dict[str, tuple[Callable[[Session, ChatModel], object], Any]] = {
    "chat": (chat, "Yes"),
    "plan": (lambda session, model: session.plan("Hello", model=model), "Yes"),
    "extract": (
        lambda session, model: session.extract("Oslo", City, model=model),
        '{"name": "Oslo"}',
    ),
    "write": (lambda session, model: session.models.write("Count", model=model), PROGRAM),
    "sampling": (sample, "Three"),
    "client of a service": (chat_apart, "Yes"),
    "evaluation": (
        lambda session, model: session.experiments.run([CASE], models=model, progress=False),
        "Yes",
    ),
    "judge": (judge, GRADE),
    "proposal": (
        lambda session, model: session.experiments.workshop("weather:forecast").propose(
            1, model=model
        ),
        PROPOSAL,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_request_of_a_session_counts_and_keeps_to_the_limits(
    session: Session, way: str
) -> None:
    ask, reply = WAYS[way]
    allow_all(session)
    if way == "judge":
        model = model_of("Yes")
        session.experiments.run([GRADED], models=model, judge=model_of("Yes"), progress=False)
    before = used(session, "day")
    model = scripted_model(*[answer(reply)] * 3)
    with suppress(UsageError):
        ask(session, model)
    assert asked(model) >= 1
    assert used(session, "day") == before + asked(model) * 500
    session.limits.set("day", max_total_tokens=used(session, "day") + 1)
    refused = scripted_model(*[answer(reply)] * 3)
    with suppress(UsageError, SpendLimitError, SamplingRefused):
        ask(session, refused)
    assert asked(refused) == 0
    assert used(session, "day") == before + asked(model) * 500


@pytest.mark.parametrize("at_once", [1, 9])
def test_an_evaluation_ends_at_a_limit_and_keeps_its_runs(session: Session, at_once: int) -> None:
    """Runs at the same time wait for what others have reserved."""
    session.limits.set("day", max_total_tokens=3_500)
    results = session.experiments.run(
        [CASE],
        models=model_of(answer("Yes")),
        repeats=9,
        concurrency=at_once,
        progress=False,
        max_tokens=1_500,
    )
    assert (results.status, len(results.records), used(session, "day")) == ("over budget", 4, 2_000)
    assert "spend limit" in str(results)


def test_runs_in_other_processes_keep_to_the_limits(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(PLANNER))
    cases = [ToolUseCase(f"What is {n} + 2?", ["math:add"], id=str(n)) for n in range(9)]
    with (
        Session.from_config(config, trust=True, store=tmp_path / "c.db", quiet=True) as session,
        ThreadPoolExecutor(2) as executor,
    ):
        session.limits.set("day", max_total_tokens=20_000)
        results = session.experiments.run(cases, executor=executor, progress=False)
        assert (results.status, 0 < len(results.records) < 9) == ("over budget", True)
        assert 10_000 < used(session, "day") <= 20_000
        # They are counted in one file.
        assert session.limits.now.rows[2].reserved == 0


def test_a_request_that_waits_can_be_stopped_and_reserves_nothing(session: Session) -> None:
    """So does one that is made for another, which could not end before it."""
    session.limits.set("day", max_total_tokens=1_000)
    account = session.parts.chat.account()
    asked, let = asyncio.Event(), asyncio.Event()

    def charge() -> Charge:
        return Charge(account, "model", None, lambda: 500, 0)

    async def inside() -> ModelResponse:
        with pytest.raises(SpendLimitError):
            await charge().counted(never)
        asked.set()
        await let.wait()
        return answer("Yes", 300)([], [])

    async def never() -> ModelResponse:
        raise AssertionError

    async def both() -> None:
        first = asyncio.create_task(charge().counted(inside))
        await asked.wait()
        second = asyncio.create_task(charge().counted(never))
        await until(lambda: account.spending.waiting)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        let.set()
        await first

    asyncio.run(both())
    assert (used(session, "day"), session.limits[2].reserved) == (500, 0)


async def test_a_stop_while_an_answer_is_counted_does_not_keep_it_from_that() -> None:
    limits = SpendLimits.model_validate({"max_total_tokens": {"day": 100_000}})
    spent = Spending(limits)
    charge = Charge(Account(spent, lambda: ""), "model", None, lambda: 10, 10)
    answered, free = asyncio.Event(), threading.Event()

    async def send() -> ModelResponse:
        # What counts does something else first.
        spent.thread.submit(free.wait)
        answered.set()
        return answer("Fine.")(None, None)

    request = asyncio.create_task(charge.counted(send))
    await answered.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    free.set()
    await asyncio.to_thread(spent.close)
    assert spent.running == 0
    (day,) = spent.spent({"day": date.today().isoformat()}).values()
    assert day.tokens == 300 + OUTPUT


def test_whoever_asks_a_model_says_what_that_counts_for() -> None:
    root = Path(casual_mcp_nb.__file__).parent
    found = []
    for file in root.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if ".complete(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "complete":
                names = {keyword.arg for keyword in node.keywords}
                if "stream" in names:
                    found.append((file.name, "account" in names))
    assert {name for name, _ in found} == {"run.py", "consent.py", "graded.py", "proposing.py"}
    assert all(counted for _, counted in found)


def test_an_answer_for_a_server_counts_for_the_turn_that_calls_it(session: Session) -> None:
    helper = scripted_model(answer("Three"), name="helper")

    parts = session.parts
    parts.chat.models._bound["helper"], parts.chat.models._default = helper, "helper"
    allow_all(session)
    request = SamplingRequest((("user", "How many?"),), "", OUTPUT)

    async def sampled(_messages: Any, _tools: Any) -> Any:
        (run,) = parts.chat.state.running
        run._calls.servers.append("weather")  # type: ignore[attr-defined]
        await parts.chat.sampling.answer("weather", request)
        return "Done"

    assert chat(session, scripted_model(sampled)).status == "done"
    assert used(session, "turn") > 500


def test_a_replay_spends_nothing() -> None:
    file = Path(__file__).parents[1] / "data" / "formats" / "2026-11-28" / "cassette.json"
    with Session.quick(cassette=file, quiet=True, store=None) as session:
        session.limits.set("day", max_total_tokens=1, max_cost=0.01)
        assert [turn.status for turn in session.cassettes.replay()] == ["done", "done"]
        assert used(session, "day") == 0


def test_a_turn_that_ended_at_a_limit_is_replayed_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "limited.json"
    with Session.demo() as session:
        session.limits.set("day", max_total_tokens=1)
        with session.cassettes.use(file):
            assert is_refused(session.chat("Hello", echo="none"))
    with Session.quick(cassette=file, quiet=True, store=None) as session:
        assert list(map(is_refused, session.cassettes.replay())) == [True]


def test_a_restarted_kernel_counts_what_was_spent_before(tmp_path: Path) -> None:
    store = tmp_path / "conversations.db"
    with session_with(store) as first:
        chat(first, scripted_model(answer("Yes")))
        id = first.conversations.id
    assert id is not None
    with session_with(store, {"limits": {"max_total_tokens": {"conversation": 900}}}) as second:
        assert (used(second, "conversation"), used(second, "day")) == (0, 500)
        second.conversations.resume(id)
        assert used(second, "conversation") == 500
        refused = scripted_model(answer("Yes"))
        assert is_refused(chat(second, refused))
        # Another conversation begins with nothing, and a deleted one was paid for.
        second.conversations.delete(id)
        assert chat(second, refused).status == "done"
        assert (used(second, "conversation"), used(second, "day")) == (500, 1_000)


def test_a_conversation_that_two_sessions_continue_has_spent_what_it_had(tmp_path: Path) -> None:
    store = tmp_path / "conversations.db"
    with session_with(store) as first, session_with(store) as second:
        chat(first, scripted_model(answer("Yes")))
        id = first.conversations.id
        assert id is not None
        second.conversations.resume(id)
        chat(first, scripted_model(answer("Yes")))
        chat(second, scripted_model(answer("Yes")))
        assert second.conversations.id != id
        assert (used(second, "conversation"), used(second, "day")) == (1_500, 1_500)
        # A fork begins with nothing.
        second.conversations.fork()
        chat(second, scripted_model(answer("Yes")))
        assert (used(second, "conversation"), used(second, "day")) == (500, 2_000)


def test_a_fork_that_is_not_saved_begins_with_nothing(session: Session) -> None:
    chat(session, scripted_model(answer("Yes")))
    session.conversations.fork()
    chat(session, scripted_model(answer("Yes")))
    assert (used(session, "conversation"), used(session, "day")) == (500, 1_000)


def test_a_day_ends_at_midnight(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tomorrow(date):
        @classmethod
        def today(cls) -> date:
            return date(2199, 1, 1)

    session.limits.set("day", max_total_tokens=800)
    model = scripted_model(*[answer("Yes")] * 3)
    assert [chat(session, model).status for _ in range(2)] == ["done", "failed"]
    monkeypatch.setattr(spending, "date", Tomorrow)
    assert used(session, "day") == 0
    assert chat(session, model).status == "done"


KERNEL = """
import os, sys, asyncio
from pathlib import Path
from casual_llm import AssistantMessage
from casual_mcp_nb import Session
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.providers.scripted import scripted_model

async def answer(messages, tools):
    print("asked", flush=True)
    if sys.argv[2] == "killed":
        os._exit(1)
    await asyncio.sleep(0)
    return ModelResponse(AssistantMessage(content="Yes"), TokenUsage(300, 200), "stop")

limits = {"limits": {"max_total_tokens": {"day": 6_000}}}
with Session(limits, store=sys.argv[1], quiet=True) as session:
    print("ready", flush=True)
    sys.stdin.readline()
    status = "done"
    while status == "done":
        model = scripted_model(answer)
        status = session.chat("Hello", model=model, max_tokens=200, echo="none").status
"""


def kernel(store: Path, end: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", KERNEL, str(store), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_kernels_that_spend_at_the_same_time_pass_no_limit(tmp_path: Path) -> None:
    store = tmp_path / "conversations.db"
    kernels = [kernel(store, "spends") for _ in range(2)]
    for each in kernels:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in kernels:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    answers = [each.communicate(timeout=120)[0].count("asked") for each in kernels]
    with session_with(store) as session:
        assert used(session, "day") == sum(answers) * 500
        assert 5_000 <= used(session, "day") <= 6_000
        assert session.limits[2].reserved == 0


@pytest.mark.slow
def test_what_a_killed_kernel_reserved_counts_for_a_while(tmp_path: Path) -> None:
    store = tmp_path / "conversations.db"
    killed = kernel(store, "killed")
    killed.communicate("\n", timeout=120)
    with session_with(store) as session:
        assert (session.limits[2].reserved, used(session, "day") > 200) == (1, True)
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("UPDATE spending SET reserved_until = 0")
        assert (session.limits[2].reserved, used(session, "day")) == (0, 0)


def test_requests_at_the_same_time_reserve_in_turn(tmp_path: Path) -> None:
    """Two stores of one file, as in two kernels."""
    models = [model_of(answer("Yes")) for _ in range(2)]
    sessions = [session_with() for _ in models]
    for session in sessions:
        session.parts.chat.models.spending.file = ConversationStore(tmp_path / "spent.db")
        session.limits.set("day", max_total_tokens=3_000)

    async def spend(session: Session, model: ChatModel) -> None:
        while (await session.chat_async("Go", model=model, max_tokens=OUTPUT)).status == "done":
            pass

    async def both() -> None:
        await asyncio.gather(*map(spend, sessions, models))

    asyncio.run(both())
    total = sum(map(asked, models)) * 500
    assert used(sessions[0], "day") == used(sessions[1], "day") == total
    assert 2_000 <= total <= 3_000
    for session in sessions:
        session.close()


def test_what_cannot_be_counted_is_sent_only_without_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    file.write_text("no database")
    with session_with(file) as session:
        assert chat(session, scripted_model(answer("Yes"))).status == "done"
        session.limits.set("day", max_total_tokens=9_000)
        refused = scripted_model(answer("Yes"))
        turn = chat(session, refused)
        assert (is_refused(turn), asked(refused)) == (True, 0)


@pytest.mark.parametrize(
    ("period", "limits"),
    [
        ("week", {"max_cost": 1}),
        ("day", {"max_cost": 0}),
        ("day", {"max_cost": float("nan")}),
        ("turn", {"max_total_tokens": -5}),
        ("turn", {"max_total_tokens": "many"}),
    ],
)
def test_a_wrong_limit_changes_nothing(session: Session, period: Any, limits: Any) -> None:
    session.limits.set("day", max_cost=2.5)
    with pytest.raises(UsageError):
        session.limits.set(period, **limits)
    assert (session.limits[2].max_cost, session.limits[2].max_total_tokens) == (2.5, None)
    session.limits.clear()
    assert session.limits[2].max_cost is None


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        ("", (None, None)),
        ("day 2.50", (2.5, None)),
        ("day $3", (3, None)),
        ("day 50,000 tokens", (None, 50_000)),
        ("day off", (None, None)),
        ("off", (None, None)),
    ],
)
def test_the_magic_sets_and_shows_limits(session: Session, line: str, limits: Any) -> None:
    run = COMMANDS["limit"].run
    assert run is not None
    shown = run(session, line)
    row = shown[2]
    assert (row.max_cost, row.max_total_tokens) == limits
    assert "<table" in shown._repr_html_()


@pytest.mark.parametrize("line", ["day", "day lots", "2.50", "day 1 2", "week 3", "day 0"])
def test_the_magic_explains_what_it_takes(session: Session, line: str) -> None:
    run = COMMANDS["limit"].run
    assert run is not None
    with pytest.raises(UsageError):
        run(session, line)
    assert session.limits[2].max_cost is None
