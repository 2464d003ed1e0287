"""The pytest plugin: it replays by default, and records where the command line says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.plugin_runs import run

from casual_mcp_nb import Session
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.providers.scripted import call, scripted_model

TESTS = """
import pytest
from fastmcp import FastMCP
from casual_mcp_nb.providers.scripted import call, scripted_model

@pytest.fixture
def cassette_config():
    server = FastMCP("harbour")
    server.tool(lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship.")
    config = {"clients": {"offline": {"provider": "offline"}}, "models": {"m": {"client": "offline", "model": "planner"}}}
    return {"config": config, "in_process": {"harbour": server}}

def ask(session):
    model = None if session.cassettes.state.doing == "replaying" else scripted_model(call("harbour__berth", ship="Fram"), "7.")
    return session.chat("Where is Fram?", model=model, echo="none")

def test_default(cassette_session):
    assert ask(cassette_session).answer == "7."

@pytest.mark.cassette("nowhere.json")
def test_not_recorded(cassette_session):
    ask(cassette_session)

@pytest.mark.cassette("lesson.json")
def test_named(cassette_session):
    assert ask(cassette_session).tool_calls[0].tool.tool == "berth"
"""


@pytest.mark.slow
def test_a_test_records_its_cassette_once_and_then_replays_it(tmp_path: Path) -> None:
    (tmp_path / "test_lesson.py").write_text(TESTS)
    code, output = run(tmp_path, "--cassette-mode=once", "-k", "not not_recorded")
    assert code == 0, output
    files = [tmp_path / "cassettes" / "test_lesson" / "test_default.json", tmp_path / "lesson.json"]
    assert [len(Cassette.load(file).interactions) for file in files] == [4, 4]
    code, output = run(tmp_path, "--strict-markers")
    assert code == 1
    assert "CassetteError" in output
    assert output.splitlines()[-1].startswith("2 passed, 1 error")


MISMATCHES = """
import asyncio
import pytest
from casual_mcp_nb.errors import CasualMcpError, CassetteMismatchError

pytestmark = pytest.mark.cassette("lesson.json")
SAY = {"prompt": "Where is MAUD?"}

def test_chat(cassette_session):
    turn = cassette_session.chat(**SAY, echo="none")
    turn.tool_calls[0]

def test_chat_async(cassette_session):
    asyncio.run(cassette_session.chat_async(**SAY, echo="none")).tool_calls[0]

def test_stream(cassette_session):
    async def follow():
        return [event async for event in cassette_session.stream(**SAY)]
    asyncio.run(follow())[100]

def test_submit(cassette_session):
    cassette_session.submit(**SAY).result().tool_calls[0]

def test_pauses(cassette_session):
    list(cassette_session.pauses(**SAY))[100]

def test_rerun(cassette_session):
    cassette_session.chat("Where is Fram?", echo="none")
    cassette_session.rerun(prompt=SAY["prompt"], echo="none").tool_calls[0]

def test_plan(cassette_session):
    cassette_session.plan(**SAY)[0]

def test_call_tool(cassette_session):
    cassette_session.tools.call("harbour:berth", ship="MAUD").content[0]

def test_a_tool_more(cassette_session):
    cassette_session.tool(lambda: None, name="moor", description="Moor.")
    cassette_session.chat("Where is Fram?", echo="none").tool_calls[0]

def test_expected(cassette_session):
    with pytest.raises(CassetteMismatchError):
        cassette_session.chat(**SAY, echo="none")
    with pytest.raises(CassetteMismatchError):
        cassette_session.tools.call("harbour:berth", ship="MAUD")

def test_a_future(cassette_session):
    # Whoever has it has the error, too.
    assert cassette_session.submit(**SAY).exception() is not None

def test_a_comparison(cassette_session):
    cassette_session.experiments.compare(**SAY, progress=False)
"""


@pytest.mark.slow
@pytest.mark.defect("F2")
def test_a_request_that_differs_fails_the_test_with_the_difference(tmp_path: Path) -> None:
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(
        lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship."
    )
    with (
        Session({}, in_process={"harbour": server}, quiet=True) as session,
        session.cassettes.use(tmp_path / "lesson.json"),
    ):
        model = scripted_model(call("harbour__berth", ship="Fram"), "7.")
        session.chat("Where is Fram?", model=model, echo="none")
    (tmp_path / "test_lesson.py").write_text(MISMATCHES)
    code, output = run(tmp_path, "-rfEp", "--tb=short")
    summary = [line.split()[:2] for line in output.splitlines() if "test_lesson.py::" in line]
    outcomes = {(name.partition("::test_")[2], outcome) for outcome, name in summary}
    differ = (
        "chat",
        "chat_async",
        "stream",
        "submit",
        "pauses",
        "rerun",
        "plan",
        "call_tool",
        "a_tool_more",
    )
    assert outcomes == {
        *((name, "FAILED") for name in differ),
        ("expected", "PASSED"),
        ("a_future", "PASSED"),
        # It is done when the error is known.
        ("a_comparison", "PASSED"),
        ("a_comparison", "ERROR"),
    }, output
    assert code == 1
    assert "IndexError" not in output
    assert "replayer.py" not in output
    assert output.count("+Where is MAUD?") >= len(differ) - 2


def test_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, casual_mcp_nb.pytest_plugin; print({'fastmcp', 'mcp', 'casual_llm', 'IPython'}"
        " & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


CASE_TESTS = """
import pytest

@pytest.fixture
def cassette_config():
    server = {"math": {"bundled": "math", "transport": "in-process"}}
    return {"clients": {"o": {"provider": "offline"}}, "models": {"m": {"client": "o", "model": "planner"}}, "servers": server}

@pytest.mark.tool_use_cases("cases.yaml")
def test_tools(cassette_session, tool_use_case):
    assert cassette_session.experiments.run([tool_use_case], repeats=2).problems(min_right=1) == []
"""
CASES = """
- {id: product, message: "What is 17 * 23?", calls: ["math:evaluate_expression"]}
- {id: wrong, message: "What is 2 + 2?", calls: ["math:power"]}
"""


@pytest.mark.slow
def test_each_case_of_a_file_is_a_test_with_its_own_cassette(tmp_path: Path) -> None:
    (tmp_path / "test_lesson.py").write_text(CASE_TESTS)
    (tmp_path / "cases.yaml").write_text(CASES)
    for mode in ("all", "none"):
        code, out = run(tmp_path, "-rA", f"--cassette-mode={mode}")
        assert code == 1, out
        assert [line for line in out.splitlines() if line.startswith("PASSED")] == [
            "PASSED test_lesson.py::test_tools[product]"
        ]
        assert "1 failed, 1 passed" in out
    assert len(list((tmp_path / "cassettes" / "test_lesson").glob("*.json"))) == 2
