"""Evaluation of discovery: figures that can be checked by hand, the same on any executor, and its
displays.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.case_files import load_tool_cases
from casual_mcp_nb.experiments.cases import Case
from casual_mcp_nb.experiments.evaluate import evaluate, load_catalog

CATALOG = Catalog(
    [
        ToolSpec("time", "convert_time", "Convert a time between zones."),
        ToolSpec("time", "get_current_time", "Get the current time."),
        ToolSpec("git", "log", "Show the commit history."),
        ToolSpec("mail", "send", "Send an e-mail."),
    ]
)
CONVERT, NOW, LOG, SEND = (tool.tool_name for tool in CATALOG)


def case(query: str, *needs: set[ToolName]) -> Case:
    return Case(query, tuple(frozenset(need) for need in needs))


CASES = (
    case("convert time zones", {CONVERT}),
    case("commit history, and send an e-mail", {LOG}, {SEND}),
    case("what o'clock is it", {NOW}, {CONVERT}),
    case("fly to the moon", {ToolName("rocket", "fly")}),
)


def by_hand(
    tools: Sequence[ToolSpec], *, order: Sequence[str] = ()
) -> Callable[[str, int], list[ToolSpec]]:
    """Finds the same tools, in the same order, whatever is asked."""
    return lambda query, count: [tool for name in order for tool in tools if tool.name == name][
        :count
    ]


def first_two(tools: Sequence[ToolSpec]) -> Callable[[str, int], list[tuple[str, str]]]:
    return lambda query, count: [(tool.server, tool.name) for tool in tools[:2]]


def test_the_figures_are_those_that_one_computes_by_hand() -> None:
    fixed = partial(by_hand, order=["log", "convert_time", "send"])
    score = evaluate(CATALOG, CASES[:3], {"fixed": fixed}, k=2, progress=False)["fixed"]
    assert score.recall_any == pytest.approx(3 / 3)
    assert score.recall == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    assert score.recall_all == pytest.approx(1 / 3)
    assert score.mrr == pytest.approx((1 / 2 + 1 + 1 / 2) / 3)
    assert score.server == 1.0
    assert score.loaded_tokens == CATALOG[0].tokens + CATALOG[2].tokens
    assert [miss.case.query for miss in score.misses] == [CASES[1].query, CASES[2].query]
    assert score.misses[0].unmet == (frozenset({SEND}),)
    assert score.misses[0].found == (LOG, CONVERT)
    assert score.misses[0].reason == ""


def test_the_index_is_evaluated_when_nothing_is_named_and_explains_its_misses() -> None:
    evaluation = evaluate(CATALOG, CASES, k=1, progress=False)
    assert list(evaluation) == ["search"]
    misses = evaluation["search"].misses
    assert [miss.known for miss in misses] == [True, True, False]
    assert misses[0].explanation is not None
    assert misses[0].explanation.rank == 2
    assert misses[0].explanation.tool.tool_name in misses[0].unmet[0]
    assert misses[0].reason.startswith(misses[0].explanation.verdict)
    assert misses[-1].explanation is None
    assert "no tool" in misses[-1].reason


def test_a_reason_names_missing_words_in_full() -> None:
    cases = [case("converting cities and zones into histories", {LOG})]
    miss = evaluate(CATALOG, cases, k=1, progress=False)["search"].misses[0]
    assert miss.reason.endswith(": converting, cities, zones.")


def test_prices_are_those_of_the_definitions_and_of_the_manifest() -> None:
    evaluation = evaluate(CATALOG, CASES, progress=False)
    assert evaluation.definition_tokens == sum(tool.tokens for tool in CATALOG)
    assert 0 < evaluation.manifest_tokens < evaluation.definition_tokens
    assert evaluate(CATALOG, CASES, progress=False, manifest_max_tokens=20).manifest_tokens <= 20


@pytest.fixture(params=["threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    spawned = multiprocessing.get_context("spawn")
    with (
        ThreadPoolExecutor(2)
        if request.param == "threads"
        else ProcessPoolExecutor(2, spawned) as pool
    ):
        yield pool


STRATEGIES = {
    "index": ToolSearchIndex,
    "first": first_two,
    "fixed": partial(by_hand, order=["send", "log"]),
}


def importable_strategies() -> dict[str, type[ToolSearchIndex]]:
    return {"index": ToolSearchIndex, "again": ToolSearchIndex}


def test_an_executor_changes_nothing(executor: Executor) -> None:
    strategies = importable_strategies()
    many = CASES * 80
    here = evaluate(CATALOG, many, strategies, k=2, progress=False)
    assert evaluate(CATALOG, many, strategies, k=2, executor=executor, progress=False) == here
    assert pickle.loads(pickle.dumps(here)) == here


@pytest.mark.slow
def test_a_dask_cluster_does_the_work() -> None:
    distributed = pytest.importorskip("distributed")
    many = CASES * 80
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=None
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        there = evaluate(
            CATALOG, many, importable_strategies(), k=2, executor=executor, progress=False
        )
    assert there == evaluate(CATALOG, many, importable_strategies(), k=2, progress=False)


def broken(tools: Sequence[ToolSpec]) -> Callable[[str, int], list[ToolSpec]]:
    raise RuntimeError("no index today")


def test_a_strategy_that_fails_says_why_on_any_executor() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="no index today"):
        evaluate(CATALOG, CASES * 80, {"broken": broken}, executor=pool, progress=False)
    with pytest.raises(RuntimeError, match="no index today"):
        evaluate(CATALOG, CASES, {"broken": broken}, progress=False)


def test_an_evaluation_that_is_stopped_searches_no_further() -> None:
    stopped = threading.Event()
    queries: list[str] = []

    def strategy(tools: Sequence[ToolSpec]) -> Callable[[str, int], list[ToolSpec]]:
        def search(query: str, count: int) -> list[ToolSpec]:
            queries.append(query)
            stopped.set()
            return []

        return search

    with pytest.raises(CancelledError):
        evaluate(CATALOG, CASES, {"stopping": strategy}, progress=False, stopped=stopped)
    assert len(queries) == 1


def test_several_strategies_are_shown_side_by_side() -> None:
    evaluation = evaluate(CATALOG, CASES, STRATEGIES, k=2, progress=False)
    assert list(evaluation) == list(STRATEGIES)
    assert [row["strategy"] for row in evaluation.rows()] == list(STRATEGIES)
    assert evaluation.rows()[1] | {"k": 2, "misses": 2} == evaluation.rows()[1]
    assert evaluation["index"].recall > evaluation["first"].recall


def test_progress_is_shown_on_stderr_when_it_takes_a_while(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(CATALOG, CASES, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("casual_mcp_nb.experiments.evaluate.PROGRESS_DELAY", 0)
    evaluate(CATALOG, CASES, progress=True)
    shown = capsys.readouterr()
    assert "0/4" in shown.err
    assert shown.out == ""
    evaluate(CATALOG, CASES, progress=False)
    assert capsys.readouterr().err == ""


def test_no_cases_and_no_k_are_refused() -> None:
    with pytest.raises(UsageError, match="no cases"):
        evaluate(CATALOG, [], progress=False)
    with pytest.raises(UsageError, match="k must be 1"):
        evaluate(CATALOG, CASES, k=0, progress=False)


def test_every_form_shows_the_strategies_and_the_misses() -> None:
    evaluation = evaluate(CATALOG, CASES, STRATEGIES, k=1, progress=False)
    forms = evaluation._repr_mimebundle_()
    for form in forms.values():
        for text in (
            "index",
            "first",
            "Any need met",
            "MRR",
            "Misses of index",
            "fly to the moon",
            "no tool for it",
        ):
            assert text in form
    assert forms["text/html"].count("<details") == 3
    assert forms["text/html"].count("cmn-bar") >= 15
    assert repr(evaluation) == "<Evaluation: index, first, fixed over 4 cases>"


def test_a_large_evaluation_of_hostile_text_stays_small_and_harmless() -> None:
    tools = [ToolSpec("s" * 500, f"tool_{n}", "<script>alert(1)</script>" * 40) for n in range(200)]
    missed = [
        case(f"<img src=x onerror=alert(1)> {n} " + "long " * 500, {ToolName("<b>", "</table>")})
        for n in range(500)
    ]
    forms = evaluate(tools, missed, k=50, progress=False)._repr_mimebundle_()
    assert max(len(form.encode()) for form in forms.values()) <= 64 * 1024
    assert "<img" not in forms["text/html"]
    assert "450 more" in forms["text/plain"]


def test_catalogs_and_cases_are_read_from_files(tmp_path: Path) -> None:
    tools = [
        {"server": "time", "name": "now", "description": None, "input_schema": {"type": "object"}},
        {"server": "a", "name": "b"},
    ]
    cases = [{"query": "what time is it", "gold": [[["time", "now"], ["a", "b"]]]}]
    (tmp_path / "tools.jsonl").write_text(
        "\n".join(map(json.dumps, tools)) + "\n\n", encoding="utf-8"
    )
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    catalog = load_catalog(tmp_path / "tools.jsonl")
    assert [(tool.server, tool.name, tool.description) for tool in catalog] == [
        ("time", "now", ""),
        ("a", "b", ""),
    ]
    assert load_tool_cases(str(tmp_path / "cases.jsonl")) == (
        case("what time is it", {ToolName("time", "now"), ToolName("a", "b")}),
    )


@pytest.mark.parametrize(
    ("read", "line", "reason"),
    [
        (load_catalog, "{", "x.jsonl, line 2 is not JSON"),
        (load_catalog, "[]", "x.jsonl, line 2 is not an object"),
        (
            load_catalog,
            '{"server": "s"}',
            "x.jsonl, line 2 is not a tool: it needs a server and a name",
        ),
        (load_tool_cases, "{}", "x.jsonl, line 2: the field message is missing"),
        (
            load_tool_cases,
            '{"query": "q", "gold": [["server"]]}',
            "x.jsonl, line 2: A tool cannot be",
        ),
        (load_tool_cases, '{"query": "q", "gold": 3}', "x.jsonl, line 2 cannot be read"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    read: Callable[[Path], object], line: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "x.jsonl").write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=reason):
        read(tmp_path / "x.jsonl")


@pytest.mark.parametrize("read", [load_catalog, load_tool_cases])
def test_a_file_that_is_not_there_is_named(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl' cannot be read"):
        read(tmp_path / "nowhere.jsonl")
