"""Each number of the fault matrix has a test, or stands in the list of those that are open.

`python -m pytest tests/house/test_faults.py -s` prints the numbers with their tests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

PARTS = {
    "A. Start and connection": range(1, 17),
    "B. Tool calls": range(17, 39),
    "C. Tools, schemas, names, toolsets": range(39, 53),
    "D. Model and chat loop": range(53, 69),
    "E. Cancel, interrupt, kernel": range(69, 76),
    "F. Config and templates": range(76, 81),
    "G. Secrets": range(81, 86),
    "H. Display": range(86, 92),
    "I. Built-in tools": range(92, 100),
    "J. Saved conversations": range(100, 105),
    "K. Consent and supply": range(105, 107),
}
NUMBERS = {number for part in PARTS.values() for number in part}

OPEN = set(range(100, 107))
"""What has no test yet: saving, consent to a server's first start, audit."""


def marked() -> dict[int, list[str]]:
    """The tests by the numbers that they are marked with."""
    tests: dict[int, list[str]] = {}
    for path in sorted(TESTS.glob("**/test_*.py")):
        for name, number in _marks(ast.parse(path.read_text(encoding="utf-8"))):
            tests.setdefault(number, []).append(f"{path.relative_to(TESTS)}: {name}")
    return tests


def _marks(module: ast.Module) -> Iterator[tuple[str, int]]:
    for node in module.body:
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else [node]
        name = getattr(node, "name", "the whole module")
        for call in (found for decorator in decorators for found in ast.walk(decorator) if isinstance(found, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "fault":
                yield from ((name, arg.value) for arg in call.args if isinstance(arg, ast.Constant))


def listed(tests: dict[int, list[str]]) -> str:
    """The list of numbers with their tests, for a person."""
    lines = []
    for part, numbers in PARTS.items():
        lines.append(f"\n{part}")
        for number in numbers:
            found = [name.replace("_", " ") for name in dict.fromkeys(tests.get(number, ()))]
            lines += [f"{number:4}  {name}" for name in found] or [f"{number:4}  no test"]
    return "\n".join(lines)


def test_every_number_has_a_test_or_is_open_and_none_is_made_up() -> None:
    tests = marked()
    print(listed(tests))
    assert tests.keys() <= NUMBERS, "a test names a number that does not exist"
    assert sorted(NUMBERS - OPEN - tests.keys()) == [], "numbers without a test"
    assert sorted(OPEN & tests.keys()) == [], "numbers that have a test by now: take them out of OPEN"
