"""Bundled servers that are forked behave as other servers do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.lean import lean

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.bundled import command
from casual_mcp_nb.servers import _fork_server
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.process import fork_server_for, launched

Opened = Callable[..., Any]
Until = Callable[..., Any]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="servers are forked on Linux only")

MATH = ServerConfig(bundled="math")
SHELL = ServerConfig(bundled="shell")
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
SECONDS = 30


def named(parent: int, script: str) -> list[psutil.Process]:
    """The children of a process that run a script, without those that have ended."""
    children = []
    for child in psutil.Process(parent).children():
        try:
            if any(word.endswith(script) for word in child.cmdline()):
                children.append(child)
        except psutil.Error:
            continue
    return children


def fork_server(parent: int | None = None) -> psutil.Process:
    """The fork server of a process; of this one, unless another is given."""
    (server,) = named(parent or os.getpid(), "_fork_server.py")
    return server


def run(words: list[str], address: str, stdin: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command through the launcher, without its announcement on stderr."""
    done = subprocess.run(launched(words, address), input=stdin, capture_output=True, timeout=SECONDS, check=False, **options)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout, done.stderr.partition(b"\n")[2])


SCRIPT = """
import json, os, random, sys, threading, time
os.umask(umask := os.umask(0))
seen = [os.getcwd(), dict(os.environ), sys.argv, sys.path, tuple(sys.flags), umask, __name__, threading.active_count()]
seen += [sys.stdin.read(), sys.stdout.encoding, time.tzname, [os.path.exists(f"/proc/self/fd/{one}") for one in range(40)]]
print(json.dumps([seen, random.random()]))
sys.stderr.write("told")
sys.exit(7)
"""


@pytest.fixture
def address() -> str:
    """The address of the fork server of this process."""
    return fork_server_for(MATH)


@pytest.fixture
def math(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The launcher of a forked server that answers."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(launched(command("math"), address), start_new_session=True, **pipes) as launcher:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        launcher.stdin.write(PING)
        launcher.stdin.flush()
        assert json.loads(launcher.stdout.readline())["id"] == 1
        try:
            yield launcher
        finally:
            launcher.kill()


async def test_a_bundled_server_is_forked_and_ends_with_its_connection(opened: Opened, until: Until) -> None:
    connection = opened(Connection("math", MATH))
    await connection.connect()
    (server,) = fork_server().children()
    assert (await connection.call("add", {"a": 1, "b": 2})).content[0].text == "3"
    await connection.close()
    await until(lambda: not server.is_running())
    assert connection.status.stderr_tail == ""


def test_a_script_sees_the_same_as_in_a_separate_interpreter(address: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    options: dict[str, Any] = {"cwd": tmp_path, "env": {"TZ": "Asia/Tokyo", "WORD": "wörd"}, "umask": 0o027}
    words = [sys.executable, "-P", str(script), "one", "ẗwo"]
    plain, forked = (run(words, each, "wörds".encode(), **options) for each in ("", address))
    assert (forked.returncode, forked.stderr) == (plain.returncode, plain.stderr) == (7, b"told")
    again = run(words, address, "wörds".encode(), **options)
    expected, seen, last = (json.loads(each.stdout) for each in (plain, forked, again))
    assert seen[0] == last[0] == expected[0]
    assert seen[0][0] == str(tmp_path)
    assert seen[1] != last[1]


@pytest.mark.parametrize("arguments", [["math", "--nonsense"], ["gmail"], ["none"], ["sqlite", "--help"]])
def test_a_server_that_does_not_start_says_the_same(address: str, arguments: list[str], tmp_path: Path) -> None:
    words = [*command("math")[:3], *arguments]
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    plain, forked = (run(words, each, env=environment) for each in ("", address))
    assert (forked.returncode, forked.stdout, forked.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on(math: subprocess.Popen[bytes], number: signal.Signals) -> None:
    math.send_signal(number)
    assert math.wait(SECONDS) == 0
    assert math.stderr is not None
    assert math.stderr.read().count(b"\n") == 1


def test_the_death_of_a_launcher_ends_its_server_even_if_input_continues(math: subprocess.Popen[bytes]) -> None:
    processes = fork_server().children()
    assert len(processes) == 1
    math.kill()
    assert psutil.wait_procs(processes, SECONDS)[1] == []


def test_the_death_of_a_forked_server_ends_its_launcher_which_held_no_pipe(math: subprocess.Popen[bytes]) -> None:
    assert {os.readlink(f"/proc/{math.pid}/fd/{stream}") for stream in range(3)} == {os.devnull}
    (server,) = fork_server().children()
    server.kill()
    assert math.wait(SECONDS) == 128 + signal.SIGKILL


async def test_a_launcher_that_is_killed_takes_the_server_and_its_commands_with_it(opened: Opened, until: Until) -> None:
    connection = opened(Connection("shell", SHELL))
    await connection.connect()
    call = asyncio.create_task(connection.call("run_command", {"command": "sleep 1000 & sleep 1000"}))
    server = fork_server()
    await until(lambda: [each.name() for each in server.children(recursive=True)].count("sleep") == 2)
    processes = server.children(recursive=True)
    (launcher,) = named(os.getpid(), "_launch.py")
    launcher.kill()
    await until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes))
    await asyncio.wait({call})
    assert server.is_running()


async def test_servers_start_again_after_the_fork_server_was_killed(opened: Opened, until: Until) -> None:
    connection = opened(Connection("math", MATH))
    await connection.connect()
    fork_server().kill()
    await until(lambda: connection.status.state == "failed")
    assert (await connection.call("add", {"a": 1, "b": 2})).content[0].text == "3"
    assert len(fork_server().children()) == 1


def test_without_a_fork_server_the_launcher_becomes_the_command() -> None:
    done = run(command("math"), "nobody-listens-here", PING)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["id"] == 1


def test_a_fork_server_that_ends_while_the_launcher_waits_is_done_without(address: str) -> None:
    server = fork_server()
    server.suspend()
    with subprocess.Popen(
        launched(command("math"), address), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as launcher:
        assert launcher.stderr is not None
        launcher.stderr.readline()
        server.kill()
        assert json.loads(launcher.communicate(PING, SECONDS)[0])["id"] == 1


def test_a_listener_that_is_not_its_parents_gets_nothing() -> None:
    between = "import os, subprocess, sys; subprocess.run([*sys.argv[1:5], str(os.getpid()), *sys.argv[6:]])"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")
        listener.listen()
        words = launched(command("math"), listener.getsockname()[1:].decode())
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
        with subprocess.Popen([sys.executable, "-c", between, *words], **pipes) as process:
            with listener.accept()[0] as connection, suppress(ConnectionError):
                connection.send(b"ready")
                assert connection.recv(1) == b""
            assert json.loads(process.communicate(PING, SECONDS)[0])["id"] == 1


STRANGER = """
import json, os, socket, sys
silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
silent.connect("\\0" + sys.argv[1])
welcome = silent.recv(16)
request = {"arguments": ["x"], "folder": "/", "variables": {}, "umask": 0}
wrong = [{"arguments": "x"}, {"arguments": []}, {"folder": None}, {"variables": {"a": 1}}, {"umask": "0"}, {"more": 1}]
messages = [b"{", b"[]", b"[" * 100_000, b"\\xff", b"null", json.dumps(request).encode()]
messages += [json.dumps({**request, **one}).encode() for one in wrong]
for message in messages if welcome else []:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sender:
        sender.connect("\\0" + sys.argv[1])
        sender.recv(16)
        streams = [0, 1, 2] if message[-1:] == b"}" and message != messages[5] else [0]
        socket.send_fds(sender, [message], streams)
        try:
            assert sender.recv(16) == b"", message
        except ConnectionError:
            pass
print(welcome.decode() or "refused", flush=True)
sys.stdin.read()
"""


@pytest.mark.defect("G9")
def test_malformed_and_silent_connections_block_nobody_and_strangers_are_refused(address: str) -> None:
    server = fork_server()
    descriptors = server.num_fds()
    between = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with (
        subprocess.Popen([sys.executable, "-c", STRANGER, address], **pipes) as child,
        subprocess.Popen([sys.executable, "-c", between, STRANGER, address], **pipes) as grandchild,
    ):
        assert child.stdout is not None
        assert grandchild.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert grandchild.stdout.readline() == b"refused\n"
        # Both are still connected.
        assert json.loads(run(command("math"), address, PING).stdout)["id"] == 1
        assert fork_server() == server
        child.communicate()
        grandchild.communicate()
    assert json.loads(run(command("math"), address, PING).stdout)["id"] == 1
    assert server.num_fds() <= descriptors + 1


def test_a_fork_server_with_nothing_to_do_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fork_server, "IDLE_SECONDS", 0.01)
    watched = os.pidfd_open(os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")
        listener.listen()
        assert _fork_server.ForkServer(listener, os.getpid(), watched).serve() is None
    os.close(watched)


@pytest.mark.parametrize("env", [{}, {"PYTHONUTF8": "0"}])
def test_a_server_with_variables_is_not_forked(env: dict[str, str]) -> None:
    assert bool(fork_server_for(ServerConfig.model_validate({"bundled": "math", "env": env}))) is not bool(env)
    assert fork_server_for(ServerConfig(command=sys.executable)) == ""


KERNEL = """
import asyncio, sys
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers import _fork_server
from casual_mcp_nb.base.config import ServerConfig

async def main():
    connections = [Connection(name, ServerConfig(bundled=name)) for name in ("math", "shell")]
    await asyncio.gather(*(connection.connect() for connection in connections))
    calling = asyncio.create_task(connections[1].call("run_command", {"command": "sleep 1000"}))
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_nothing_outlives_a_kernel_that_is_killed_hard() -> None:
    with subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, start_new_session=True) as kernel:
        assert kernel.stdout is not None
        assert kernel.stdout.readline() == b"ready\n"
        server = fork_server(kernel.pid)
        while not any(each.name() == "sleep" for each in server.children(recursive=True)):
            assert kernel.poll() is None
        processes = psutil.Process(kernel.pid).children(recursive=True)
        kernel.kill()
    assert len(processes) >= 7
    # It would end by itself later.
    assert psutil.wait_procs(processes, _fork_server.IDLE_SECONDS / 2)[1] == []


SESSIONS = """
import psutil
from casual_mcp_nb import Session

def forks():
    return [each for each in psutil.Process().children() if any(word.endswith("_fork_server.py") for word in each.cmdline())]

sessions = [Session({"servers": {"math": {"bundled": "math"}}}, quiet=True) for _ in range(2)]
for session in sessions:
    session.connect()
print(len(forks()))
sessions[0].close()
print(len(forks()))
sessions[1].close()
print(len(psutil.Process().children()))
with Session({"servers": {"math": {"bundled": "math"}}}, quiet=True) as session:
    session.connect()
    print(len(forks()))
print(len(psutil.Process().children()))
"""


def test_it_ends_with_the_last_session() -> None:
    environ = {**os.environ, **lean()}
    ran = subprocess.run(
        [sys.executable, "-c", SESSIONS], env=environ, capture_output=True, text=True, check=True, timeout=2 * SECONDS
    )
    assert ran.stdout.split() == ["1", "1", "0", "1", "0"]
