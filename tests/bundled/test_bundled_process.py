from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from kit.beside import write_beside

from casual_mcp_nb.bundled import BUNDLED, build, command

_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def _start(name: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        command(name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


@pytest.mark.slow
@pytest.mark.defect("A11")
@pytest.mark.parametrize(
    "name", [name for name, server in BUNDLED.items() if server.credentials is None]
)
async def test_each_server_lists_its_tools_over_stdio_despite_files_of_the_same_name(
    name: str, tmp_path: Path
) -> None:
    write_beside(tmp_path)
    log = tmp_path / "stderr.txt"
    first, *arguments = command(name)
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    transport = StdioTransport(
        first, arguments, env=environment, cwd=str(tmp_path), keep_alive=False, log_file=log
    )
    async with Client(transport) as client:
        over_stdio = [tool.name for tool in await client.list_tools()]
    server = build(name)
    async with Client(server) as client:
        in_process = [tool.name for tool in await client.list_tools()]
    server.close()

    assert over_stdio == in_process
    assert log.read_text() == ""


def test_a_server_ends_silently_when_its_input_ends() -> None:
    process = _start("math")
    out, err = process.communicate(_PING, timeout=30)

    assert (process.returncode, err) == (0, b"")
    assert out.count(b"\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_without_a_traceback(number: signal.Signals) -> None:
    with _start("units") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_PING)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(number)

        assert process.wait(timeout=10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ([], "usage: "),
        (["mth"], "did you mean 'math'"),
        (["files", "--rot", "x"], "unrecognized arguments: --rot x"),
        (["files", "--root", "no-such-folder"], "not an existing folder"),
        (["sqlite", "--database", "no-such-file"], "does not exist"),
    ],
)
async def test_a_wrong_command_line_is_one_line_and_code_2(
    arguments: list[str], fragment: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "casual_mcp_nb.bundled", *arguments],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)

    assert (process.returncode, out) == (2, b"")
    assert fragment in err.decode()
    assert err.count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--list"], ["--help"], ["sqlite", "--help"]])
def test_list_and_help_answer_on_stdout(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "casual_mcp_nb.bundled", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    assert "sqlite" in done.stdout
    assert done.stderr == ""
