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


def _names_in(owner: ast.Module | ast.ClassDef) -> set[str]:
    """List the functions, classes and attributes that a module or a class defines."""
    names = set()
    for node in owner.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def _set_by(owner: ast.ClassDef) -> set[str]:
    """List the attributes that a class's methods set."""
    return {
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


def _is_member(rooms: ModuleType, owner: str, member: str) -> bool:
    """Check whether a class of the package has a member."""
    names: set[str] = set()
    for path in rooms.modules().values():
        text = path.read_text(encoding="utf-8")
        if f"class {owner}" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and node.name == owner:
                names |= _names_in(node) | _set_by(node)
    return member in names


@pytest.mark.parametrize(("name", "rows"), [("rooms.md", [8]), ("ways.md", [11, 10, 6, 6, 10])])
def test_every_step_on_the_ways_exists(rooms: ModuleType, name: str, rows: list[int]) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    parts = [
        part.split("\n## ")[0] for part in re.split(r"^## The way ", page, flags=re.MULTILINE)[1:]
    ]
    assert [len(re.findall(r"^\| \d+ \| `", part, re.MULTILINE)) for part in parts] == rows
    ways = " ".join(" ".join(parts).split())
    # Both as `file.py` (`name`, `name`) and, within parentheses, as `file.py`, `name` and `name`.
    named = re.findall(r"`([\w/]+\.py)`(?: \(|, )((?:`[\w.]+`(?:, (?=`)| and (?=`))?)+)", ways)
    assert len(named) >= sum(rows)
    missing = []
    for file, steps in named:
        module = ast.parse((ROOT / rooms.PACKAGE / file).read_text(encoding="utf-8"))
        classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
        for step in re.findall(r"`([\w.]+)`", steps):
            owner, _, member = step.rpartition(".")
            defined = classes.get(owner) if owner else module
            if defined is None or member not in _names_in(defined):
                missing.append(f"{file}: {step}")
    assert missing == []
    # And those without their file, as `Class.name`.
    for owner, member in sorted(set(re.findall(r"`([A-Z_]\w*)\.(\w+)`", ways))):
        assert _is_member(rooms, owner, member), f"{owner}.{member}"
    files = set(re.findall(r"`([\w/]+\.py)`", ways))
    assert [file for file in files if not (ROOT / rooms.PACKAGE / file).exists()] == []


MODES = {
    "recording, replaying": r"\.tape\b|: Tape\b",
    "recorded steps": r"(setup|self)\.recorded\b",
    "only planned": r"setup\.plan_only",
    "step by step": r"options\.gate",
    "delivery": r"\.delivery\b|\bbridges\b|is_bridged",
    "small model": r"\b_?aid\b|SmallModelAid",
    "nested calls": r"\bNesting\b|\bNestedCall\b",
    "tasks": r"(setup|self)\.tasks\b",
    "stubs": r"\.mocks\b",
}
"""What a file of the engine says where it looks at a mode."""


def test_the_page_says_where_each_mode_changes_a_turn(rooms: ModuleType) -> None:
    page = (ROOT / "docs" / "ways.md").read_text(encoding="utf-8")
    table = page.partition("## What changes the way of a turn")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:5]]
        for line in table.splitlines()
        if "|" in line and "`" in line
    ]
    told = {mode: set(re.findall(r"`(\w+\.py)`", files)) for mode, _, files, _ in rows}
    engine = ROOT / rooms.PACKAGE / "engine"
    looked_at: dict[str, set[str]] = {mode: set() for mode in MODES}
    for path in engine.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for mode, marks in MODES.items():
            if re.search(marks, text):
                looked_at[mode].add(path.name)
    assert told == looked_at
    for _, chosen, _, _ in rows:
        for owner, member in re.findall(r"`(\w+)\.(\w+)`", chosen):
            assert _is_member(rooms, owner, member), f"{owner}.{member}"


def test_the_page_names_what_exists_in_the_parts_behind_the_ways(rooms: ModuleType) -> None:
    page = (ROOT / "docs" / "ways.md").read_text(encoding="utf-8")
    parts = page.partition("## Calls outside a turn")[2]
    assert "## Who repeats a request" in parts
    package = ROOT / rooms.PACKAGE
    files = re.findall(r"`([\w/]+\.py)`", parts)
    assert [file for file in files if not (package / file).exists()] == []
    members = re.findall(r"`([A-Z_]\w*)\.(\w+)`", parts)
    assert len(members) >= 6
    missing = [each for each in members if not _is_member(rooms, *each)]
    assert missing == []


NEW = {
    *(
        "provider",
        "display",
        "magic",
        "widget",
        "selection option",
        "turn option of the engine",
        "turn option for the model",
        "figure of a comparison",
    ),
    *("field of an event", "column of the servers' table"),
}


def test_a_new_thing_touches_at_most_four_files(rooms: ModuleType) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert {kind for kind, _, _ in rows} >= NEW
    assert max(int(count) for _, count, _ in rows) <= 4
    texts = [files for _, _, files in rows if "`" in files]
    named = [path for text in texts for path in re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", text)]
    assert len(named) > len(texts)
    folders = (ROOT, ROOT / rooms.PACKAGE)
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []


OWN_REASONS = {
    "max_steps": {
        "engine/options.py": "the usual limit of a turn, which the config sets",
        "serve/turns.py": "a client may not exceed the service's own",
        "cli/chat.py": "an option of the command too",
        "experiments/service.py": "an option of an experiment too",
        "magics/extension.py": "the usual limit of a notebook's cells",
    },
    "top_p": {
        "providers/builtin/gemini.py": "this API has another name for it",
        "providers/builtin/openai_responses.py": "this client makes its own requests",
        "cli/chat.py": "an option of the command too",
        "telemetry.py": "a span has it",
    },
}
"""The files that name an option for more than that a turn has it."""


@pytest.mark.parametrize(
    ("kind", "option"),
    [("turn option of the engine", "max_steps"), ("turn option for the model", "top_p")],
)
def test_the_row_of_a_turn_option_lists_the_files_that_name_one(
    rooms: ModuleType, kind: str, option: str
) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    ((count, files),) = re.findall(rf"^\| {kind} \| (\d) \| (.*) \|$", page, re.MULTILINE)
    listed = set(re.findall(r"`([\w/]+\.py)`", files))
    folder = ROOT / rooms.PACKAGE
    naming = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if re.search(rf"\b{option}\b", path.read_text(encoding="utf-8"))
    }
    assert len(listed) == int(count)
    assert naming == listed | OWN_REASONS[option].keys()
