"""Looking at a session, or at anything that it leads to, starts nothing, reads no file and waits
for nobody: only calls do.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.travel import travel_server
from kit.weather import weather

from casual_mcp_nb import Session
from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.notebook.conversations import SessionConversations
from casual_mcp_nb.providers.scripted import call, scripted_model

STDIO = {"servers": {"math": {"bundled": "math"}, "web": {"url": "http://127.0.0.1:9/mcp"}}}
EVENTS = (
    "open",
    "sqlite3.connect",
    "subprocess.Popen",
    "socket.connect",
    "os.posix_spawn",
    "os.fork",
    "os.listdir",
    "os.scandir",
)
MAX_DEPTH = 3
_watched: list[str] | None = None


def _note(event: str, args: Any) -> None:
    # The guard of the loop reads files of /proc.
    if _watched is not None and event in EVENTS and not str(args[0]).startswith("/proc/"):
        _watched.append(f"{event} {str(args[0])[:200]}")


sys.addaudithook(_note)


def properties(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public properties and attributes of a value, with their values."""
    kind = type(value)
    names = [
        name
        for name in dir(kind)
        if isinstance(inspect.getattr_static(kind, name), property | functools.cached_property)
    ]
    for name in (*names, *getattr(value, "__dict__", ())):
        if not name.startswith(("_", "model_")):
            yield name, getattr(value, name)


def look_around(value: Any, seen: dict[type, set[str]], depth: int = 0) -> None:
    """Read each public property of a value, and of the values it leads to; note their names."""
    if depth > MAX_DEPTH or not type(value).__module__.startswith("casual_mcp_nb"):
        return
    names = seen.setdefault(type(value), set())
    for name, each in list(properties(value)):
        names.add(name)
        parts = [each, *_some_of(each)]
        for part in parts:
            look_around(part, seen, depth + 1)


def _some_of(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())[:2]
    return (
        list(value[:2])
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | Displayable)
        else []
    )


def watched(session: Session) -> tuple[list[str], dict[type, set[str]]]:
    """Look around on the engine thread, where a property that waits for it raises; list the values
    and properties.
    """
    global _watched
    seen: dict[type, set[str]] = {}

    async def look() -> None:
        for root in (
            session,
            session.parts.chat,
            session.parts.chat.server_manager,
            *session.turns,
        ):
            look_around(root, seen)

    # What a first use imports is not the point.
    session.parts.engine.run(look())
    seen.clear()
    _watched = []
    try:
        session.parts.engine.run(look())
        return list(_watched), seen
    finally:
        _watched = None


@pytest.mark.defect("F14")
def test_looking_at_a_session_that_is_not_connected_starts_nothing(tmp_path: Path) -> None:
    session = Session(STDIO, store=tmp_path / "store.db")
    try:
        inspect.getmembers(session)
        touched, seen = watched(session)
        assert touched == []
        assert {status.state for status in session.servers.values()} == {"closed"}
        assert not (tmp_path / "store.db").exists()
        assert {
            "tools",
            "servers",
            "models",
            "consent",
            "resources",
            "prompts",
            "conversations",
        } <= seen[Session]
        assert {"id", "store", "current"} <= seen[SessionConversations]
    finally:
        session.close()


@pytest.mark.defect("F14")
def test_looking_at_a_session_that_is_used_touches_no_file(tmp_path: Path) -> None:
    servers: dict[str, FastMCP[Any]] = {"weather": weather(), "travel": travel_server()}
    with Session.from_config({}, in_process=servers, store=tmp_path / "store.db") as session:
        session.chat("Go", model=scripted_model(call("weather__forecast", city="Oslo"), "done"))
        session.resources.list()
        assert session.conversations.store is not None
        session.conversations.store.flush()
        touched, seen = watched(session)
        assert touched == []
        names = {kind.__name__ for kind in seen}
        assert {
            "Session",
            "McpToolChat",
            "ServerManager",
            "Turn",
            "Step",
            "Selection",
            "ConversationStore",
        } <= names


@pytest.mark.defect("F14")
def test_what_is_not_known_yet_says_how_to_learn_it() -> None:
    session = Session(STDIO)
    try:
        for value in (session.tools, session.tools.sets, session.tools.of_server("math")):
            assert "session.connect()" in value._repr_html_()
            assert "session.connect()" in str(value)
        assert "session.connect()" in session.tools.manifest._repr_html_()
        assert str(session.tools.manifest) == ""
        assert "session.resources.list()" in str(session.resources)
        assert "session.prompts.list()" in str(session.prompts)
        with pytest.raises(UnknownNameError, match=r"session\.connect\(\)"):
            session.tools["math:add"]
        with pytest.raises(UnknownNameError, match=r"session\.resources\.list\(\)"):
            session.resources.now.named("docs")
    finally:
        session.close()


@pytest.mark.defect("F14")
def test_once_connected_everything_is_there_without_the_hint() -> None:
    with Session.from_config({}, in_process={"weather": weather()}) as session:
        assert [tool.name for tool in session.tools] == ["forecast", "history"]
        for value in (session.tools, session.tools.sets, session.tools.manifest):
            assert "session.connect()" not in value._repr_html_()
        listed = session.resources.list()
        assert (list(listed), session.resources.now.listed) == (list(session.resources), True)
        assert "session.resources.list" not in str(session.resources)
