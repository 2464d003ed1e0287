"""The memory of a session with six real servers in a Jupyter kernel: `python benchmarks/memory.py [--rounds 3]` (Linux).

One kernel connects the servers and chats with each, another only imports the same modules; the difference is what the session
itself takes. Resident memory (RSS) counts all pages, proportional memory (PSS) only a share of those that other processes use
as well. The servers' own processes are listed apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import real_servers
from jupyter_client.manager import start_new_kernel

WANTED_MB = 60
LIMIT = 120

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
from casual_mcp_nb.providers import call, calls, scripted_model
session = Session.from_config(CONFIG)
session.connect()
step = calls(
    call("clock__get_current_time", timezone="UTC"),
    call("git__git_status", repo_path=FOLDER),
    call("fetch__fetch", url="file:///"),
    call("everything__echo", message="hi"),
    call("filesystem__list_directory", path=FOLDER),
    call("memory__read_graph"),
)
for _ in range(10):
    turn = session.chat("go", model=scripted_model(step, "done"), echo="none")
assert len(turn.tool_calls) == 6 and "unknown" not in {each.status for each in turn.tool_calls}, turn.tool_calls
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
        reply = client.execute_interactive(settings + MEASURE + code, allow_stdin=False, timeout=LIMIT, output_hook=take)
        if reply["content"]["status"] != "ok":
            raise SystemExit(f"The kernel failed: {reply['content']['ename']}: {reply['content']['evalue']}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    found: dict[str, Any] = json.loads("".join(printed).splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = {"mcpServers": real_servers.configs(Path(folder))}
        sessions = [in_kernel(SESSION, CONFIG=config, FOLDER=folder) for _ in range(rounds)]
    bare = [in_kernel(BARE, MODULES=sessions[0]["modules"]) for _ in range(rounds)]
    for kind in ("rss", "pss"):
        with_session, without = (statistics.median(each[kind] for each in many) for many in (sessions, bare))
        more = with_session - without
        print(
            f"{kind.upper()}: {with_session:.0f} MB with the session, {without:.0f} MB with its imports only: "
            f"{more:.0f} MB more, x {more / WANTED_MB:.2f} of {WANTED_MB} MB"
        )
    print(f"The servers' own processes: {statistics.median(each['servers'] for each in sessions):.0f} MB (PSS)")


if __name__ == "__main__":
    main()
