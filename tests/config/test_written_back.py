"""A config that is loaded, changed and written back loses nothing: references stay, and secrets are
not replaced by masks.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from casual_mcp_nb import load_config
from casual_mcp_nb.base.config import ClientConfig, Config, ServerConfig
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.cassettes.recorder import entry_from
from casual_mcp_nb.errors import ConfigError, UsageError

TOKEN = "planted-token-0123456789"
ENVIRON = {
    "TOKEN": TOKEN,
    "OTHER": TOKEN,
    "HOST": "shop.example",
    "SECONDS": "5",
    "DESK_API_KEY": TOKEN,
    "OPENAI_API_KEY": TOKEN,
}
FULL: dict[str, Any] = {
    "clients": {
        "desk": {
            "provider": "openai",
            "base_url": "https://${HOST}/v1?key=${TOKEN}",
            "headers": {"X-App": "${OTHER}"},
        },
        "named": {"provider": "anthropic", "api_key": "${env:TOKEN}", "timeout": "${SECONDS}"},
    },
    "models": {
        "m": {
            "client": "desk",
            "model": "${MODEL:-m-1}",
            "stop": "${HOST}",
            "extra_headers": {"X-Team": "Bearer ${TOKEN}"},
            "extra_body": {"user": {"id": ["${TOKEN}", 1]}},
        }
    },
    "servers": {
        "local": {
            "command": "./bin/${HOST}",
            "args": ["--token", "${TOKEN}", "--plain", "$${NOT_A_REFERENCE}"],
            "env": {"TOKEN": "${TOKEN}", "AGAIN": "${OTHER}", "MODE": "${MODE:-}"},
            "env_file": "local.env",
            "cwd": "data",
            "roots": ["data", "${workspaceFolder}/more"],
        },
        "remote": {
            "url": "https://${HOST}/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "call_timeout": "${SECONDS}",
            "exclude_tools": ["${HOST}_*"],
        },
        "signed": {"url": "https://shop.example", "auth": "oauth"},
    },
    "tool_sets": {"t": {"description": "at ${HOST}", "servers": {"remote": ["buy"]}}},
    "prices": "prices/mine.json",
    "store": "${HOST}.db",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "mine.json").write_text('{"m": {"input": 1, "output": 2}}')
    (tmp_path / "local.env").write_text("FROM_FILE=planted-in-a-file-0123456789\n")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FULL))
    return path


DUMPS: list[Callable[[Any], Any]] = [
    lambda config: json.loads(config.model_dump_json(exclude_defaults=True)),
    lambda config: config.model_dump(mode="json", exclude_defaults=True),
    lambda config: json.loads(copy.deepcopy(config).model_dump_json(exclude_defaults=True)),
    lambda config: json.loads(config.model_copy().model_dump_json(exclude_defaults=True)),
    lambda config: TypeAdapter(Config).dump_python(config, mode="json", exclude_defaults=True),
]


@pytest.mark.defect("F24")
@pytest.mark.parametrize("dump", DUMPS)
def test_each_value_is_dumped_as_it_stood_in_the_file(
    dump: Callable[[Config], Any], file: Path
) -> None:
    dumped = dump(load_config(file, environ=ENVIRON))
    written = copy.deepcopy(FULL)
    assert dumped == written
    assert TOKEN not in json.dumps(dumped)


@pytest.mark.defect("F24")
def test_changes_are_written_and_everything_else_stays(file: Path) -> None:
    config = load_config(file, environ=ENVIRON)
    remote = config.servers["remote"].model_copy(update={"enabled": False, "call_timeout": 7.0})
    servers = {**config.servers, "renamed": remote}
    del servers["remote"], servers["signed"]
    changed = config.model_copy(update={"servers": servers, "tool_sets": {}})
    file.write_text(changed.model_dump_json(indent=2))
    again = load_config(file, environ=ENVIRON)
    assert again == changed
    assert list(again.servers) == ["local", "renamed"]
    on_disk = json.loads(file.read_text())["servers"]["renamed"]
    assert (on_disk["headers"], on_disk["call_timeout"]) == (
        {"Authorization": "Bearer ${TOKEN}"},
        7.0,
    )
    # A rotated token reaches what refers to it.
    assert load_config(file, environ={**ENVIRON, "TOKEN": "a-newer-0123456789"}).servers[
        "renamed"
    ].secrets() >= {"a-newer-0123456789"}


SECRETS: dict[str, tuple[type[BaseModel], dict[str, Any], str]] = {
    "a key": (ClientConfig, {"provider": "openai", "api_key": TOKEN}, "api_key"),
    "a header of a client": (
        ClientConfig,
        {"provider": "openai", "headers": {"X": TOKEN}},
        "headers.X",
    ),
    "a password of a client": (
        ClientConfig,
        {"provider": "openai", "base_url": f"https://me:{TOKEN}@host"},
        "base_url",
    ),
    "a header": (ServerConfig, {"url": "https://host", "headers": {"X": TOKEN}}, "headers.X"),
    "a token": (ServerConfig, {"url": "https://host", "auth": TOKEN}, "auth"),
    "a query": (ServerConfig, {"url": f"https://host?key={TOKEN}"}, "url"),
    "a variable": (ServerConfig, {"command": "x", "env": {"MODE": "1"}}, "env.MODE"),
    "an option": (ServerConfig, {"command": "x", "args": ["--token", TOKEN]}, "args.1"),
}


@pytest.mark.defect("F24")
@pytest.mark.parametrize(("model", "fields", "location"), SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_in_the_config_is_never_replaced_by_a_mask(
    model: type[BaseModel], fields: dict[str, Any], location: str
) -> None:
    section = "clients" if model is ClientConfig else "servers"
    config = load_config({section: {"a": fields}}, environ={})
    alone = model.model_validate(fields)
    for thing, where in (
        (config, f"{section}.a.{location}"),
        (getattr(config, section)["a"], f"{section}.a.{location}"),
        (alone, location),
    ):
        for dump in (thing.model_dump_json, lambda thing=thing: thing.model_dump(mode="json")):
            with pytest.raises(UsageError) as caught:
                dump()
            assert str(caught.value).startswith(f"{where} ")
            assert TOKEN not in str(caught.value)
        assert (
            json.loads(thing.model_dump_json(context={"secrets": "plain"}, exclude={"x"}))
            is not None
        )
        shown = thing.model_dump_json(context={"secrets": "masked"})
        assert MASK in shown
        assert TOKEN not in shown
        with pytest.raises(UsageError):
            pickle.dumps(thing)
    plain = config.model_dump_json(context={"secrets": "plain"})
    assert load_config(json.loads(plain), environ={}) == config


@pytest.mark.defect("F24")
def test_a_dump_in_python_can_be_validated_again(file: Path) -> None:
    config = load_config(file, environ=ENVIRON)
    remote = config.servers["remote"]
    assert ServerConfig.model_validate(remote.model_dump()) == remote
    assert remote.model_dump(include={"call_timeout"}) == {"call_timeout": 5.0}
    config = load_config(
        {"servers": {"a": {"url": "https://host", "headers": {"X": TOKEN}}}}, environ={}
    )
    assert Config.model_validate(config.model_dump()) == config
    with pytest.raises(UsageError):
        load_config(
            {"servers": {"a": {"command": "x", "args": ["--token", TOKEN]}}}, environ={}
        ).model_dump()


@pytest.mark.defect("F24")
@pytest.mark.parametrize(
    "server",
    [
        {"url": "https://host", "headers": {"Authorization": MASK}},
        {"url": "https://host", "headers": {"Authorization": f"Bearer {MASK}"}},
        {"url": f"https://me:{MASK}@host"},
        {"url": "https://host", "auth": MASK},
        {"command": "x", "env": {"TOKEN": MASK}},
        {"command": "x", "args": ["--token", MASK]},
    ],
)
def test_a_mask_is_not_taken_for_the_secret(server: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"servers": {"a": server}}, environ={})
    assert (caught.value.key or "").startswith("servers.a")


@pytest.mark.defect("F24")
def test_a_cassette_has_the_values_and_not_the_references(file: Path) -> None:
    status = ServerStatus("remote", "ready", "http")
    entry = entry_from(load_config(file, environ=ENVIRON).servers["remote"], status, (), "")
    assert entry.options == {"exclude_tools": ["shop.example_*"]}
