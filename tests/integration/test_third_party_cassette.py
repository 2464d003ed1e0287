"""A cassette of real servers that others wrote, replayed in a process without a network and without
those servers.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from kit.scripts import run_script
from kit.traces import same_apart_from_times

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

pytestmark = pytest.mark.integration

REPLAY = """
import sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo") and not isinstance(args[-1], str | bytes):
        raise RuntimeError(f"{event} {args}")
    # Our own process for work that may never end is Python.
    if event == "subprocess.Popen" and args[0] not in (None, sys.executable, sys.executable.encode()):
        raise RuntimeError(f"{event} {args}")

sys.addaudithook(refuse)
from casual_mcp_nb import Session

with Session.quick(cassette="lesson.json", quiet=True, store=None) as session:
    session.cassettes.replay()
    print(session.cassettes.state.unplayed, {status.state for status in session.servers.values()})
    session.export("again.json")
"""


def test_the_trace_of_a_replay_is_the_recorded_one(
    servers: dict[str, dict[str, Any]], repository: Path, folder: Path, tmp_path: Path
) -> None:
    config = {
        "clients": {"offline": {"provider": "offline"}},
        "models": {"planner": {"client": "offline", "model": "planner"}},
        "mcpServers": {name: servers[name] for name in ("git", "filesystem", "everything")},
        "tool_discovery": {"enabled": True},
    }
    config["mcpServers"]["everything"] = {**servers["everything"], "defer_loading": True}
    with Session(config, quiet=True, store=None) as session:
        with session.cassettes.use(tmp_path / "lesson.json"):
            model = scripted_model(
                call("git__git_status", repo_path=str(repository)),
                calls(
                    call("filesystem__read_text_file", path=str(folder / "hello.txt")),
                    call("search_tools", query="tiny image"),
                    call("search_tools", tool_names=["trigger-long-running-operation"]),
                ),
                calls(
                    call("everything__get-tiny-image"),
                    call("filesystem__read_text_file", path="/nowhere"),
                ),
                "One file is new, and this is a picture.",
                call("everything__trigger-long-running-operation", duration=0.2, steps=2),
                "Done.",
            )
            for prompt in ("What is new, and is there a picture?", "Wait a moment."):
                assert session.chat(prompt, model=model, echo="none").status == "done"
        session.export(tmp_path / "recorded.json")
    kinds = [each.kind for each in Cassette.load(tmp_path / "lesson.json").interactions]
    assert (kinds.count("turn"), kinds.count("model"), kinds.count("call")) == (2, 6, 5)

    ran = run_script(textwrap.dedent(REPLAY), cwd=tmp_path, env={"PATH": "", "MCP_STORE": "off"})
    assert ran.stdout.split("\n")[0] == "0 {'ready'}", ran.stderr
    recorded, again = (
        Conversation.load(tmp_path / name) for name in ("recorded.json", "again.json")
    )
    assert [turn.status for turn in again] == ["done", "done"]
    for one, other in zip(recorded, again, strict=True):
        assert same_apart_from_times(other) == same_apart_from_times(one)
    assert any(
        part.kind == "image" for tool_call in again[0].tool_calls for part in tool_call.content
    )
    assert again[1].tool_calls[0].progress is not None
