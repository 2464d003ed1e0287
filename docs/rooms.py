"""Draw the package's rooms and their imports, as read from the source, into rooms.md: `python
docs/rooms.py`.

Every import counts: at the top of a module, inside a function, or for type checkers only.

`python docs/rooms.py --table [TREE]` prints the house in numbers, of this tree or another one, such
as that of an older commit.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "casual_mcp_nb"
PAGE = Path(__file__).with_name("rooms.md")

Graph = Mapping[str, Set[str]]


def modules(tree: Path = ROOT) -> dict[str, Path]:
    """Return the file of each module of the package."""
    paths = {
        ".".join(path.relative_to(tree).with_suffix("").parts): path
        for path in (tree / PACKAGE).rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in sorted(paths.items())}


@cache
def imports(tree: Path = ROOT) -> Graph:
    """Return the modules of the package that each module imports."""
    files = modules(tree)
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
    """Return a Mermaid diagram in which every arrow points down.

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
    arrows = [
        f"    {room} --> {target}" for room in sorted(direct) for target in sorted(direct[room])
    ]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```"])


def drawn(page: str) -> str:
    """Return the text of the page with an updated diagram."""
    return re.sub(r"```mermaid\n.*?```", lambda _: diagram(rooms()), page, flags=re.DOTALL)


def _room(module: str) -> str:
    return module.split(".")[1]


class Size(NamedTuple):
    """The size of a file: its lines, those of them with code, imports included, and those with
    imports.
    """

    lines: int
    code: int
    imports: int


_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def size(path: Path) -> Size:
    """Count the lines of a file; comments, docstrings and empty lines are not code."""
    text = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {
        line
        for token in tokens
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    imports: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            code.difference_update(_lines(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_lines(node))
    return Size(text.count("\n"), len(code), len(imports))


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


MAX_LINES = 700
MIN_CODE = 60


def house(tree: Path = ROOT) -> dict[str, float]:
    """Count files, lines and names, and the functions of ours on the way of a tool call."""
    sizes = {name: size(path) for name, path in modules(tree).items()}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in imports(tree).items():
        for target in targets:
            importers[target].add(name)
    code = sum(each.code for each in sizes.values())
    seen = measured(tree)
    return {
        "files": len(sizes),
        "lines": sum(each.lines for each in sizes.values()),
        "lines of code in a file, mean": round(fmean(each.code for each in sizes.values())),
        "of these, imports, in percent": round(
            100 * sum(each.imports for each in sizes.values()) / code
        ),
        f"files above {MAX_LINES} lines": sum(each.lines > MAX_LINES for each in sizes.values()),
        f"files below {MIN_CODE} lines of code that one other imports": sum(
            each.code < MIN_CODE and len(importers[name]) == 1 for name, each in sizes.items()
        ),
        "public names of `Session`": len(seen["names"]),
        "functions of ours that a tool call passes, from `session.chat` to the SDK": len(
            seen["way"]
        ),
        **{f"files that a new thing touches: {kind}": count for kind, count in touched(tree)},
    }


def touched(tree: Path = ROOT) -> Iterator[tuple[str, int]]:
    """Yield how many files a new thing touches, by its page's table."""
    page = (tree / "docs" / PAGE.name).read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([^|]+?) \| (\d+) \| [^|]+ \|$",
        page.partition("## How many files")[2].partition("\n## ")[0],
        re.MULTILINE,
    )
    yield from ((kind, int(count)) for kind, count in rows)


def measured(tree: Path = ROOT) -> dict[str, list[str]]:
    """Run a turn with one call of an in-memory server; return the functions on its way, and the
    names of `Session`.
    """
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", _TURN],
        env=environ,
        cwd=tree,
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
try:
    from casual_mcp_nb.providers.scripted import call, scripted_model
except ImportError:
    from casual_mcp_nb.providers import call, scripted_model

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


def table(*trees: Path) -> str:
    """Return the numbers of trees as a Markdown table, one column for each."""
    columns = [house(tree) for tree in trees]
    rows = [
        [name, *(f"{column[name]:,}" if name in column else "" for column in columns)]
        for name in columns[-1]
    ]
    head = ["", *(tree.resolve().name for tree in trees)]
    lines = [head, ["---", *("---:" for _ in trees)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        sys.stdout.write(table(*map(Path, sys.argv[2:] or [ROOT])) + "\n")
    else:
        PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
