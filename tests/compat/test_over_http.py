"""The same config under casual-mcp's service and ours: status, keys and values of the answers, and
the guide's list.

Once with a config of casual-mcp 1.0, and once with one of before, converted by the command of each.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit.flipping import tool
from kit.lean import lean
from kit.obedient import Obedient, order
from kit.raw_server import raw_config, text_result
from kit.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
THEIRS = ROOT / ".third-party" / "casual-mcp" / "bin" / "python"
GUIDE = ROOT / "docs" / "guides" / "coming-from-casual-mcp.md"
SERVICES = {
    "casual-mcp": (THEIRS, "casual_mcp.main:app"),
    "here": (Path(sys.executable), "casual_mcp_nb.main:app"),
}
CONVERT = {
    "casual-mcp": (THEIRS.with_name("casual-mcp"), "migrate-config"),
    "here": (Path(sys.executable), "-m", "casual_mcp_nb", "migrate-config"),
}
CONFIG = "casual_mcp_config.json"

ADD = ("a_add", {})


def messages(*calls: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": order("Said:", *calls, **more)}]


# A request of each kind; a body is a POST.
REQUESTS: dict[str, tuple[str, Any]] = {
    "toolsets": ("/toolsets", None),
    "a path that does not exist": ("/nothing", None),
    "another method": ("/chat", None),
    "a turn": ("/chat", {"messages": messages()}),
    "a turn with stats": ("/chat", {"messages": messages(), "include_stats": True}),
    "a word for true": ("/chat", {"messages": messages(), "include_stats": "yes"}),
    "a call": ("/chat", {"messages": messages(ADD), "include_stats": True}),
    "a call of a toolset": (
        "/chat",
        {"messages": messages(ADD), "include_stats": True, "tool_set": "one"},
    ),
    "a system message": ("/chat", {"messages": [{"role": "system", "content": "S"}, *messages()]}),
    "a system prompt": ("/chat", {"messages": messages(), "system_prompt": "S"}),
    "an unknown toolset": ("/chat", {"messages": messages(), "tool_set": "none"}),
    "a toolset that does not fit": ("/chat", {"messages": messages(), "tool_set": "bad"}),
    "an unknown model": ("/chat", {"messages": messages(), "model": "none"}),
    "no field `messages`": ("/chat", {}),
    "a message of an unknown role": ("/chat", {"messages": [{"role": "nobody", "content": ""}]}),
    "`GET /health`": ("/health", None),
    "the model fails": ("/chat", {"messages": messages(fail=1)}),
    "an empty list of messages": ("/chat", {"messages": []}),
    "a field that does not exist": ("/chat", {"messages": messages(), "more": 1}),
}
MORE = {"type", "title", "status", "kind", "errors", "failure"}
"""What a problem has beside `detail`."""


def serve(folder: Path, python: Path, app: str, port: int) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **lean(openai=True),
        "MCP_TRUST_CONFIGS": "1",
        "LOG_LEVEL": "ERROR",
    }
    command = [python, "-m", "uvicorn", app, "--port", str(port), "--log-level", "error"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE)


@contextmanager
def running(folder: Path, python: Path, app: str) -> Iterator[Callable[[], str]]:
    """Start a service, and yield a function that waits until it answers and returns its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = serve(folder, python, app, port)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{url}/toolsets").status_code == 200
        except httpx.TransportError:
            return process.poll() is not None

    def ready() -> str:
        wait_until(answers, "an answer", 60)
        return url

    try:
        yield ready
    finally:
        process.terminate()
        process.communicate(timeout=30)


def before_1_0(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as it was before casual-mcp 1.0: models with a provider and an endpoint, and
    no clients.
    """
    (client,) = config["clients"].values()
    models = {
        name: {
            "provider": client["provider"],
            "endpoint": client["base_url"],
            "model": model["model"],
        }
        for name, model in config["models"].items()
    }
    return {
        "namespace_tools": False,
        **{key: value for key, value in config.items() if key != "clients"},
        "models": models,
    }


@pytest.fixture(scope="module", autouse=True)
def _is_installed() -> None:
    if not THEIRS.exists():
        pytest.skip("casual-mcp is not installed: python .ci/third_party.py casual-mcp")


@pytest.fixture(scope="module", params=["1.0", "before 1.0"])
def answers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, tuple[int, Any]]]:
    """The answers of each service to each request."""
    with Obedient() as model, ExitStack() as stack:
        # Before 1.0, a key is of the environment.
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("OPENAI_API_KEY", "sk-not-a-real-key")
        servers = {}
        for name, tools in {"a": ("add", "echo"), "b": ("echo",)}.items():
            calls = {each: {"result": text_result(f"{each}!")} for each in tools}
            fields = raw_config(tools=[tool(each) for each in tools], calls=calls)
            # casual-mcp's config: nothing that only this package knows.
            servers[name] = {"command": fields["command"], "args": fields["args"]}
        tool_sets = {
            "one": {"description": "One", "servers": {"a": ["add"]}},
            "bad": {"description": "Bad", "servers": {"a": ["nothing"]}},
        }
        config = {**model.config, "servers": servers, "tool_sets": tool_sets}
        started = {}
        for service, (python, app) in SERVICES.items():
            folder = tmp_path_factory.mktemp("config")
            if request.param == "1.0":
                (folder / CONFIG).write_text(json.dumps(config))
            else:
                (folder / CONFIG).write_text(json.dumps(before_1_0(config)))
                subprocess.run(
                    CONVERT[service], cwd=folder, check=True, capture_output=True, timeout=60
                )
            started[service] = stack.enter_context(running(folder, python, app))
        answered: dict[str, dict[str, tuple[int, Any]]] = {name: {} for name in REQUESTS}
        for service, ready in started.items():
            with httpx.Client(base_url=ready(), timeout=60) as client:
                for name, (path, body) in REQUESTS.items():
                    answered[name][service] = _post(client, path, body, service)
    return answered


def _post(client: httpx.Client, path: str, body: Any, service: str) -> tuple[int, Any]:
    if body is None:
        response = client.get(path)
    else:
        text = json.dumps({"model": "small", **body})
        text = text if service == "casual-mcp" else text.replace("a_add", "a__add")
        response = client.post(path, content=text, headers={"Content-Type": "application/json"})
    return response.status_code, response.json()


def differences() -> dict[str, tuple[int, int]]:
    """The statuses that differ, by the guide."""
    section = (
        GUIDE.read_text(encoding="utf-8").partition("\n## Over HTTP\n")[2].partition("\n## ")[0]
    )
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return {cells[0]: (int(cells[1]), int(cells[2])) for cells in rows[2:]}


@pytest.mark.slow
@pytest.mark.defect("L4")
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_answered_as_by_casual_mcp(
    name: str, answers: dict[str, dict[str, tuple[int, Any]]]
) -> None:
    (status, theirs), (our_status, ours) = (answers[name][service] for service in SERVICES)
    assert (status, our_status) == differences().get(name, (status, status))
    if our_status != 200:
        assert isinstance(ours.pop("detail"), str)
        assert set(ours) == MORE
    elif status == 200:
        # Names have two underscores, the result of a call is its text, and tokens say who counted
        # them.
        expected = json.dumps(theirs).replace("a_add", "a__add").replace('[\\"add!\\"]', "add!")
        if tokens := ours.get("stats", {}).get("tokens"):
            assert tokens.pop("origin") == "reported"
        assert ours == json.loads(expected)


@pytest.mark.slow
@pytest.mark.defect("L1")
def test_a_config_of_before_1_0_is_not_served_until_it_is_converted(tmp_path: Path) -> None:
    config = {
        "clients": {"c": {"provider": "openai", "base_url": None}},
        "models": {"m": {"model": "m-1"}},
        "servers": {},
    }
    (tmp_path / CONFIG).write_text(json.dumps(before_1_0(config)))
    # Port 0, since nothing is served.
    theirs, ours = [serve(tmp_path, python, app, 0) for python, app in SERVICES.values()]
    _, ours_said = ours.communicate(timeout=60)
    theirs.communicate(timeout=60)
    assert theirs.returncode == ours.returncode == 3
    assert f"migrate-config {tmp_path / CONFIG}" in ours_said.decode()


@pytest.mark.defect("K5")
@pytest.mark.slow
def test_a_tool_that_says_nothing_is_called_with_a_config_of_casual_mcp(
    answers: dict[str, dict[str, tuple[int, Any]]],
) -> None:
    _, answer = answers["a call"]["here"]
    assert [message["content"] for message in answer["messages"] if message["role"] == "tool"] == [
        "add!"
    ]
    assert "denied" not in answer


def test_the_guide_lists_requests_that_are_compared() -> None:
    assert set(differences()) <= set(REQUESTS)
