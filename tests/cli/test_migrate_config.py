"""`migrate-config` as a command: what it writes, when it does not, and what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from casual_mcp_nb.cli.app import FAILED
from tests.cli.conftest import Run

SECRET = "ghp_aaaaaaaaaaaaaaaaaaaaaaaa1"
HOST = {"mcpServers": {"github": {"command": "npx", "args": ["x"], "env": {"GITHUB_TOKEN": SECRET}}}}
NEW = Path("casual_mcp_config.json")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A host's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("claude_desktop_config.json").write_text(json.dumps(HOST), encoding="utf-8")
    return "claude_desktop_config.json"


def test_it_writes_a_new_file_and_shows_it(host: str, run: Run) -> None:
    code, out, err = run("migrate-config", host)
    assert code == 0
    assert "+" in {line[:1] for line in out.splitlines()}
    assert "GITHUB_TOKEN" in err
    assert SECRET not in out + err + NEW.read_text(encoding="utf-8")
    assert json.loads(NEW.read_text(encoding="utf-8"))["servers"]["github"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}


def test_a_dry_run_writes_nothing(host: str, run: Run) -> None:
    code, out, _ = run("migrate-config", host, "--dry-run", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["written"] is None
    assert [each["name"] for each in result["variables"]] == ["GITHUB_TOKEN"]
    assert not NEW.exists()


def test_it_replaces_a_file_only_when_told_to(host: str, run: Run) -> None:
    theirs = json.dumps({"servers": {"old": {"command": "old", "env": {"OLD_KEY": "quite-secret-1"}}}}, indent=2)
    NEW.write_text(theirs, encoding="utf-8")
    code, out, err = run("migrate-config", host)
    assert code == FAILED
    assert NEW.read_text(encoding="utf-8") == theirs
    assert '-    "old": {' in out
    assert "quite-secret-1" not in out + err
    assert run("migrate-config", host, "--overwrite")[0] == 0
    assert "old" not in json.loads(NEW.read_text(encoding="utf-8"))["servers"]


def test_a_file_that_does_not_become_a_config_is_not_written(host: str, run: Run) -> None:
    Path(host).write_text(json.dumps({"mcpServers": {"x": {"command": "npx", "url": "https://h"}}}), encoding="utf-8")
    code, _, err = run("migrate-config", host)
    assert code == FAILED
    assert "servers.x" in err
    assert not NEW.exists()
