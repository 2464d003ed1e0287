"""The tests by their marks, `@pytest.mark.fault(17)`, `@pytest.mark.defect("A1")`, and by their
cases.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

LIBRARIES = ("provider", "sdk", "transport")
"""Parameters of tests that decide which libraries run."""
TESTS = Path(__file__).resolve().parents[1]


def parts(path: Path, number: str) -> dict[str, list[str]]:
    """Parse the numbers of a list by its parts, from its Markdown.

    Args:
        path: The file; a part begins with `## `.
        number: How a line with a number begins: a regular expression with the number as its group.
    """
    numbers: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            part = numbers.setdefault(line.removeprefix("## "), [])
        elif match := re.match(number, line):
            part.append(match[1])
    return {part: numbers for part, numbers in numbers.items() if numbers}


def marked(mark: str) -> dict[object, list[str]]:
    """Find the names of the tests by the arguments of one mark.

    Args:
        mark: Name of the mark.

    Returns:
        For each argument the tests that carry it, each as `path: name`, in order of their files.
    """
    tests: dict[object, list[str]] = {}
    for path in sorted(TESTS.glob("**/test_*.py")):
        text = path.read_text(encoding="utf-8")
        for name, argument in _marks(ast.parse(text), mark) if f".{mark}(" in text else ():
            tests.setdefault(argument, []).append(f"{path.relative_to(TESTS)}: {name}")
    return tests


def _marks(module: ast.Module, mark: str) -> Iterator[tuple[str, object]]:
    for node in module.body:
        decorators = (
            node.decorator_list
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            else [node]
        )
        name = getattr(node, "name", "the whole module")
        for call in (
            inner
            for decorator in decorators
            for inner in ast.walk(decorator)
            if isinstance(inner, ast.Call)
        ):
            if isinstance(call.func, ast.Attribute) and call.func.attr == mark:
                yield from ((name, arg.value) for arg in call.args if isinstance(arg, ast.Constant))


def listed(parts: Mapping[str, Sequence[object]], tests: Mapping[object, Sequence[str]]) -> str:
    """List the numbers of each part with their tests, a line each, for a person to read."""
    lines = []
    for part, numbers in parts.items():
        lines.append(f"\n{part}")
        for number in numbers:
            names = [name.replace("_", " ") for name in dict.fromkeys(tests.get(number, ()))]
            lines += [f"{number!s:>4}  {name}" for name in names] or [f"{number!s:>4}  no test"]
    return "\n".join(lines)


def one_case(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Choose the first case of each test with each library."""
    chosen: dict[tuple[str, ...], pytest.Item] = {}
    for item in items:
        parameters = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        name = item.nodeid.partition("[")[0]
        chosen.setdefault((name, *(str(parameters.get(library)) for library in LIBRARIES)), item)
    return list(chosen.values())
