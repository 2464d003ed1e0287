"""The rooms of the package: no circle of imports, no arrow up, a diagram that is up to date, and
bounds for files.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from graphlib import TopologicalSorter
from pathlib import Path
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


def test_a_docstring_a_comment_and_an_empty_line_are_not_code(
    rooms: ModuleType, tmp_path: Path
) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Doc.\n\nMore.\n"""\n\nimport ast\nfrom re import (\n    sub,\n)\n\n# Why.\nTEXT ='
        ' """a\nb"""\n'
    )
    assert rooms.size(module) == (13, 6, 4)


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
    counts = dict(rooms.touched())
    assert counts.keys() >= NEW
    assert max(counts.values()) <= 3
    rows = re.findall(
        r"^\| [^|]+? \| \d+ \| (.*) \|$", rooms.PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    rows = [row for row in rows if "`" in row]
    named = [path for row in rows for path in re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", row)]
    assert len(named) > len(rows)
    folders = (ROOT, ROOT / rooms.PACKAGE)
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []
