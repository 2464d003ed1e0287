"""The command `serve` ends when it is told to, and does not go on to the end of the interpreter."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from kit.raw_server import raw_config

AT_THE_END = """
import atexit, sys, weakref
from casual_mcp_nb.cli.app import main
atexit.register(lambda: print("exit functions", flush=True))
class Last:
    pass
kept = Last()
# Called when the interpreter frees the modules.
Last.__del__ = lambda self: print("modules are freed", flush=True)
sys.argv[1:] = ["serve", sys.argv[1], "--trust", "--port", "0"]
sys.exit(main())
"""


@pytest.mark.defect("L4")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_nothing_runs_after_its_servers_have_ended(tmp_path: Path, number: signal.Signals) -> None:
    config = tmp_path / "casual_mcp_config.json"
    config.write_text(json.dumps({"servers": {"box": raw_config(tools=[])}}))
    command = [sys.executable, "-c", AT_THE_END, str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "/chat" in line)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        written = process.stdout.read()
        code = process.wait(30)
    assert code == (0 if number == signal.SIGINT else 128 + number)
    assert "exit functions" in written
    assert "modules are freed" not in written
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
