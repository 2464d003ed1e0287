"""A recording that fails, or that somebody else writes over, costs no cassette."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.plugin_runs import run

from casual_mcp_nb import Session
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.cassettes.output import CassetteOutput
from casual_mcp_nb.errors import CassetteError
from casual_mcp_nb.providers.scripted import call, scripted_model

TESTS = """
import json
from pathlib import Path
import pytest
from fastmcp import FastMCP
from casual_mcp_nb.providers.scripted import call, scripted_model

@pytest.fixture
def cassette_config(request):
    server = FastMCP("harbour")
    server.tool(lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship.")
    configs = json.loads(Path("configs.json").read_text())
    return {"config": configs.get(request.node.name, configs["usual"]), "in_process": {"harbour": server}}

def ask(session):
    model = None
    if not Path("broken").exists() and session.cassettes.state.doing == "recording":
        model = scripted_model(call("harbour__berth", ship="Fram"), "7.")
    turn = session.chat("Where is Fram?", model=model, echo="none")
    assert turn.tool_calls[0].tool.tool == "berth"

def test_address(cassette_session):
    ask(cassette_session)

def test_program(cassette_session):
    ask(cassette_session)

def test_wrong(cassette_session):
    model = scripted_model("Hello.") if cassette_session.cassettes.state.doing == "recording" else None
    cassette_session.chat("Hello?", model=model, echo="none")
    assert not Path("broken").exists()
"""
PLANNER = {
    "clients": {"o": {"provider": "offline"}},
    "models": {"m": {"client": "o", "model": "planner"}},
}


def dead_model() -> dict[str, Any]:
    """A config whose model's address nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = {
        "provider": "openai",
        "base_url": f"http://127.0.0.1:{port}/v1",
        "api_key": "sk-x",
        "max_retries": 0,
    }
    return {"clients": {"o": client}, "models": {"m": {"client": "o", "model": "m-1"}}}


def missing_program() -> dict[str, Any]:
    return {**PLANNER, "servers": {"quay": {"command": "no-such-program"}}}


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    """A folder with tests that record cassettes."""
    (tmp_path / "test_lesson.py").write_text(TESTS)
    (tmp_path / "configs.json").write_text(json.dumps({"usual": PLANNER}))
    return tmp_path


def break_it(lesson: Path) -> None:
    """Make each of the tests fail while it records."""
    (lesson / "broken").touch()
    configs = {"usual": PLANNER, "test_address": dead_model(), "test_program": missing_program()}
    (lesson / "configs.json").write_text(json.dumps(configs))


def cassettes(lesson: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (lesson / "cassettes").rglob("*.json")}


@pytest.mark.slow
@pytest.mark.defect("N5")
@pytest.mark.timeout(300)
def test_a_failed_re_recording_leaves_the_cassette_and_says_why(lesson: Path) -> None:
    code, output = run(lesson, "--cassette-mode=all")
    assert code == 0, output
    before = cassettes(lesson)
    assert len(before) == 3
    break_it(lesson)
    code, output = run(lesson, "--cassette-mode=all", openai=True)
    assert code == 1
    assert "3 failed" in output
    assert cassettes(lesson) == before
    for reason in ("127.0.0.1", "no-such-program"):
        assert reason in output
    assert output.count("--cassette-mode=all") == 3


@pytest.mark.slow
@pytest.mark.defect("N5")
def test_a_first_recording_that_fails_leaves_no_cassette(lesson: Path) -> None:
    break_it(lesson)
    code, output = run(lesson, "--cassette-mode=once", "-k", "not address")
    assert code == 1
    assert "no-such-program" in output
    assert "--cassette-mode=once" in output
    # A whole one of a test that fails is a cassette: it fails again when that is played.
    assert list(cassettes(lesson)) == ["test_wrong.json"]


@pytest.mark.slow
@pytest.mark.defect("N5")
def test_a_missing_or_damaged_cassette_is_a_short_error(lesson: Path) -> None:
    damaged = (
        "\n\n@pytest.mark.cassette('damaged.json')\ndef test_damaged(cassette_session):\n    pass\n"
    )
    (lesson / "test_lesson.py").write_text(TESTS + damaged)
    (lesson / "damaged.json").write_text("{")
    code, output = run(lesson, "-k", "address or damaged")
    assert code == 1
    assert "2 errors" in output
    assert all(f"--cassette-mode={mode}" in output for mode in ("once", "all"))
    assert len(output.splitlines()) < 20
    assert "site-packages" not in output


NAMES = """
import pytest
from test_lesson import *

def ask(session, ship):
    model = scripted_model(call("harbour__berth", ship=ship), ship)
    model = model if session.cassettes.state.doing == "recording" else None
    assert session.chat("Where is it?", model=model, echo="none").answer == ship

@pytest.mark.parametrize("ship", ["a/b", "a-b", "a b", "A-b", "é", "x" * 300])
def test_ship(cassette_session, ship):
    ask(cassette_session, ship)

class TestOne:
    def test_it(self, cassette_session):
        ask(cassette_session, "one")

class TestTwo:
    def test_it(self, cassette_session):
        ask(cassette_session, "two")

@pytest.mark.cassette("shared.json")
def test_first(cassette_session):
    ask(cassette_session, "Fram")

@pytest.mark.cassette("shared.json")
def test_second(cassette_session):
    ask(cassette_session, "Fram")

del test_address, test_program, test_wrong
"""


@pytest.mark.slow
@pytest.mark.defect("N5")
@pytest.mark.timeout(300)
def test_no_two_tests_write_one_cassette(lesson: Path) -> None:
    (lesson / "test_names.py").write_text(NAMES)
    for mode in ("all", "none"):
        code, output = run(lesson, f"--cassette-mode={mode}", file="test_names.py")
        assert code == 0, output
    names = [path.name.casefold() for path in (lesson / "cassettes" / "test_names").rglob("*.json")]
    assert len(set(names)) == len(names) == 8
    assert len(list(lesson.glob("shared*.json"))) == 1


def recorder(answer: str = "7.") -> tuple[Session, Any]:
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(
        lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship."
    )
    session = Session(PLANNER, in_process={"harbour": server}, quiet=True, store=None)
    return session, lambda: session.chat(
        "Where?", model=scripted_model(call("harbour__berth", ship="Fram"), answer), echo="none"
    )


@pytest.mark.defect("N5")
@pytest.mark.parametrize("exists", [False, True])
def test_two_recorders_of_one_file_lose_nothing(tmp_path: Path, exists: bool) -> None:
    file = tmp_path / "lesson.json"
    if exists:
        session, chat = recorder("before")
        with session, session.cassettes.use(file):
            chat()
    (one, chat_one), (two, chat_two) = recorder("one"), recorder("two")
    with one, two:
        first, second = one.cassettes.use(file, "all"), two.cassettes.use(file, "all")
        chat_one()
        chat_two()
        first.close()
        with pytest.raises(CassetteError) as caught:
            second.close()
    assert "lesson.new" in caught.value.hint
    answers = {path.name: path.read_text() for path in tmp_path.glob("*.json")}
    assert '"one"' in answers.pop("lesson.json")
    (other,) = answers.values()
    assert '"two"' in other
    assert Cassette.load(tmp_path / next(iter(answers))).turns


@pytest.mark.defect("N5")
@pytest.mark.parametrize("exists", [False, True])
def test_two_that_begin_to_write_at_the_same_moment_lose_nothing(
    tmp_path: Path, exists: bool
) -> None:
    file = tmp_path / "lesson.json"
    if exists:
        file.write_text("before")
    one, two = CassetteOutput(file), CassetteOutput(file)

    def save_two(path: Path) -> None:
        path.write_text("two")

    def save_one(path: Path) -> None:
        # The other one writes between this one's look at the name and its writing.
        with contextlib.suppress(CassetteError):
            two.write(save_two)
        path.write_text("one")

    one.write(save_one)
    assert {path.read_text() for path in tmp_path.iterdir()} == {
        "one",
        "two",
        *(["before"] if exists else []),
    }
    one.replace()
    with pytest.raises(CassetteError):
        two.replace()
    assert file.read_text() == "one"


@pytest.mark.defect("N5")
def test_a_recording_that_was_overwritten_is_written_again_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "lesson.json"
    session, chat = recorder("mine")
    with session:
        recording = session.cassettes.use(file, "all")
        chat()
        recording.save()
        file.write_text("another's")
        with pytest.raises(CassetteError):
            recording.close()
    assert file.read_text() == "another's"
    assert '"mine"' in (tmp_path / "lesson.new.json").read_text()


def record(session: Session, file: Path, raised: bool) -> None:
    with session.cassettes.use(file, "all"):
        session.chat("Where?", echo="none")
        assert not raised or 1 / 0


@pytest.mark.defect("N5")
@pytest.mark.parametrize("raised", [False, True])
def test_in_a_notebook_a_failed_recording_is_beside_the_cassette(
    tmp_path: Path, raised: bool
) -> None:
    file = tmp_path / "lesson.json"
    session, chat = recorder()
    with session, session.cassettes.use(file):
        chat()
    before = file.read_text()
    with (
        Session(dead_model(), quiet=True, store=None) as session,
        pytest.raises((CassetteError, ZeroDivisionError)) as caught,
    ):
        record(session, file, raised)
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "lesson.new.json" in said
    assert "127.0.0.1" in said
    assert ("ZeroDivisionError" in said) is raised
    assert file.read_text() == before
    assert Cassette.load(tmp_path / "lesson.new.json").turns
    assert {path.name for path in tmp_path.iterdir()} == {"lesson.json", "lesson.new.json"}


HATCH = """
import os
from fastmcp import Context, FastMCP
from fastmcp.tools import Tool
from mcp_types import ToolListChangedNotification

server = FastMCP("hatch")

@server.tool
async def open_hatch(context: Context) -> str:
    def lower() -> str:
        return "lowered"
    server.add_tool(Tool.from_function(lower))
    await context.send_notification(ToolListChangedNotification())
    return "open"

@server.tool
def sink() -> str:
    os._exit(1)

server.run(show_banner=False)
"""
Turns = list[list[Any]]
OPEN, LOWER, SINK = call("hatch__open_hatch"), call("hatch__lower"), call("hatch__sink")


@pytest.mark.slow
@pytest.mark.defect("N5")
@pytest.mark.parametrize(
    "turns",
    [
        [["Hello."], [OPEN, LOWER, "Done."], [SINK, "Gone."], ["And now?"]],
        [[OPEN, "Open."], [SINK, "Gone."], [LOWER, "Not there."]],
        [[SINK, "Gone."], ["Well."], [OPEN, LOWER, "Done."], [SINK, "Gone."]],
        [[OPEN, SINK, "Gone."], [OPEN, LOWER, "Done."]],
    ],
)
def test_a_server_whose_tools_change_and_that_dies_later_replays(
    tmp_path: Path, turns: Turns
) -> None:
    (tmp_path / "hatch.py").write_text(HATCH)
    servers = {
        "hatch": {
            "command": sys.executable,
            "args": [str(tmp_path / "hatch.py")],
            "env": {**os.environ},
        }
    }
    file = tmp_path / "lesson.json"
    with Session({**PLANNER, "servers": servers}, quiet=True, store=None) as session:
        recording = session.cassettes.use(file)
        live = [
            session.chat("Go on.", model=scripted_model(*script), echo="none") for script in turns
        ]
        recording.close(keep=True)
    with Session.quick(cassette=file, quiet=True, store=None) as session:
        replayed = list(session.cassettes.replay())
        assert session.cassettes.state is not None
        assert session.cassettes.state.unplayed == 0
    offered = [
        [{tool["name"] for tool in step.request.tools} for step in turn.steps] for turn in live
    ]
    assert [
        [{tool["name"] for tool in step.request.tools} for step in turn.steps] for turn in replayed
    ] == offered
    assert {"hatch__lower"} & set().union(*(names for turn in offered for names in turn))
    assert [turn.answer for turn in replayed] == [turn.answer for turn in live]
