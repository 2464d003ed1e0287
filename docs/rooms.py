"""Draw the package's rooms and their imports, as read from the source, into rooms.md: `python
docs/rooms.py`.

Every import counts: at the top of a module, inside a function, or for type checkers only.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "casual_mcp_nb"
PAGE = Path(__file__).with_name("rooms.md")

Graph = Mapping[str, Set[str]]


def modules() -> dict[str, Path]:
    """Return the file of each module of the package."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in (ROOT / PACKAGE).rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in sorted(paths.items())}


@cache
def imports() -> Graph:
    """Return the modules of the package that each module imports."""
    files = modules()
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
                graph[name] |= {target if target in files else node.module for target in targets}
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
        graph[name] &= files.keys()
    return graph


def rooms() -> Graph:
    """Return the rooms that each room imports.

    The package's own `__init__` and `__main__` are not rooms.
    """
    graph: dict[str, set[str]] = defaultdict(set)
    for name, targets in imports().items():
        if name not in (PACKAGE, f"{PACKAGE}.__main__"):
            graph[_room(name)] |= {_room(target) for target in targets if target != PACKAGE} - {
                _room(name)
            }
    return graph


def diagram(graph: Graph) -> str:
    """Return a Mermaid diagram in which every arrow points down, with a line for rooms that import
    the same ones.

    Args:
        graph: The rooms; none of them may import itself over others.

    Raises:
        CycleError: The imports are circular.
    """
    below: dict[str, set[str]] = {}
    for room in TopologicalSorter(graph).static_order():
        below[room] = set(graph[room]).union(*(below[target] for target in graph[room]))
    direct = {
        room: {target for target in targets if not any(target in below[other] for other in targets)}
        for room, targets in graph.items()
    }
    importers: dict[str, list[str]] = defaultdict(list)
    for room in sorted(direct):
        if direct[room]:
            importers[" & ".join(sorted(direct[room]))].append(room)
    arrows = [f"    {' & '.join(group)} --> {targets}" for targets, group in importers.items()]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```"])


def drawn(page: str) -> str:
    """Return the text of the page with an updated diagram."""
    return re.sub(r"```mermaid\n.*?```", lambda _: diagram(rooms()), page, flags=re.DOTALL)


def _room(module: str) -> str:
    return module.split(".")[1]


def measured() -> dict[str, list[str]]:
    """Run a turn with one call of an in-memory server; return the functions on its way, and the
    names of `Session`.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _TURN],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    seen: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return seen


_TURN = """
import asyncio, json, os, sys, threading
from fastmcp import FastMCP
from mcp import ClientSession
import casual_mcp_nb
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model

server = FastMCP("desk")
server.tool(lambda a, b: a + b, name="add")
caller, ways = threading.main_thread().ident, []

def frames(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back

def awaited(frame):
    # What a suspended coroutine awaits, such as that of the cell, which waits for the engine.
    for value in list(frame.f_locals.values()):
        while (inner := getattr(value, "cr_frame", None) or getattr(value, "gi_frame", None)) is not None:
            yield inner
            value = getattr(value, "cr_await", None) or getattr(value, "gi_yieldfrom", None)

def profile(frame, event, argument):
    if event == "call" and frame.f_code is ClientSession.call_tool.__code__ and not ways:
        mine = [*frames(sys._current_frames()[caller])]
        # By identity: a coroutine is seen on its own thread and by whoever waits for it.
        way = {id(each): each.f_code for each in [*mine, *(f for each in mine for f in awaited(each)), *frames(frame.f_back)]}
        ways.append([code.co_qualname for code in way.values() if code.co_filename.startswith(package)])

package = os.path.dirname(casual_mcp_nb.__file__)
with Session.from_config({"servers": {}}, in_process={"desk": server}) as session:
    session.chat("Hello", model=scripted_model("Hello."), echo="none")
    async def follow():
        sys.setprofile(profile)
    engine = getattr(session, "engine", None) or session._engine
    engine.run(follow())
    session.chat("Add", model=scripted_model(call("desk__add", a=1, b=2), "3"), echo="none")
print(json.dumps({"way": ways[0], "names": [name for name in dir(Session) if not name.startswith("_")]}))
"""
"""Both threads are looked at when the SDK is entered: that of the cell, which waits, and that of
the engine.
"""


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
