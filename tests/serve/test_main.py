"""`casual_mcp_nb.main:app` under uvicorn and hypercorn with two workers, behind a proxy, and where
it cannot start.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from kit.flipping import DESTRUCTIVE, tool
from kit.lean import lean
from kit.obedient import Obedient, order
from kit.raw_server import raw_config, text_result
from kit.reverse_proxy import ReverseProxy
from kit.scripted_http import Reply, Request
from kit.waiting import wait_until
from starlette.responses import PlainTextResponse

from casual_mcp_nb.main import Application
from casual_mcp_nb.serve.guard import guarded

PREFIX = "/ai"
NAME = "chat.example.org"
ROUNDS = 8
SERVERS = {
    "uvicorn": (
        "uvicorn",
        "--root-path",
        PREFIX,
        "--no-access-log",
        "--workers",
        "2",
        "--port",
        "{port}",
    ),
    "hypercorn": (
        "hypercorn",
        "--root-path",
        PREFIX,
        "--workers",
        "2",
        "--bind",
        "127.0.0.1:{port}",
    ),
}
NOTES = raw_config(
    config={"approval": None, "defer_loading": True, "init_timeout": 60.0},
    tools=[tool("add", None, "Add numbers."), tool("wipe", DESTRUCTIVE, "Delete everything.")],
    calls={"add": {"result": text_result("added")}},
)


class Gated(Obedient):
    """Waits with its answer where a message says so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def _obey(self, request: Request) -> Reply:
        if "wait for it" in json.dumps(request.body):
            self.gate.wait(20)
        return super()._obey(request)


@pytest.fixture(scope="module")
def model() -> Iterator[Gated]:
    with Gated() as model:
        yield model


@pytest.fixture(scope="module")
def folder(model: Gated, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    config = {
        **model.config,
        "servers": {"notes": NOTES},
        "tool_sets": {"sums": {"description": "Numbers", "servers": {"notes": ["add"]}}},
        "tool_discovery": {"enabled": True},
    }
    (folder / "casual_mcp_config.json").write_text(json.dumps(config))
    return folder


@contextmanager
def running(folder: Path, words: tuple[str, ...], **variables: str) -> Iterator[str]:
    """An ASGI server with its workers; at the end nothing of it is left."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        words[0],
        "casual_mcp_nb.main:app",
        *(word.format(port=port) for word in words[1:]),
    ]
    environment = {
        **os.environ,
        **lean(openai=True),
        "MCP_TRUST_CONFIGS": "1",
        "LOG_LEVEL": "INFO",
        **variables,
    }
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _answers(url), "an answer", 90)
        yield url
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert len(children) >= 4
    wait_until(
        lambda: not any(each.is_running() and each.status() != "zombie" for each in children),
        "the end of all",
    )


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module", params=SERVERS)
def url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    with running(folder, SERVERS[request.param], MCP_SERVE_HOSTS=NAME) as url:
        yield url


@pytest.fixture(scope="module")
def proxy(url: str) -> Iterator[ReverseProxy]:
    with ReverseProxy(url, PREFIX) as proxy:
        yield proxy


def ask(url: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    # A connection of its own, so that any worker can get it.
    answer: dict[str, Any] = httpx.post(
        f"{url}/chat", json={"model": "small", "messages": messages, **more}, timeout=30
    ).json()
    return answer


def said(text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"role": "user", "content": order(text, *calls)}


def test_importing_it_starts_nothing() -> None:
    code = (
        "import sys, threading, casual_mcp_nb.main as main; print(threading.active_count(), [name"
        " for name in ('fastapi', 'fastmcp', 'mcp', 'uvicorn') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "1 []\n"
    )


@pytest.mark.slow
@pytest.mark.defect("L4")
def test_a_conversation_goes_on_with_any_worker(url: str) -> None:
    messages = [said("", ("search_tools", {"query": "add numbers"}))]
    messages += ask(url, messages)["messages"]
    for _ in range(ROUNDS):
        messages.append(said("Sum:", ("notes__add", {})))
        answer = ask(url, messages, include_stats=True)
        assert answer["response"] == "Sum: added"
        assert answer["stats"]["tool_calls"]["by_server"] == {"notes": 1}
        messages += answer["messages"]
    assert {json.dumps(httpx.get(f"{url}/toolsets").json()) for _ in range(ROUNDS)} == {
        json.dumps({"sums": {"description": "Numbers", "servers": ["notes"]}})
    }


def test_both_workers_answer(url: str) -> None:
    port = int(url.rpartition(":")[2])
    answered: set[int] = set()

    def ask_one() -> bool:
        """Ask over a fresh connection, and note the process that has its other end."""
        with socket.create_connection(("127.0.0.1", port)) as mine:
            mine.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert mine.recv(100).startswith(b"HTTP/1.1 200")
            ends = (port, mine.getsockname()[1])
            for process in psutil.Process().children(recursive=True):
                connections = (
                    process.net_connections(kind="tcp") if process.status() != "zombie" else []
                )
                if ends in [
                    (each.laddr.port, each.raddr.port) for each in connections if each.raddr
                ]:
                    answered.add(process.pid)
        return len(answered) > 1

    wait_until(ask_one, "an answer of each worker", 30)


@pytest.mark.defect("K5")
def test_what_is_denied_is_told_at_the_start_and_in_the_answer(url: str, folder: Path) -> None:
    assert "MCP_SERVE_ALLOW=notes" in (folder / "log.txt").read_text()
    messages = [said("", ("search_tools", {"tool_names": ["notes__wipe", "notes__add"]}))]
    messages += ask(url, messages)["messages"]
    answer = ask(url, [*messages, said("", ("notes__wipe", {}), ("notes__add", {}))])
    (denied,) = answer["denied"]
    assert denied["tool"] == "notes:wipe"
    assert "MCP_SERVE_ALLOW=notes" in denied["option"]
    assert "denied" not in ask(url, [*messages, said("", ("notes__add", {}))])


def test_it_works_behind_a_proxy_with_a_prefix(proxy: ReverseProxy) -> None:
    base = f"{proxy.url}{PREFIX}"
    assert ask(base, [said("Hello")])["response"] == "Hello"
    page = httpx.get(f"{base}/docs").text
    # Relative to the page, so that no prefix is in the way.
    loaded = re.findall(r'(?:href|src|url)[=:] ?"([^"]+)"', page)
    assert {"docs/swagger-ui.css", "docs/swagger-ui-bundle.js", "openapi.json"} <= set(loaded)
    assert {httpx.get(f"{base}/{path}").status_code for path in loaded} == {200}


@pytest.mark.parametrize(
    ("host", "status"), [(NAME, 200), ("localhost", 200), ("evil.example.org", 403)]
)
def test_it_is_addressed_by_the_names_that_it_was_given(
    proxy: ReverseProxy, host: str, status: int
) -> None:
    response = httpx.get(f"{proxy.url}{PREFIX}/toolsets", headers={"Host": host})
    assert response.status_code == status


def test_events_pass_a_proxy_as_they_happen(proxy: ReverseProxy, model: Gated) -> None:
    model.gate.clear()
    body = {"model": "small", "messages": [said("wait for it")]}
    events = {"Accept": "text/event-stream"}
    with httpx.stream(
        "POST", f"{proxy.url}{PREFIX}/chat", json=body, headers=events, timeout=30
    ) as response:
        lines = response.iter_lines()
        names = [next(line for line in lines if line.startswith("event:"))]
        # The model has not answered yet.
        model.gate.set()
        names += [line for line in lines if line.startswith("event:")]
    assert (names[0], names[-1]) == ("event: TurnStarted", "event: Answer")


async def started(**variables: str) -> tuple[str, Application]:
    """Start the lifespan of an application that does not start, and read its log."""
    application, sent = Application(), []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application({"type": "lifespan"}, receive, send)
    (message,) = sent
    assert message["type"] == "lifespan.startup.failed"
    return message["message"], application


@pytest.mark.holds_the_loop("nothing is served yet while it imports")
@pytest.mark.defect("L4")
async def test_a_config_that_was_not_accepted_names_what_starts_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVE_CONFIG", str(folder / "casual_mcp_config.json"))
    monkeypatch.delenv("MCP_TRUST_CONFIGS", raising=False)
    message, application = await started()
    assert "MCP_TRUST_CONFIGS=1" in message
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://localhost"
    ) as client:
        response = await client.get("/health")
    assert (response.status_code, response.json()["kind"]) == (503, "closed")


@pytest.mark.holds_the_loop("nothing is served yet while it imports")
async def test_nothing_is_typed_into_a_config_that_was_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "casual_mcp_config.json"
    file.write_text(json.dumps({"servers": {"a": {"command": "x", "args": ["${input:berth}"]}}}))
    monkeypatch.setenv("MCP_SERVE_CONFIG", str(file))
    monkeypatch.delenv("MCP_TRUST_CONFIGS", raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    prompts: list[str] = []
    monkeypatch.setattr("getpass.getpass", prompts.append)
    message, _ = await started()
    assert "MCP_TRUST_CONFIGS=1" in message
    assert prompts == []


@pytest.mark.holds_the_loop("nothing is served yet while it imports")
async def test_limits_that_count_in_one_process_are_refused_to_the_second(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads((folder / "casual_mcp_config.json").read_text())
    config["clients"]["desk"]["requests_per_minute"] = 60
    path = tmp_path / "limited.json"
    path.write_text(json.dumps({**config, "servers": {}}))
    monkeypatch.setenv("MCP_SERVE_CONFIG", str(path))
    monkeypatch.setenv("MCP_TRUST_CONFIGS", "1")
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        message, _ = await started()
    assert "desk.requests_per_minute" in message
    assert "--workers 1" in message


@pytest.mark.defect("L4")
@pytest.mark.parametrize(
    ("address", "token", "host", "status"),
    [
        (("127.0.0.1", 80), None, "localhost", 200),
        (("127.0.0.1", 80), None, NAME, 200),
        (("127.0.0.1", 80), None, "evil.example.org", 403),
        (("/run/casual.sock", None), None, "localhost", 200),
        (("10.1.2.3", 80), None, "localhost", 403),
        (("10.1.2.3", 80), "a-token-of-many-letters", NAME, 200),
        (("10.1.2.3", 80), "a-token-of-many-letters", "evil.example.org", 403),
    ],
)
async def test_each_address_has_its_rule_where_another_server_listens(
    address: tuple[str, int | None], token: str | None, host: str, status: int
) -> None:
    from pydantic import SecretStr

    secret = SecretStr(token) if token else None
    app = guarded(
        PlainTextResponse("ok"), host=None, token=secret, hosts=[NAME], origins=(), max_bytes=100
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def at_address(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "server": address}, receive, send)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(at_address), base_url=f"http://{host}"
    ) as client:
        response = await client.get("/toolsets", headers=headers)
    assert response.status_code == status
    if address[0] == "10.1.2.3" and token is None:
        assert response.json()["kind"] == "token_not_set"
