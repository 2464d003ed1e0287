"""Every method that takes time can be awaited, and both twins are known under their own names."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.types.event import ToolProgress, TurnStarted
from casual_mcp_nb.types.trace import Trace

CONFIG: dict[str, Any] = {
    "clients": {"here": {"provider": "openai", "api_key": "none", "base_url": "http://localhost:1/v1"}},
    "models": {"small": {"client": "here", "model": "m"}, "known": {"client": "here", "model": "m", "context_window": 8_000}},
    "servers": {"math": {"bundled": "math", "transport": "in-process", "defer_loading": True}},
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
}
NAMES = [
    "connect",
    "reconnect",
    "add_server",
    "remove_server",
    "search",
    "call_tool",
    "read",
    "prompt",
    "complete",
    "subscribe",
    "unsubscribe",
    "preview",
    "evaluate",
    "compare",
    "lint",
    "close",
    "stop",
]


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with Session.from_config(CONFIG) as session:
        yield session


@pytest.mark.defect("C12")
@pytest.mark.parametrize("name", NAMES)
def test_both_twins_have_their_own_names_their_words_and_one_signature(name: str) -> None:
    blocking, awaited = getattr(Session, name), getattr(Session, f"{name}_async")
    assert (blocking.__name__, awaited.__name__) == (name, f"{name}_async")
    assert blocking.__qualname__.split(".")[1:] == [name]
    assert awaited.__qualname__.split(".")[1:] == [f"{name}_async"]
    assert blocking.__doc__
    assert awaited.__doc__
    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.defect("C12")
def test_connect_is_called_connect() -> None:
    assert Session.connect.__qualname__ == "Session.connect"


@pytest.mark.defect("C12")
async def test_what_connects_when_needed_can_be_awaited(session: Session) -> None:
    assert [t.wire_name for t in await session.tools_async()] == [t.wire_name for t in session.tools]
    assert dict(await session.toolsets_async()) == dict(session.toolsets)
    assert str(await session.manifest_async()) == str(session.manifest) != ""


@pytest.mark.defect("C12")
def test_the_status_has_the_notes_of_the_config() -> None:
    session = Session.from_config({"servers": {"math": {"bundled": "math", "transport": "in-process", "alwaysAllow": []}}})
    assert session.status.notes == session.config.notes != ()
    session.close()


@pytest.mark.defect("D14")
async def test_the_doctor_names_models_whose_context_window_is_not_known(session: Session) -> None:
    found = {finding.name for finding in session.doctor().findings if finding.part == "Models"}
    assert found == {"small"}


@pytest.mark.defect("D14")
def test_what_an_event_says_is_its_text_and_files_with_the_older_name_are_read() -> None:
    trace = Trace([TurnStarted((), "m"), ToolProgress("1", 1, 2, "half")])
    written = trace.to_json()
    assert '"message"' not in written.split("ToolProgress")[1]
    (event,) = Trace.from_json(written.replace('"text": "half"', '"message": "half"')).of(ToolProgress)
    assert event.text == event.message == "half"
