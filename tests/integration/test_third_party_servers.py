"""One session with real servers that others wrote, from PyPI and npm, beside bundled ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.providers import call, calls, scripted_model

FOLDER = Path(__file__).resolve().parents[2] / ".third-party"
PYTHON = FOLDER / "python" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
NODE = FOLDER / "node_modules" / "@modelcontextprotocol"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not NODE.exists(), reason="python3 .ci/third_party.py installs the servers"),
]


def node(name: str, *args: str) -> dict[str, Any]:
    return {"command": "node", "args": [str(NODE / f"server-{name}" / "dist" / "index.js"), *args]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "hello.txt").write_text("hello from a file")
    return folder


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    config = {
        "clients": {"offline": {"provider": "offline"}},
        "models": {"planner": {"client": "offline", "model": "planner"}},
        "mcpServers": {
            "clock": {"command": str(PYTHON), "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
            "everything": node("everything"),
            "filesystem": node("filesystem", str(folder)) | {"defer_loading": True},
            "memory": node("memory") | {"defer_loading": True, "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}},
            "math": {"bundled": "math", "defer_loading": True},
        },
        "tool_discovery": {"enabled": True},
    }
    with Session.from_config(config) as session:
        yield session


def test_all_are_ready_and_list_their_tools(session: Session) -> None:
    assert {name: status.state for name, status in session.servers.items()} == dict.fromkeys(session.servers, "ready")
    assert {name: status.tools for name, status in session.servers.items()} | {"everything": 0, "math": 0} == {
        "clock": 2,
        "everything": 0,
        "filesystem": 14,
        "memory": 9,
        "math": 0,
    }
    assert session.servers["everything"].tools >= 13
    assert len({status.protocol_version for status in session.servers.values()}) > 1


def test_one_step_calls_tools_of_several_of_them(session: Session, folder: Path) -> None:
    model = scripted_model(
        call("search_tools", tool_names=["read_text_file", "create_entities", "math:add"]),
        calls(
            call("clock__get_current_time", timezone="Asia/Tokyo"),
            call("everything__echo", message="hi"),
            call("filesystem__read_text_file", path=str(folder / "hello.txt")),
            call(
                "memory__create_entities",
                entities=[{"name": "Ada", "entityType": "person", "observations": ["wrote a program"]}],
            ),
            call("math__add", a=1, b=2),
        ),
        "done",
    )
    turn = session.chat("go", model=model)
    assert [c.status for c in turn.tool_calls] == ["ok"] * 6
    results = {c.name: c.result for c in turn.tool_calls}
    assert "Asia/Tokyo" in results["clock__get_current_time"]
    assert "hi" in results["everything__echo"]
    assert "hello from a file" in results["filesystem__read_text_file"]
    assert "Ada" in results["memory__create_entities"]
    assert results["math__add"] == "3"


def test_an_image_is_kept_and_named_to_the_model(session: Session) -> None:
    image = session.call_tool("everything:get-tiny-image")
    (picture,) = [part for part in image.content if part.kind == "image"]
    assert picture.mime_type == "image/png"
    assert picture.data is not None
    assert picture.data.startswith(b"\x89PNG")
    assert "image/png" in image.result


def test_a_tools_own_refusal_is_an_error_result(session: Session) -> None:
    outside = session.call_tool("filesystem:read_text_file", path="/etc/hostname")
    assert outside.status == "error"
    assert "denied" in outside.result.lower()


def test_the_planner_finds_a_deferred_tool_of_a_real_server(session: Session, folder: Path) -> None:
    session.new_conversation()
    turn = session.chat(f'Read the text file "{folder / "hello.txt"}"')
    assert turn.tool_calls[0].name == "search_tools"
    assert "hello from a file" in turn.answer
