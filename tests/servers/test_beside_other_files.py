"""Files beside the notebook that are named like modules of the standard library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kit.beside import write_beside

from casual_mcp_nb import Session


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file for each of these names that does not even load."""
    write_beside(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.defect("A11")
def test_a_session_starts_a_bundled_server_without_those_files_or_a_python_path(
    beside: Path,
) -> None:
    servers = {"shell": {"bundled": "shell", "transport": "stdio", "init_timeout": 60}}
    with Session({"mcpServers": servers}) as session:
        assert "PYTHONPATH" not in session.tools.call("shell:run_command", command="env").result


@pytest.mark.defect("A11")
def test_doctor_names_the_file_that_keeps_a_persons_own_python_server_from_starting(
    beside: Path,
) -> None:
    server = {"command": sys.executable, "args": ["-m", "site"], "init_timeout": 60}
    script = {
        "command": sys.executable,
        "args": [str(beside / "server.py")],
        "cwd": "/",
        "init_timeout": 60,
    }
    (beside / "server.py").write_text("import random\n")
    with Session({"mcpServers": {"own": server, "script": script}}) as session:
        for name in ("own", "script"):
            finding = next(
                each
                for each in session.servers.doctor()
                if each.name == name and each.verdict == "warn"
            )
            assert "random.py" in finding.found
            assert "-P" in finding.advice
