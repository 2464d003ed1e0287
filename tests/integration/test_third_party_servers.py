"""One session with real servers that others wrote, their lists, their answers, and the planner."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import Notice, StepStarted
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

pytestmark = pytest.mark.integration

TOOLS = {
    "clock": 2,
    "git": 12,
    "fetch": 1,
    # Two of them because sessions let servers ask the person.
    "everything": 15,
    "filesystem": 14,
    "memory": 9,
    "thinking": 1,
    "database": 6,
    "sqlite": 0,
}


@pytest.fixture
def all_deferred(session: Session) -> Iterator[Session]:
    before = session.selection.snapshot()
    session.selection.discovery = True
    for name in TOOLS:
        session.selection.servers[name] = "deferred"
    yield session
    session.selection = before


def test_all_list_their_tools_at_the_same_time_in_two_protocol_eras(session: Session) -> None:
    assert {name: status.tools for name, status in session.servers.items()} == TOOLS
    assert len(session.tools) == sum(TOOLS.values())
    ready = {name: status for name, status in session.servers.items() if status.state == "ready"}
    assert set(TOOLS) - set(ready) == {"sqlite"}
    versions = {name: status.protocol_version for name, status in ready.items()}
    assert {versions[name] for name in ("clock", "git", "fetch")} == {"2026-07-28"}
    assert {
        versions[name] for name in ("everything", "filesystem", "memory", "thinking", "database")
    } == {"2025-11-25"}


def test_every_tool_is_offered_with_its_schema_under_a_name_providers_accept(
    session: Session,
) -> None:
    turn = session.chat("go", model=scripted_model("done"))
    offered = {
        tool["name"]: tool["parameters"] for tool in turn.trace.of(StepStarted)[0].request.tools
    }
    assert [name for name in offered if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)] == []
    assert offered == {
        tool.wire_name: tool.input_schema for tool in session.tools if tool.restriction is None
    }
    assert [tool.wire_name for tool in session.tools if tool.restriction] == [
        "everything__simulate-research-query"
    ]
    # It lists two types for one argument, which casual-llm's own conversion refuses.
    assert offered["thinking__sequentialthinking"]["properties"]["nextThoughtNeeded"]["type"] == [
        "boolean",
        "string",
    ]


@pytest.mark.fault(2)
def test_a_server_that_dies_at_its_start_says_why_while_the_others_work(session: Session) -> None:
    status = session.servers["sqlite"]
    assert status.state == "failed"
    assert "exited" in status.error
    assert "mcp<2" in status.error
    assert "no attribute 'list_resources'" in status.stderr_tail

    turn = session.chat(
        "go", model=scripted_model(call("everything__echo", message="still here"), "done")
    )
    assert [notice.server for notice in turn.trace.of(Notice)] == ["sqlite"]
    assert "still here" in turn.tool_calls[0].result


def test_one_step_calls_tools_of_all_of_them(
    session: Session, folder: Path, repository: Path, page: str
) -> None:
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote a program"]}
    model = scripted_model(
        calls(
            call("clock__get_current_time", timezone="Asia/Tokyo"),
            call("git__git_status", repo_path=str(repository)),
            call("fetch__fetch", url=page),
            call("everything__get-sum", a=2, b=40),
            call("filesystem__read_text_file", path=str(folder / "hello.txt")),
            call("memory__create_entities", entities=[ada]),
            call(
                "thinking__sequentialthinking",
                thought="so",
                nextThoughtNeeded=False,
                thoughtNumber=1,
                totalThoughts=1,
            ),
        ),
        "done",
    )
    turn = session.chat("go", model=model)
    assert {c.name: c.result for c in turn.tool_calls if c.status != "ok"} == {}
    results = {c.tool.server: c.result for c in turn.tool_calls}
    expected = {
        "clock": "Asia/Tokyo",
        "git": "new.txt",
        "fetch": "The tide is high at noon.",
        "everything": "42",
        "filesystem": "hello from a file",
        "memory": "wrote a program",
        "thinking": "thoughtHistoryLength",
    }
    assert {server: text for server, text in expected.items() if text not in results[server]} == {}


def test_a_second_step_goes_on_with_what_the_first_one_did(
    session: Session, folder: Path, repository: Path
) -> None:
    path = str(folder / "written.txt")
    model = scripted_model(
        calls(
            call("filesystem__write_file", path=path, content="written by a tool"),
            call("git__git_add", repo_path=str(repository), files=["new.txt"]),
            call(
                "clock__convert_time",
                source_timezone="UTC",
                time="12:00",
                target_timezone="Asia/Kolkata",
            ),
        ),
        calls(
            call("filesystem__read_text_file", path=path),
            call("git__git_diff_staged", repo_path=str(repository)),
            call("git__git_log", repo_path=str(repository)),
        ),
        "done",
    )
    turn = session.chat("go", model=model)
    assert [c.status for c in turn.tool_calls] == ["ok"] * 6
    convert, read, staged, log = (c.result for c in turn.tool_calls[2:])
    assert "17:30" in convert
    assert read == "written by a tool"
    assert "not added yet" in staged
    assert "The first notes" in log


def test_a_tools_own_refusal_is_an_error_result(session: Session, tmp_path: Path) -> None:
    outside = session.tools.call("filesystem:read_text_file", path=str(tmp_path / "outside.txt"))
    no_repository = session.tools.call("git:git_status", repo_path=str(tmp_path))
    no_zone = session.tools.call("clock:get_current_time", timezone="Nowhere/Else")
    assert [outside.status, no_repository.status, no_zone.status] == ["error"] * 3
    assert "denied" in outside.result.lower()
    assert str(tmp_path) in no_repository.result
    assert "Nowhere" in no_zone.result


def test_a_servers_environment_holds_no_variable_of_ours(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-servers")
    session.servers.reconnect("everything")
    shown = session.tools.call("everything:get-env").result
    assert "PATH" in shown
    assert "OPENAI_API_KEY" not in shown


@pytest.mark.parametrize(
    ("question", "tool", "answer"),
    [
        (
            'Read the text file "{folder}/hello.txt"',
            "filesystem__read_text_file",
            "hello from a file",
        ),
        ("What time is it in Asia/Tokyo?", "clock__get_current_time", "Asia/Tokyo"),
        ("Show the git log of {repository}", "git__git_log", "The first notes"),
        ("Fetch {page}", "fetch__fetch", "The tide is high at noon."),
    ],
)
def test_the_planner_finds_a_deferred_tool_of_a_real_server(
    all_deferred: Session,
    folder: Path,
    repository: Path,
    page: str,
    question: str,
    tool: str,
    answer: str,
) -> None:
    turn = all_deferred.chat(question.format(folder=folder, repository=repository, page=page))
    assert [c.name for c in turn.tool_calls] == ["search_tools", tool]
    assert turn.tool_calls[1].status == "ok"
    assert answer in turn.answer


@pytest.mark.slow
def test_mypy_checks_a_program_with_the_functions_of_six_servers(
    session: Session, tmp_path: Path
) -> None:
    session.tools.stubs(tmp_path / "tools.pyi")
    program = tmp_path / "program.py"
    program.write_text(
        "from tools import Tools\n\ndef work(tools: Tools) -> None:\n   "
        " tools.clock.convert_time(source_timezone='UTC', time='12:00',"
        " target_timezone='Asia/Tokyo')\n    tools.git.git_log(repo_path='.', max_count=3)\n   "
        " tools.fetch.fetch(url='http://localhost', raw=True)\n    text ="
        " tools.filesystem.read_text_file(path='a.txt', head=2)['content']\n    entities ="
        " tools.memory.read_graph()['entities']\n    names: list[str] = [*(each['name'] for each in"
        " entities), text]\n    tools.thinking.sequentialthinking(\n        thought=',"
        " '.join(names), nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1\n    )\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path / "cache"),
        program.name,
    ]
    passed = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (passed.returncode, passed.stdout.partition(":")[0]) == (0, "Success")
    program.write_text(
        program.read_text().replace("max_count=3", "max_count='3'").replace("head=2", "heads=2")
    )
    failed = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert [
        line.rpartition("[")[2] for line in failed.stdout.splitlines() if ": error: " in line
    ] == ["arg-type]", "call-arg]"]
    assert session.tools.clock.get_current_time(timezone="UTC")["timezone"] == "UTC"
