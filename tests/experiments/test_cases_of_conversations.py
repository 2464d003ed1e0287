"""A first file of cases, from past questions, searches and calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.weather import desk, weather

from casual_mcp_nb import Case, Session, ToolName, UsageError
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.case_files import load_tool_cases, save_tool_cases
from casual_mcp_nb.experiments.cases import ExpectedCall
from casual_mcp_nb.experiments.drafts import cases_of_turns
from casual_mcp_nb.experiments.evaluate import searches_of
from casual_mcp_nb.magics.commands import evaluate
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

SEARCH = "search_tools"
DEFERRED: dict[str, Any] = {"tool_discovery": {"enabled": True, "defer_all": True}}
FORECAST, NOTE = ToolName("weather", "forecast"), ToolName("desk", "note")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Session]]:
    sessions: list[Session] = []

    def open_session() -> Session:
        servers = {"weather": weather(), "desk": desk()}
        store = tmp_path / "conversations.db"
        sessions.append(
            Session(DEFERRED, in_process=servers, store=store, quiet=True, name=str(len(sessions)))
        )
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


def asks(session: Session, prompt: str, *answers: Any) -> None:
    session.chat(prompt, model=scripted_model(*answers, "Done."), echo="none")


def of(query: str, *needs: ToolName) -> Case:
    return Case(query, tuple(frozenset([need]) for need in needs))


def searches(turns: Iterable[Turn]) -> list[tuple[str, tuple[frozenset[ToolName], ...]]]:
    return [(case.query, case.needs) for case in searches_of(cases_of_turns(turns))]


def need(tool: ToolName) -> tuple[frozenset[ToolName], ...]:
    return (frozenset([tool]),)


def test_a_query_expects_the_found_tools_that_were_called(opened: Callable[[], Session]) -> None:
    session = opened()
    search = call(SEARCH, query="weather forecast of a city")
    asks(
        session,
        "Will it rain in Oslo?",
        search,
        call("weather__forecast", city="Oslo"),
        call("weather__forecast", city="Rome"),
    )
    # Called without a search, as it stays loaded: the message is the query.
    asks(session, "And in\n  Bergen?", call("weather__forecast", city="Bergen"))
    assert searches(session.turns) == [
        ("weather forecast of a city", need(FORECAST)),
        ("And in\n  Bergen?", need(FORECAST)),
    ]


def test_each_search_of_a_turn_has_its_own(opened: Callable[[], Session]) -> None:
    session = opened()
    both = calls(call(SEARCH, query="weather forecast"), call(SEARCH, query="write a note"))
    asks(
        session,
        "Note the weather.",
        both,
        calls(call("desk__note", text="sun"), call("weather__forecast", city="Oslo")),
    )
    assert set(searches(session.turns)) == {
        ("weather forecast", need(FORECAST)),
        ("write a note", need(NOTE)),
    }


def test_failed_and_unknown_calls_make_no_case(opened: Callable[[], Session]) -> None:
    session = opened()
    asks(
        session,
        "Try.",
        call("desk__note", text="not loaded"),
        call("nothing"),
        call(SEARCH, query="write a note"),
    )
    assert cases_of_turns(session.turns) == []
    with pytest.raises(UsageError):
        session.experiments.save_cases("cases.jsonl")
    assert not Path("cases.jsonl").exists()


def test_saved_conversations_count_too_and_the_file_can_be_evaluated(
    opened: Callable[[], Session], tmp_path: Path
) -> None:
    asks(
        opened(), "Write it down.", call(SEARCH, query="write a note"), call("desk__note", text="x")
    )
    session = opened()
    asks(
        session,
        "Rain?",
        call(SEARCH, query="weather forecast"),
        call("weather__forecast", city="Oslo"),
    )
    file = tmp_path / "cases.jsonl"
    cases = session.experiments.save_cases(file)
    assert cases == load_tool_cases(file)
    assert [
        (case.message, [(call.tool, call.arguments) for call in case.calls]) for case in cases
    ] == [
        ("Rain?", [("weather:forecast", {"city": "Oslo"})]),
        ("Write it down.", [("desk:note", {"text": "x"})]),
    ]
    assert searches_of(cases) == (of("weather forecast", FORECAST), of("write a note", NOTE))
    assert session.experiments.evaluate(file, progress=False)["search"].recall == 1
    model = scripted_model(call("weather__forecast", city="Oslo"), "Done.", "Done.")
    results = session.experiments.run(
        file, models=model, repeats=1, discovery=False, concurrency=1, progress=False
    )
    assert [(record.label, record.right) for record in results.records] == [
        ("Rain?", True),
        ("Write it down.", False),
    ]


def test_the_magic_writes_the_file_that_it_evaluates(
    opened: Callable[[], Session], tmp_path: Path
) -> None:
    session = opened()
    asks(
        session,
        "Rain?",
        call(SEARCH, query="weather forecast"),
        call("weather__forecast", city="Oslo"),
    )
    file = tmp_path / "cases.jsonl"
    evaluation = evaluate(session, f"{file} 3 --new")
    assert (evaluation.k, evaluation.cases) == (3, 1)
    assert searches_of(load_tool_cases(file)) == (of("weather forecast", FORECAST),)
    with pytest.raises(UsageError):
        evaluate(session, f"{file} --new")


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError):
        save_tool_cases([of("x", NOTE)], file)
    assert file.read_text(encoding="utf-8") == "mine"


def test_any_text_is_written_as_a_line_of_json(tmp_path: Path) -> None:
    query = 'Grüße \ud800 \u2028 "x"'
    file = save_tool_cases([of(query, NOTE)], tmp_path / "cases.jsonl")
    assert load_tool_cases(file) == (of(query, NOTE),)
    (row,) = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]
    assert (row["message"], row["calls"]) == (query, [{"tool": "desk:note"}])


def test_a_draft_has_no_secret(tmp_path: Path) -> None:
    key = "sk-4f9a8c27b1e64d05"
    config = {
        "clients": {"own": {"provider": "openai", "api_key": key, "base_url": "http://127.0.0.1:9"}}
    }
    with Session(config, in_process={"desk": desk()}, store=None, quiet=True) as session:
        asks(session, f"Note {key}.", call("desk__note", text=f"key {key}"))
        session.experiments.save_cases(tmp_path / "cases.yaml")
    text = (tmp_path / "cases.yaml").read_text(encoding="utf-8")
    assert key not in text
    assert "desk:note" in text


def test_a_session_of_another_agent_becomes_cases(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "What is new?"}
    used = {"type": "tool_use", "id": "t1", "name": "mcp__git__log", "input": {"n": 3}}
    answer = {"id": "m1", "role": "assistant", "content": [used]}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "three commits"}
    lines = [
        {"type": "user", "sessionId": "s", "message": asked},
        {"type": "assistant", "sessionId": "s", "message": answer},
        {"type": "user", "sessionId": "s", "message": {"role": "user", "content": [result]}},
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (case,) = load_tool_cases(path)
    assert (case.message, case.cluster) == ("What is new?", "session")
    assert case.calls == (ExpectedCall("git:log", {"n": 3}),)
