from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.raw_server import OK

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.process import KEPT_BYTES, launched

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]
Processes = Callable[[], list[str]]


async def test_the_children_of_a_server_are_ended_after_its_clean_exit(
    opened: Opened, raw: Raw, processes: Processes
) -> None:
    connection = opened(Connection("parent", raw(child=True)))
    await connection.connect()
    assert len(processes()) == 2
    await connection.close()
    assert processes() == []


async def test_the_children_of_a_server_are_ended_after_its_failed_start(
    opened: Opened, raw: Raw, processes: Processes
) -> None:
    connection = opened(Connection("parent", raw(child="stubborn", exit=1)))
    with pytest.raises(ConnectError, match="exited"):
        await connection.connect()
    assert processes() == []


async def test_the_children_of_a_server_are_ended_after_its_death(
    opened: Opened, raw: Raw, processes: Processes, until: Callable[..., Any]
) -> None:
    connection = opened(
        Connection("parent", raw(child=True, calls={"last": OK | {"die_after": 0.05}}))
    )
    await connection.connect()
    await connection.call("last", {})
    await until(lambda: connection.status.state == "failed")
    await until(lambda: not processes())


async def test_a_close_that_is_cancelled_still_ends_the_process(
    opened: Opened, raw: Raw, processes: Processes, until: Callable[..., Any]
) -> None:
    connection = opened(Connection("stubborn", raw(ignore_eof=True, ignore_sigterm=True)))
    await connection.connect()
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    await until(lambda: not processes())


async def test_four_megabytes_on_stderr_neither_block_the_server_nor_fill_the_memory(
    opened: Opened, raw: Raw, until: Callable[..., Any]
) -> None:
    flood = 4 * 1024 * 1024
    config = raw(
        stderr="begin\n", stderr_flood=flood, calls={"a": OK | {"stderr": "\nlast words\n"}}
    )
    connection = opened(Connection("loud", config))
    await connection.connect()
    await connection.call("a", {})
    await until(lambda: connection.status.stderr_tail.endswith("last words"))
    assert len(connection.status.stderr_tail) < KEPT_BYTES


async def test_stderr_is_cleaned_masked_and_cut_to_its_last_lines(
    opened: Opened, raw: Raw, until: Callable[..., Any]
) -> None:
    lines = [f"line {number}" for number in range(30)]
    text = "\n".join([*lines, "\x1b[2J\x1b]0;title\x07key=s3cret-key \x00\u202e", "z" * 2000, ""])
    connection = opened(Connection("talker", raw({"env": {"KEY": "s3cret-key"}}, stderr=text)))
    await connection.connect()
    # It arrives on another pipe than the answers.
    await until(lambda: connection.status.stderr_tail.endswith("z" * 500))
    tail = connection.status.stderr_tail.split("\n")
    assert len(tail) == 20
    assert tail[0] == "line 12"
    assert tail[-2:] == [f"key={MASK} ��", "z" * 500]


@pytest.mark.fault(85)
async def test_a_server_gets_the_short_list_and_its_own_settings_and_nothing_else(
    opened: Opened, mark: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "s3cret-of-the-kernel")
    seen = tmp_path / "environment"
    code = (
        f"import json, os, sys; json.dump(dict(os.environ), open({str(seen)!r}, 'w')); sys.exit(1)"
    )
    config = ServerConfig.model_validate(
        {"command": sys.executable, "args": ("-I", "-c", code), "env": {"OWN": "setting"}}
    )
    with pytest.raises(ConnectError, match="exited"):
        await opened(Connection("nosy", config)).connect()
    environment = json.loads(seen.read_text())
    assert environment.pop("OWN") == "setting"
    short_list = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}
    assert set(environment) <= short_list | {"FASTMCP_SHOW_SERVER_BANNER"}


KERNEL = """
import asyncio, sys
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ServerConfig

async def main():
    await Connection("orphan", ServerConfig.model_validate_json(sys.argv[1])).connect()
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_a_server_that_ignores_eof_dies_with_a_killed_kernel(
    raw: Raw, mark: str, processes: Processes, until: Callable[..., Any]
) -> None:
    config = raw(ignore_eof=True, ignore_sigterm=True)
    plan = {"command": config.command, "args": config.args, "env": {"CASUAL_TEST_MARK": mark}}
    kernel = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KERNEL,
        json.dumps(plan),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert kernel.stdout is not None
        async with asyncio.timeout(20):
            assert await kernel.stdout.readline() == b"ready\n"
        assert len(processes()) == 1
    finally:
        os.killpg(kernel.pid, signal.SIGKILL)
        await kernel.wait()
    await until(lambda: not processes())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_server_whose_parent_ended_during_its_start_ends_too(tmp_path: Path) -> None:
    began = tmp_path / "began"
    _, *launch = launched(["touch", str(began)])
    launch[launch.index(str(os.getpid()))] = str(os.getpid() + 1)
    done = subprocess.run([sys.executable, *launch], capture_output=True, timeout=10, check=False)
    assert done.returncode == 0
    assert not began.exists()


@pytest.mark.defect("G9")
def test_the_demo_starts_no_process_and_a_bundled_server_ends_with_its_session() -> None:
    before = set(psutil.Process().children(recursive=True))
    with Session.demo() as demo:
        assert {server.transport for server in demo.connect(quiet=True).values()} == {"in-process"}
        assert set(psutil.Process().children(recursive=True)) == before
    with Session.from_config({"servers": {"math": {"bundled": "math"}}}) as session:
        session.connect(quiet=True)
        (server,) = set(psutil.Process().children(recursive=True)) - before
    assert not server.is_running()
