"""Files beside the notebook that are named like modules of the standard library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.bundled import BUNDLED

NAMES = ("random", "http", "email", "string", "calendar", "types", "mcp", "fastmcp", "casual_mcp_nb")


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file for each of these names that does not even load."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'{__file__} was loaded')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.defect("A11")
def test_files_beside_the_notebook_do_not_keep_bundled_servers_from_starting(beside: Path) -> None:
    servers = {name: {"bundled": name, "transport": "stdio", "init_timeout": 90} for name in BUNDLED}
    with Session({"mcpServers": servers}) as session:
        assert {name: status.error for name, status in session.servers.items()} == dict.fromkeys(BUNDLED)


@pytest.mark.defect("A11")
def test_a_bundled_server_gets_no_path_that_would_reach_the_programs_that_it_starts() -> None:
    servers = {"shell": {"bundled": "shell", "transport": "stdio", "init_timeout": 60}}
    with Session({"mcpServers": servers}) as session:
        assert "PYTHONPATH" not in session.call_tool("shell:run_command", command="env").result


@pytest.mark.defect("A11")
def test_doctor_names_the_file_that_keeps_a_persons_own_python_server_from_starting(beside: Path) -> None:
    server = {"command": sys.executable, "args": ["-m", "site"], "init_timeout": 60}
    script = {"command": sys.executable, "args": [str(beside / "server.py")], "cwd": "/", "init_timeout": 60}
    (beside / "server.py").write_text("import random\n")
    with Session({"mcpServers": {"own": server, "script": script}}) as session:
        for name in ("own", "script"):
            finding = next(each for each in session.doctor() if each.name == name and each.verdict == "warn")
            assert "random.py" in finding.found
            assert "-P" in finding.advice
