"""Model servers on this computer: found by their lists of models, within a bound, and nothing else
is taken for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.scripted_http import Reply, ScriptedHttp

from casual_mcp_nb import Session
from casual_mcp_nb.notebook.doctor import hint_of, models_at_hand
from casual_mcp_nb.providers import registry as local_servers
from casual_mcp_nb.providers.registry import (
    LOCAL_SERVERS,
    LocalServer,
    RunningServer,
    running_servers,
)

# The lists as each server writes them.
LISTS: dict[str, Any] = {
    "ollama": {
        "models": [
            {
                "name": "qwen3:8b",
                "model": "qwen3:8b",
                "size": 5_200_000_000,
                "details": {"family": "qwen3"},
            }
        ]
    },
    "lmstudio": {
        "data": [
            {
                "id": "text-embedding-nomic-embed-text-v1.5",
                "object": "model",
                "owned_by": "organization_owner",
            },
            {"id": "qwen3-4b", "object": "model", "owned_by": "organization_owner"},
        ],
        "object": "list",
    },
    "llamacpp": {
        "object": "list",
        "data": [{"id": "gemma-3-4b.gguf", "object": "model", "owned_by": "llamacpp", "meta": {}}],
    },
    "vllm": {
        "object": "list",
        "data": [{"id": "meta-llama/Llama-3.1-8B", "object": "model", "owned_by": "vllm"}],
    },
}
MODELS = {
    "ollama": "qwen3:8b",
    "lmstudio": "qwen3-4b",
    "llamacpp": "gemma-3-4b.gguf",
    "vllm": "meta-llama/Llama-3.1-8B",
}
BY_NAME = {server.name: server for server in LOCAL_SERVERS}
LONG = 30.0
Found = Callable[..., tuple[RunningServer, ...]]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """Looks for these servers only."""

    def look(seconds: float, *servers: LocalServer) -> tuple[RunningServer, ...]:
        monkeypatch.setattr(local_servers, "LOCAL_SERVERS", servers)
        monkeypatch.setattr(local_servers, "SECONDS", seconds)
        return running_servers()

    return look


def at(server: LocalServer, http: ScriptedHttp) -> LocalServer:
    return replace(server, port=int(http.url.rpartition(":")[2]))


@pytest.mark.parametrize("name", LISTS)
def test_each_is_found_by_its_list_of_models(name: str, found: Found) -> None:
    server = BY_NAME[name]
    with ScriptedHttp(
        lambda request: Reply(body=LISTS[name]) if request.path == server.listing else Reply(404)
    ) as http:
        (running,) = found(LONG, at(server, http))
        assert running.models == (MODELS[name],)
        (request,) = http.seen
        assert (request.method, "authorization" in request.headers) == ("GET", False)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body="<html>Jupyter</html>"),
        Reply(body={"data": []}),
        Reply(body={"data": [{"id": 7}, {"id": "a b; rm -rf"}, {"id": "\u202ex"}, "text", None]}),
        Reply(body={"models": {"name": "x"}}),
        Reply(body=[1, 2]),
        Reply(401, body=LISTS["vllm"]),
        Reply(302, headers={"location": "https://example.com/v1/models"}),
        Reply(body=LISTS["vllm"], cut=20),
        Reply(body=json.dumps({"data": "x" * 3_000_000})),
        Reply(body="[" * 100_000),
        Reply(reset=True),
    ],
)
def test_whatever_else_listens_there_is_not_taken_for_one(reply: Reply, found: Found) -> None:
    with ScriptedHttp(lambda _: reply) as http:
        assert found(LONG, at(BY_NAME["vllm"], http)) == ()


def test_one_that_says_nothing_holds_nothing_up(found: Found) -> None:
    with (
        ScriptedHttp(lambda _: Reply(silent=True)) as silent,
        ScriptedHttp(lambda _: Reply(body=LISTS["ollama"])) as http,
    ):
        slow, quick = at(BY_NAME["vllm"], silent), at(BY_NAME["ollama"], http)
        assert [each.server for each in found(2.0, slow, quick)] == [quick]
        assert found(0.0, slow) == ()


def test_only_loopback_is_asked() -> None:
    assert {server.base_url.rpartition(":")[0] for server in LOCAL_SERVERS} == {"http://127.0.0.1"}
    assert [(server.name, server.port) for server in LOCAL_SERVERS] == [
        ("ollama", 11434),
        ("lmstudio", 1234),
        ("llamacpp", 8080),
        ("vllm", 8000),
    ]


def test_a_running_server_comes_before_a_key_and_each_has_its_line() -> None:
    running = [RunningServer(BY_NAME["ollama"], ("qwen3:8b", "a", "b", "c"))]
    at_hand = models_at_hand({"OPENAI_API_KEY": "sk-secret-0123456789", "OTHER": "x"}, running)
    assert [each.source for each in at_hand] == ["Ollama", "OPENAI_API_KEY"]
    assert at_hand[0].model == "ollama:qwen3:8b"
    assert "sk-secret" not in str(at_hand)
    assert 'Session.quick("ollama:qwen3:8b"' in hint_of(at_hand)
    assert models_at_hand({}, []) == []
    assert hint_of([]) == ""


@pytest.fixture
def lm_studio(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedHttp]:
    with ScriptedHttp(lambda _: Reply(body=LISTS["lmstudio"])) as http:
        monkeypatch.setattr(local_servers, "LOCAL_SERVERS", (at(BY_NAME["lmstudio"], http),))
        monkeypatch.setattr(local_servers, "SECONDS", LONG)
        yield http


def test_the_doctor_names_a_model_that_runs_here_with_the_line_that_uses_it(
    lm_studio: ScriptedHttp,
) -> None:
    with Session.quick(servers=["math"]) as session:
        (check,) = [check for check in session.servers.doctor() if check.name == "LM Studio"]
        assert check.verdict == "ok"
        assert "qwen3-4b" in check.found
        assert 'Session.quick("lmstudio:qwen3-4b"' in check.advice
    session = Session.quick("lmstudio:qwen3-4b")
    assert session.models.clients[0].address == f"{lm_studio.url}/v1"
    asked = len(lm_studio.seen)
    assert "LM Studio" not in [check.name for check in session.servers.doctor()]
    assert len(lm_studio.seen) == asked
    session.close()


def test_the_demo_names_it_too(lm_studio: ScriptedHttp) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        shell.run_line_magic("load_ext", "casual_mcp_nb")
        status = shell.run_line_magic("mcp", "demo")
        assert status.notes[-1].endswith("%mcp demo --model lmstudio:qwen3-4b")
        with_model = shell.run_line_magic("mcp", "demo --model lmstudio:qwen3-4b")
        assert (with_model.model, with_model.notes) == ("qwen3-4b", ())
        connected = shell.run_line_magic("mcp", "connect bundled:time --model lmstudio:qwen3-4b")
        assert (list(connected.servers), connected.model) == (["time"], "qwen3-4b")
        assert list(shell.run_line_magic("mcp", "connect math").servers) == ["math"]
        assert len(shell.run_line_magic("mcp", "connect --model lmstudio:qwen3-4b").servers) == 0
    finally:
        if session := shell.user_ns.get("session"):
            session.close()
        InteractiveShell.clear_instance()
