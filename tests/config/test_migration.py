"""Files of casual-mcp and other hosts as configs of ours: nothing secret in them, and nothing lost
without a word.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import ConfigError, load_config
from casual_mcp_nb.config.loader import check_config
from casual_mcp_nb.config.migration import MigratedConfig, migrated, migrated_in_place

SECRETS = {
    "token": "ghp_aaaaaaaaaaaaaaaaaaaaaaaa1",
    "bearer": "tok-very-secret-9",
    "query": "qwerty12345",
    "password": "s3cretpw",
    "option": "abcDEF123456789",
    "key": "sk-0123456789abcdef",
}
CASUAL_MCP: dict[str, Any] = {
    "namespace_tools": True,
    "clients": {"openai": {"provider": "openai", "api_key": SECRETS["key"]}},
    "models": {"gpt": {"client": "openai", "model": "gpt-4.1", "template": "x"}},
    "mcpServers": {
        "github": {
            "command": "npx",
            "args": [
                "-y",
                "x",
                "--api-key",
                SECRETS["option"],
                f"--db=postgres://u:{SECRETS['password']}@h/db",
                "-p",
                "5",
            ],
            "env": {"GITHUB_TOKEN": SECRETS["token"], "TZ": "Europe/Oslo"},
            "cwd": "work",
        },
        "other": {
            "command": "./run.sh",
            "env": {"GITHUB_TOKEN": "another one"},
            "autoApprove": ["a"],
        },
        "remote": {
            "url": f"https://h.example/mcp?api_key={SECRETS['query']}",
            "headers": {
                "Authorization": f"Bearer {SECRETS['bearer']}",
                "Accept": "text/plain",
                "X-Own": "Bearer ${MINE}",
            },
        },
    },
    "tool_sets": {"all": {"description": "", "servers": {"github": True}}},
    "tool_discovery": {"enabled": True},
}


def _migrated(data: Any, tmp_path: Path, name: str = "old.json") -> MigratedConfig:
    (tmp_path / "old").mkdir(exist_ok=True)
    path = tmp_path / "old" / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return migrated(path, tmp_path)


def test_secrets_become_references(tmp_path: Path) -> None:
    new = _migrated(CASUAL_MCP, tmp_path)
    assert not [name for name, value in SECRETS.items() if value in new.text + repr(new)]
    servers = new.data["servers"]
    assert servers["github"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "TZ": "Europe/Oslo"}
    assert servers["github"]["args"][-2:] == ["-p", "5"]
    assert servers["remote"]["headers"]["Authorization"] == "Bearer ${REMOTE_TOKEN}"
    assert servers["remote"]["headers"]["Accept"] == "text/plain"
    assert servers["remote"]["headers"]["X-Own"] == "Bearer ${MINE}"
    assert servers["other"]["env"]["GITHUB_TOKEN"] == "${OTHER_GITHUB_TOKEN}"
    assert new.data["clients"]["openai"]["api_key"] == "${OPENAI_API_KEY}"
    assert set(new.variables) == new.references - {"MINE"}


def test_with_the_variables_set_it_is_the_same_config(tmp_path: Path) -> None:
    new = _migrated(CASUAL_MCP, tmp_path)
    path = tmp_path / "new.json"
    path.write_text(new.text, encoding="utf-8")
    at = {where: name for name, where in new.variables.items()}
    values = {
        at["servers.github.env.GITHUB_TOKEN"]: SECRETS["token"],
        at["servers.other.env.GITHUB_TOKEN"]: "another one",
    }
    values |= {
        at["servers.remote.url"]: SECRETS["query"],
        at["servers.remote.headers.Authorization"]: SECRETS["bearer"],
    }
    values |= {"MINE": "mine", "OPENAI_API_KEY": SECRETS["key"]}
    args = dict.fromkeys(new.references - values.keys(), "argument")
    config = load_config(path, environ={**values, **args})
    old = load_config(tmp_path / "old" / "old.json", environ=values)
    assert config.servers["remote"] == old.servers["remote"]
    assert config.servers["other"] == old.servers["other"]
    assert config.servers["github"].env == old.servers["github"].env
    assert config.servers["github"].cwd == old.servers["github"].cwd
    assert config.tool_sets == old.tool_sets


def test_dropped_settings_are_reported(tmp_path: Path) -> None:
    text = "// mine\n" + json.dumps({**CASUAL_MCP, "globalShortcut": "Ctrl"})
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / ".env").write_text("A=1", encoding="utf-8")
    notes = " ".join(_migrated(text, tmp_path).notes)
    for word in (
        "globalShortcut",
        "autoApprove",
        "omments",
        "Relative",
        ".env",
        "prompt-templates",
    ):
        assert word in notes


def test_inputs_of_vs_code_become_variables(tmp_path: Path) -> None:
    server = {
        "type": "stdio",
        "command": "npx",
        "args": ["${workspaceFolder}/d"],
        "env": {"KEY": "${input:perplexity-key}"},
    }
    new = _migrated(
        {"inputs": [{"type": "promptString", "id": "perplexity-key"}], "servers": {"p": server}},
        tmp_path,
        "mcp.json",
    )
    assert new.data["servers"]["p"]["env"] == {"KEY": "${PERPLEXITY_KEY}"}
    assert new.data["servers"]["p"]["args"] == [str((tmp_path / "old").resolve() / "d")]
    assert "PERPLEXITY_KEY" in new.variables


def test_the_same_secret_has_one_name(tmp_path: Path) -> None:
    servers = {name: {"command": "x", "env": {"API_KEY": "the same"}} for name in ("one", "two")}
    assert set(_migrated({"mcpServers": servers}, tmp_path).variables) == {"API_KEY"}


def test_a_file_that_is_not_a_config_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        _migrated("[1]", tmp_path)


def _legacy(**fields: Any) -> str:
    model = {"provider": "openai", "model": "m", **fields}
    return json.dumps(
        {"models": {"good": {"provider": "ollama", "model": "x"}, "bad": model}, "mcpServers": {}},
        indent=2,
    )


FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown provider": ({"provider": "opneai"}, "models.bad.provider"),
    "no provider": ({"provider": None}, "models.bad.provider"),
    "a number for provider": ({"provider": 5}, "models.bad.provider"),
    "a list for provider": ({"provider": ["openai"]}, "models.bad.provider"),
    "a number for endpoint": ({"endpoint": 8080}, "models.bad.endpoint"),
    "an object for endpoint": ({"endpoint": {"url": "x"}}, "models.bad.endpoint"),
    "a number for model": ({"model": 5}, "models.bad.model"),
    "no model": ({"model": None}, "models.bad.model"),
    "a text for temperature": ({"temperature": "hot"}, "models.bad.temperature"),
    "a number for template": ({"template": 5}, "models.bad.template"),
}


@pytest.mark.defect("Q6")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("fields", "key"), FORMS.values(), ids=FORMS)
def test_an_error_in_an_old_file_has_its_key_and_line(
    tmp_path: Path, fields: dict[str, Any], key: str, in_place: bool
) -> None:
    path = tmp_path / "old.json"
    text = _legacy(**fields)
    path.write_text(text, encoding="utf-8")
    new = migrated_in_place(path) if in_place else migrated(path, tmp_path)
    with pytest.raises(ConfigError) as caught:
        check_config(new.text, path, environ={}, source=new.source)
    error = caught.value
    assert (error.key, error.path) == (key, str(path))
    name = key.rpartition(".")[2]
    assert f'"{name}"' in text.splitlines()[(error.line or 1) - 1]
    assert "clients" not in str(error)


@pytest.mark.defect("Q6")
def test_an_error_in_a_hosts_file_has_its_key_and_line(tmp_path: Path) -> None:
    new = _migrated(
        '{\n "mcpServers": {\n  "s": {\n   "command": "x",\n   "httpUrl": "https://a"\n}}}',
        tmp_path,
    )
    with pytest.raises(ConfigError) as caught:
        check_config(new.text, tmp_path / "new.json", environ={}, source=new.source)
    assert (caught.value.key, caught.value.line) == ("mcpServers.s", 3)


@pytest.mark.parametrize("is_a_folder", [True, False])
def test_a_moved_config_finds_its_embedding_model(tmp_path: Path, is_a_folder: bool) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    if is_a_folder:
        (old / "minilm").mkdir()
    path = old / "config.json"
    path.write_text(json.dumps({"tool_discovery": {"embedding": {"local": "minilm"}}}))
    local = migrated(path, new).data["tool_discovery"]["embedding"]["local"]
    # A name of a model stays one.
    assert local == (str(old / "minilm") if is_a_folder else "minilm")


def test_a_moved_config_keeps_an_embedding_model_whose_name_no_folder_can_have(
    tmp_path: Path,
) -> None:
    new = tmp_path / "new"
    new.mkdir()
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"tool_discovery": {"embedding": {"local": "x" * 300}}}))
    assert migrated(path, new).data["tool_discovery"]["embedding"]["local"] == "x" * 300


COMMENTS = {
    "a trailing comma": ('{"mcpServers": {"a": {"command": "x"},},}', "old.json", False),
    "a slash in a text": (
        '{"mcpServers": {"a": {"command": "x", "args": ["// no /* comment */"]}}}',
        "old.json",
        False,
    ),
    "a line": ('{"mcpServers": {"a": {"command": "x"}} // c\n}', "old.json", True),
    "a block": ('{"mcpServers": /* c */ {"a": {"command": "x"}}}', "old.json", True),
    "TOML without": ('[mcp_servers.a]\ncommand = "x#y"\n', "old.toml", False),
    "TOML": ('# c\n[mcp_servers.a]\ncommand = "x"\n', "old.toml", True),
    "YAML": ("mcpServers:\n  # c\n  a: {command: x}\n", "old.yaml", True),
    "YAML without": ("mcpServers:\n  a: {command: 'x # y'}\n", "old.yaml", False),
}


@pytest.mark.defect("Q6")
@pytest.mark.parametrize(("text", "name", "lost"), COMMENTS.values(), ids=COMMENTS)
def test_only_comments_are_called_comments(
    tmp_path: Path, text: str, name: str, lost: bool
) -> None:
    assert any("omments" in note for note in _migrated(text, tmp_path, name).notes) is lost


@pytest.mark.defect("Q3")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "url": "https://a.example/mcp"},
        {"command": "${config:python.path}"},
        {"command": "x", "disabeld": True},
        {"command": "x", "envFile": "no-such.env"},
        "npx server",
    ],
)
def test_an_unusable_entry_of_a_host_is_left_out_with_its_reason(
    tmp_path: Path, entry: Any
) -> None:
    good = {"command": "x", "env": {"T": "${NO_SUCH_VARIABLE}"}}
    new = _migrated(
        {"mcpServers": {"good": good, "bad": entry}}, tmp_path, "claude_desktop_config.json"
    )
    assert list(new.data["servers"]) == ["good"]
    assert [note for note in new.notes if note.startswith("mcpServers.bad is left out")]
    check_config(
        new.text, tmp_path / "new.json", environ={"NO_SUCH_VARIABLE": "x"}, source=new.source
    )
