from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastmcp import Client
from kit.processes import runs

from casual_mcp_nb.bundled import build, command

pytestmark = pytest.mark.skipif(os.name == "nt", reason="process groups")
LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="a process is given the orphans of those that it started"
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[object]:
    server = build("shell", ["--cwd", str(tmp_path), "--max-output", "2000"])
    yield server
    server.close()


async def _gone(pid: int) -> bool:
    """Check whether a process ends within some seconds."""
    for _ in range(100):
        if not runs(pid):
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.fault(96)
async def test_a_command_that_fails_gives_its_code_and_both_streams(
    call, shell, tmp_path: Path
) -> None:
    result = await call(shell, "run_command", command="pwd; echo wrong >&2; exit 3")

    assert (result["exit_code"], result["stderr"], result["timed_out"]) == (3, "wrong\n", False)
    assert result["stdout"].strip().endswith(tmp_path.name)


@pytest.mark.fault(96)
async def test_a_command_that_runs_for_ever_is_ended_with_all_it_started(call, shell) -> None:
    result = await call(
        shell, "run_command", command="sleep 600 & echo $!; sleep 600", timeout_seconds=0.5
    )

    assert result["timed_out"] is True
    assert result["exit_code"] == -signal.SIGKILL
    assert await _gone(int(result["stdout"]))


@pytest.mark.fault(96)
async def test_a_command_that_prints_without_end_keeps_both_ends(call, shell) -> None:
    result = await call(
        shell, "run_command", command="seq 1 100000; seq 1 100000 >&2; echo THE END"
    )

    assert result["stdout"].startswith("1\n2\n")
    assert result["stdout"].endswith("100000\nTHE END\n")
    assert re.search(r"\[\.\.\. \d+ of 588903 bytes left out \.\.\.\]", result["stdout"])
    assert result["truncated"] is True
    assert len(result["stdout"]) < 2100
    endless = await call(shell, "run_command", command="yes", timeout_seconds=0.3)
    assert endless["timed_out"] is True
    assert len(endless["stdout"]) < 2100


@pytest.mark.fault(96)
async def test_background_processes_of_a_finished_command_are_killed(call, shell) -> None:
    result = await call(shell, "run_command", command="sleep 600 & echo $!")

    assert (result["exit_code"], result["timed_out"]) == (0, False)
    assert await _gone(int(result["stdout"]))


async def test_a_call_that_the_client_gives_up_ends_its_command(shell, tmp_path: Path) -> None:
    async with Client(shell) as client:
        with pytest.raises(Exception, match=r"(?i)timed? ?out"):
            await client.call_tool(
                "run_command", {"command": "echo $$ > pid; sleep 600"}, timeout=1
            )
        assert await _gone(int((tmp_path / "pid").read_text()))


async def test_a_command_cannot_read_the_protocol(call, shell) -> None:
    assert (await call(shell, "run_command", command="cat; echo end"))["stdout"] == "end\n"


async def test_a_command_that_cannot_be_started_is_refused(refused, shell) -> None:
    assert "cannot be started" in await refused(shell, "run_command", command="echo \0")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=LINUX)])
async def test_a_signal_to_the_server_ends_its_commands(
    tmp_path: Path, number: signal.Signals
) -> None:
    request = (
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo'
        b' $$ > pid.part; mv pid.part pid; sleep 600"}}}\n'
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(
        *command("shell", ["--cwd", str(tmp_path)]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write(request)
    pid_file = tmp_path / "pid"
    for _ in range(400):
        if pid_file.exists():
            break
        await asyncio.sleep(0.05)
    process.send_signal(number)
    _, err = await asyncio.wait_for(process.communicate(), 10)

    assert (process.returncode, err) == (0 if number == signal.SIGTERM else -number, b"")
    assert await _gone(int(pid_file.read_text()))


@pytest.mark.defect("A13")
@LINUX
@pytest.mark.parametrize(
    "command",
    [
        "setsid sleep 1000 & echo $!",
        "(setsid sh -c 'sleep 1000 & echo $!; wait' &) ; sleep 0.5",
        (
            "setsid env -i /bin/sh -c 'echo $$ > left; exec sleep 600' & until [ -s left ]; do"
            " sleep 0.05; done; cat left"
        ),
    ],
)
async def test_a_process_that_left_its_group_ends_with_its_command(
    call, shell, command: str
) -> None:
    result = await call(shell, "run_command", command=command)
    pid = int(result["stdout"].split()[0])
    assert await _gone(pid)
