"""The command `serve` ends when it is told to, and does not go on to the end of the interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from kit.lean import lean
from kit.raw_server import raw_config
from kit.waiting import wait_for_text

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


@pytest.mark.slow
@pytest.mark.defect("L4")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_nothing_runs_after_its_servers_have_ended(tmp_path: Path, number: signal.Signals) -> None:
    config = tmp_path / "casual_mcp_config.json"
    config.write_text(json.dumps({"servers": {"box": raw_config(tools=[])}}))
    command = [sys.executable, "-c", AT_THE_END, str(config)]
    output = tmp_path / "output"
    with output.open("w") as stream:
        environ = {**os.environ, **lean()}
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.DEVNULL, cwd=tmp_path, env=environ
        )
    wait_for_text(output, "curl")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    code = process.wait(30)
    written = output.read_text()
    assert code == (0 if number == signal.SIGINT else 128 + number)
    assert "exit functions" in written
    assert "modules are freed" not in written
    assert not any(
        child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children
    )
