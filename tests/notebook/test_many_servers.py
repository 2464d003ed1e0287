"""The cost of displaying a session with many servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kit.counting import calls_of

from casual_mcp_nb import Session
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.widgets import Explorer


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often the status of each server was read."""
    counted: Counter[str] = Counter()
    status: Any = Connection.__dict__["status"]

    def read(connection: Connection) -> ServerStatus:
        counted[connection.name] += 1
        return status.fget(connection)  # type: ignore[no-any-return]

    monkeypatch.setattr(Connection, "status", property(read))
    return counted


LOOKS: dict[str, Callable[[Session], object]] = {
    "status": lambda session: session.status,
    "servers": lambda session: session.servers,
    "selection": lambda session: setattr(
        session.selection, "servers", dict.fromkeys(session.selection.servers, "deferred")
    ),
    "text": lambda session: str(session.status),
    "check": lambda session: [
        session.parts.chat.names.check_server(name) for name in session.selection.servers
    ],
}


@pytest.mark.defect("G3")
def test_the_cost_of_a_look_grows_with_the_servers_and_not_faster(reads: Counter[str]) -> None:
    calls: dict[str, list[int]] = {look: [] for look in LOOKS}
    for count in (50, 200):
        with Session.from_config(
            {"servers": {f"server{n}": {"command": "no-such-program"} for n in range(count)}}
        ) as session:
            for look, function in LOOKS.items():
                function(session)
                reads.clear()
                calls[look].append(calls_of(partial(function, session)))
                assert reads.total() <= count, look
    for look, (few, many) in calls.items():
        assert many < 5 * few, look
        # Far below 50 ms.
        assert many < 60_000, look


@pytest.mark.defect("G3")
def test_a_toggle_in_the_explorer_reads_each_status_once(reads: Counter[str]) -> None:
    servers = {f"server{n}": {"bundled": "math", "transport": "in-process"} for n in range(7)}
    with Session.from_config({"servers": servers}) as session:
        session.connect()
        explorer = session.explore()
        assert isinstance(explorer, Explorer)
        answers: list[Any] = []
        explorer.send = answers.append
        session.parts.engine.run(explorer._patches.settled())
        reads.clear()
        call = {
            "id": 1,
            "call": "selection.set_mode",
            "args": {"server": "server1", "mode": "deferred"},
        }
        session.parts.engine.run(explorer._answer(call))
        assert answers[-1] == {"id": 1, "result": None}
        assert answers[0]["patch"]["selection"]["servers"]["server1"]["mode"] == "deferred"
        assert reads == dict.fromkeys(servers, 1)
        explorer.close()
