"""Write a file of each kind that a release saves: `python make.py FOLDER`, with the package of that
release on the path. README.md says which release wrote which folder.

Everything is made up: no server is started but those in this process, and no token is real.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

# Before the import: where the package keeps files of the user. The name is in some of them.
PLACE = Path("/tmp/casual-mcp-nb-formats")
for variable, folder in {"CONFIG": ".config", "DATA": ".local", "CACHE": ".cache"}.items():
    os.environ[f"XDG_{variable}_HOME"] = str(PLACE / folder)

from fastmcp import FastMCP  # noqa: E402

from casual_mcp_nb import Session  # noqa: E402
from casual_mcp_nb.config.loader import load_config  # noqa: E402
from casual_mcp_nb.config.trust import TrustStore  # noqa: E402
from casual_mcp_nb.providers.scripted import call, calls, scripted_model  # noqa: E402

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {"shop": {"command": "shop-server", "args": ["--port", "1"], "cwd": "/srv/shop"}},
}
TURNS: dict[str, list[Any]] = {
    "Où est le Fram?": [call("harbour__berth", ship="Fram"), "Quai n° 7 ⚓"],
    "Both, and a wrong one.": [
        calls(call("harbour__berth", ship="Ran"), call("harbour__berth", ship="Tor")),
        call("harbour__sink", ship="Ran"),
        "Ran and Tor are at berth 7.",
    ],
}
CASES = [
    {"id": "found", "message": "Where is Fram?", "calls": ["harbour:berth"]},
    {"id": "missed", "message": "Sink it", "calls": ["harbour:sink"]},
]


def harbour() -> FastMCP[Any]:
    """A server with a tool that succeeds and one that fails."""
    server: FastMCP[Any] = FastMCP("harbour")

    @server.tool
    def berth(ship: str) -> str:
        """Find the berth of a ship."""
        return f"{ship} is at berth 7."

    @server.tool
    def sink(ship: str) -> str:
        """Sink a ship."""
        raise ValueError(f"{ship} does not sink.")

    return server


def new_session(**options: Any) -> Session:
    settings = {**CONFIG, "servers": {}}
    return Session(settings, in_process={"harbour": harbour()}, quiet=True, **options)


def conversations(folder: Path) -> None:
    """The store, the conversation as JSON, and the player's page."""
    with new_session(store=folder / "conversations.db") as session:
        for prompt, answers in TURNS.items():
            session.chat(prompt, model=scripted_model(*answers), echo="none")
        session.export(folder / "conversation.json")
        session.export(folder / "player.html", player=True)
    with closing(sqlite3.connect(folder / "conversations.db")) as connection:
        # The first releases leave what was written in a second file until the process ends.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # What is read back of the page is the cassette in it. The rest is the player's program.
    page = (folder / "player.html").read_text()
    (element,) = re.findall(
        r'<script type="application/json" id="cassette">.*?</script>', page, re.S
    )
    (folder / "player.html").write_text(f"<!doctype html>\n{element}\n")


def cassette(folder: Path) -> None:
    """A recording."""
    with new_session(store=None) as session:
        # The name in the first releases.
        use = session.cassette if hasattr(session, "cassette") else session.cassettes.use
        recording = use(folder / "cassette.json", "all")
        for prompt, answers in TURNS.items():
            session.chat(prompt, model=scripted_model(*answers), echo="none")
        recording.close()


def trust(folder: Path) -> None:
    """What a person has accepted of a config file."""
    file = PLACE / "casual_mcp_config.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(CONFIG, indent=1))
    store = TrustStore(PLACE / "trust")
    store.accept(load_config(file))
    (record,) = store.folder.iterdir()
    (folder / "config.json").write_bytes(file.read_bytes())
    (folder / "trust.json").write_bytes(record.read_bytes())


def module(*names: str) -> Any:
    """The first of these modules that the release has, or None."""
    for name in names:
        try:
            return importlib.import_module(f"casual_mcp_nb.{name}")
        except ModuleNotFoundError:
            continue
    return None


def accounts(folder: Path) -> None:
    """The sign-in to a server."""
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

    room = module("servers.accounts", "servers.sign_in")
    if room is None:
        return
    file = room.AccountFile("shop", "https://shop.example/mcp", None)
    token = OAuthToken(access_token="made-up-access", refresh_token="made-up-refresh", scope="read")
    client = OAuthClientInformationFull(
        client_id="made-up-client", redirect_uris=["http://127.0.0.1:1/"]
    )
    # The names in the first releases.
    if hasattr(file, "set_client_info"):
        asyncio.run(file.set_client_info(client))
        asyncio.run(file.set_tokens(token))
    else:
        asyncio.run(file.set_client(client))
        asyncio.run(file.set_tokens(token, {}))
    (folder / "account.json").write_bytes(file.path.read_bytes())


def vectors(folder: Path) -> None:
    """The cache of a search by meaning."""
    import numpy as np

    room = module("discovery.vector_file", "discovery.meaning")
    if room is None:
        return
    rows = {b"key one": np.array([1, -2, 3], np.int8), b"key two": np.array([4, 5], np.int8)}
    room.VectorFile(folder / "vectors.db").write(b"space", rows)


def runs(folder: Path) -> None:
    """Results of an experiment, and its cases."""
    room = module("experiments.cases")
    if not hasattr(room, "ToolUseCase"):
        return

    def answers(messages: Any, tools: Any) -> Any:
        if messages[-1].role == "tool":
            return "Berth 7."
        return call("harbour__berth", ship="Fram")

    cases = [room.ToolUseCase(each["message"], each["calls"], id=each["id"]) for each in CASES]
    with new_session(store=None) as session:
        session.experiments.run(
            cases, models=scripted_model(*[answers] * 4), results=folder / "runs.jsonl"
        )


def main(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for write in (conversations, cassette, trust, accounts, vectors, runs):
        write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
