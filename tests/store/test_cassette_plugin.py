"""The pytest plugin: it replays by default, and records where the command line says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from casual_mcp_nb.store import Cassette

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
    model = None if session.cassette_state.doing == "replaying" else scripted_model(call("harbour__berth", ship="Fram"), "7.")
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
WITHOUT_OURS = [sys.executable, "-m", "pytest", "-q", "-p", "casual_mcp_nb.pytest_plugin", "-p", "no:cacheprovider"]


def run(folder: Path, *options: str) -> tuple[int, str]:
    ran = subprocess.run(
        [*WITHOUT_OURS, *options, "test_lesson.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "MCP_STORE": "off", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return ran.returncode, ran.stdout + ran.stderr


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


def test_the_plugin_imports_nothing_heavy() -> None:
    code = "import sys, casual_mcp_nb.pytest_plugin; print({'fastmcp', 'mcp', 'casual_llm', 'IPython'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
