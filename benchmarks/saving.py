"""Cost of saving conversations: `python benchmarks/saving.py [--conversations 10000] [--turns 200]`.

Turns with a scripted model, three steps each, alternate between a session that saves and one that does not; the cost of a step
is their difference. Also measured is the time until everything is on file. Then a file with many
conversations is listed and searched, and one of many turns is resumed, with `json` parsing of the same file as the peer.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.store import ConversationStore

STEPS = 3


def harbour() -> FastMCP[Any]:
    """A server with a tool."""
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship.")
    return server


def turn(session: Session) -> float:
    """Run a turn; return its milliseconds."""
    ship = f"ship {len(session.turns)}"
    model = scripted_model(*(call("harbour__berth", ship=f"{ship}, {n}") for n in range(STEPS - 1)), f"{ship}: berth 7.")
    start = time.perf_counter()
    session.chat(f"Where is {ship}?", model=model, echo="none")
    return (time.perf_counter() - start) * 1_000


def timed(work: Callable[[], Any]) -> float:
    """Return the milliseconds of the fastest of five runs."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1_000)
    return min(times)


def steps(folder: Path, repeats: int) -> None:
    """Print the cost of a step."""
    sessions = {
        name: Session({}, in_process={"harbour": harbour()}, store=store, name=name, quiet=True)
        for name, store in (("saved", folder / "steps.db"), ("unsaved", None))
    }
    times: dict[str, list[float]] = {name: [] for name in sessions}
    flushes = []
    for number in range(repeats + 10):
        for name, session in sessions.items():
            if number % 20 == 0:
                session.new_conversation()
            taken = turn(session)
            start = time.perf_counter()
            if session.store is not None:
                session.store.flush()
                flushes.append((time.perf_counter() - start) * 1_000)
            if number >= 10:
                times[name].append(taken)
    for session in sessions.values():
        session.close()
    tenth = {name: statistics.quantiles(values, n=10)[0] / STEPS for name, values in times.items()}
    median = {name: statistics.median(values) / STEPS for name, values in times.items()}
    print(f"{'ms a step':<36}{'fastest tenth':>14}{'median':>10}")
    for name in times:
        print(f"{name:<36}{tenth[name]:14.3f}{median[name]:10.3f}")
    print(f"{'cost of saving':<36}{tenth['saved'] - tenth['unsaved']:14.3f}{median['saved'] - median['unsaved']:10.3f}")
    on_file = statistics.quantiles(flushes, n=10)[0]
    print(f"{'on file after the end of a turn':<36}{on_file:14.3f}{statistics.median(flushes):10.3f}")


def lists(folder: Path, conversations: int, turns: int) -> None:
    """Print the time of lists and of resuming."""
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
                connection.executemany(statement, ((f"{number}-", one.id) for number in range(conversations)))
        session.new_conversation()
        for _ in range(turns):
            turn(session)
        store.flush()
        id = session.conversation_id or ""
        document = session.conversation.to_json()
        print(f"\n{conversations:,} conversations, {store.path.stat().st_size / 1e6:,.0f} MB{'':<10}ms")
        print(f"{'the list of the last 200':<36}{timed(store.find):10.1f}")
        print(f"{'those with a word in them':<36}{timed(lambda: store.find('berth 7')):10.1f}")
        print(f"{'those with a word that nobody said':<36}{timed(lambda: store.find('walrus')):10.1f}")
        resumed = timed(lambda: session.resume(id))
        parsed = timed(lambda: json.loads(document))
        print(f"{f'resume one of {turns} turns':<36}{resumed:10.1f}   x {resumed / parsed:.1f} of json.loads")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="turns of each kind")
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=200)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    place = Path(tempfile.mkdtemp())
    try:
        steps(place, given.repeats)
        lists(place, given.conversations, given.turns)
    finally:
        shutil.rmtree(place)
