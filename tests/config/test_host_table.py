"""Each host of the table: a small file in the shape that it writes, with and without servers."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.config.host_table import HOSTS, Host, host_of
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ConfigError

SAMPLES = Path(__file__).resolve().parents[1] / "data" / "hosts"
KEY = "the-key-0123456789"
ENVIRON = {"KEY": KEY, "HOME": "/home/me"}
HAVE_THE_KEY = (
    "Claude Code",
    "VS Code",
    "Cursor",
    "Windsurf",
    "Gemini CLI",
    "opencode",
    "Codex",
    "Vibe",
    "Goose",
    "Continue",
    "LibreChat",
)
WITH_BAD = ("Claude Code", "VS Code", "Cursor", "LibreChat")


def sample(host: Host) -> Path:
    (file,) = (
        path
        for path in (SAMPLES / host.name.lower().replace(" ", "-")).rglob("*")
        if path.is_file()
    )
    return file


def loaded(host: Host) -> Config:
    return load_config(sample(host), environ=ENVIRON)


def values_of(config: Config, name: str = "s") -> list[str]:
    server = config.servers[name]
    return [
        *server.args,
        *(value.get_secret_value() for value in [*server.env.values(), *server.headers.values()]),
    ]


@pytest.mark.defect("Q4")
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_the_file_of_a_host_is_known_and_read(host: Host) -> None:
    assert host_of(sample(host)) is host
    config = loaded(host)
    assert "s" in config.servers
    assert list(config.unusable) == (["bad"] if host.name in WITH_BAD else [])
    assert (KEY in " ".join(values_of(config))) is (host.name in HAVE_THE_KEY)


@pytest.mark.defect("Q4")
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_no_note_guesses_at_a_hosts_keys_or_calls_ignored_what_is_applied(host: Host) -> None:
    notes = " ".join(loaded(host).notes)
    assert "Did you mean" not in notes
    assert not [
        word
        for word in ("env_vars", "api_key_env", "tools", "agent", "projects", "theme", "model")
        if f"{word} is ignored" in notes
    ]
    assert not [
        word for word in ("env_vars", "api_key_env", "env_keys", "requestOptions") if word in notes
    ]


@pytest.mark.defect("Q4")
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_a_tool_that_a_host_switched_off_stays_off(host: Host) -> None:
    server = loaded(host).servers["s"]
    if "drop" in sample(host).read_text("utf-8"):
        assert not server.offers("drop")
    assert server.offers("read")


@pytest.mark.defect("Q2")
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_a_file_without_servers_is_no_error(host: Host, tmp_path: Path) -> None:
    """As an installer, or a person who set something else, leaves it."""
    file = tmp_path / sample(host).relative_to(SAMPLES)
    file.parent.mkdir(parents=True)
    form = {".toml": 'theme = "dark"\n', ".yaml": "theme: dark\nscale: 0\n"}
    file.write_text(form.get(file.suffix, '{"theme": "dark", "scale": 0, "numStartups": 5}'))
    config = load_config(file, environ=ENVIRON)
    assert (dict(config.servers), dict(config.unusable), config.notes) == ({}, {}, ())


@pytest.mark.defect("Q4")
def test_codex_passes_on_only_what_is_set_and_here() -> None:
    (codex,) = (host for host in HOSTS if host.name == "Codex")
    config = loaded(codex)
    assert set(config.servers["s"].env) == {"A", "KEY"}
    # What is accepted names it, like a variable that is written into the file.
    assert "KEY" in config.variables_of("servers", "s")


def test_what_is_accepted_names_the_variables_behind_one_that_codex_passes_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('[mcp_servers.s]\ncommand = "echo"\nenv_vars = ["HARMLESS"]\n')
    (file.parent / ".env").write_text("HARMLESS=${BANK_KEY}\n")
    config = load_config(file, environ={"BANK_KEY": KEY})
    assert config.servers["s"].env["HARMLESS"].get_secret_value() == KEY
    assert {"HARMLESS", "BANK_KEY"} <= set(config.variables_of("servers", "s"))


@pytest.mark.defect("Q4")
def test_vibe_and_goose_name_the_variable_of_a_key() -> None:
    vibe, goose = ({host.name: host for host in HOSTS}[name] for name in ("Vibe", "Goose"))
    assert loaded(vibe).servers["s"].headers["X-Api-Key"].get_secret_value() == f"Token {KEY}"
    config = loaded(goose)
    assert config.servers["s"].env["KEY"].get_secret_value() == KEY
    assert [name for name, server in config.servers.items() if not server.enabled] == ["off"]
    assert "KEY" in load_config(sample(goose), environ={}).unusable["s"]


CLAUDE = {"numStartups": 5, "userID": "u", "tipsHistory": {}}


def claude(folder: Path, data: dict[str, Any]) -> Config:
    (folder / ".claude.json").write_text(json.dumps({**CLAUDE, **data}))
    return load_config(folder / ".claude.json", environ=ENVIRON)


@pytest.mark.defect("Q2")
@pytest.mark.parametrize(
    "others", [{}, {"mcpServers": {}}, {"mcpServers": {"all": {"command": "x"}}}]
)
def test_servers_of_a_project_are_used_and_those_of_others_are_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    here = {str(tmp_path): {"mcpServers": {"mine": {"command": "x"}}, "allowedTools": []}}
    there = {
        "/other/place": {"mcpServers": {"theirs": {"command": "y"}}},
        "/empty": {"mcpServers": {}, "history": []},
    }
    config = claude(tmp_path, {**others, "projects": {**here, **there}})
    assert set(config.servers) == {"mine", *others.get("mcpServers", {})}
    (note,) = config.notes
    assert "/other/place" in note
    assert "theirs" in note
    assert "ignored" not in note
    assert "disabledMcpServers" not in note
    assert "/empty" not in note


@pytest.mark.defect("Q2")
def test_only_servers_of_other_projects_are_no_error_but_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = claude(
        tmp_path,
        {
            "projects": {
                f"/p{number}": {"mcpServers": {"a": {"command": "x"}}} for number in range(30)
            }
        },
    )
    assert dict(config.servers) == {}
    (note,) = config.notes
    assert "22 more" in note


@pytest.mark.defect("Q2")
def test_a_misspelt_section_of_our_own_file_is_still_an_error(tmp_path: Path) -> None:
    (tmp_path / "casual_mcp_config.json").write_text('{"server": {}}')
    with pytest.raises(ConfigError, match="servers"):
        load_config(tmp_path / "casual_mcp_config.json", environ={})


YAML_ERRORS = {
    "aliases that multiply": "a: &a [1, 2]\nb: &b [*a, *a]\nextensions: *b\n",
    "a tag that makes an object": "extensions: !!python/object/apply:os.system [id]\n",
    "not closed": "mcpServers: {a: {command: x\n",
    "a tab": "mcpServers:\n\ta: 1\n",
    "a list": "- a\n- b\n",
    "too deep": "[" * 2_000,
    "a control character": "a: \x00\n",
}


@pytest.mark.defect("Q4")
@pytest.mark.parametrize("text", YAML_ERRORS.values(), ids=YAML_ERRORS)
def test_yaml_that_is_dangerous_or_damaged_is_an_error_with_its_place(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "librechat.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "librechat.yaml", environ={})
    assert caught.value.line is not None


@pytest.mark.defect("Q4")
def test_a_problem_in_yaml_has_its_line_and_dates_stay_text(tmp_path: Path) -> None:
    text = (
        "mcpServers:\n  s:\n    command: x\n    env:\n      DAY: 2026-11-27\n      ON: 'yes'\n "
        " s:\n    command: y\n"
    )
    (tmp_path / "librechat.yaml").write_text(text)
    config = load_config(tmp_path / "librechat.yaml", environ={})
    assert "twice" in config.unusable["s"]
    (tmp_path / "librechat.yaml").write_text(text.partition("  s:\n    command: y")[0])
    env = load_config(tmp_path / "librechat.yaml", environ={}).servers["s"].env
    assert env["DAY"].get_secret_value() == "2026-11-27"


@pytest.mark.defect("Q4")
def test_the_log_has_one_line_for_what_cannot_be_used(caplog: pytest.LogCaptureFixture) -> None:
    (host,) = (host for host in HOSTS if host.name == "LibreChat")
    with caplog.at_level(logging.WARNING):
        loaded(host)
    assert [record for record in caplog.records if "'bad'" in record.getMessage()]
    assert os.linesep not in caplog.records[0].getMessage()
