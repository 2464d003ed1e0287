"""The session of a saved conversation is opened again, with what it had, and nothing is trusted
because it is saved.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.store import ConversationStore
from casual_mcp_nb.errors import ConfigError, TrustRequiredError, UsageError
from casual_mcp_nb.notebook.payloads import GoneValue, Held, code_of, place_gone_values
from casual_mcp_nb.providers.scripted import scripted_model

MODELS: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {
        "planner": {"client": "offline", "model": "planner"},
        "other": {"client": "offline", "model": "planner"},
    },
}
BUNDLED = {
    **MODELS,
    "servers": {
        "math": {"bundled": "math", "transport": "in-process"},
        "time": {"bundled": "time", "transport": "in-process"},
    },
    "tool_sets": {"sums": {"servers": {"math": True}}},
}


def program(argument: str) -> dict[str, Any]:
    """A server that has to be accepted, and is not started."""
    return {"command": sys.executable, "args": ["-c", argument], "enabled": False}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "conversations.db"


def saved(
    config: Any,
    file: Path,
    change: Callable[[Session], object] = lambda session: None,
    then: Callable[[Session], object] = lambda session: None,
) -> str:
    """Have a conversation in a session that is closed then, and return its id."""
    with Session(config, store=file, quiet=True, trust=True, name="lesson") as session:
        change(session)
        session.chat("Hello?", model=scripted_model("Hello."), echo="none")
        then(session)
        assert session.conversations.id is not None
        return session.conversations.id


def edit_head(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what is saved of the only conversation, as another program can."""
    with closing(sqlite3.connect(file)) as connection, connection:
        ((text,),) = connection.execute("SELECT head FROM conversations").fetchall()
        head = json.loads(text)
        change(head)
        connection.execute("UPDATE conversations SET head = ?", (json.dumps(head),))


def choose(session: Session) -> None:
    session.servers.add("units", {"bundled": "units", "transport": "in-process"})
    session.selection.servers.update({"time": "deferred", "units": "loaded"})
    session.selection.discovery = True
    session.selection.tool_set = "sums"
    session.model = "other"
    session.system = "Be brief."


@pytest.mark.parametrize("in_a_file", [False, True])
@pytest.mark.parametrize("chosen", ["before the turn", "after the last turn"])
def test_it_has_its_servers_and_choices_again(
    tmp_path: Path, file: Path, in_a_file: bool, chosen: str
) -> None:
    config: Any = BUNDLED
    if in_a_file:
        config = tmp_path / "casual_mcp_config.json"
        config.write_text(json.dumps(BUNDLED))
    if chosen == "before the turn":
        id = saved(config, file, choose)
    else:
        id = saved(config, file, then=choose)
    with Session.resume(id[:5], store=file) as session:
        assert list(session.servers) == ["math", "time", "units"]
        assert [status.state for status in session.servers.now.values()] == ["ready"] * 3
        assert (session.model, session.system, session.name) == ("other", "Be brief.", "lesson")
        assert session.selection.servers["time"] == "deferred"
        assert (session.selection.discovery, session.selection.tool_set) == (True, "sums")
        assert session.config.path == (config if in_a_file else None)
        assert [turn.answer for turn in session.turns] == ["Hello."]
        session.chat("Again?", model=scripted_model("Again."), echo="none")
        assert session.conversations.id == id
    with Session.resume(id, store=file) as session:
        assert (len(session.turns), list(session.servers)) == (2, ["math", "time", "units"])


def test_a_saved_command_is_asked_about_until_it_is_accepted_and_when_it_changes(
    file: Path, asks_first: Path
) -> None:
    id = saved({**MODELS, "servers": {"tides": program("1")}}, file)
    session = Session.resume(id, store=file)
    with pytest.raises(TrustRequiredError):
        session.connect()
    (server,) = [entry for entry in session.consent.trust() if entry.kind == "server"]
    assert (server.name, server.state) == ("tides", "new")
    session.consent.trust().accept()
    session.close()
    with Session.resume(id, store=file) as session:
        assert session.consent.now.accepted

    def replace_command(head: dict[str, Any]) -> None:
        head["session"]["added"]["tides"]["args"] = ["-c", "2"]

    edit_head(file, replace_command)
    session = Session.resume(id, store=file)
    with pytest.raises(TrustRequiredError):
        session.connect()
    (server,) = [entry for entry in session.consent.trust() if entry.kind == "server"]
    assert (server.state, server.changed) == ("changed", ("arguments",))
    session.close()


@pytest.mark.parametrize("in_file", [True, False])
def test_nothing_is_typed_into_a_saved_config_that_is_not_accepted(
    in_file: bool,
    tmp_path: Path,
    file: Path,
    asks_first: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIER", "3")
    config: Any = MODELS
    if in_file:
        config = tmp_path / "casual_mcp_config.json"
        config.write_text(json.dumps(MODELS))
    entry = {
        "command": sys.executable,
        "args": ["-m", "casual_mcp_nb.bundled", "math"],
        "env": {"PIER": "${input:pier}"},
    }
    id = saved(config, file, lambda session: session.servers.add("tides", entry))
    monkeypatch.delenv("PIER")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    prompts: list[str] = []

    def answers(*typed: str) -> None:
        left = list(typed)

        def read(prompt: str) -> str:
            prompts.append(prompt)
            return left.pop(0)

        monkeypatch.setattr("builtins.input", read)
        monkeypatch.setattr("getpass.getpass", read)

    answers("")
    with pytest.raises(TrustRequiredError):
        Session.resume(id, store=file)
    assert len(prompts) == 1
    assert "env.PIER (pier)" in prompts[0]
    answers("y", "4")
    with Session.resume(id, store=file) as session:
        session.connect()
        assert session.consent.now.accepted
    answers("5")
    with Session.resume(id, store=file) as session:
        session.connect()
    assert len(prompts) == 4


def test_a_server_that_was_added_to_an_accepted_file_is_asked_about(
    tmp_path: Path, file: Path, asks_first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDE_STATION", "Bergen harbour")
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps(MODELS))
    entry = program("${TIDE_STATION}")
    id = saved(path, file, lambda session: session.servers.add("tides", entry))
    session = Session.resume(id, store=file)
    with pytest.raises(TrustRequiredError):
        session.connect()
    (server,) = [entry for entry in session.consent.trust() if entry.kind == "server"]
    assert dict(server.facts)["variables"] == "TIDE_STATION"
    assert b"Bergen harbour" not in file.read_bytes()
    session.close()


def test_a_file_that_is_gone_or_wrong_says_what_to_do(tmp_path: Path, file: Path) -> None:
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps(BUNDLED))
    id = saved(path, file)
    path.write_text('{"servers": {"math": {"bundle": "math"}}}')
    with pytest.raises(ConfigError, match=r"bundle") as wrong:
        Session.resume(id, store=file)
    assert id in wrong.value.hint
    path.unlink()
    with pytest.raises(UsageError, match=r"casual_mcp_config\.json") as gone:
        Session.resume(id, store=file)
    assert id in gone.value.hint


def test_a_server_that_the_config_has_no_more_costs_the_others_nothing(
    tmp_path: Path, file: Path
) -> None:
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps(BUNDLED))
    id = saved(path, file, choose)
    path.write_text(json.dumps({**BUNDLED, "servers": {"math": BUNDLED["servers"]["math"]}}))
    with pytest.warns(UserWarning, match="'time'"):
        session = Session.resume(id, store=file)
    with session:
        assert list(session.servers) == ["math", "units"]
        assert session.selection.servers["units"] == "loaded"


def test_secrets_are_not_saved_and_what_is_lost_is_named(file: Path) -> None:
    secret = "s3cr3t-of-the-harbour-9000"
    server: FastMCP[Any] = FastMCP("pier")

    def add(session: Session) -> None:
        entry = {**program("1"), "env": {"HARBOUR_TOKEN": secret}}
        session.servers.add("tides", entry)
        session.servers.add("pier", server)
        session.tool(lambda: 1, name="one", description="One.")

    id = saved(BUNDLED, file, add)
    assert secret.encode() not in file.read_bytes()
    with pytest.warns(UserWarning, match="is not back") as warned:
        session = Session.resume(id, store=file)
    assert {str(each.message).split()[0] for each in warned} == {"'tides'", "'pier'", "'notebook'"}
    assert list(session.servers) == ["math", "time"]
    session.close()


def test_what_another_session_lacks_stays_in_the_file(file: Path) -> None:
    id = saved(BUNDLED, file, choose)
    with (
        Session(MODELS, store=file, quiet=True, name="other") as other,
        pytest.warns(UserWarning, match="does not have|stays as it is") as warned,
    ):
        other.conversations.resume(id)
    # One text names all servers that are missing, and how to open the session that has them.
    (text,) = [str(each.message) for each in warned if "'units'" in str(each.message)]
    assert "'time'" in text
    assert text.endswith(f'session.close(), then Session.resume("{id}")')
    assert {each.filename for each in warned} == {__file__}
    with Session.resume(id, store=file) as session:
        assert dict(session.selection.servers)["units"] == "loaded"
        assert session.selection.tool_set == "sums"


@pytest.mark.parametrize(
    ("here", "is_known"), [("offline:planner", True), ("planner", True), ("elsewhere", False)]
)
@pytest.mark.parametrize("there", ["planner", "offline:planner"])
def test_a_model_under_another_name_is_no_other_model(
    file: Path, there: str, here: str, is_known: bool
) -> None:
    id = saved({**MODELS, "models": {there: MODELS["models"]["planner"]}}, file)
    entry = {"client": "offline", "model": "planner" if is_known else "elsewhere"}
    with (
        Session({**MODELS, "models": {here: entry}}, store=file, quiet=True) as session,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        session.conversations.resume(id)
        assert (session.model, bool(caught)) == (here, not is_known)


def test_one_that_was_saved_without_its_config_says_so(file: Path) -> None:
    id = saved(BUNDLED, file)
    edit_head(file, lambda head: head.pop("session"))
    with pytest.raises(UsageError) as error:
        Session.resume(id, store=file)
    assert id in error.value.hint


def test_outside_of_ipython_it_has_to_be_named(file: Path) -> None:
    saved(BUNDLED, file)
    with pytest.raises(UsageError):
        Session.resume(store=file)


def test_the_last_of_a_notebook_is_found_among_damaged_and_hidden_ones(file: Path) -> None:
    ids = [saved(BUNDLED, file) for _ in range(4)]
    with closing(sqlite3.connect(file)) as connection, connection:
        for id in ids:
            head = json.dumps({"session": {"notebook": "/tides.ipynb"}})
            connection.execute("UPDATE conversations SET head = ? WHERE id = ?", (head, id))
        connection.execute("UPDATE conversations SET head = '{' WHERE id = ?", (ids[3],))
    store = ConversationStore.at(file)
    store.archive(ids[2])
    last = store.last_of("/tides.ipynb")
    assert last is not None
    assert last.id == ids[1]
    assert store.last_of("/other.ipynb") is None


@pytest.mark.parametrize("name", ["key", "a key"])
def test_the_code_that_makes_a_value_again_has_no_secret(file: Path, name: str) -> None:
    secret = "s3cr3t'of the harbour-9000"
    environment = {"HARBOUR_TOKEN": secret}
    config = {**BUNDLED, "servers": {"math": {**BUNDLED["servers"]["math"], "env": environment}}}
    with Session(config, store=file, quiet=True, trust=True) as session:
        call = ToolCall("", "shop__orders", ToolName("shop", "orders"), {name: f"Bearer {secret}"})
        code = code_of("table", Held(call, ".value"), session.parts.secrets())
    assert (MASK in code, "9000" in code) == (True, False)
    assert code.startswith("table = session.tools.call('shop:orders', ")


def test_a_variable_whose_value_is_gone_says_which_call_makes_it_again() -> None:
    code = "table = session.tools.call('shop:orders', city='Oslo').value"
    kept = object()
    namespace: dict[str, Any] = {"kept": kept}
    names = {"table": code, "kept": "1", "print": "2", "__name__": "3", "a b": "4", "if": "5"}
    place_gone_values(namespace, names)
    assert namespace["kept"] is kept
    assert set(namespace) == {"kept", "table"}
    gone = namespace["table"]
    assert isinstance(gone, GoneValue)
    assert code in repr(gone)
    for use in (len, list, lambda value: value[0], lambda value: value.head(), bool):
        with pytest.raises(UsageError) as error:
            use(gone)
        assert code in error.value.hint
    assert not hasattr(gone, "_repr_html_")
