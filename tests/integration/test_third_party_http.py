"""server-everything over streamable HTTP and over SSE, beside itself over stdio."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import ServerLog, ToolProgress
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

pytestmark = pytest.mark.integration

NAMES = ("streamable", "sse", "stdio")


@contextmanager
def listening(program: Path, mode: str) -> Iterator[int]:
    """Start server-everything on a free port of the loopback interface, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        ["node", str(program), mode],
        env=os.environ | {"PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr is not None
            assert any(f"port {port}" in line for line in process.stderr), f"{mode} did not start"
            yield port
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def remote(node_modules: Path, servers: dict[str, Any]) -> Iterator[Session]:
    program = node_modules / "server-everything" / "dist" / "index.js"
    with listening(program, "streamableHttp") as streamable, listening(program, "sse") as sse:
        config = {
            "mcpServers": {
                "streamable": {"url": f"http://127.0.0.1:{streamable}/mcp"},
                "sse": {"url": f"http://127.0.0.1:{sse}/sse", "transport": "sse"},
                "stdio": servers["everything"],
            }
        }
        with Session.from_config(config) as session:
            yield session


def test_all_transports_list_the_same_tools(remote: Session) -> None:
    assert [status.transport for status in remote.servers.values()] == ["http", "sse", "stdio"]
    assert {(status.state, status.tools) for status in remote.servers.values()} == {("ready", 15)}


def test_all_transports_answer_in_one_step(remote: Session) -> None:
    model = scripted_model(
        calls(*(call(f"{name}__echo", message=f"over {name}") for name in NAMES)), "done"
    )
    turn = remote.chat("go", model=model)
    assert [c.result for c in turn.tool_calls] == [f"Echo: over {name}" for name in NAMES]


def test_progress_arrives_over_all_transports(remote: Session) -> None:
    tool = "trigger-long-running-operation"
    model = scripted_model(
        calls(*(call(f"{name}__{tool}", duration=0.2, steps=2) for name in NAMES)), "done"
    )
    turn = remote.chat("go", model=model)
    assert [c.status for c in turn.tool_calls] == ["ok"] * 3
    seen = sorted((each.call_id, each.progress) for each in turn.trace.of(ToolProgress))
    assert seen == [(c.id, step) for c in turn.tool_calls for step in (1, 2)]


@pytest.mark.parametrize("name", ["streamable", "sse"])
def test_logs_and_images_arrive_over_http(remote: Session, name: str) -> None:
    toggle = f"{name}__toggle-simulated-logging"
    turn = remote.chat(
        "go",
        model=scripted_model(call(toggle), call(f"{name}__get-tiny-image"), call(toggle), "done"),
    )
    assert [c.status for c in turn.tool_calls] == ["ok"] * 3
    assert turn.trace.of(ServerLog)[0].server == name
    (picture,) = [part for part in turn.tool_calls[1].content if part.kind == "image"]
    assert (picture.data or b"").startswith(b"\x89PNG")
