"""`${NAME}`, `.env`, and the API keys that are found in the environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import ClientConfig, Config
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ConfigError

PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "key": (
        {"clients": {"c": {"provider": "openai", "api_key": "${PLANTED_NAME}"}}},
        "clients.c.api_key",
    ),
    "header": (
        {"servers": {"s": {"url": "https://a", "headers": {"X": "Bearer ${PLANTED_NAME}"}}}},
        "servers.s.headers.X",
    ),
    "auth": ({"servers": {"s": {"url": "https://a", "auth": "${PLANTED_NAME}"}}}, "servers.s.auth"),
    "url": ({"servers": {"s": {"url": "${PLANTED_NAME}/mcp"}}}, "servers.s.url"),
    "env": (
        {"servers": {"s": {"command": "x", "env": {"TOKEN": "${PLANTED_NAME}"}}}},
        "servers.s.env.TOKEN",
    ),
    "argument": (
        {"servers": {"s": {"command": "x", "args": ["a", "--k=${PLANTED_NAME}"]}}},
        "servers.s.args[1]",
    ),
    "command": ({"servers": {"s": {"command": "${PLANTED_NAME}"}}}, "servers.s.command"),
    "time-out": (
        {"servers": {"s": {"command": "x", "call_timeout": "${PLANTED_NAME}"}}},
        "servers.s.call_timeout",
    ),
}


@pytest.mark.fault(78)
@pytest.mark.parametrize(("data", "key"), PLACES.values(), ids=PLACES.keys())
def test_a_missing_variable_is_refused_with_its_name_and_place(
    data: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(data, environ={})
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")
    assert "PLANTED_NAME is not set" in str(caught.value)
    assert all(way in caught.value.hint for way in ("export PLANTED_NAME=", ".env", "os.environ"))
    assert "os.environ" not in caught.value.text_at("shell")


@pytest.mark.fault(78)
def test_all_missing_variables_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "servers": {
                    "s": {"command": "x", "args": ["${ONE} ${TWO}"], "env": {"A": "${THREE}"}}
                }
            }
        )
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={})
    *lines, hint = str(caught.value).splitlines()
    assert [line.split("variable ")[1] for line in lines] == [
        f"{name} is not set" for name in ("ONE", "TWO", "THREE")
    ]
    assert hint == caught.value.hint
    assert "export ONE=" in hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${B}", "xoney"),
        ("${env:A}", "one"),
        ("${A:-two}", "one"),
        ("${NONE:-two}", "two"),
        ("${B:-two}", "two"),
        ("${NONE:-}", ""),
        ("${NONE:-http://a:1}", "http://a:1"),
        ("$${A}", "${A}"),
        ("$A $ $$ {A}", "$A $ $$ {A}"),
        ("${LOOKS}", "${A}"),
    ],
)
def test_a_variable_is_replaced_once(text: str, value: str) -> None:
    environ = {"A": "one", "B": "", "LOOKS": "${A}"}
    assert load_config(
        {"servers": {"s": {"command": "x", "args": [text]}}}, environ=environ
    ).servers["s"].args == (value,)


@pytest.mark.fault(78)
@pytest.mark.parametrize("text", ["${}", "${A", "${A-B}", "${command:key}", "${A:-${B}}", "${ A }"])
def test_invalid_variables_are_never_passed_on(text: str) -> None:
    with pytest.raises(ConfigError, match=r"servers\.s\.args\[0\]: .*not a variable"):
        load_config(
            {"servers": {"s": {"command": "x", "args": [text]}}}, environ={"A": "1", "B": "2"}
        )


def test_a_number_can_come_from_a_variable() -> None:
    data = {"servers": {"s": {"command": "x", "call_timeout": "${T}"}}}
    assert load_config(data, environ={"T": "2.5"}).servers["s"].call_timeout == 2.5


def test_the_environment_comes_first_then_the_configs_env_file_then_the_working_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfA=file\nB=file\nC='file with spaces'\n")
    (here / ".env").write_text("A=cwd\nB=cwd\nC=cwd\nD=cwd\n")
    monkeypatch.chdir(here)
    path = tmp_path / "config.json"
    path.write_text(
        '{"servers": {"s": {"command": "x", "args": ["${A}", "${B}", "${C}", "${D}"]}}}'
    )
    before = dict(os.environ)
    config = load_config(path, environ={"A": "real"})
    assert config.servers["s"].args == ("real", "file", "file with spaces", "cwd")
    assert dict(os.environ) == before


def test_entries_of_an_env_file_can_refer_to_set_variables(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=${HOST}:1\nB=${A}/x\nC=${NOT_SET}\n")
    values = read_environment(tmp_path, {"HOST": "local"})
    assert (values["A"], values["B"]) == ("local:1", "local:1/x")
    assert "C" not in values


def test_an_env_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff")
    with pytest.raises(ConfigError, match=r"\.env:1:3: not UTF-8"):
        read_environment(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "provider", "given", "environ", "key"),
    [
        ("c", "openai", "own", {"C_API_KEY": "client", "OPENAI_API_KEY": "provider"}, "own"),
        (
            "my-lab.eu",
            "openai",
            None,
            {"MY_LAB_EU_API_KEY": "client", "OPENAI_API_KEY": "provider"},
            "client",
        ),
        ("c", "openai", "", {"C_API_KEY": "", "OPENAI_API_KEY": "provider"}, "provider"),
        ("c", "openai-responses", None, {"OPENAI_API_KEY": "provider"}, "provider"),
        (
            "c",
            "anthropic",
            None,
            {"OPENAI_API_KEY": "wrong", "ANTHROPIC_API_KEY": "provider"},
            "provider",
        ),
        ("c", "ollama", None, {"OPENAI_API_KEY": "wrong"}, None),
    ],
)
def test_the_key_is_the_clients_own_then_its_variable_then_the_providers(
    name: str, provider: str, given: str | None, environ: dict[str, str], key: str | None
) -> None:
    config = load_config(
        {"clients": {name: {"provider": provider, "api_key": given}}}, environ=environ
    )
    client = config.clients[name]
    assert (client.api_key.get_secret_value() if client.api_key else None) == key
    assert client.key_state == ("set" if key else "not set")


def test_a_config_made_in_python_gets_its_keys_too() -> None:
    config = load_config(
        Config(clients={"c": ClientConfig(provider="openai")}), environ={"C_API_KEY": "found"}
    )
    assert config.clients["c"].key_state == "set"
