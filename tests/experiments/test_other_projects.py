"""Logs and a solver for inspect-ai, and spans that the evaluators of pydantic-evals read: in an
environment that has both.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from experiments.test_runs import model_of
from kit.weather import desk, weather
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from casual_mcp_nb import OpenTelemetry, Session
from casual_mcp_nb.conversation.codec import dump_traces
from casual_mcp_nb.conversation.event import TurnFinished, TurnStarted
from casual_mcp_nb.conversation.turn import Trace
from casual_mcp_nb.errors import MissingDependencyError, ProviderError, UnknownNameError, UsageError
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.cases import ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.inspect_logs import inspect_log
from casual_mcp_nb.experiments.matching import judge_turns
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ROOT / ".third-party" / "inspect" / "bin" / "python"
needs_others = pytest.mark.skipif(
    not OTHERS.exists(), reason="python3 .ci/third_party.py inspect installs it"
)
CASES = [
    ToolUseCase("Forecast for Oslo", ["weather:forecast"], id="forecast"),
    ToolUseCase("Weather of May", ["weather:history"], id="past"),
    ToolUseCase("Break", no_call=True, id="broken"),
]


def forecaster(messages: Any, tools: Any) -> Any:
    if "Break" in messages[-1].content:
        return ProviderError("Overloaded", client="x")
    return (
        "Sunny in Oslo" if messages[-1].role == "tool" else call("weather__forecast", city="Oslo")
    )


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(
        {}, in_process={"weather": weather(), "desk": desk()}, store=None, quiet=True
    ) as session:
        yield session


@pytest.fixture(scope="module")
def results(session: Session) -> RunResults:
    texts = {"shorter": {"weather:forecast": "Forecast."}}
    return session.experiments.run(
        CASES, models=model_of(forecaster), descriptions=texts, repeats=2
    )


def test_a_log_has_a_sample_for_each_run(results: RunResults, tmp_path: Path) -> None:
    files = results.to_inspect(tmp_path / "logs")
    assert len(files) == 2
    log = json.loads(files[0].read_text())
    assert list(log) == ["version", "status", "eval", "plan", "results", "stats", "samples"]
    samples = {(each["id"], each["epoch"]): each for each in log["samples"]}
    assert len(samples) == 6
    right, wrong, broken = samples["forecast", 1], samples["past", 2], samples["broken", 1]
    assert (right["scores"]["tool_use"]["value"], wrong["scores"]["tool_use"]["value"]) == (
        "C",
        "I",
    )
    assert wrong["metadata"]["failure"] == "wrong tool"
    assert "scores" not in broken
    assert "Overloaded" in broken["error"]["message"]
    roles = [message["role"] for message in right["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    (made,) = right["messages"][1]["tool_calls"]
    assert (made["function"], made["arguments"]) == ("weather__forecast", {"city": "Oslo"})
    assert right["messages"][2]["tool_call_id"] == made["id"]
    assert log["results"]["completed_samples"] == 4
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5


def test_a_log_says_when_its_runs_began_and_ended(tmp_path: Path) -> None:
    """Also of runs that the file had already, and of several turns, whatever the time taken now."""

    def run(number: int, *began: float) -> RunRecord:
        traces = []
        for each in began:
            events = [TurnStarted((), "m", began=each), TurnFinished("done", at=60.0)]
            traces.append(Trace(events))
        key = str(number)
        transcript = dump_traces(traces) if traces else ""
        return RunRecord(key, "p", "a", number, "p", right=True, transcript=transcript)

    # The third is the last to begin, and the second has a turn after that.
    records = (run(0, 1_000), run(1, 1_300, 1_700), run(2, 1_540), run(3))
    results = RunResults(records, (Arm("a"),), ("p",), 4, seconds=600.0)
    stats = _stats(results, tmp_path / "log.json")
    assert (stats["started_at"], stats["completed_at"]) == (1_000, 1_760)
    nothing = RunResults((run(0),), (Arm("a"),), ("p",), seconds=600.0)
    stats = _stats(nothing, tmp_path / "nothing.json")
    assert stats["started_at"] == stats["completed_at"]


def _stats(results: RunResults, path: Path) -> dict[str, float]:
    """When a log says that its runs began and ended, in seconds since 1970."""
    (file,) = results.to_inspect(path)
    stats = json.loads(file.read_text())["stats"]
    return {
        name: datetime.fromisoformat(stats[name]).timestamp()
        for name in ("started_at", "completed_at")
    }


def test_a_file_is_for_one_arm_and_is_not_replaced_unasked(
    results: RunResults, tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        results.to_inspect(tmp_path / "log.json")
    with pytest.raises(UnknownNameError):
        results.to_inspect(tmp_path / "log.json", arm="longer")
    assert results.to_inspect(tmp_path / "log.json", arm="shorter") == (tmp_path / "log.json",)
    with pytest.raises(UsageError):
        results.to_inspect(tmp_path / "log.json", arm="shorter")
    results.to_inspect(tmp_path / "log.json", arm="shorter", overwrite=True)


def test_a_solver_needs_inspect_ai(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.solver", None)
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(MissingDependencyError, match=r"casual-mcp-nb\[inspect\]"):
        session.experiments.to_solver()


TOOLS = ("weather:forecast", "weather:history", "desk:note")


def generated(seed: int) -> tuple[ToolUseCase, list[tuple[str, str]], dict[str, Any]]:
    """A case, the calls that a model makes in it, and what pydantic-evals expects."""
    chance = random.Random(seed)
    expected = [(chance.choice(TOOLS), chance.choice("ab")) for _ in range(chance.randint(1, 3))]
    made = list(expected)
    match chance.randrange(5):
        case 0:
            chance.shuffle(made)
        case 1:
            made.pop(chance.randrange(len(made)))
        case 2:
            made.insert(chance.randint(0, len(made)), (chance.choice(TOOLS), "c"))
        case 3:
            made[0] = (made[0][0], "c")
    order: Any = ("any", "in_order", "exact")[chance.randrange(3)]
    name = {"any": "any_order"}.get(order, order)
    row: dict[str, Any] = {
        "trajectory": [tool.replace(":", "__") for tool, _ in expected],
        "order": name,
    }
    if chance.randrange(2):
        # Only where each tool is called once do both mean the same call.
        names = [tool for tool, _ in (*expected, *made)]
        once = [(tool, value) for tool, value in expected if names.count(tool) == 2]
        row["arguments"] = {
            tool.replace(":", "__"): {parameter(tool): value} for tool, value in once
        }
    wanted = [
        ExpectedCall(
            tool,
            {parameter(tool): value} if tool.replace(":", "__") in row.get("arguments", {}) else {},
        )
        for tool, value in expected
    ]
    return ToolUseCase(f"Case {seed}", wanted, order=order, extra_calls=0, id=str(seed)), made, row


def parameter(tool: str) -> str:
    return "text" if tool == "desk:note" else "city"


@pytest.mark.slow
@needs_others
async def test_others_read_our_logs_ask_our_sessions_and_judge_our_spans_as_we_do(
    results: RunResults, tmp_path: Path
) -> None:
    results.to_inspect(tmp_path / "logs")
    script = tmp_path / "others.py"
    script.write_text(SCRIPT)
    rows: list[dict[str, Any]] = []
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with Session(
        {}, in_process={"weather": weather(), "desk": desk()}, store=None, quiet=True
    ) as session:
        session.observe(OpenTelemetry(tracer_provider=provider, content=True))
        for seed in range(50):
            case, made, row = generated(seed)
            scripted = [
                calls(call(tool.replace(":", "__"), **{parameter(tool): value}))
                for tool, value in made
            ]
            exporter.clear()
            model = scripted_model(*scripted, "Done")
            turn = await session.chat_async(case.messages[0], model=model, echo="none")
            session.conversations.new()
            spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
            rows.append({**row, "right": judge_turns(case, [turn]).right, "spans": spans})
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    process = await asyncio.create_subprocess_exec(
        OTHERS,
        script,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": "", "HOME": str(tmp_path)},
    )
    output, _ = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, output.decode()[-3_000:]
    told = json.loads(output.decode().splitlines()[-1])
    assert told["log"] == {"as listed": [6, "success", 0.5], "shorter": [6, "success", 0.5]}
    assert told["bundle"] is True
    assert told["judged"] == [row["right"] for row in rows]
    assert {True, False} == set(told["judged"])
    assert told["solver"] == ["success", ["391"], ["math__evaluate_expression"]]


SCRIPT = """
import json, sys
from pathlib import Path
from datetime import datetime
from inspect_ai.log import list_eval_logs, read_eval_log
told = {"log": {}}
for info in list_eval_logs("logs"):
    header = read_eval_log(info, header_only=True)
    log = read_eval_log(info)
    assert header.eval.task == log.eval.task
    score = log.results.scores[0].metrics["accuracy"].value
    told["log"][log.eval.task] = [len(log.samples), log.status, score]
from inspect_ai.log import bundle_log_dir
bundle_log_dir("logs", "page", overwrite=True)
told["bundle"] = Path("page", "index.html").exists()

from pydantic_evals.evaluators import ArgumentCorrectness, EvaluatorContext, ToolCorrectness, TrajectoryMatch
from pydantic_evals.otel._context_in_memory_span_exporter import SpanTree
from pydantic_evals.otel.span_tree import SpanNode

def tree(spans):
    nodes = []
    for span in spans:
        at = lambda name: datetime.fromisoformat(span[name])
        number = lambda text: int(text, 16)
        nodes.append(SpanNode(name=span["name"], trace_id=number(span["context"]["trace_id"]),
            span_id=number(span["context"]["span_id"]), parent_span_id=None,
            start_timestamp=at("start_time"), end_timestamp=at("end_time"),
            attributes=span["attributes"], status="error" if span["status"]["status_code"] == "ERROR" else "ok"))
    result = SpanTree()
    result.add_spans(nodes)
    return result

told["judged"] = []
for row in json.loads(Path("rows.json").read_text()):
    context = EvaluatorContext(name="x", inputs="", metadata=None, expected_output=None, output="", duration=0.0,
        _span_tree=tree(row["spans"]), attributes={}, metrics={})
    trajectory = TrajectoryMatch(row["trajectory"], order=row["order"]).evaluate(context).value == 1.0
    if row["order"] == "any_order":
        assert ToolCorrectness(row["trajectory"]).evaluate(context).value == trajectory
    given = row.get("arguments", {}).items()
    arguments = all(ArgumentCorrectness(tool, values).evaluate(context).value for tool, values in given)
    told["judged"].append(trajectory and arguments)

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from casual_mcp_nb import Session
CONFIG = {"clients": {"offline": {"provider": "offline"}}, "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {"math": {"bundled": "math", "transport": "in-process"}}}
with Session.from_config(CONFIG, store=None, quiet=True) as session:
    task = Task(dataset=[Sample("What is 17 * 23?", target="391"), Sample("What is 17 * 23 now?", target="391")],
        solver=session.experiments.to_solver(), scorer=includes())
    (log,) = eval(task, model="none", display="none", log_dir="own")
    if log.error:
        print(log.error.traceback)
    messages = [message for sample in log.samples for message in sample.messages]
    used = {each.function for message in messages for each in getattr(message, "tool_calls", None) or ()}
    right = {sample.target for sample in log.samples if sample.scores["includes"].value == "C"}
    told["solver"] = [log.status, sorted(right), sorted(used)]
print(json.dumps(told))
"""


def test_a_run_that_is_not_judged_has_no_score(session: Session) -> None:
    results = session.experiments.compare("Go", models=scripted_model("Gone"))
    (sample,) = inspect_log(next(iter(results.values())), status="done", repeats=1)["samples"]
    assert not {"scores", "error"} & sample.keys()
