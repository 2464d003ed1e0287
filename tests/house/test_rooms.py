"""The rooms of the package: no circle of imports, no arrow up, and a page that is up to date."""

from __future__ import annotations

import ast
import importlib.util
import re
from graphlib import TopologicalSorter
from types import ModuleType

import pytest

from tests.house.test_house import ROOT


@pytest.fixture(scope="module")
def rooms() -> ModuleType:
    """The script that draws the rooms."""
    spec = importlib.util.spec_from_file_location("docs_rooms", ROOT / "docs" / "rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_module_imports_itself_over_others(rooms: ModuleType) -> None:
    # Raises a CycleError that names the modules of a circle.
    TopologicalSorter(rooms.imports()).prepare()


def test_the_diagram_is_that_of_the_source(rooms: ModuleType) -> None:
    page = rooms.PAGE.read_text(encoding="utf-8")
    assert page == rooms.drawn(page), "python docs/rooms.py draws it again"
    listed = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert listed == set(rooms.rooms())


LOOKED_UP = {"casual_mcp_nb", "casual_mcp_nb.bundled.registry", "casual_mcp_nb.providers.registry"}
"""The modules that look up names of this package when they are first used."""


def test_no_other_module_imports_one_of_this_package_by_a_string(rooms: ModuleType) -> None:
    by_string = set()
    for name, path in rooms.modules().items():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "import_module" in text else ():
            if isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                argument = ast.unparse(node.args[0])
                if rooms.PACKAGE in argument or "__name__" in argument or "module" in argument:
                    by_string.add(name)
    assert by_string <= LOOKED_UP


def test_every_step_on_the_way_of_a_turn_exists(rooms: ModuleType) -> None:
    page = rooms.PAGE.read_text(encoding="utf-8")
    steps = re.findall(r"`([\w/]+\.py)` \(`(\w+)\.(\w+)`\)", page)
    assert len(steps) == 8
    for file, owner, method in steps:
        tree = ast.parse((ROOT / rooms.PACKAGE / file).read_text(encoding="utf-8"))
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        functions = ast.FunctionDef | ast.AsyncFunctionDef
        assert method in {
            node.name for node in classes[owner].body if isinstance(node, functions)
        }, file


NEW = {
    *(
        "provider",
        "display",
        "magic",
        "widget",
        "selection option",
        "turn option",
        "figure of a comparison",
    ),
    *("field of an event", "column of the servers' table"),
}


def test_a_new_thing_touches_at_most_three_files(rooms: ModuleType) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert {kind for kind, _, _ in rows} >= NEW
    assert max(int(count) for _, count, _ in rows) <= 3
    texts = [files for _, _, files in rows if "`" in files]
    named = [path for text in texts for path in re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", text)]
    assert len(named) > len(texts)
    folders = (ROOT, ROOT / rooms.PACKAGE)
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []
