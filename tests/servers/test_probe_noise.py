"""What servers built on version 1 of mcp write about a newer client, and when they meet version
2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.servers._errors import advice_of_stderr
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.logs import PROBE_LEFT_OUT, LogBuffer

Opened = Callable[..., Any]
Raw = Callable[..., ServerConfig]

PLAIN = "Failed to validate request: 31 validation errors for ClientRequest\n" + "".join(
    f"{name}.method\n"
    f"  Input should be '{name}' [type=literal_error, input_value='{{method}}', input_type=str]\n"
    "    For further information visit https://errors.pydantic.dev/2.14/v/literal_error\n"
    for name in ("PingRequest", "InitializeRequest", "CompleteRequest", "CallToolRequest") * 8
)
RICH = (
    "[11/28/26 00:48:12] WARNING  Failed to validate request: 31       session.py:383\n"
    + "".join(
        f"                             {text:<51}\n"
        for name in (
            "validation errors for ClientRequest",
            *["PingRequest.method", "ListRootsRequest.params"] * 16,
        )
        for text in (
            name,
            "  Input should be 'ping'",
            "[type=literal_error,",
            "input_value='{method}',",
            "input_type=str]",
        )
    )
)
WITH_RICH = "                    INFO     Processing request of type            server.py:720\n"


@pytest.mark.defect("M15")
@pytest.mark.parametrize("text", [PLAIN, RICH], ids=["plain", "rich"])
def test_a_servers_log_is_not_filled_by_the_question_for_its_versions(text: str) -> None:
    assert text.count("\n") > 90
    log = LogBuffer("old")
    feed = log.stderr()
    whole = f"starting\n{text.replace('{method}', 'server/discover')}{WITH_RICH}ready\n".encode()
    # As it arrives, in pieces.
    for start in range(0, len(whole), 1_000):
        feed(whole[start : start + 1_000])
    feed(b"")
    assert [line.text.strip() for line in log.read().lines] == [
        "starting",
        PROBE_LEFT_OUT,
        WITH_RICH.strip(),
        "ready",
    ]


@pytest.mark.defect("M15")
@pytest.mark.parametrize("text", [PLAIN, RICH], ids=["plain", "rich"])
def test_validation_errors_of_other_requests_stay_in_the_log(text: str) -> None:
    log = LogBuffer("old")
    feed = log.stderr()
    feed(text.replace("{method}", "tools/explode").encode())
    feed(b"")
    assert len(log.read().lines) == text.count("\n")


@pytest.mark.defect("M15")
async def test_the_last_lines_of_a_process_that_ends_are_its_own(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    stderr = "the licence has run out\n" + PLAIN.replace("{method}", "server/discover")
    connection = opened(Connection("old", raw(stderr=stderr, exit=3)))
    with pytest.raises(ConnectError) as caught:
        await connection.connect()
    assert "licence" in str(caught.value)
    assert connection.status.stderr_tail.splitlines()[-1] == PROBE_LEFT_OUT


DEATHS = [
    "ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
    "AttributeError: 'Server' object has no attribute 'list_tools'",
    (
        "ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions'"
        " (/x/mcp/shared/exceptions.py)"
    ),
    "AttributeError: module 'mcp.types' has no attribute 'Tool'",
]


@pytest.mark.defect("M15")
@pytest.mark.parametrize("death", DEATHS)
async def test_a_server_that_dies_of_a_later_version_of_mcp_is_told_how_to_get_the_older(
    opened: Opened, raw: Raw, death: str
) -> None:
    connection = opened(
        Connection("old", raw(stderr=f"Traceback (most recent call last):\n{death}\n", exit=1))
    )
    with pytest.raises(ConnectError, match="mcp<2"):
        await connection.connect()
    assert "mcp<2" in (connection.status.error or "")


async def test_a_server_that_ends_without_a_word_is_told_what_may_be_missing(
    opened: Opened, tmp_path: Path
) -> None:
    program = tmp_path / "server.py"
    program.write_text("tools = ['not started']\n")
    config = ServerConfig(command=sys.executable, args=[str(program)])
    connection = opened(Connection("silent", config))
    with pytest.raises(ConnectError, match=r"mcp\.run\(\)"):
        await connection.connect()


async def test_the_line_of_stderr_that_tells_why_is_said_once(opened: Opened, raw: Raw) -> None:
    for stderr, times in (("ValueError: no key", 1), ("}\nNode.js v20.1.0", 0)):
        connection = opened(Connection("broken", raw(stderr=f"{stderr}\n", exit=1)))
        with pytest.raises(ConnectError) as caught:
            await connection.connect()
        said = str(caught.value).partition("is not connected")[2]
        assert said.count("ValueError: no key") == times
        reason = connection.status.error or ""
        assert ("stderr" in reason) == bool(times)
        assert reason.count("ValueError: no key") == times


@pytest.mark.defect("M15")
@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("uvx", 'uvx --with "mcp<2"'),
        ("/home/ada/.local/bin/uvx", 'uvx --with "mcp<2"'),
        ("C:\\tools\\uv.exe", 'uv run --with "mcp<2"'),
        ("python", "pip install 'mcp<2'"),
        (sys.executable, "from fastmcp import FastMCP"),
        (None, "pip install 'mcp<2'"),
    ],
)
def test_the_advice_fits_the_command(command: str | None, advice: str) -> None:
    assert advice in advice_of_stderr(DEATHS[0], command)


@pytest.mark.defect("M15")
@pytest.mark.parametrize(
    "stderr",
    [
        "",
        "ModuleNotFoundError: No module named 'mcp'",
        "AttributeError: 'Client' object has no attribute 'x'",
    ],
)
def test_other_deaths_get_no_such_advice(stderr: str) -> None:
    assert advice_of_stderr(stderr, "uvx") == ""


@pytest.mark.skipif(os.name == "nt", reason="The interpreter is a shell script.")
@pytest.mark.parametrize(("stderr", "is_told"), [("No module named 'shop'", True), ("No.", False)])
async def test_a_missing_module_tells_that_another_python_runs(
    opened: Opened, tmp_path: Path, stderr: str, is_told: bool
) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\necho "{stderr}" >&2\nexit 1\n')
    python.chmod(0o755)
    config = ServerConfig(command="python3", args=("shop.py",), env={"PATH": str(tmp_path)})
    connection = opened(Connection("shop", config))
    with pytest.raises(ConnectError):
        await connection.connect()
    reason = connection.status.error or ""
    assert (str(python) in reason) == (sys.executable in reason) == is_told
