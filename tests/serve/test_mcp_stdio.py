"""The tools over standard input and output: nothing but messages on it, and an end with the
host's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kit.lean import lean

NOISY = """
import os, sys
from fastmcp import FastMCP

server = FastMCP("noisy")


@server.tool
def pid() -> int:
    "Tell the process."
    print("noise on stderr", file=sys.stderr, flush=True)
    return os.getpid()


server.run(show_banner=False)
"""


def test_a_host_that_starts_the_command(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    config = tmp_path / "casual_mcp_config.json"
    noisy = {"command": sys.executable, "args": [str(tmp_path / "noisy.py")]}
    config.write_text(
        json.dumps(
            {
                "servers": {"noisy": noisy},
                "tool_sets": {"one": {"description": "One.", "servers": {"noisy": True}}},
            }
        )
    )
    command = [
        sys.executable,
        "-m",
        "casual_mcp_nb",
        "serve",
        "mcp",
        str(config),
        "--trust",
        "--toolset",
        "one",
    ]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(
        command, **pipes, text=True, cwd=tmp_path, env={**os.environ, **lean()}
    ) as host:
        assert host.stdin and host.stdout and host.stderr  # noqa: PT018

        def send(method: str, **more: Any) -> None:
            assert host.stdin
            host.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\n")
            host.stdin.flush()

        def answer(number: int) -> Any:
            assert host.stdout
            while (message := json.loads(host.stdout.readline())).get("id") != number:
                assert "method" in message
            return message["result"]

        client = {"name": "host", "version": "1"}
        send(
            "initialize",
            id=1,
            params={"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client},
        )
        assert answer(1)["capabilities"]["tools"]["listChanged"] is True
        send("notifications/initialized")
        send("tools/list", id=2)
        assert [tool["name"] for tool in answer(2)["tools"]] == ["noisy__pid"]
        send("tools/call", id=3, params={"name": "noisy__pid", "arguments": {}})
        server = int(answer(3)["content"][0]["text"])
        rest, _ = host.communicate(timeout=60)
    assert host.returncode == 0
    assert rest == ""
    if os.name == "posix":
        assert not Path(f"/proc/{server}").exists()
