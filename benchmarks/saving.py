"""Cost of saving conversations: `python benchmarks/saving.py [--conversations 10000] [--turns
200]`.

Turns with a scripted model, three steps each, alternate between a session that saves and one that
does not; the cost of a step is their difference. Also measured is the time until everything is on
file. Then a file with many conversations is listed and searched, and one of many turns is resumed,
with `json` parsing of the same file as the peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from common.figures import Figure, be_quiet, fastest_ms, milliseconds, print_figures
from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.store import ConversationStore
from casual_mcp_nb.providers.scripted import call, scripted_model

STEPS = 3
WARM_UP, RUNS = 10, 5


def harbour() -> FastMCP[Any]:
    """A server with a tool."""
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(
        lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship."
    )
    return server


def turn(session: Session) -> float:
    """Run a turn; return its milliseconds."""
    ship = f"ship {len(session.turns)}"
    model = scripted_model(
        *(call("harbour__berth", ship=f"{ship}, {n}") for n in range(STEPS - 1)),
        f"{ship}: berth 7.",
    )
    return milliseconds(lambda: session.chat(f"Where is {ship}?", model=model, echo="none"))


def steps(folder: Path, repeats: int) -> list[Figure]:
    """Measure the cost of a step."""
    sessions = {
        name: Session({}, in_process={"harbour": harbour()}, store=store, name=name, quiet=True)
        for name, store in (("saved", folder / "steps.db"), ("unsaved", None))
    }
    times: dict[str, list[float]] = {name: [] for name in sessions}
    flushes = []
    for number in range(repeats + WARM_UP):
        for name, session in sessions.items():
            if number % 20 == 0:
                session.conversations.new()
            taken = turn(session)
            if session.conversations.store is not None:
                flushes.append(milliseconds(session.conversations.store.flush))
            if number >= WARM_UP:
                times[name].append(taken)
    for session in sessions.values():
        session.close()
    rows = []
    for name, of in (
        ("fastest tenth", lambda values: statistics.quantiles(values, n=10)[0]),
        ("median", statistics.median),
    ):
        saved, unsaved = (of(times[kind]) / STEPS for kind in ("saved", "unsaved"))
        rows.append(Figure(f"a step, {name}", saved, "ms", unsaved))
        rows.append(Figure("  cost of saving it", saved - unsaved, "ms"))
        rows.append(Figure(f"on file after the end of a turn, {name}", of(flushes), "ms"))
    return rows


def lists(folder: Path, conversations: int, turns: int) -> list[Figure]:
    """Measure lists and resuming."""
    store = ConversationStore(folder / "many.db")
    with Session({}, in_process={"harbour": harbour()}, store=store, quiet=True) as session:
        turn(session)
        (one,) = store.find()
        with store._writing() as connection:
            for table, key in (
                ("conversations", "id"),
                ("parts", "conversation"),
                ("events", "conversation"),
                ("turns", "conversation"),
            ):
                names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
                columns = ", ".join(f"? || {name}" if name == key else name for name in names)
                statement = f"INSERT INTO {table} SELECT {columns} FROM {table} WHERE {key} = ?"
                connection.executemany(
                    statement, ((f"{number}-", one.id) for number in range(conversations))
                )
        session.conversations.new()
        for _ in range(turns):
            turn(session)
        store.flush()
        id = session.conversations.id or ""
        document = session.conversations.current.to_json()
        return [
            Figure(
                f"file of {conversations:,} conversations", store.path.stat().st_size / 1e6, "MB"
            ),
            Figure("the list of the last 200", fastest_ms(store.find, RUNS), "ms"),
            Figure(
                "those with a word in them", fastest_ms(partial(store.find, "berth 7"), RUNS), "ms"
            ),
            Figure(
                "those with a word that nobody said",
                fastest_ms(partial(store.find, "walrus"), RUNS),
                "ms",
            ),
            Figure(
                f"resume one of {turns} turns",
                fastest_ms(lambda: session.conversations.resume(id), RUNS),
                "ms",
                fastest_ms(lambda: json.loads(document), RUNS),
            ),
        ]


def measure(repeats: int, conversations: int, turns: int) -> list[Figure]:
    """Measure everything, in a folder that is removed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return [*steps(Path(folder), repeats), *lists(Path(folder), conversations, turns)]


def figures(quick: bool) -> list[Figure]:
    """What saving costs, and what a file with many conversations takes."""
    return measure(5, 200, 5) if quick else measure(200, 10_000, 200)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="turns of each kind")
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=200)
    given = parser.parse_args()
    be_quiet()
    print_figures(measure(given.repeats, given.conversations, given.turns))
