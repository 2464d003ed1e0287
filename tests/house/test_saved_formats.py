"""Files that earlier releases saved: they open with all that is in them, and opening changes
nothing. Those of later releases, and damaged ones, are refused with what to do, and stay as they
are.

What each file contains is in `tests/data/formats/make.py`, which has written all of them.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fastmcp import FastMCP
from mcp.shared.auth import OAuthToken

from casual_mcp_nb import Session
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.trust import TrustStore
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.store import ConversationStore
from casual_mcp_nb.discovery.vector_file import VectorFile
from casual_mcp_nb.errors import CasualMcpError, UsageError
from casual_mcp_nb.experiments.results_file import ResultsFile, load_runs
from casual_mcp_nb.servers.accounts import AccountFile, accounts

FORMATS = Path(__file__).parents[1] / "data" / "formats"
FOLDERS = sorted(path for path in FORMATS.iterdir() if path.is_dir())
KINDS = (
    "account.json",
    "cassette.json",
    "conversation.json",
    "conversations.db",
    "player.html",
    "runs.jsonl",
    "trust.json",
    "vectors.db",
)
"""All files that this package writes and reads again. Config files, cases and prices are a person's
own.
"""
ANSWERS = ["Quai n° 7 ⚓", "Ran and Tor are at berth 7."]
CALLS = [
    ("harbour:berth", "ok", "Fram is at berth 7."),
    ("harbour:berth", "ok", "Ran is at berth 7."),
    ("harbour:berth", "ok", "Tor is at berth 7."),
    ("harbour:sink", "error", "Error calling tool 'sink': Ran does not sink."),
]
TOKENS = 1328
PLANNER = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {},
}


def test_the_newest_folder_has_a_file_of_each_kind() -> None:
    names = {file.name for file in FOLDERS[-1].iterdir()}
    assert names == {*KINDS, "config.json"}


def test_the_files_have_no_secret_and_are_small() -> None:
    files = [file for folder in FOLDERS for file in folder.iterdir()]
    assert sum(file.stat().st_size for file in files) < 500_000
    for file in files:
        text = file.read_bytes()
        assert b"/home/" not in text
        assert b"sk-" not in text


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a release's files."""
    return Path(shutil.copytree(request.param, tmp_path / "saved"))


def file_in(folder: Path, name: str) -> Path:
    """A file of a kind, unless the release had none."""
    if not (folder / name).exists():
        pytest.skip(f"this release wrote no {name}")
    return folder / name


def in_place(folder: Path, name: str, place: Path) -> Path:
    """Put a file where the package looks for it."""
    place.write_bytes(file_in(folder, name).read_bytes())
    place.chmod(0o600)
    return place


def check(conversation: Conversation) -> None:
    """A conversation has the turns, calls and tokens that it was saved with."""
    calls = [call for turn in conversation for call in turn.tool_calls]
    assert [(str(call.tool), call.status, call.result) for call in calls] == CALLS
    assert [turn.answer for turn in conversation] == ANSWERS
    assert [turn.status for turn in conversation] == ["done", "done"]
    assert [message.role for message in conversation.messages].count("tool") == len(CALLS)
    stats = conversation.stats
    assert (stats.tool_calls.total, stats.llm_calls, stats.sent_tokens) == (4, 5, TOKENS)
    assert conversation.repairs == ()


def test_a_conversation_opens(folder: Path) -> None:
    file = folder / "conversation.json"
    before = file.read_bytes()
    conversation = Conversation.load(file)
    check(conversation)
    assert file.read_bytes() == before
    # All that the file has is in what is saved again, and this is read as the same.
    saved = conversation.to_json()
    assert Conversation.from_json(saved).to_json() == saved


def test_a_store_of_conversations_opens_and_is_continued(folder: Path) -> None:
    file = folder / "conversations.db"
    before = file.read_bytes()
    with ConversationStore(file) as store:
        (stored,) = store.find("berth")
        assert (stored.turns, stored.tokens, stored.title) == (2, TOKENS, "Où est le Fram?")
        assert stored.damaged == ()
        check(store.load(stored.id))
    assert file.read_bytes() == before
    servers = {"harbour": FastMCP("harbour")}
    with Session(PLANNER, in_process=servers, store=file, quiet=True) as session:
        session.conversations.resume(stored.id)
        check(session.conversations.current)
        session.chat("Thanks", echo="none")
    with ConversationStore(file) as store:
        longer = store.load(stored.id)
    check(longer[:2])
    assert len(longer) == 3


@pytest.mark.parametrize("name", ["cassette.json", "player.html"])
def test_a_cassette_plays(folder: Path, name: str) -> None:
    file = folder / name
    before = file.read_bytes()
    with Session.quick(cassette=file, quiet=True, store=None) as session:
        turns = list(session.cassettes.replay())
        assert session.cassettes.state is not None
        assert session.cassettes.state.unplayed == 0
    calls = [call for turn in turns for call in turn.tool_calls]
    assert [(str(call.tool), call.status, call.result) for call in calls] == CALLS
    assert [turn.answer for turn in turns] == ANSWERS
    assert file.read_bytes() == before


def test_results_of_an_experiment_open(folder: Path) -> None:
    file = file_in(folder, "runs.jsonl")
    before = file.read_bytes()
    results = load_runs(file)
    records = {record.case: record for record in results.records}
    assert {case: (each.right, each.failure) for case, each in records.items()} == {
        "found": (True, None),
        "missed": (False, "wrong tool"),
    }
    assert (records["found"].input_tokens, records["missed"].input_tokens) == (437, 433)
    for record in results.records:
        (turn,) = Conversation.from_json(record.transcript)
        assert [str(call.tool) for call in turn.tool_calls] == ["harbour:berth"]
    assert file.read_bytes() == before


def accepted(folder: Path, tmp_path: Path) -> tuple[TrustStore, Path]:
    """The store of what was accepted, with the record of this release, and its file."""
    store = TrustStore(tmp_path / "trust")
    store.accept(load_config(folder / "config.json"))
    (record,) = store.folder.iterdir()
    return store, in_place(folder, "trust.json", record)


def test_what_was_accepted_is_accepted_still(folder: Path, tmp_path: Path) -> None:
    store, record = accepted(folder, tmp_path)
    before = record.read_bytes()
    states = {
        entry.name: entry.state for entry in store.entries(load_config(folder / "config.json"))
    }
    assert (states["shop"], states["offline"]) == ("trusted", "trusted")
    assert record.read_bytes() == before


@pytest.fixture
def account(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountFile:
    """The sign-in that a release has saved, where the package looks for it."""
    variable = "APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME"
    monkeypatch.setenv(variable, str(tmp_path / "settings"))
    account = AccountFile("shop", "https://shop.example/mcp", None)
    account.path.parent.mkdir(mode=0o700, parents=True)
    in_place(folder, "account.json", account.path)
    return account


async def test_a_sign_in_is_used_still(account: AccountFile) -> None:
    before = account.path.read_bytes()
    await account.load()
    tokens, client = account.tokens(), account.client()
    assert tokens is not None
    assert (tokens.access_token, tokens.refresh_token) == ("made-up-access", "made-up-refresh")
    assert client is not None
    assert client.client_id == "made-up-client"
    (listed,) = accounts()
    assert (listed.server, listed.address) == ("shop", "https://shop.example/mcp")
    assert account.path.read_bytes() == before


ROWS = {b"key one": [1, -2, 3], b"key two": [4, 5]}


def rows_of(file: Path) -> dict[bytes, list[int]]:
    rows = VectorFile(file).read({key: key for key in ROWS})
    return {key: row.tolist() for key, row in rows.items()}


def test_a_cache_of_vectors_is_used_still(folder: Path) -> None:
    file = file_in(folder, "vectors.db")
    assert rows_of(file) == ROWS
    # One without a version gets it with the next vectors.
    VectorFile(file).write(b"space", {b"key three": np.array([6], np.int8)})
    assert rows_of(file) == ROWS
    assert version_of(file) == 1


def version_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def of_later_version(file: Path) -> None:
    """Make a file one of a later version."""
    if file.suffix == ".db":
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA user_version = 99")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    text = file.read_text()
    later = text.replace('"version": 1', '"version": 99', 1)
    later = later.replace('"version": 2', '"version": 99', 1).replace(
        '"version":2', '"version":99', 1
    )
    assert later != text
    file.write_text(later)


def damaged(file: Path) -> None:
    """Make a file one that a failing disk has left."""
    content = bytearray(file.read_bytes())
    content[: len(content) // 2] = b"x" * (len(content) // 2)
    file.write_bytes(content)


def find_all(file: Path) -> object:
    with ConversationStore(file) as store:
        return store.find()


READERS: dict[str, Callable[[Path], object]] = {
    "cassette.json": Cassette.load,
    "conversation.json": Conversation.load,
    "conversations.db": find_all,
    "player.html": Cassette.load,
    "runs.jsonl": load_runs,
}
NEWEST = FOLDERS[-1]


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_later_version_is_refused(tmp_path: Path, name: str) -> None:
    file = Path(shutil.copy(NEWEST / name, tmp_path / name))
    of_later_version(file)
    before = file.read_bytes()
    with pytest.raises(CasualMcpError, match="update the package"):
        READERS[name](file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    file = Path(shutil.copy(NEWEST / name, tmp_path / name))
    damaged(file)
    before = file.read_bytes()
    with pytest.raises(CasualMcpError) as raised:
        READERS[name](file)
    assert raised.value.hint
    assert file.read_bytes() == before


def test_runs_are_not_added_to_a_file_of_another_version(tmp_path: Path) -> None:
    old = FORMATS / "2026-11-27" / "runs.jsonl"
    file = Path(shutil.copy(old, tmp_path))
    with pytest.raises(UsageError, match="Name a new file"):
        ResultsFile(file).check_format()
    assert file.read_bytes() == old.read_bytes()


@pytest.mark.parametrize("folder", [NEWEST], indirect=True)
def test_an_acceptance_of_a_later_version_is_asked_for_again_and_not_replaced(
    folder: Path, tmp_path: Path
) -> None:
    store, record = accepted(folder, tmp_path)
    config = load_config(folder / "config.json")
    of_later_version(record)
    before = record.read_bytes()
    assert {entry.state for entry in store.entries(config)} == {"new", "harmless"}
    with pytest.raises(UsageError, match="Update the package"):
        store.accept(config)
    assert record.read_bytes() == before
    # What is damaged is asked for again, and what the person says replaces it.
    damaged(record)
    assert {entry.state for entry in store.entries(config)} == {"new", "harmless"}
    store.accept(config)
    assert "trusted" in {entry.state for entry in store.entries(config)}


@pytest.mark.parametrize("folder", [NEWEST], indirect=True)
async def test_a_sign_in_of_a_later_version_is_not_used_and_not_replaced(
    account: AccountFile, caplog: pytest.LogCaptureFixture
) -> None:
    of_later_version(account.path)
    before = account.path.read_bytes()
    await account.load()
    assert account.tokens() is None
    assert accounts() == ()
    with caplog.at_level(logging.WARNING):
        await account.set_tokens(OAuthToken(access_token="other"), {})
    assert "Update the package" in caplog.text
    assert account.path.read_bytes() == before
    # The sign-in that replaces a damaged one is remembered.
    damaged(account.path)
    await account.load()
    assert account.tokens() is None
    await account.set_tokens(OAuthToken(access_token="other"), {})
    assert json.loads(account.path.read_text())["tokens"]["access_token"] == "other"


@pytest.mark.parametrize("folder", [NEWEST], indirect=True)
def test_vectors_of_a_later_version_are_left_alone_and_damaged_ones_are_made_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = folder / "vectors.db"
    of_later_version(file)
    before = file.read_bytes()
    assert rows_of(file) == {}
    VectorFile(file).write(b"space", {b"key one": np.array([9], np.int8)})
    assert file.read_bytes() == before
    assert "Update the package" in caplog.text
    damaged(file)
    VectorFile(file).write(b"space", {b"key one": np.array([9], np.int8)})
    assert rows_of(file) == {b"key one": [9]}
