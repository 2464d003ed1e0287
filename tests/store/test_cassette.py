"""Record with in-memory servers and a scripted model, and replay without them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image

from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.store import Cassette
from casual_mcp_nb.types.event import Event, ServerLog, TextDelta, ToolFinished, TurnStarted
from casual_mcp_nb.types.trace import Turn

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


def harbour() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("harbour", instructions="Ships are named without an article.")
    visits = 0

    @server.tool
    async def berth(ship: str, context: Context) -> str:
        """Find the berth of a ship."""
        nonlocal visits
        visits += 1
        await context.report_progress(1, 2, "looking")
        await context.info(f"visit {visits}")
        await context.report_progress(2, 2)
        return f"{ship}: berth {visits}"

    @server.tool
    def photo() -> Image:
        """Take a picture of the harbour."""
        return Image(data=PNG, format="png")

    @server.tool
    def sink(ship: str) -> str:
        """Sink a ship."""
        raise ToolError(f"{ship} cannot be sunk")

    @server.tool
    def depth() -> dict[str, float]:
        """Measure the depth of the water."""
        return {"metres": 12.5}

    @server.tool
    async def open_gate(context: Context) -> str:
        """Open the gate to the inner harbour."""
        server.tool(lambda: "3 boats", name="inner", description="Count the boats in the inner harbour.")
        await context.send_notification(_tools_changed())
        return "open"

    @server.resource("harbour://rules", mime_type="text/plain")
    def rules() -> str:
        """Rules of the harbour."""
        return "No swimming."

    @server.prompt
    def arrival(ship: str) -> str:
        """Announce a ship."""
        return f"{ship} arrives."

    return server


def _tools_changed() -> Any:
    from mcp_types import ToolListChangedNotification

    return ToolListChangedNotification(method="notifications/tools/list_changed")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lesson.json"


@pytest.fixture
def opened() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def open_session(config: Any = CONFIG, **options: Any) -> Session:
        options = {"quiet": True, "name": f"s{len(sessions)}", "in_process": {"harbour": harbour()}, **options}
        sessions.append(Session(config, **options))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


def replayed(path: Path, **options: Any) -> Session:
    return Session.from_cassette(path, quiet=True, **options)


def same_apart_from_times(turn: Turn) -> list[Event]:
    """The events of a turn without times, and what depends on them: the pieces of an answer in one, calls one by one."""
    events: list[Any] = []
    for event in _one_by_one(turn.trace):
        changed: Any = dataclasses.replace(event, at=0.0)
        if isinstance(event, TurnStarted):
            changed = dataclasses.replace(changed, began=None)
        if isinstance(event, TextDelta) and events and isinstance(events[-1], TextDelta):
            events[-1] = dataclasses.replace(events[-1], text=events[-1].text + event.text)
        else:
            events.append(changed)
    return events


def _one_by_one(trace: Iterable[Event]) -> list[Event]:
    """Return the events with those of each concurrent call together, in the order in which the calls began."""
    events: list[Event] = []
    for in_calls, group in itertools.groupby(trace, lambda event: hasattr(event, "call_id") or isinstance(event, ServerLog)):
        of_call: dict[str, list[Event]] = {}
        call_id = ""
        for event in group:
            call_id = getattr(event, "call_id", call_id) if in_calls else ""
            of_call.setdefault(call_id, []).append(event)
        events += itertools.chain.from_iterable(of_call.values())
    return events


def compared(recorded: Session, again: Session) -> None:
    assert len(recorded.turns) == len(again.turns) > 0
    for one, other in zip(recorded.turns, again.turns, strict=True):
        assert same_apart_from_times(other) == same_apart_from_times(one)


def test_a_replay_has_the_same_trace_without_model_and_servers(opened: Callable[..., Session], file: Path) -> None:
    session = opened()
    model = scripted_model(
        call("harbour__berth", ship="Fram"),
        calls(call("harbour__depth"), call("harbour__sink", ship="Fram"), call("harbour__photo"), call("harbour__nothing")),
        "Fram is at berth 1, in deep water, with a picture.",
        call("harbour__berth", ship="Fram"),
        "Still there, at berth 2.",
    )
    with session.cassette(file) as cassette:
        assert str(session.cassette_state) == "recording lesson.json"
        session.chat("Where is Fram?", model=model, echo="none")
        session.chat("And now?", model=model, echo="none")
    assert (session.cassette_state, cassette.active) == (None, False)
    kinds = [each.kind for each in Cassette.load(file).interactions]
    one_turn = ["turn", "model", "call", "model"]
    assert kinds == [*one_turn, "call", "call", "call", "model", *one_turn]

    with replayed(file) as again:
        assert str(again.cassette_state) == "replaying lesson.json"
        assert [status.state for status in again.servers.values()] == ["ready"]
        again.chat("Where is Fram?", echo="none")
        assert again.cassette_state is not None
        assert (again.cassette_state.interactions, again.cassette_state.unplayed) == (10, 3)
        again.chat("And now?", echo="none")
        assert again.cassette_state.unplayed == 0
        compared(session, again)
        finished = [event for event in again.turns[0].trace if isinstance(event, ToolFinished)]
        assert [event.status for event in finished] == ["ok", "ok", "error", "ok", "error"]
        assert finished[3].result is not None
        assert finished[3].result.content[0].data == PNG
