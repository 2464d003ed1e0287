"""A process that is killed while it saves: its conversation resumes, and no call that finished is
repeated or lost.

`MCP_KILLS=100` in the environment tries a hundred moments instead of a few.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import ToolResultMessage
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.scripts import run_script

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.store import ConversationStore
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

KILLS = int(os.environ.get("MCP_KILLS", "12"))
SHIPS = 16
TOGETHER = 2
"""How many calls each step makes at the same time."""

SCRIPT = """
import asyncio, os, signal, sys
from fastmcp import FastMCP
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

kind, moment = {kind!r}, {moment}
log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
passed = 0

def pass_by(this, *_):
    global passed
    passed += this == kind
    if passed == moment and this == kind:
        os.kill(os.getpid(), signal.SIGKILL)

server = FastMCP("harbour")

@server.tool
async def berth(ship: str) -> str:
    os.write(log, f"called {{ship}}\\n".encode())
    pass_by("call")
    return ship

with Session({{}}, in_process={{"harbour": server}}, store={file!r}, quiet=True) as session:
    store = session.conversations.store
    store.find()
    with store._reading() as connection:
        connection.set_trace_callback(lambda _: pass_by("statement"))
    session.observe(lambda turn, event: pass_by("event"))

    def answer(messages, tools):
        for message in messages:
            if message.role == "tool":
                os.write(log, f"read {{message.content}}\\n".encode())
        return made

    for number in range(0, {ships}, {together}):
        ships = [f"ship {{n}}" for n in range(number, number + {together})]
        made = calls(*(call("harbour__berth", ship=ship) for ship in ships))
        model = scripted_model(lambda m, t: answer(m, t), lambda m, t: (answer(m, t), "ok")[1])
        session.chat(f"From {{number}}?", model=model, echo="none")
"""


def moments(count: int) -> list[tuple[str, int]]:
    """Random moments: an event of a turn, a statement of the database, a call that runs."""
    chosen = random.Random(7)
    turns = SHIPS // TOGETHER
    most = {"event": 9 * turns, "statement": 25 * turns, "call": SHIPS}
    kinds = [("event", "statement", "call")[n % 3] for n in range(count)]
    return [(kind, chosen.randint(1, most[kind])) for kind in kinds]


@pytest.mark.parametrize(("kind", "moment"), moments(KILLS))
def test_it_resumes_where_it_was(tmp_path: Path, kind: str, moment: int) -> None:
    file, log = tmp_path / "conversations.db", tmp_path / "log"
    code = SCRIPT.format(
        kind=kind, moment=moment, file=str(file), log=str(log), ships=SHIPS, together=TOGETHER
    )
    done = run_script(code)
    assert done.returncode == -9, done.stderr
    lines = log.read_text().splitlines() if log.exists() else []
    called = {line.removeprefix("called ") for line in lines if line.startswith("called ")}
    read = {line.removeprefix("read ") for line in lines if line.startswith("read ")}

    later: list[str] = []
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(lambda ship: later.append(ship) or ship, name="berth")
    with Session({}, in_process={"harbour": server}, store=file, quiet=True) as session:
        saved = session.conversations
        if saved:
            session.conversations.resume(saved[0].id)
        assert session.conversations.current.repairs == ()
        assert_valid(session.messages)
        results = {
            str(message.content)
            for message in session.messages
            if isinstance(message, ToolResultMessage)
        }
        finished = {ship for ship in results if ship.startswith("ship ")}
        # None is lost: what a model has read is there, and nothing is there that was not called.
        assert read <= finished <= called
        # Only those of the step that was killed are not finished.
        assert len(called - finished) <= TOGETHER

        # None is repeated: whoever goes on calls what has no result.
        missing = sorted({f"ship {n}" for n in range(SHIPS)} - finished)
        model = (
            scripted_model(calls(*(call("harbour__berth", ship=ship) for ship in missing)), "ok")
            if missing
            else None
        )
        if model is not None:
            session.chat("And the others?", model=model, echo="none")
        assert_valid(session.messages)
        assert not finished & set(later)
        assert finished | set(later) == {f"ship {n}" for n in range(SHIPS)}
        assert session.conversations.store is not None
        assert (
            session.conversations.store.load(session.conversations.id or "").to_json()
            == session.conversations.current.to_json()
        )


AT_ONCE = """
import os, signal
from fastmcp import FastMCP
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model

server = FastMCP("harbour")
server.tool(lambda ship: ship, name="berth")

def killed(messages, tools):
    os.kill(os.getpid(), signal.SIGKILL)

with Session({{}}, in_process={{"harbour": server}}, store={file!r}, quiet=True) as session:
    answers = [*[call("harbour__berth", ship="Fram")] * {steps}, killed]
    session.chat("Where is Fram?", model=scripted_model(*answers), echo="none")
"""


@pytest.mark.defect("F15")
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_what_a_model_is_asked_is_on_file_before_also_in_a_first_conversation(
    tmp_path: Path, steps: int
) -> None:
    file = tmp_path / "conversations.db"
    assert run_script(AT_ONCE.format(file=str(file), steps=steps)).returncode == -9
    with ConversationStore(file) as store:
        (saved,) = store.find()
        conversation = store.load(saved.id)
    (turn,) = conversation
    assert turn.prompt == "Where is Fram?"
    assert [each.result for each in turn.tool_calls] == ["Fram"] * steps
    assert len(turn.steps) == steps + 1
    assert conversation.repairs == ()
    assert_valid(conversation.messages)
