"""`casual-mcp-nb serve`, in a process as it is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from kit.lean import lean


@pytest.mark.defect("H13")
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_it_serves_until_it_is_stopped(config: Path) -> None:
    command = [sys.executable, "-u", "-m", "casual_mcp_nb", "serve", str(config), "--port", "0"]
    text = json.loads(config.read_text(encoding="utf-8"))
    text["servers"]["theirs"] = {"type": "builtin"}
    config.write_text(json.dumps(text), encoding="utf-8")
    env = {**os.environ, **lean(), "MCP_SERVE_TOKEN": "a-token-of-many-letters"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        url = next(line for line in lines if "Address" in line).split()[-1]
        request = urllib.request.Request(
            f"{url}/toolsets", headers={"Authorization": "Bearer a-token-of-many-letters"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            assert json.load(response) == {
                "numbers": {"description": "Numbers", "servers": ["math"]}
            }
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "a-token" not in out + err
        assert "Traceback" not in err
        # A service writes its log without being told to.
        assert [
            line
            for line in err.splitlines()
            if " WARNING casual_mcp_nb." in line and "theirs" in line
        ]
