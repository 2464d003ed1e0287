"""`migrate-config` as a command: the file that it writes, its refusals, and its output."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from casual_mcp_nb.cli.app import FAILED
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ConfigError
from tests.cli.conftest import Run

PEER = Path(__file__).resolve().parents[2] / ".third-party" / "casual-mcp" / "bin" / "casual-mcp"

SECRET = "ghp_aaaaaaaaaaaaaaaaaaaaaaaa1"
HOST = {
    "mcpServers": {"github": {"command": "npx", "args": ["x"], "env": {"GITHUB_TOKEN": SECRET}}}
}
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
    assert json.loads(NEW.read_text(encoding="utf-8"))["servers"]["github"]["env"] == {
        "GITHUB_TOKEN": "${GITHUB_TOKEN}"
    }


def test_a_dry_run_writes_nothing(host: str, run: Run) -> None:
    code, out, _ = run("migrate-config", host, "--dry-run", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["written"] is None
    assert [each["name"] for each in result["variables"]] == ["GITHUB_TOKEN"]
    assert not NEW.exists()


def test_it_replaces_a_file_only_with_overwrite(host: str, run: Run) -> None:
    theirs = json.dumps(
        {"servers": {"old": {"command": "old", "env": {"OLD_KEY": "quite-secret-1"}}}}, indent=2
    )
    NEW.write_text(theirs, encoding="utf-8")
    code, out, err = run("migrate-config", host)
    assert code == FAILED
    assert NEW.read_text(encoding="utf-8") == theirs
    assert '-    "old": {' in out
    assert "quite-secret-1" not in out + err
    assert run("migrate-config", host, "--overwrite")[0] == 0
    assert "old" not in json.loads(NEW.read_text(encoding="utf-8"))["servers"]


def test_a_file_that_does_not_become_a_config_is_not_written(host: str, run: Run) -> None:
    Path(host).write_text(
        json.dumps({"mcpServers": {"x": {"command": "npx", "url": "https://h"}}}), encoding="utf-8"
    )
    code, _, err = run("migrate-config", host)
    assert code == FAILED
    assert "mcpServers.x" in err
    assert not NEW.exists()


LEGACY = {
    "models": {
        "local": {
            "provider": "openai",
            "model": "m-1",
            "endpoint": "http://127.0.0.1:9/v1",
            "template": "short",
        },
        "large": {"provider": "openai", "model": "m-2"},
        "small": {"provider": "ollama", "model": "m-3", "temperature": 0.3},
        "other": {"provider": "openai", "model": "m-4", "endpoint": "http://127.0.0.1:9/v1"},
    },
    "servers": {"math": {"command": "python", "args": ["server.py"], "env": {"API_TOKEN": SECRET}}},
    "namespace_tools": False,
}
"""A config of casual-mcp before 1.0."""


@pytest.fixture
def legacy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config of casual-mcp before 1.0 in the current folder, under the usual name."""
    monkeypatch.chdir(tmp_path)
    NEW.write_text(json.dumps(LEGACY, indent=4), encoding="utf-8")
    return tmp_path / NEW


@pytest.mark.defect("L1")
def test_a_legacy_config_is_converted_in_its_file(legacy: Path, run: Run) -> None:
    code, out, err = run("migrate-config")
    assert code == 0
    assert SECRET not in out + err
    new = json.loads(legacy.read_text(encoding="utf-8"))
    assert new["servers"] == LEGACY["servers"]
    assert new["models"]["other"] == {"client": new["models"]["local"]["client"], "model": "m-4"}
    config = load_config(legacy, environ={})
    assert {
        name: config.clients[model.client].base_url for name, model in config.models.items()
    } == {
        "local": "http://127.0.0.1:9/v1",
        "large": None,
        "small": None,
        "other": "http://127.0.0.1:9/v1",
    }
    written = legacy.read_bytes()
    assert run("migrate-config")[0] == 0
    assert legacy.read_bytes() == written


@pytest.mark.slow
@pytest.mark.defect("L1")
@pytest.mark.skipif(not PEER.exists(), reason="python3 .ci/third_party.py casual-mcp installs it")
def test_the_same_file_comes_out_as_of_casual_mcps_command(
    legacy: Path, tmp_path: Path, run: Run
) -> None:
    theirs = tmp_path / "theirs.json"
    shutil.copy(legacy, theirs)
    subprocess.run([PEER, "migrate-config", theirs], check=True, capture_output=True, timeout=60)
    assert run("migrate-config", str(legacy))[0] == 0
    assert json.loads(legacy.read_text(encoding="utf-8")) == json.loads(
        theirs.read_text(encoding="utf-8")
    )


@pytest.mark.defect("L1")
def test_a_legacy_config_that_goes_to_another_file_leaves_its_secrets_behind(
    legacy: Path, run: Run
) -> None:
    before = legacy.read_bytes()
    code, _, err = run("migrate-config", str(legacy), "new.json")
    assert code == 0
    assert "API_TOKEN" in err
    assert legacy.read_bytes() == before
    assert SECRET not in Path("new.json").read_text(encoding="utf-8")


@pytest.mark.defect("L1")
def test_a_legacy_config_is_refused_with_its_cause_and_the_command(legacy: Path, run: Run) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(legacy)
    assert (refused.value.path, refused.value.key, refused.value.line) == (str(legacy), "models", 2)
    assert f"migrate-config {legacy}" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    code, _, err = run("check")
    assert code == FAILED
    assert f"migrate-config {legacy}" in err


@pytest.mark.defect("L1")
def test_an_error_names_the_file_that_was_read(host: str, run: Run) -> None:
    Path(host).write_text(
        '{"mcpServers": {\n"x": {"command": "npx", "url": "https://h"}}}', encoding="utf-8"
    )
    code, _, err = run("migrate-config", host, "new.json")
    assert code == FAILED
    assert f"{Path(host).absolute()}:2" in err
    assert "new.json" not in err
    assert run("migrate-config")[0] == FAILED
