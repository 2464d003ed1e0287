"""Servers as a person types them: a command line, an address, the name of a bundled server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.config.quick import check_command, read_server, server_fields
from casual_mcp_nb.errors import ConfigError, UsageError

FETCHED = {"init_timeout": 120}
"""What is fetched before it starts has more time."""
MEMORY = "npx -y @modelcontextprotocol/server-memory@2025.9.1"


@pytest.mark.parametrize(
    ("text", "name", "fields"),
    [
        ("time", "time", {"bundled": "time", "args": []}),
        ("  bundled:math ", "math", {"bundled": "math", "args": []}),
        (
            "bundled:files --root 'my files'",
            "files",
            {"bundled": "files", "args": ["--root", "my files"]},
        ),
        ("https://mcp.deepwiki.com/mcp", "deepwiki", {"url": "https://mcp.deepwiki.com/mcp"}),
        ("http://localhost:8000/mcp", "local", {"url": "http://localhost:8000/mcp"}),
        ("localhost:8000/mcp", "local", {"url": "http://localhost:8000/mcp"}),
        ("127.0.0.1:8000/", "local", {"url": "http://127.0.0.1:8000/"}),
        ("[::1]:8000/mcp", "local", {"url": "http://[::1]:8000/mcp"}),
        ("http://10.0.0.7/mcp", "remote", {"url": "http://10.0.0.7/mcp"}),
        (MEMORY, "memory", {"command": "npx", "args": MEMORY.split()[1:], **FETCHED}),
        (
            "uvx mcp-server-fetch",
            "fetch",
            {"command": "uvx", "args": ["mcp-server-fetch"], **FETCHED},
        ),
        (
            "python3 -u tools/shop_server.py",
            "shop",
            {"command": sys.executable, "args": ["-u", "tools/shop_server.py"]},
        ),
        (
            "docker run -i --rm -e TOKEN mcp/github",
            "github",
            {
                "command": "docker",
                "args": ["run", "-i", "--rm", "-e", "TOKEN", "mcp/github"],
                **FETCHED,
            },
        ),
        (
            "REGION=eu npx -y weather",
            "weather",
            {"command": "npx", "args": ["-y", "weather"], "env": {"REGION": "eu"}, **FETCHED},
        ),
        ("node server.js", "server", {"command": "node", "args": ["server.js"]}),
    ],
)
def test_a_text_is_a_server_with_a_name(
    text: str,
    name: str,
    fields: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is on PATH stays as it is typed.
    (tmp_path / "uvx").write_text("#!/bin/sh\n")
    (tmp_path / "uvx").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    assert server_fields(text) == (name, fields)


def test_a_command_that_is_not_on_the_path_is_found_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "fastmcp"
    beside.write_text("#!/bin/sh\n")
    beside.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    fields = {"command": str(beside), "args": ["run", "shop.py"]}
    assert server_fields("fastmcp run shop.py") == ("shop", fields)
    elsewhere = "PATH=/elsewhere fastmcp run shop.py"
    assert server_fields(elsewhere)[1]["command"] == "fastmcp"


@pytest.mark.parametrize("name", BUNDLED)
def test_each_bundled_server_is_known_by_its_name(name: str) -> None:
    assert (
        read_server(name)[1] == read_server(f"{'bundled:'}{name}")[1] == ServerConfig(bundled=name)
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tiem", "time"),
        ("bundled:maths", "math"),
        ("no-such-command-anywhere", "Bundled servers"),
        ("", "Which server"),
        ("TOKEN=s3cr3t-s3cr3t", "Which server"),
        ("npx 's3cr3t-s3cr3t", "command line"),
        ('{"command": "npx", "env": {"KEY": "s3cr3t-s3cr3t"}}', "servers.add"),
    ],
)
def test_meaningless_input_is_refused_without_repeating_a_secret(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        read_server(text)
    assert "s3cr3t" not in str(error.value)


def test_a_command_that_does_not_exist_is_known_before_it_is_started() -> None:
    with pytest.raises(UsageError, match="'no-such-command-anywhere'"):
        check_command("no-such-command-anywhere --flag s3cr3t-s3cr3t")
    check_command(f"{sys.executable} -m casual_mcp_nb.bundled time")
    check_command("time")
    check_command("https://example.com/mcp")
    check_command("${HOME}/no-such-command --flag")
    check_command("PATH=/opt/bin no-such-command --flag")


def test_a_name_is_not_taken_twice() -> None:
    assert [
        read_server("time", taken=taken)[0] for taken in ([], ["time"], ["time", "time-2"])
    ] == ["time", "time-2", "time-3"]
    assert read_server("time", "clock", taken=["time"])[0] == "clock"


def test_variables_are_filled_in_and_are_secrets() -> None:
    text = "npx -y weather --api-key ${WEATHER_KEY}"
    name, config = read_server(text, environ={"WEATHER_KEY": "abc-123-def-456"})
    assert (name, config.args[-1]) == ("weather", "abc-123-def-456")
    assert "abc-123-def-456" in config.secrets()
    with pytest.raises(ConfigError, match="WEATHER_KEY"):
        read_server(text, environ={})


def test_an_entry_of_a_config_is_read_as_there() -> None:
    assert (
        read_server({"type": "http", "url": "https://example.com/mcp"}, "docs")[1].url
        == "https://example.com/mcp"
    )
    config = ServerConfig(command=sys.executable)
    assert read_server(config, "own") == ("own", config)
    with pytest.raises(UsageError, match="name"):
        read_server({"url": "https://example.com/mcp"})
    with pytest.raises(ConfigError, match="exactly one of"):
        read_server({"command": "npx", "url": "https://example.com/mcp"}, "both")
    with pytest.raises(UsageError, match="int"):
        read_server(7, "seven")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("pyhton library.py", "'python'"),
        ("books library.py", "--name"),
        ("books npx -y library", "--name"),
    ],
)
def test_a_command_that_does_not_exist_is_told_with_what_was_probably_meant(
    line: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=hint):
        check_command(line)
