"""Draw the package's rooms and their imports, as read from the source, into rooms.md: `python docs/rooms.py`.

Every import counts: at the top of a module, inside a function, or for type checkers only.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Set
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "casual_mcp_nb"
PAGE = Path(__file__).with_name("rooms.md")

Graph = Mapping[str, Set[str]]


def modules() -> dict[str, Path]:
    """Return the file of each module of the package."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / PACKAGE).rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in sorted(paths.items())}


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
    """Return the rooms that each room imports. The package's own `__init__` and `__main__` are not rooms."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name, targets in imports().items():
        if name not in (PACKAGE, f"{PACKAGE}.__main__"):
            graph[_room(name)] |= {_room(target) for target in targets if target != PACKAGE} - {_room(name)}
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
    arrows = [f"    {room} --> {target}" for room in sorted(direct) for target in sorted(direct[room])]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```"])


def drawn(page: str) -> str:
    """Return the text of the page with an updated diagram."""
    return re.sub(r"```mermaid\n.*?```", lambda _: diagram(rooms()), page, flags=re.DOTALL)


def _room(module: str) -> str:
    return module.split(".")[1]


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
