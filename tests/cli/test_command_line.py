"""The command line as such: help, errors, exit codes, and what its start imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from casual_mcp_nb import __version__
from casual_mcp_nb.cli.app import BROKEN_PIPE, FAILED, WRONG_USAGE, main

HEAVY = ("fastmcp", "mcp", "openai", "anthropic", "IPython", "pydantic", "casual_llm", "jinja2", "numpy")


@pytest.mark.parametrize("words", [["--version"], ["chat", "--help"]])
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    code = f"import sys; from casual_mcp_nb.cli.app import main; main({words}); print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("words", [["modles"], ["models", "--jsn"]])
def test_a_wrong_command_line_is_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == WRONG_USAGE
    streams = capsys.readouterr()
    assert not streams.out
    assert words[-1] in streams.err


def test_without_a_config_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["models"]) == FAILED
    assert "--demo" in capsys.readouterr().err


def test_models_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--demo", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["provider"] == "offline"
    assert row["key"] == "not needed"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("toolsets", "migrate-config", "why-not"):
        assert word in script


def test_a_reader_that_has_left_is_not_an_error(config: Path) -> None:
    command = [sys.executable, "-m", "casual_mcp_nb", "completion", "bash"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == BROKEN_PIPE


def test_a_mistake_of_ours_shows_no_message_that_could_hold_a_secret(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A folder without permission to be listed and the like are told; this is what nobody thought of.
    monkeypatch.setattr("casual_mcp_nb.cli.models.show", lambda _rows: {}["sk-secret"])
    assert main(["models"]) == FAILED
    err = capsys.readouterr().err
    assert "KeyError" in err
    assert "sk-secret" not in err
    assert "Traceback" not in err
