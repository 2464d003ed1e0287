"""The memory of a session with six real servers in a Jupyter kernel: `python benchmarks/memory.py
[--rounds 3]` (Linux).

One kernel connects the servers and chats with each, another only imports the same modules; the
difference is what the session itself takes. Resident memory (RSS) counts all pages, proportional
memory (PSS) only a share of those that other processes use as well. The servers' own processes are
listed apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from common import real_servers
from common.figures import Figure, print_figures
from jupyter_client.manager import start_new_kernel

WANTED_MB = 60
LIMIT = 120
QUICK = ("memory",)
"""The servers of a small run."""

MEASURE = """
import gc, json, pathlib, sys
def memory_mb(pid="self"):
    rows = (line.split() for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    kb = {row[0]: int(row[1]) for row in rows}
    return {"rss": kb["Rss:"] / 1024, "pss": kb["Pss:"] / 1024}
"""

SESSION = """
import psutil
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
session = Session.from_config(CONFIG)
session.connect()
arguments = {
    "clock__get_current_time": {"timezone": "UTC"},
    "git__git_status": {"repo_path": FOLDER},
    "fetch__fetch": {"url": "file:///"},
    "everything__echo": {"message": "hi"},
    "filesystem__list_directory": {"path": FOLDER},
    "memory__read_graph": {},
}
servers = CONFIG["mcpServers"]
step = calls(*(call(name, **given) for name, given in arguments.items() if name.split("__")[0] in servers))
for _ in range(10):
    turn = session.chat("go", model=scripted_model(step, "done"), echo="none")
assert len(turn.tool_calls) == len(servers) and "unknown" not in {each.status for each in turn.tool_calls}, turn.tool_calls
gc.collect()
servers = sum(memory_mb(each.pid)["pss"] for each in psutil.Process().children(recursive=True))
print(json.dumps(memory_mb() | {"servers": servers, "modules": sorted(sys.modules)}))
session.close()
"""

BARE = """
import importlib
for name in MODULES:
    try:
        importlib.import_module(name)
    except Exception:
        pass
gc.collect()
print(json.dumps(memory_mb()))
"""


def in_kernel(code: str, **values: Any) -> dict[str, Any]:
    """Run code in a fresh kernel and return the JSON that it prints last."""
    manager, client = start_new_kernel(stderr=subprocess.DEVNULL)
    printed: list[str] = []

    def take(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])

    try:
        settings = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        reply = client.execute_interactive(
            settings + MEASURE + code, allow_stdin=False, timeout=LIMIT, output_hook=take
        )
        if reply["content"]["status"] != "ok":
            raise SystemExit(
                f"The kernel failed: {reply['content']['ename']}: {reply['content']['evalue']}"
            )
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    found: dict[str, Any] = json.loads("".join(printed).splitlines()[-1])
    return found


def measure(names: Collection[str], rounds: int) -> list[Figure]:
    """Measure both kernels a number of times."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = {
            name: server
            for name, server in real_servers.configs(Path(folder)).items()
            if name in names
        }
        sessions = [
            in_kernel(SESSION, CONFIG={"mcpServers": config}, FOLDER=folder) for _ in range(rounds)
        ]
    bare = [in_kernel(BARE, MODULES=sessions[0]["modules"]) for _ in range(rounds)]
    measured = []
    for kind in ("rss", "pss"):
        with_session, without = (
            statistics.median(each[kind] for each in many) for many in (sessions, bare)
        )
        measured.append(
            Figure(
                f"{kind.upper()} of a kernel with {len(names)} servers", with_session, "MB", without
            )
        )
        measured.append(
            Figure(
                "  more than with its imports only", with_session - without, "MB", limit=WANTED_MB
            )
        )
    return [
        *measured,
        Figure(
            "the servers' processes, PSS",
            statistics.median(each["servers"] for each in sessions),
            "MB",
        ),
    ]


def figures(quick: bool) -> list[Figure]:
    """The memory of a session. The peer is a kernel that imports the same."""
    return measure(QUICK, 1) if quick else measure(list(real_servers.configs(Path())), 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    print_figures(measure(list(real_servers.configs(Path())), parser.parse_args().rounds))
