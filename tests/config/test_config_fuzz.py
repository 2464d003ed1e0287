"""Configs that somebody wrote by hand, or to break their reader: each loads, or is a clear error
that names the place.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kit.fuzz import broken, mutations

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.cli.app import main
from casual_mcp_nb.config.document import _model_at
from casual_mcp_nb.config.loader import check_config, load_config
from casual_mcp_nb.config.migration import migrated
from casual_mcp_nb.errors import ConfigError

ENVIRON = {"TOKEN": "planted-token-0123456789", "OPENAI_API_KEY": "planted-key-0123456789"}
OURS: dict[str, Any] = {
    "clients": {
        "desk": {
            "provider": "openai",
            "base_url": "https://host/v1",
            "api_key": "${TOKEN}",
            "headers": {"X": "1"},
        }
    },
    "models": {
        "m": {
            "client": "desk",
            "model": "m-1",
            "temperature": 1,
            "stop": ["a"],
            "extra_body": {"a": [1]},
        }
    },
    "servers": {
        "local": {
            "command": "x",
            "args": ["--token", "${TOKEN}"],
            "env": {"A": "1"},
            "cwd": ".",
            "roots": ["data"],
        },
        "remote": {
            "url": "https://host",
            "headers": {"A": "Bearer ${TOKEN}"},
            "approval": {"buy": "always"},
        },
        "math": {"bundled": "math", "include_tools": ["add"], "call_timeout": 5},
    },
    "tool_sets": {
        "t": {
            "description": "d",
            "servers": {"math": True, "local": ["a"], "remote": {"exclude": ["b"]}},
        }
    },
    "tool_discovery": {"enabled": "auto", "max_search_results": 3},
    "tool_results": {"max_tokens": 1000},
    "limits": {"max_cost": {"day": 2.5}, "max_total_tokens": {"turn": 50_000}},
    "prices": {"m": {"input": 1, "output": 2}},
    "strict": False,
    "store": "a.db",
}
HOSTS: list[dict[str, Any]] = [
    {
        "mcpServers": {
            "a": {
                "command": "x",
                "env": {"A": "${TOKEN}"},
                "disabled": False,
                "alwaysAllow": ["t"],
                "type": "stdio",
            }
        }
    },
    {
        "servers": {"a": {"type": "http", "url": "https://host", "headers": {"A": "${input:a}"}}},
        "inputs": [{"id": "a", "type": "promptString", "password": True, "default": "x"}],
    },
    {
        "mcp": {
            "servers": {"a": {"command": "x"}},
            "allowed": ["a"],
            "excluded": ["b"],
            "inputs": [],
        }
    },
    {"context_servers": {"a": {"source": "custom", "command": {"path": "x", "args": ["b"]}}}},
    {
        "mcp": {
            "a": {
                "type": "local",
                "command": ["x", "y"],
                "environment": {"A": "1"},
                "enabled": True,
            }
        }
    },
    {"mcp_servers": [{"name": "a", "command": "x", "args": []}]},
    {
        "name": "io.example/a",
        "packages": [
            {
                "registryType": "npm",
                "identifier": "a",
                "version": "1",
                "environmentVariables": [{"name": "T", "isRequired": True, "isSecret": True}],
                "packageArguments": [
                    {
                        "type": "named",
                        "name": "--a",
                        "value": "{b}",
                        "variables": {"b": {"default": "c"}},
                    }
                ],
            }
        ],
        "remotes": [
            {
                "type": "streamable-http",
                "url": "https://{h}/mcp",
                "variables": {"h": {"default": "x"}},
            }
        ],
    },
]
SEED = 20_261_123


def assert_clear(error: ConfigError) -> None:
    text = str(error)
    assert "planted" not in text
    assert len(text) < 60_000
    # No error of the whole file without a reason, and none of pydantic's words about its types.
    assert text.strip()
    assert "pydantic" not in text


@pytest.mark.defect("F16")
@pytest.mark.parametrize(
    "key", [name for name, field in Config.model_fields.items() if _model_at((name,)) is not Config]
)
def test_an_unknown_key_of_each_section_is_an_error_that_names_it(key: str) -> None:
    within: dict[str, Any] = {"a": {"nmae": 1}}
    if key in ("tool_discovery", "tool_results", "limits"):
        within = {"nmae": 1}
    with pytest.raises(ConfigError) as caught:
        load_config({key: within}, environ={})
    assert f"{key}." in str(caught.value)
    assert "nmae" in str(caught.value)


@pytest.mark.defect("F16")
@pytest.mark.parametrize("part", range(4))
def test_a_damaged_config_is_a_clear_error(part: int) -> None:
    refused = 0
    for config in mutations(OURS, SEED + part, 400):
        refused += _loads(config) is False
    assert refused > 100


@pytest.mark.defect("F16")
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: next(iter(host)))
def test_a_damaged_file_of_another_host_is_a_clear_error(
    host: dict[str, Any], tmp_path: Path
) -> None:
    for number, config in enumerate(mutations(host, SEED, 130)):
        _loads(config)
        if number % 3 == 0:
            _migrates(config, tmp_path)


@pytest.mark.defect("F16")
def test_a_damaged_text_is_a_clear_error_of_each_reader(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for data in broken(json.dumps(OURS), SEED, 60):
        file.write_bytes(data)
        with contextlib.suppress(ConfigError):
            load_config(file, environ=ENVIRON)
        with contextlib.suppress(ConfigError):
            migrated(file, tmp_path)
        with contextlib.suppress(ConfigError):
            check_config(data.decode("utf-8", "replace"), file, environ=ENVIRON)


@pytest.mark.defect("F16")
def test_check_reports_each_error_with_its_location(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"tool_results": {"max_token": 5}}))
    with contextlib.redirect_stdout(io.StringIO()) as written, pytest.raises(SystemExit) as caught:
        raise SystemExit(main(["check", str(file), "--json"]))
    assert caught.value.code
    assert "tool_results.max_token" in json.loads(written.getvalue())["error"]


@pytest.mark.defect("F16")
@pytest.mark.parametrize("field", ["cwd", "command", "env_file", "roots"])
def test_the_home_of_an_unknown_user_does_not_crash(field: str, tmp_path: Path) -> None:
    value = "~nobody-has-this-name/x"
    server = {"command": "x", field: [value] if field == "roots" else value}
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({"servers": {"a": server}, "prices": "~nobody-has-this-name/prices.json"})
    )
    with pytest.raises(ConfigError):
        load_config(file, environ={})


def _loads(config: Mapping[str, Any] | Any) -> bool | None:
    if not isinstance(config, Mapping):
        return None
    try:
        load_config(config, environ=ENVIRON)
    except ConfigError as error:
        assert_clear(error)
        return False
    return True


def _migrates(config: Any, folder: Path) -> None:
    file = folder / "host.json"
    file.write_text(json.dumps(config))
    try:
        migrated(file, folder)
    except ConfigError as error:
        assert_clear(error)
