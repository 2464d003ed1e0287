"""Tools of servers that did not start, or list their tools late: every door says the server's
reason, and counts agree.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.raw_server import raw_config
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import Catalog
from casual_mcp_nb.errors import ConnectError, UnknownNameError
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.providers.scripted import call, scripted_model

REASON = "the disk of this server is full"
SERVERS = {
    "lost": raw_config(stderr=REASON + "\n", exit=3),
    "gone": {"command": "no-such-program-of-anybody", "args": []},
    "math": {"bundled": "math", "transport": "in-process"},
}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session({"servers": SERVERS}, store=None, quiet=True) as session:
        session.connect()
        yield session


DOORS: dict[str, Callable[[Session, str], object]] = {
    "tools.call": lambda session, tool: session.tools.call(tool, a=1),
    "tools.app": lambda session, tool: session.tools.app(tool),
    "tools[]": lambda session, tool: session.tools[tool],
    "tools.now[]": lambda session, tool: session.tools.now[tool],
    "%mcp call": lambda session, tool: COMMANDS["call"].run(session, f"{tool} a=1"),  # type: ignore[misc]
    "%mcp tool": lambda session, tool: COMMANDS["tool"].run(session, tool),  # type: ignore[misc]
    "search.why_not": lambda session, tool: (
        session.explain("add", tool) if hasattr(session, "explain") else session.tools[tool]
    ),
    "experiments.run": lambda session, tool: session.experiments.run(
        [ToolUseCase("Add.", [tool], id="one")], models=scripted_model("5"), repeats=1
    ),
    "experiments.run, descriptions": lambda session, tool: session.experiments.run(
        [ToolUseCase("Add.", ["math:add"], id="one")],
        models=scripted_model("5"),
        repeats=1,
        descriptions={"other": {tool: "Adds."}},
    ),
    "experiments.workshop": lambda session, tool: session.experiments.workshop(tool),
}


@pytest.mark.parametrize("server", ["lost", "math", None])
def test_a_list_of_tools_says_whose_are_missing_and_why(
    session: Session, server: str | None
) -> None:
    tools = session.tools.now
    if server is not None:
        tools = tools.of_server(server)
    assert (REASON in str(tools)) == (server != "math")


@pytest.mark.defect("M13")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ["lost:add", "lost__add", "lost_add", "gone:add"])
def test_a_tool_of_a_server_that_did_not_start_is_refused_with_its_reason(
    session: Session, door: str, name: str
) -> None:
    with pytest.raises(ConnectError) as error:
        DOORS[door](session, name)
    server = name[:4]
    assert error.value.server == server
    assert (REASON if server == "lost" else "no-such-program-of-anybody") in str(error.value)
    assert "Unknown tool" not in str(error.value)


@pytest.mark.defect("M13")
def test_a_name_without_a_server_is_unknown_and_names_the_servers_that_are_missing(
    session: Session,
) -> None:
    with pytest.raises(UnknownNameError) as error:
        session.tools.call("no_such_tool")
    assert "'lost' did not start" in str(error.value)
    assert "'gone' did not start" in str(error.value)
    # A tool that is not there, of a server that is.
    with pytest.raises(UnknownNameError):
        session.tools.call("math:no_such_tool")


@pytest.mark.defect("M13")
def test_a_model_reads_the_reason_too(session: Session) -> None:
    turn = session.chat(
        "Add.", model=scripted_model(call("gone__add", a=1), "It cannot."), echo="none"
    )
    assert turn.status == "done"
    assert "'gone' did not start" in turn.tool_calls[0].result


@pytest.mark.slow
@pytest.mark.defect("M13")
def test_the_command_line_says_the_reason_too(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"servers": {"gone": SERVERS["gone"]}}))
    command = [
        sys.executable,
        "-m",
        "casual_mcp_nb",
        "call",
        "gone:add",
        "{}",
        "--config",
        str(config),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode != 0
    assert "no-such-program-of-anybody" in ran.stderr
    assert "Unknown tool" not in ran.stderr


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("s:a", "s"),
        ("s__a", "s"),
        ("s_a", "s"),
        ("my-server:a", "my-server"),
        ("my-server__a", "my-server"),
        ("sa", None),
        ("a", None),
    ],
)
def test_the_server_in_a_name_is_found_in_every_form(name: str, server: str | None) -> None:
    catalog = Catalog((), lambda: {"s": "did not start: why", "my-server": "did not start: why"})
    with pytest.raises(ConnectError if server else UnknownNameError) as error:
        catalog.resolve(name)
    assert error.value.server == server
    assert Catalog(catalog).absent() == catalog.absent()


LATE = """
import json, pathlib, sys, time
listed = 0
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"result": {}}
    if message["method"] == "server/discover":
        answer = {"error": {"code": -32601, "message": "no"}}
    elif message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        server = {"name": "late", "version": "1"}
        answer = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
    elif message["method"] == "tools/list":
        # The first listing has no answer; the second has one when the file is there.
        listed += 1
        if listed == 1:
            continue
        while not pathlib.Path("go").exists():
            time.sleep(0.02)
        answer = {"result": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.defect("M19")
def test_a_listing_that_comes_after_its_limit_counts_everywhere(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    late: dict[str, Any] = {
        "command": sys.executable,
        "args": ["late.py"],
        "cwd": str(tmp_path),
        "init_timeout": 5.0,
    }
    with Session({"servers": {"late": late}}, store=None, quiet=True) as session:
        session.connect()
        assert session.servers["late"].state == "unlisted"
        before = str(session.servers), repr(session.status._repr_mimebundle_()["text/plain"])
        # No count where none is known.
        assert ["0 tools" in text for text in before] == [False, False], before
        redrawn = threading.Event()
        session.parts.observers.changes.add(redrawn.set)
        (tmp_path / "go").touch()
        wait_until(lambda: len(session.tools) == 1, "the late list")
        assert redrawn.is_set()
        assert (
            session.servers["late"].tools == session.status.offered == len(session.tools.now) == 1
        )
        text = session.status._repr_mimebundle_()["text/plain"]
        assert "0 tools" not in text
        assert "without a list" not in text
