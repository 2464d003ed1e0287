"""Runs of cases: arms, repeats, files that are continued, a budget, other processes, and what the
results tell.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.setups import OFFLINE
from kit.weather import desk, weather
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from casual_mcp_nb import OpenTelemetry, Session
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage

# Imported on several threads together, Python 3.11.7 sometimes fails: "AST constructor recursion
# depth mismatch" (gh-106905).
from casual_mcp_nb.bundled import math_server, time_server, units_server  # noqa: F401
from casual_mcp_nb.conversation.event import Event, Request
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.display.view import DisplayLimits, Table
from casual_mcp_nb.errors import CasualMcpError, ProviderError, UnknownNameError, UsageError
from casual_mcp_nb.experiments import jobs
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.budget import Budget
from casual_mcp_nb.experiments.cases import ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.results_file import ResultsFile, load_runs
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.providers.spending import SAMPLE
from casual_mcp_nb.views import view_of

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {
        "math": {"bundled": "math", "transport": "in-process", "defer_loading": True},
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
        "units": {"bundled": "units", "transport": "in-process"},
    },
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
}
CASES = [
    ToolUseCase("What is 17 * 23?", ["math:evaluate_expression"], answer="391", id="product"),
    ToolUseCase(
        "What time is it in Tokyo when it is 14:30 in Oslo?",
        ["time:convert_time"],
        answer="22:30",
        id="tokyo",
    ),
]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session.from_config(CONFIG, store=None, quiet=True)
    session.connect(strict=True, quiet=True)
    yield session
    session.close()


@pytest.fixture
def small() -> Iterator[Session]:
    with Session(
        {}, in_process={"weather": weather(), "desk": desk()}, store=None, quiet=True
    ) as session:
        yield session


def model_of(answer: Any, name: str = "scripted", usage: TokenUsage | None = None) -> ChatModel:
    """A model that answers each request with a function of its messages and tools, for ever."""

    def answers() -> Iterator[Any]:
        while True:
            yield answer

    model = scripted_model(name=name)
    model.client._answers = answers()  # type: ignore[attr-defined]
    return model


def forecaster(messages: Any, tools: Any) -> Any:
    """Call the tool whose description the message names, else the first one."""
    if messages[-1].role == "tool":
        return f"It says: {messages[-1].content}"
    text = str(messages[-1].content)
    tool = next(
        (tool for tool in tools if tool["description"].split()[0].lower() in text.lower()), tools[0]
    )
    return call(tool["name"], **dict.fromkeys(tool["parameters"]["properties"], "Oslo"))


FORECAST = ToolUseCase(
    "Forecast for Oslo", [ExpectedCall("weather:forecast", {"city": "Oslo"})], id="forecast"
)
PAST = ToolUseCase("Past days of Oslo", ["weather:history"], id="past")
TODAY = ToolUseCase("Today in Oslo", ["weather:history"], id="today")


async def test_arms_are_run_repeatedly_and_judged(session: Session) -> None:
    before = session.selection.key(), session.messages
    results = await session.experiments.run_async(
        CASES, deliveries=["definitions", "bridge"], repeats=2
    )
    assert list(results) == ["definitions", "bridge"]
    assert (results.status, len(results.records), results.planned, results.reused) == (
        "done",
        8,
        8,
        0,
    )
    assert all(record.right and record.transcript for record in results.records)
    assert session.experiments.results is results
    assert (session.selection.key(), session.messages) == before
    for arm in results.values():
        assert arm.right is not None
        assert (arm.right.value, arm.right.n, arm.pass_hat(2)) == (1, 2, 1)
    turn = results.records[0].turn
    assert turn is not None
    assert any(str(made.tool) == "math:evaluate_expression" for made in turn.tool_calls)
    use = {(use.tool, use.arm): use for use in results.tool_uses()}[
        "math:evaluate_expression", "bridge"
    ]
    assert (use.runs, use.needed, use.searched, use.found, use.called) == (4, 2, 2, 2, 2)


async def test_a_tool_that_gave_the_right_answer_was_needed_if_a_case_names_none(
    session: Session,
) -> None:
    case = ToolUseCase("What is 17 * 23?", answer="391")
    results = await session.experiments.run_async([case], deliveries=["bridge"])
    use = {use.tool: use for use in results.tool_uses()}["math:evaluate_expression"]
    assert (use.needed, use.found, use.called, use.unneeded_called) == (1, 1, 1, 0)


async def test_other_descriptions_change_what_a_model_calls_and_are_compared_by_case(
    small: Session,
) -> None:
    cases = [
        FORECAST,
        PAST,
        TODAY,
        *(ToolUseCase(f"Today, no. {n}", ["weather:history"], id=f"n{n}") for n in range(6)),
    ]
    results = await small.experiments.run_async(
        cases,
        models=model_of(forecaster),
        descriptions={"clearer": {"weather:history": "Today and past weather of a city."}},
        repeats=2,
    )
    assert list(results) == ["as listed", "clearer"]
    listed, clearer = results.values()
    assert listed.right is not None
    assert clearer.right is not None
    assert (listed.right.value, clearer.right.value) == (pytest.approx(2 / 9), pytest.approx(8 / 9))
    comparisons = results.comparisons()
    (comparison,) = comparisons
    table = view_of(comparisons, DisplayLimits()).blocks[0]
    assert isinstance(table, Table)
    assert table.rows[0][:2] == ("clearer", "as listed")
    assert table.rows[0][-3:] == ("7", "1", "1")
    assert view_of(comparison, DisplayLimits()).blocks == (table,)
    assert (
        comparison.right.better,
        comparison.right.worse,
        comparison.right.same,
        comparison.right.n,
    ) == (7, 1, 1, 9)
    # 7 better and 1 worse of 8 signs: 18 of 256 flips are as extreme, so the interval has 0 in it.
    assert (comparison.right.p, comparison.right.low <= 0) == (18 / 256, True)
    assert listed.failures == {"wrong tool": 14}
    assert {record.case for record in results.failures("wrong tool", arm="clearer")} == {"past"}
    sent = [step.request.tools for record in clearer.records[:1] for step in record.turns[0].steps]
    assert any(tool["description"] == "Today and past weather of a city." for tool in sent[0])
    # The session's own view has the servers' descriptions.
    assert {tool.description for tool in small.tools} >= {"Past weather of a city."}
    text, html = str(results), results._repr_html_()
    assert "clearer" in text
    assert "wrong tool" in text.lower()
    assert "<table" in html


async def test_parameters_can_be_described_too_and_wrong_names_are_refused(small: Session) -> None:
    model = scripted_model("Hello", "Hello")
    described = {"city": {"weather:forecast": {"parameters": {"city": "Name of a town"}}}}
    await small.experiments.run_async(
        [ToolUseCase("Hi", no_call=True)], models=model, descriptions=described, concurrency=1
    )
    one, other = (
        next(tool for tool in request.tools if "forecast" in tool["name"])
        for request in model.client.requests
    )
    assert "description" not in one["parameters"]["properties"]["city"]
    assert other["parameters"]["properties"]["city"]["description"] == "Name of a town"
    for wrong in (
        {"weather:forcast": "x"},
        {"weather:forecast": 3},
        {"weather:forecast": {"parameters": {"town": "x"}}},
    ):
        with pytest.raises(UsageError):
            await small.experiments.run_async(
                [FORECAST], models=model, descriptions={"wrong": wrong}
            )


@pytest.mark.parametrize(
    "options",
    [
        {"repeats": 0},
        {"concurrency": 0},
        {"max_runs": 1},
        {"models": ["planer"]},
        {"tool_sets": ["number"]},
        {"max_total_tokens": 0},
        {"max_cost": 1.0},
        {"without": ["maths"]},
        {"temprature": 1},
    ],
    ids=str,
)
def test_wrong_arguments_are_an_error_before_anything_runs(
    session: Session, options: dict[str, Any]
) -> None:
    calls = len(session.consent.audit)
    with pytest.raises(UsageError):
        session.experiments.run(CASES, **options)
    assert len(session.consent.audit) == calls


def test_a_case_that_names_no_tool_is_an_error_with_the_closest_names(session: Session) -> None:
    with pytest.raises(UsageError, match=r"(?s)typo.*evaluate_expression"):
        session.experiments.run([ToolUseCase("Go", ["math:evaluate_expresion"], id="typo")])


async def test_an_arm_can_do_without_a_server_or_a_tool(session: Session) -> None:
    results = await session.experiments.run_async(CASES, without=["math", "time:convert_time"])
    assert list(results) == ["with all", "without math", "without time:convert_time"]
    shares = {name: arm.means("right") for name, arm in results.items()}
    assert shares == {
        "with all": {"product": 1, "tokyo": 1},
        "without math": {"product": 0, "tokyo": 1},
        "without time:convert_time": {"product": 1, "tokyo": 0},
    }
    assert session.selection.servers["math"] == "deferred"


async def test_several_messages_are_one_conversation(small: Session) -> None:
    def answer(messages: Any, tools: Any) -> Any:
        asked = [message for message in messages if message.role == "user"]
        return (
            f"{len(asked)} messages"
            if messages[-1].role == "tool"
            else call("desk__note", text=str(len(asked)))
        )

    case = ToolUseCase(
        ["One", "Two"],
        [
            ExpectedCall("desk:note", {"text": "1"}, turn=1),
            ExpectedCall("desk:note", {"text": "2"}, turn=2),
        ],
        answer="2 messages",
    )
    (record,) = (await small.experiments.run_async([case], models=model_of(answer))).records
    assert (record.right, len(record.turns), record.steps, record.calls) == (True, 2, 4, 2)


async def test_a_provider_that_fails_is_not_the_models_mistake(
    small: Session, tmp_path: Path
) -> None:
    broken = iter(
        [ProviderError("Overloaded", client="x"), call("weather__forecast", city="Oslo"), "Sunny"]
    )

    def answer(messages: Any, tools: Any) -> Any:
        return next(broken)

    model, path = model_of(answer), tmp_path / "runs.jsonl"
    results = await small.experiments.run_async([FORECAST], models=model, results=path)
    (record,) = results.not_made
    assert (record.right, results.failures(), next(iter(results.values())).right) == (
        None,
        (),
        None,
    )
    assert any("Overloaded" in problem for problem in results.problems())
    # It is made again, and then counts.
    results = await small.experiments.run_async([FORECAST], models=model, results=path)
    assert [record.right for record in results.records] == [True]
    assert load_runs(path).not_made == ()


async def test_runs_end_early_if_none_can_be_made(small: Session) -> None:
    model = model_of(lambda messages, tools: ProviderError("No key", client="x"))
    results = await small.experiments.run_async([FORECAST], models=model, repeats=60)
    assert results.status == "failing"
    assert 20 <= len(results.records) < 30


async def test_what_a_file_has_is_not_run_again_until_something_changes(
    session: Session, tmp_path: Path
) -> None:
    path = tmp_path / "results" / "runs.jsonl"
    first = await session.experiments.run_async(CASES, repeats=2, results=path)
    lines = path.read_bytes()

    async def again(**options: Any) -> int:
        return (
            await session.experiments.run_async(CASES, **{"repeats": 2, "results": path, **options})
        ).reused

    assert (first.reused, await again()) == (0, 4)
    assert path.read_bytes() == lines
    loaded = {record.key: record for record in load_runs(path).records}
    assert loaded == {record.key: record for record in first.records}
    assert loaded[first.records[0].key].turns[0].answer == first.records[0].answer
    assert await again(repeats=3) == 4
    assert await again(temperature=0.5) == 0
    assert await again(system="Be brief.") == 0
    assert await again(deliveries=["bridge", "definitions"]) == 4
    assert await again(tool_sets=["numbers"]) == 0
    assert await again(descriptions={"x": {"math:evaluate_expression": "Compute."}}) == 4
    changed = [
        ToolUseCase("What is 17 * 23?", ["math:evaluate_expression"], id="product"),
        CASES[1],
    ]
    results = await session.experiments.run_async(changed, repeats=2, results=path)
    assert results.reused == 4


def test_a_torn_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    one, two = (RunRecord(key, key, "arm", 0, key, right=True) for key in ("one", "two"))
    ResultsFile(path).add(one)
    with path.open("ab") as file:
        file.write(b'{"key": "tor')
    torn = ResultsFile(path)
    assert list(torn.records) == [("arm", "one")]
    torn.add(two)
    assert list(ResultsFile(path).records) == [("arm", "one"), ("arm", "two")]
    assert load_runs(path)["arm"].records == (one, two)
    other = tmp_path / "notes.txt"
    other.write_text("Not a file of runs.\n")
    with pytest.raises(UsageError):
        ResultsFile(other)
    with pytest.raises(UsageError):
        load_runs(tmp_path / "absent.jsonl")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_runs_survive_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    script = textwrap.dedent(f"""
        import os, signal
        from casual_mcp_nb import Session
        from casual_mcp_nb.experiments.cases import ToolUseCase
        from casual_mcp_nb.experiments.results_file import ResultsFile
        add = ResultsFile.add
        def added(self, *items):
            add(self, *items)
            if len(self.records) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        ResultsFile.add = added
        cases = [ToolUseCase(f"What is {{n}} * 7?", ["math:evaluate_expression"], id=str(n)) for n in range(6)]
        Session.from_config({CONFIG!r}, store=None).experiments.run(cases, results={str(path)!r}, progress=False)
        """)
    killed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    cases = [
        ToolUseCase(f"What is {n} * 7?", ["math:evaluate_expression"], id=str(n)) for n in range(6)
    ]
    with Session.from_config(CONFIG, store=None, quiet=True) as session:
        results = session.experiments.run(cases, results=path)
    assert (results.reused, len(results.records), results.status) == (3, 6, "done")


async def test_a_budget_is_not_passed(small: Session) -> None:
    usage = TokenUsage(300, 100)

    def answer(messages: Any, tools: Any) -> Any:
        from casual_llm.messages import (
            AssistantMessage,
            AssistantToolCall,
            AssistantToolCallFunction,
        )

        function = AssistantToolCallFunction(name="weather__forecast", arguments='{"city": "Oslo"}')
        calls = (
            None if messages[-1].role == "tool" else [AssistantToolCall(id="1", function=function)]
        )
        return ModelResponse(AssistantMessage(content="Sunny", tool_calls=calls), usage, "stop")

    spent: list[int] = []
    for limit in (1_000, 2_500, 5_000):
        model = model_of(answer)
        results = await small.experiments.run_async(
            [FORECAST],
            models=model,
            repeats=20,
            max_total_tokens=limit,
            max_tokens=100,
            concurrency=3,
        )
        assert results.status == "over budget"
        requests = len(model.client.requests)
        assert requests * 400 <= limit
        spent.append(requests)
        assert len(results.records) >= (requests - 3) // 2
        assert results.records or limit == 1_000
    assert spent == sorted(spent)
    assert spent[-1] >= 9
    enough = await small.experiments.run_async(
        [FORECAST], models=model_of(answer), max_total_tokens=50_000, max_tokens=100
    )
    assert enough.status == "done"


async def test_a_stop_keeps_what_was_done(small: Session) -> None:
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    count = 0

    async def answer(messages: Any, tools: Any) -> Any:
        nonlocal count
        count += 1
        if count > 5:
            loop.call_soon_threadsafe(started.set)
            await asyncio.Event().wait()
        return "Hello"

    running = asyncio.create_task(
        small.experiments.run_async(
            [ToolUseCase("Hi", no_call=True)], models=model_of(answer), repeats=20, concurrency=2
        )
    )
    await started.wait()
    await small.stop_async()
    results = await running
    assert results.status == "stopped"
    # The fifth one may not have been judged yet.
    assert len(results.records) in (4, 5)
    assert small.experiments.results is results
    assert not small.parts.runner.busy


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", pytest.param("dask", marks=pytest.mark.integration)])
def test_runs_are_spread_over_processes(tmp_path: Path, kind: str) -> None:
    cases = [*CASES, ToolUseCase("What is 2 + 2?", ["math:evaluate_expression"], id="sum")]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    with Session.from_config(config, trust=True, store=None, quiet=True) as session:
        session.selection.defer_all = True
        here = session.experiments.run(cases, repeats=2, results=tmp_path / "here.jsonl")
        options: dict[str, Any] = {"repeats": 2, "results": tmp_path / f"{kind}.jsonl"}
        if kind == "processes":
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
                there = session.experiments.run(cases, executor=executor, **options)
        else:
            distributed = pytest.importorskip("distributed")
            cluster = distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            )
            with cluster, distributed.Client(cluster) as client:
                executor = client.get_executor()
                there = session.experiments.run(cases, executor=executor, concurrency=1, **options)
                assert set(client.run(open_sessions).values()) == {1}, "each process has a session"
        assert (there.status, len(there.records)) == ("done", 6)
        outcome = {
            (record.key, record.right, record.called, record.input_tokens)
            for record in here.records
        }
        assert {
            (record.key, record.right, record.called, record.input_tokens)
            for record in there.records
        } == outcome
        again = session.experiments.run(cases, **options)
        assert again.reused == 6


def open_sessions() -> int:
    """How many sessions the jobs of this process have opened."""
    return len(jobs._sessions)


@pytest.mark.parametrize(
    ("case", "message", "label"),
    [
        ("sum", "What is 2 + 2?", "sum"),
        ("case-0123abcd", "What is  2 + 2?", "What is 2 + 2?"),
        ("case-0123456789abcdef", "What is  2 + 2?", "What is 2 + 2?"),
        ("case-0123abcd", "", "case-0123abcd"),
    ],
)
def test_a_case_without_an_id_is_shown_by_its_message(case: str, message: str, label: str) -> None:
    assert RunRecord("key", case, "arm", 0, case, (message,)).label == label
    assert len(RunRecord("key", "case-0123abcd", "arm", 0, case, ("word " * 1_000,)).label) <= 80


def test_a_job_returns_soon_and_the_rest_of_its_runs_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("casual_mcp_nb.experiments.service.JOB_SECONDS", 0.0)
    config, made = tmp_path / "config.json", []
    config.write_text(json.dumps(CONFIG))
    call = jobs.Job.__call__

    def counted(job: jobs.Job) -> Any:
        result = call(job)
        made.append((len(job.wanted), len(result.records)))
        return result

    monkeypatch.setattr(jobs.Job, "__call__", counted)
    cases = [
        ToolUseCase(f"What is {n} + 2?", ["math:evaluate_expression"], id=str(n)) for n in range(24)
    ]
    with (
        Session.from_config(config, trust=True, store=None, quiet=True) as session,
        ThreadPoolExecutor(2) as executor,
    ):
        results = session.experiments.run(
            cases, executor=executor, concurrency=1, results=tmp_path / "runs.jsonl"
        )
        assert session.experiments.run(cases, results=tmp_path / "runs.jsonl").reused == 24
    assert (results.status, sorted(record.case for record in results.records)) == (
        "done",
        sorted(map(str, range(24))),
    )
    assert {count for _, count in made} == {1}
    assert max(wanted for wanted, _ in made) > 1


def test_jobs_share_one_budget(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    cases = [
        ToolUseCase(f"What is {n} + 2?", ["math:evaluate_expression"], id=str(n)) for n in range(40)
    ]
    with Session.from_config(config, trust=True, store=None, quiet=True) as session:
        options: dict[str, Any] = {"max_total_tokens": 20_000, "concurrency": 1}
        here = session.experiments.run(cases, **options)
        with ThreadPoolExecutor(2) as executor:
            there = session.experiments.run(cases, executor=executor, **options)

    def spent(results: RunResults) -> int:
        return sum((each.input_tokens or 0) + (each.output_tokens or 0) for each in results.records)

    assert (here.status, there.status) == ("over budget", "over budget")
    assert spent(there) <= 20_000
    # Shares that are too small for a run are put together, so that no more is left than where there
    # is one process.
    assert 20_000 - spent(there) <= 20_000 - spent(here) + 5_000


async def test_runs_and_comparisons_reach_those_who_observe_the_session(session: Session) -> None:
    turns: dict[Turn, int] = {}

    def listen(turn: Turn, _event: Event) -> None:
        turns[turn] = turns.get(turn, 0) + 1

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with session.observe(listen):
        with session.observe(OpenTelemetry(tracer_provider=provider)):
            results = await session.experiments.run_async(CASES)
        await session.experiments.compare_async("What is 17 * 23?", discovery=[False, True])
    assert len(turns) == len(results.records) + 2
    spans = [
        span.attributes or {}
        for span in exporter.get_finished_spans()
        if "execute_tool" in span.name
    ]
    called = [
        str(each["gen_ai.tool.name"])
        for each in spans
        if each["gen_ai.tool.name"] != "search_tools"
    ]
    assert sorted(called) == sorted(
        name.replace(":", "__") for record in results.records for name in record.called
    )
    assert all(turn.status == "done" for turn in turns)
    assert session.turns == []


async def test_an_answer_without_a_limit_is_expected_to_be_like_the_others() -> None:
    budget = Budget(tokens=6_000)
    request = Request(messages=(), tools=(), tokens=TokenParts(system=1_000))
    assert await budget.reserve(1, request, None)
    waiting = asyncio.create_task(budget.reserve(2, request, None))
    await asyncio.sleep(0)
    assert not waiting.done(), "4,096 are kept for an answer at first"
    budget.spend(1, TokenUsage(0, 100), request, "", None)
    assert await waiting
    budget.release(2, refused=True)
    for run in range(SAMPLE):
        budget.spend(run, TokenUsage(0, 100), request, "", None)
    for run in range(3):
        assert await budget.reserve(run, request, None)


def test_other_processes_need_a_session_that_can_be_opened_there(small: Session) -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
        pytest.raises(UsageError, match="recipe"),
    ):
        small.experiments.run([ToolUseCase("Hi", no_call=True)], executor=executor)


def test_what_cannot_be_sent_to_another_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    case = ToolUseCase("What is 2 + 2?", answer=lambda turn: True)
    with (
        Session.from_config(
            tmp_path / "config.json", trust=True, store=None, quiet=True
        ) as session,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
        pytest.raises(UsageError, match="lambdas"),
    ):
        session.experiments.run([case], executor=executor)


async def test_a_cassette_answers_in_place_of_models_and_servers(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    async with Session.from_config(CONFIG, store=None, quiet=True) as session:
        with session.cassettes.use(path, "all"):
            live = await session.experiments.run_async(
                CASES, deliveries=["definitions", "bridge"], repeats=2
            )
    with Session.quick(cassette=path, quiet=True, store=None, pace=0) as replayed:
        results = replayed.experiments.run(CASES, deliveries=["definitions", "bridge"], repeats=2)
        assert results.not_made == ()
        assert [(record.right, record.called) for record in results.records] == [
            (record.right, record.called) for record in live.records
        ]
        missing = replayed.experiments.run([ToolUseCase("Something else", no_call=True)])
        assert [record.made for record in missing.records] == [False]


def test_thresholds_and_a_baseline_are_checked(small: Session, tmp_path: Path) -> None:
    cases = [
        ToolUseCase(f"Forecast for town {n}", ["weather:forecast"], id=str(n)) for n in range(12)
    ]
    good = small.experiments.run(
        cases, models=model_of(forecaster), results=tmp_path / "good.jsonl"
    )
    assert good.problems(min_right=1.0, min_pass=1.0, baseline=good) == []
    bad = small.experiments.run(cases, models=model_of("I do not know"))
    assert (
        len(bad.problems(min_right=0.5, min_pass=0.5, baseline=load_runs(tmp_path / "good.jsonl")))
        == 3
    )
    assert bad.problems() == []
    with pytest.raises(UnknownNameError):
        bad.failures("wrong tools")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError):
        bad.compare("a", "b")


def test_results_are_frames_and_files(small: Session, tmp_path: Path) -> None:
    results = small.experiments.run(
        [FORECAST, PAST], models=model_of(forecaster), descriptions={"x": {"desk:note": "Write"}}
    )
    frame, arms, cases = results.frame(), results.arms_frame(), results.cases_frame()
    assert (len(frame), list(arms["arm"]), list(cases["case"])) == (
        4,
        ["as listed", "x"],
        ["forecast", "past"],
    )
    assert set(frame[frame["arm"] == "x"]["descriptions"]) == {"x"}
    assert {"low", "high", "wrong tool", "input_tokens"} <= set(arms.columns)
    for name in ("runs.csv", "runs.json", "runs.html"):
        assert results.export(tmp_path / name).stat().st_size > 200
    assert json.loads((tmp_path / "runs.json").read_text())["arms"] == ["as listed", "x"]


def test_the_plot_is_a_figure_of_matplotlib(small: Session) -> None:
    results = small.experiments.run(
        [FORECAST], models=model_of(forecaster), descriptions={"x": {"desk:note": "Write"}}
    )
    assert [label.get_text() for label in results.plot().axes[0].get_yticklabels()] == [
        "as listed",
        "x",
    ]


def test_without_matplotlib_the_plot_is_an_svg(
    small: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = small.experiments.run(
        [FORECAST], models=model_of(forecaster), descriptions={"<b>": {"desk:note": "Write"}}
    )
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    svg = results.plot()._repr_svg_()
    assert svg.startswith("<svg")
    assert "&lt;b&gt;" in svg


def record(case: str = "a", arm: str = "arm", repeat: int = 0, **fields: Any) -> RunRecord:
    return RunRecord(f"{case} {arm} {repeat}", case, arm, repeat, case, **{"right": True, **fields})


def results_of(*records: RunRecord, **fields: Any) -> RunResults:
    arms = tuple(Arm(name) for name in dict.fromkeys(each.arm for each in records))
    repeats = max(each.repeat for each in records) + 1
    return RunResults(
        records, arms, tuple(dict.fromkeys(each.case for each in records)), repeats, **fields
    )


NOT_MADE: dict[str, Any] = {"made": False, "right": None, "detail": "Overloaded"}
BASELINES = {
    "another arm's name": results_of(record(arm="other")),
    "other case ids": results_of(record("b")),
    "one case more": results_of(record(), record("b")),
    "runs that were not made": results_of(record(**NOT_MADE)),
    "one run that was not made": results_of(record(), record("b", **NOT_MADE)),
    "nothing judged": results_of(record(right=None)),
}


@pytest.mark.defect("P2")
@pytest.mark.parametrize("what", BASELINES)
def test_a_baseline_that_cannot_be_compared_is_a_problem(what: str) -> None:
    now = results_of(record())
    assert now.problems(baseline=now) == []
    assert now.problems(baseline=BASELINES[what])
    # A new case that the baseline lacks is none.
    assert results_of(record(), record("new")).problems(baseline=now) == []


@pytest.mark.defect("P2")
@pytest.mark.parametrize(("arms", "found"), [(1, 1), (5, 0)])
def test_the_risk_of_a_false_alarm_is_shared_by_all_arms(arms: int, found: int) -> None:
    cases = list(map(str, range(6)))
    others = [record(case, f"arm {number}") for case in cases for number in range(1, arms)]
    before = results_of(*map(record, cases), *others)
    now = results_of(*(record(case, right=False) for case in cases), *others)
    # Six signs that are all alike: p = 2 / 2**6 = .031, which is more than a fifth of .05.
    assert len(now.problems(baseline=before)) == found


@pytest.mark.defect("P2")
def test_a_limit_that_cannot_be_checked_is_a_problem() -> None:
    for options in ({"min_right": 0.5}, {"min_pass": 0.5}):
        assert results_of(record(right=None)).problems(**options)
    assert results_of(record()).problems(max_cost=1.0)
    assert results_of(record(cost=0.5, currency="USD")).problems(max_cost=1.0) == []


@pytest.mark.defect("P10")
def test_one_missing_run_is_said_and_hides_nothing() -> None:
    runs = [record(case, repeat=repeat) for case in "abc" for repeat in range(3)]
    wrong = [record("d", repeat=repeat, right=repeat > 0) for repeat in range(3)]
    short = results_of(*runs[:-1], record("c", repeat=2, **NOT_MADE), *wrong)
    arm = short["arm"]
    assert (arm.pass_hat(3), arm.cases_short_of(3)) == (pytest.approx(2 / 3), 1)
    problems = short.problems(min_pass=0.9)
    assert len(problems) == 3
    assert any("66.7%" in each for each in problems)
    assert any("1 case" in each for each in problems)
    assert "without 1 case" in str(short)
    assert any("no case" in each for each in results_of(record(repeat=1)).problems(min_pass=0.9))


@pytest.mark.defect("P10")
async def test_calls_that_were_refused_are_not_among_those_made(small: Session) -> None:
    small.parts.chat.consent.overrides["desk"] = "always"
    small.questions.unattended = True
    try:
        replies = [call("desk__note", text="x"), call("weather__forecast", city="Oslo"), "Done"]
        model = scripted_model(*replies)
        (made,) = (await small.experiments.run_async([FORECAST], models=model)).records
    finally:
        small.parts.chat.consent.overrides.pop("desk")
        small.questions.unattended = False
    assert (made.called, made.refused, made.calls) == (("weather:forecast",), ("desk:note",), 1)
    assert "refused: desk:note" in str(RunResults((made,), (Arm(made.arm),), (made.case,)))


@pytest.mark.defect("P10")
def test_a_server_that_did_not_start_is_in_the_words(tmp_path: Path) -> None:
    servers = {"math": CONFIG["servers"]["math"], "gone": {"command": "no-such-program-of-mine"}}
    config = {**CONFIG, "servers": servers, "tool_sets": {}}
    with Session.from_config(config, store=None, quiet=True) as session:
        results = session.experiments.compare(
            "What is 17 * 23?", discovery=[False, True], progress=False
        )
        session.experiments.run(
            CASES[:1], without=["gone"], results=tmp_path / "runs.jsonl", progress=False
        )
        without = session.experiments.results
    assert {arm: set(servers) for arm, servers in results.absent.items()} == {
        arm: {"gone"} for arm in results
    }
    assert re.search(r"\bNo arm had .*\bserver gone\b", str(results))
    assert without is not None
    # An arm that leaves it out does not miss it.
    assert list(without.absent) == ["with all"]
    again = str(load_runs(tmp_path / "runs.jsonl"))
    assert re.search(r"\bwith all ran without .*\bserver gone\b", again)


class OnlySubmits:
    """What an adapter for a cluster is: it takes a job and returns a future."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def submit(self, job: Any) -> Any:
        return self._pool.submit(job)


@pytest.mark.defect("P10")
def test_whatever_submits_is_an_executor(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with Session.from_config(
        tmp_path / "config.json", trust=True, store=None, quiet=True
    ) as session:
        results = session.experiments.run(CASES, executor=OnlySubmits(), progress=False)
    assert [each.right for each in results.records] == [True, True]


class Refuses:
    """An executor that takes one job, which it never begins, and refuses the next."""

    def __init__(self) -> None:
        self.taken: list[Future[Any]] = []

    def submit(self, job: Any) -> Any:
        if self.taken:
            raise TypeError("cannot pickle it")
        self.taken.append(Future())
        return self.taken[-1]


def test_a_job_that_is_refused_ends_those_before_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    executor = Refuses()
    with Session.from_config(
        tmp_path / "config.json", trust=True, store=None, quiet=True
    ) as session:
        with pytest.raises(UsageError):
            session.experiments.run(CASES, executor=executor, concurrency=1, progress=False)
        (taken,) = executor.taken
        assert taken.cancelled()


def killing() -> Session:
    """Open a session in a worker that is killed in its third run."""
    import os

    from casual_mcp_nb.experiments.results_file import ResultsFile

    add, counted = ResultsFile.add, []

    def added(self: ResultsFile, *items: Any) -> None:
        add(self, *items)
        counted.extend(items)
        if len(counted) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    ResultsFile.add = added  # type: ignore[method-assign]
    return Session.from_config(CONFIG, store=None, quiet=True)


@pytest.mark.slow
@pytest.mark.defect("P10")
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_worker_that_is_killed_loses_no_run_and_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    cases = [
        ToolUseCase(f"What is {n} * 7?", ["math:evaluate_expression"], id=str(n)) for n in range(6)
    ]
    path = tmp_path / "runs.jsonl"
    with Session.from_config(
        tmp_path / "config.json", trust=True, store=None, quiet=True
    ) as session:
        options: dict[str, Any] = {"results": path, "concurrency": 1, "progress": False}
        with (
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
            pytest.raises(CasualMcpError) as caught,
        ):
            session.experiments.run(cases, executor=executor, recipe=killing, **options)
        assert "3 of 6 runs are kept" in str(caught.value)
        assert "same call" in str(caught.value)
        assert session.experiments.results is not None
        assert len(session.experiments.results.records) == 3
        again = session.experiments.run(cases, **options)
        assert (again.reused, again.status) == (3, "done")


@pytest.fixture
def shops() -> dict[str, FastMCP[Any]]:
    """Shops that answer orders differently."""

    def shop(reply: str) -> FastMCP[Any]:
        server: FastMCP[Any] = FastMCP("shop")
        server.tool(name="order", description="Order something.")(lambda item: reply)
        return server

    return {name: shop(name) for name in ("old", "new")}


def buyer(messages: Any, tools: Any) -> Any:
    return (
        f"It says {messages[-1].content}"
        if messages[-1].role == "tool"
        else call("shop__order", item="x")
    )


def test_a_server_is_compared_with_another_one_that_ends_with_the_runs(
    shops: dict[str, FastMCP[Any]], tmp_path: Path
) -> None:
    case = ToolUseCase("Buy it", ["shop:order"], answer="new", id="buy")
    others = {
        "new": {"shop": shops["new"]},
        "broken": {
            "shop": {"command": "no-such-program-of-mine", "env": {"KEY": "s3cret-of-mine"}}
        },
        "more": {"time": {"bundled": "time", "transport": "in-process"}},
    }
    with Session({}, in_process={"shop": shops["old"]}, store=None, quiet=True) as session:
        options: dict[str, Any] = {
            "models": model_of(buyer),
            "servers": others,
            "results": tmp_path / "runs.jsonl",
        }
        results = session.experiments.run([case], progress=False, **options)
        assert {each.arm: each.answer for each in results.records} == {
            "as configured": "It says old",
            "new": "It says new",
            "more": "It says old",
        }
        assert {arm: value.right and value.right.value for arm, value in results.items()} == {
            "as configured": 0,
            "new": 1,
            "more": 0,
        }
        assert list(results.failed_arms) == ["broken"]
        assert len([each for each in results.problems() if "broken" in each]) == 1
        assert "broken could not" in str(results)
        assert "s3cret-of-mine" not in (tmp_path / "runs.jsonl").read_text("utf-8")
        # The session's own server is the one that it was, and there is no other.
        assert [*session.parts.chat.server_manager.names] == ["shop"]
        assert session.chat("Buy it", model=model_of(buyer)).answer == "It says old"
        assert session.experiments.run([case], progress=False, **options).reused == 3
        without = session.experiments.run(
            [case], models=model_of(buyer), servers={"none": {"shop": None}}, progress=False
        )
        assert {each.arm: each.called for each in without.records} == {
            "as configured": ("shop:order",),
            "none": (),
        }


def test_the_policies_of_another_server_are_its_own(shops: dict[str, FastMCP[Any]]) -> None:
    case = ToolUseCase("Buy it", ["shop:order"], id="buy")
    with Session(
        {}, in_process={"shop": shops["old"]}, store=None, quiet=True, approval={"shop": "always"}
    ) as session:
        session.questions.unattended = True
        results = session.experiments.run(
            [case], models=model_of(buyer), servers={"new": {"shop": shops["new"]}}, progress=False
        )
        assert {each.arm: each.refused for each in results.records} == {
            "as configured": ("shop:order",),
            "new": (),
        }


def model_asking_only(name: str, remainder: int) -> ChatModel:
    """A model that answers every second message, and is broken for the others."""

    def answer(messages: Any, tools: Any) -> Any:
        if int(str(messages[-1].content).split()[-1]) % 2 != remainder:
            return ProviderError("Overloaded", client="x")
        return "Sunny"

    return model_of(answer, name)


@pytest.mark.defect("P9")
@pytest.mark.parametrize("answer", ["sunny", None])
def test_arms_without_a_case_in_common_are_not_compared(small: Session, answer: Any) -> None:
    cases = [
        ToolUseCase(f"Number {number}", answer=answer, judged=answer is not None, id=str(number))
        for number in range(8)
    ]
    models = [model_asking_only("even", 0), model_asking_only("odd", 1)]
    results = small.experiments.run(cases, models=models, progress=False)
    assert (len(results.comparisons()), results.cheapest, results.prices) == (0, None, {})
    text = str(results)
    assert "in common" in text
    assert "find a difference" not in text


@pytest.mark.defect("P10")
@pytest.mark.parametrize("answer", ["sunny", None])
def test_a_provider_that_is_down_is_told_once(small: Session, answer: Any) -> None:
    cases = [
        ToolUseCase(f"Number {number}", answer=answer, judged=answer is not None, id=str(number))
        for number in range(6)
    ]
    model = model_of(lambda messages, tools: ProviderError("Out of order", client="x"))
    text = str(small.experiments.run(cases, models=model, repeats=2, progress=False))
    assert text.count("Out of order") == 1
    assert "done" not in text


@pytest.mark.defect("P9")
def test_a_line_end_in_a_name_makes_no_sentence(small: Session) -> None:
    name = "short\n::error::All is lost"
    results = small.experiments.run(
        [FORECAST],
        models=model_of(forecaster),
        descriptions={name: {"weather:forecast": "Forecast it."}},
        progress=False,
    )
    assert name in results
    for text in (str(results), "\n".join(results.problems(min_right=1.1))):
        assert "::error::" in text
        assert not any(line.strip(" │").startswith("::error::") for line in text.splitlines())


def test_what_a_tool_tells_of_a_key_is_in_no_export(
    small: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-not-a-real-key-1234"
    monkeypatch.setattr(small.experiments, "_secrets", lambda: [key])
    results = small.experiments.run(
        [FORECAST], models=model_of(lambda messages, tools: f"The key is {key}"), progress=False
    )
    results.to_inspect(tmp_path)
    results.export(tmp_path / "runs.html")
    results.export(tmp_path / "runs.json")
    for path in tmp_path.iterdir():
        assert key not in path.read_text("utf-8"), path.name
    assert key not in str(results.records[0].turns[0].messages)
