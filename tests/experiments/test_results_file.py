"""Results files: what was asked is not asked again, and is judged again whenever an expectation
changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.provider import Provider, answer
from kit.weather import desk, weather

from casual_mcp_nb import Session
from casual_mcp_nb.errors import ProviderError, UsageError
from casual_mcp_nb.experiments.cases import ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.results_file import ResultsFile, load_runs
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.scripted import call, scripted_model

FORMATS = Path(__file__).parents[1] / "data" / "formats"


class Counted:
    """A model that calls `weather:forecast` for Oslo and says what it heard, and counts its
    requests.
    """

    def __init__(self, name: str = "scripted") -> None:
        self.requests = 0
        self.model: ChatModel = scripted_model(name=name)
        self.model.client._answers = self._answers()  # type: ignore[attr-defined]

    def _answers(self) -> Iterator[Any]:
        while True:
            yield self._answer

    def _answer(self, messages: Any, tools: Any) -> Any:
        self.requests += 1
        return "Sunny" if messages[-1].role == "tool" else call("weather__forecast", city="Oslo")


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(
        {}, in_process={"weather": weather(), "desk": desk()}, store=None, quiet=True
    ) as session:
        yield session


def right(results: RunResults) -> list[bool | None]:
    return [record.right for record in results.records]


CASE = ToolUseCase(
    "Forecast for Oslo", [ExpectedCall("weather:forecast", {"city": "Bergen"})], id="a"
)
CHANGED: dict[str, ToolUseCase] = {
    "a corrected expectation": ToolUseCase(
        "Forecast for Oslo", [ExpectedCall("weather:forecast", {"city": "Oslo"})], id="a"
    ),
    "a renamed id": ToolUseCase("Forecast for Oslo", ["weather:forecast"], id="renamed"),
    "an id made up": ToolUseCase("Forecast for Oslo", ["weather:forecast"]),
    "a cluster and tags": ToolUseCase(
        "Forecast for Oslo", ["weather:forecast"], id="a", cluster="c", tags=["t"]
    ),
    "an answer": ToolUseCase("Forecast for Oslo", answer="sunny", id="a"),
    "a function": ToolUseCase(
        "Forecast for Oslo", answer=lambda turn: turn.answer == "Sunny", id="a"
    ),
}


@pytest.mark.defect("P7")
@pytest.mark.parametrize("change", CHANGED)
async def test_what_is_expected_may_change_without_a_request(
    session: Session, tmp_path: Path, change: str
) -> None:
    asked, path, case = Counted(), tmp_path / "runs.jsonl", CHANGED[change]
    first = await session.experiments.run_async([CASE], models=asked.model, repeats=2, results=path)
    assert (right(first), asked.requests) == ([False, False], 4)
    again = await session.experiments.run_async([case], models=asked.model, repeats=2, results=path)
    assert (right(again), again.reused, asked.requests) == ([True, True], 2, 4)
    # The file has the new verdicts, and only these.
    loaded = load_runs(path)
    assert (right(loaded), loaded.cases, loaded.left_out) == ([True, True], (case.id,), 0)
    assert {(record.cluster, record.tags) for record in loaded.records} == {
        (case.cluster or case.id, tuple(case.tags))
    }
    # Without a session, from the transcripts alone.
    other = first.judge([case])
    assert (right(other), other.cases) == ([True, True], (case.id,))
    assert right(loaded.judge([CASE])) == [False, False]


@pytest.mark.defect("P7")
async def test_a_changed_check_function_is_asked_again_and_the_model_is_not(
    session: Session, tmp_path: Path
) -> None:
    asked, path, accepted = Counted(), tmp_path / "runs.jsonl", {"Rainy"}
    case = ToolUseCase("Forecast for Oslo", answer=lambda turn: turn.answer in accepted, id="a")
    assert right(await session.experiments.run_async([case], models=asked.model, results=path)) == [
        False
    ]
    accepted.add("Sunny")
    assert right(await session.experiments.run_async([case], models=asked.model, results=path)) == [
        True
    ]
    assert asked.requests == 2


@pytest.mark.defect("P7")
async def test_runs_of_an_earlier_set_up_are_not_pooled(session: Session, tmp_path: Path) -> None:
    asked, path = Counted(), tmp_path / "runs.jsonl"
    options: dict[str, Any] = {"models": asked.model, "results": path}
    await session.experiments.run_async([CASE], repeats=3, **options)
    warmer = await session.experiments.run_async([CASE], temperature=0.5, **options)
    assert warmer.reused == 0
    loaded = load_runs(path)
    assert (len(loaded.records), loaded.left_out, loaded.repeats) == (1, 3, 1)
    assert loaded.records[0].key == warmer.records[0].key
    assert "left out" in str(loaded)
    # Back at the first one, its runs are the newest again, though nothing was asked.
    requests = asked.requests
    await session.experiments.run_async([CASE], repeats=3, **options)
    assert (asked.requests, len(load_runs(path).records), load_runs(path).left_out) == (
        requests,
        3,
        1,
    )


async def test_cases_with_the_same_messages_are_asked_separately(
    session: Session, tmp_path: Path
) -> None:
    asked, path = Counted(), tmp_path / "runs.jsonl"
    cases = [CASE, CHANGED["a renamed id"]]
    first = await session.experiments.run_async(cases, models=asked.model, results=path)
    assert (right(first), asked.requests) == ([False, True], 4)
    assert (
        await session.experiments.run_async(cases, models=asked.model, results=path)
    ).reused == 2


@pytest.mark.defect("P3")
def test_one_model_at_two_addresses_is_two(tmp_path: Path) -> None:
    keys: dict[str, str] = {}
    case = ToolUseCase("Hello", answer="me", id="a")
    texts = {"one": "It is me.", "two": "It is another."}
    with (
        Provider(answer("openai", texts["one"])) as one,
        Provider(answer("openai", texts["two"])) as two,
    ):
        clients = {
            name: {"provider": "openai", "base_url": f"{server.url}/v1", "api_key": "sk-x"}
            for name, server in {"one": one, "two": two}.items()
        }
        path = tmp_path / "runs.jsonl"
        for name in texts:
            config = {
                "clients": {"desk": clients[name]},
                "models": {"m": {"client": "desk", "model": "m-1"}},
            }
            with Session(config, in_process={}, store=None, quiet=True) as session:
                (record,) = session.experiments.run([case], results=path).records
            assert (record.answer, record.right) == (texts[name], name == "one")
            keys[name] = record.key
        # Two clients at one address may have different keys, and so different models.
        config = {
            "clients": {"other": clients["one"]},
            "models": {"m": {"client": "other", "model": "m-1"}},
        }
        with Session(config, in_process={}, store=None, quiet=True) as session:
            (record,) = session.experiments.run([case], results=path).records
        keys["other"] = record.key
    assert len(set(keys.values())) == 3


@pytest.mark.defect("P3")
@pytest.mark.parametrize(
    "entry",
    [
        {"bundled": "time", "transport": "in-process"},
        {"bundled": "units", "transport": "in-process", "args": ["--other"]},
        {"command": sys.executable, "args": ["-m", "server"]},
        {"url": "https://one.example/mcp"},
        {"url": "https://two.example/mcp"},
    ],
    ids=str,
)
def test_where_a_server_is_counts_and_its_secrets_do_not(entry: dict[str, Any]) -> None:
    from casual_mcp_nb.base.config import ServerConfig
    from casual_mcp_nb.experiments.asking import _server

    def told(config: dict[str, Any]) -> str:
        return str(
            _server(ServerConfig.model_validate(config), lambda text: text.replace("s3cret", "***"))
        )

    plain = {"bundled": "units", "transport": "in-process"}
    assert told(entry) != told(plain)
    secret = (
        {**entry, "headers": {"Authorization": "s3cret"}}
        if "url" in entry
        else {**entry, "env": {"KEY": "s3cret"}}
    )
    assert told(secret) == told(entry)


def test_a_file_of_the_first_format_is_read_and_not_continued(
    session: Session, tmp_path: Path
) -> None:
    loaded = load_runs(FORMATS / "runs-1.jsonl")
    assert list(loaded) == ["definitions", "bridge"]
    assert (len(loaded.records), loaded.repeats, loaded.left_out) == (12, 2, 0)
    shares = {name: arm.means("right") for name, arm in loaded.items()}
    sums = next(case for case in loaded.cases if case.startswith("case-"))
    assert shares == {name: {"product": 1, "tokyo": 0, sums: 1} for name in loaded}
    assert all(record.turns for record in loaded.records)
    corrected = ToolUseCase(
        "What time is it in Tokyo when it is 14:30 in Oslo?", answer="22:30", id="tokyo"
    )
    assert right(loaded.judge([corrected])) == [True] * 4
    copy = tmp_path / "runs.jsonl"
    copy.write_bytes((FORMATS / "runs-1.jsonl").read_bytes())
    with pytest.raises(UsageError, match="new file"):
        session.experiments.run([CASE], models=Counted().model, results=copy)
    assert copy.read_bytes() == (FORMATS / "runs-1.jsonl").read_bytes()
    # As a baseline it serves.
    assert loaded.problems(baseline=loaded) == []


def test_a_file_says_its_format_and_has_each_part_once(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    session.experiments.run([CASE], models=Counted().model, repeats=2, results=path)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert (rows[0]["format"], rows[0]["version"]) == ("casual_mcp_nb runs", 2)
    kinds = [next(iter(row)) for row in rows]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counts == {
        "format": 1,
        "arm": 1,
        "setup": 1,
        "case": 1,
        "reserved": 4,
        "spent": 4,
        "tool": 3,
        "asked": 2,
        "verdict": 2,
    }
    asked = next(row["asked"] for row in rows if "asked" in row)
    assert not {"case", "cluster", "right", "needed"} & asked.keys()


async def test_a_run_that_was_broken_off_says_how_often_it_was_tried(
    session: Session, tmp_path: Path
) -> None:
    replies = iter(
        [ProviderError("Overloaded", client="x"), call("weather__forecast", city="Oslo"), "Sunny"]
    )
    model, path = scripted_model(), tmp_path / "runs.jsonl"
    model.client._answers = replies  # type: ignore[attr-defined]
    broken = await session.experiments.run_async([CASE], models=model, results=path)
    assert ([record.made for record in broken.records], broken.retried) == ([False], ())
    again = await session.experiments.run_async([CASE], models=model, results=path)
    assert [(record.made, record.attempts) for record in again.retried] == [(True, 2)]
    assert [record.attempts for record in load_runs(path).records] == [2]
    assert "asked again" in str(again)


async def test_each_comparison_with_more_runs_is_a_look(session: Session, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "models": Counted().model,
        "results": tmp_path / "runs.jsonl",
        "without": ["desk"],
    }

    async def looks(repeats: int) -> int:
        return (await session.experiments.run_async([CASE], repeats=repeats, **options)).looks

    assert [await looks(repeats) for repeats in (1, 1, 2, 2, 4)] == [1, 1, 2, 2, 3]
    # Another arm is one more candidate, and no look.
    options["without"] = ["desk", "weather"]
    assert await looks(4) == load_runs(options["results"]).looks == 3


def test_results_are_divided_by_tags(session: Session) -> None:
    cases = [
        ToolUseCase("Forecast for Oslo", ["weather:forecast"], tags=["weather", "easy"], id="a"),
        ToolUseCase("Forecast for Rome", ["weather:history"], tags=["weather"], id="b"),
        ToolUseCase("Note it", ["desk:note"], id="c"),
    ]
    results = session.experiments.run(cases, models=Counted().model, without=["desk"])
    parts = results.by_tag()
    assert {tag: part.cases for tag, part in parts.items()} == {
        "easy": ("a",),
        "weather": ("a", "b"),
    }
    shares = {tag: part["with all"].right for tag, part in parts.items()}
    assert {tag: share and share.value for tag, share in shares.items()} == {
        "easy": 1,
        "weather": 0.5,
    }
    frame = results.arms_frame(by="tag")
    assert list(zip(frame["tag"], frame["arm"], frame["right"], strict=True)) == [
        ("easy", "with all", 1),
        ("easy", "without desk", 1),
        ("weather", "with all", 0.5),
        ("weather", "without desk", 0.5),
    ]


@pytest.mark.slow
@pytest.mark.defect("P7")
def test_the_command_judges_a_file_without_asking(session: Session, tmp_path: Path) -> None:
    path, cases = tmp_path / "runs.jsonl", tmp_path / "cases.jsonl"
    session.experiments.run([CASE], models=Counted().model, results=path)
    row = {
        "message": "Forecast for Oslo",
        "calls": [{"tool": "weather:forecast", "arguments": {"city": "Oslo"}}],
    }
    cases.write_text(json.dumps(row))
    command = [
        sys.executable,
        "-m",
        "casual_mcp_nb",
        "evaluate",
        str(cases),
        "--results",
        str(path),
        "--judge-only",
    ]
    ran = subprocess.run(
        [*command, "--min-right", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (ran.returncode, json.loads(ran.stdout)["arms"][0]["right"]["value"]) == (0, 1.0), (
        ran.stderr
    )


def made(key: str, **fields: Any) -> RunRecord:
    """A run of case `c-KEY`."""
    return RunRecord(key, f"c-{key}", "a", 0, f"c-{key}", (f"Message {key}",), **fields)


def keys(path: Path) -> list[str]:
    return [record.key for record in load_runs(path).records]


@pytest.mark.defect("P7")
def test_a_write_that_stops_in_the_middle_of_a_line_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "runs.jsonl", os.write
    file = ResultsFile(path)
    file.add(made("1"))
    # As POSIX allows, and as a disk does that is nearly full.
    monkeypatch.setattr(os, "write", lambda target, data: write(target, data[:7]))
    file.add(made("2"))
    monkeypatch.undo()
    file.add(made("3"))
    assert keys(path) == ["1", "2", "3"]


@pytest.mark.defect("P7")
def test_a_line_that_another_process_tore_costs_only_that_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = ResultsFile(path)
    first.add(made("1"))
    second = ResultsFile(path)
    with path.open("ab") as file:
        file.write(b'{"asked":{"key":"torn"')
    second.add(made("2"))
    first.add(made("3"))
    assert keys(path) == ["1", "2", "3"]


@pytest.mark.defect("P7")
@pytest.mark.parametrize("secret", ["12345678", "567", "2345678"])
def test_a_secret_of_digits_leaves_a_line_readable(tmp_path: Path, secret: str) -> None:
    path = tmp_path / "runs.jsonl"
    file = ResultsFile(path, lambda line: line.replace(secret, "**********"))
    file.add(made("a", input_tokens=12345678, detail=f"The key is {secret}."))
    (record,) = load_runs(path).records
    assert (record.input_tokens, record.detail) == (12345678, "The key is **********.")


@pytest.mark.defect("P7")
@pytest.mark.parametrize(
    "text", ["A shopping list", '{"name": "a package"}', "\n# Read me\n\nText\n", "{", "[1]\n"]
)
def test_a_file_of_something_else_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(text)
    for opened in (ResultsFile, load_runs):
        with pytest.raises(UsageError, match="not a results file"):
            opened(path)
    assert path.read_text() == text


@pytest.mark.defect("P7")
def test_a_file_of_a_later_version_is_not_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    file = ResultsFile(path)
    file.add(made("a"))
    path.write_text(path.read_text().replace('"version":2', '"version":9'))
    for opened in (ResultsFile, load_runs):
        with pytest.raises(UsageError, match=r"version .9.*update the package"):
            opened(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files")
def test_what_is_no_file_is_refused_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="not a file"):
            ResultsFile(path)
