"""An `Iterable` may be a generator, which can be walked once: no function loses what it was given."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.test_house import ROOT

LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _repeated(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a function that can run more than once."""
    for node in ast.walk(function):
        if isinstance(node, LOOPS):
            yield from node.body
        elif isinstance(node, COMPREHENSIONS):
            if isinstance(node, ast.DictComp):
                yield from (node.key, node.value)
            else:
                yield node.elt
            yield from (*node.generators[0].ifs, *node.generators[1:])
        elif isinstance(node, FUNCTIONS) and node is not function:
            yield node


def walked_again(source: str) -> set[str]:
    """Find the parameters of a source that are an `Iterable`, and that a loop or an inner function
    walks without having made a collection of them.
    """
    found = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = {
            each.arg
            for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            if each.annotation and ast.unparse(each.annotation).startswith("Iterable")
        }
        kept = {
            each.id
            for each in ast.walk(function)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        for part in _repeated(function):
            for each in ast.walk(part):
                if isinstance(each, ast.Name) and each.id in given - kept:
                    found.add(f"{function.name}({each.id})")
    return found


def test_no_iterable_is_walked_in_a_loop() -> None:
    found = {}
    for path in sorted((ROOT / "casual_mcp_nb").rglob("*.py")):
        if names := walked_again(path.read_text(encoding="utf-8")):
            found[path.name] = names
    assert found == {}


def test_the_check_finds_what_is_walked_again() -> None:
    again = "def f(a: Iterable[str], b: list[str]):\n    return [x for x in b if x in set(a)]"
    assert walked_again(again) == {"f(a)"}
    assert walked_again(again.replace("    return", "    a = set(a)\n    return")) == set()
    assert walked_again("def f(a: Iterable[str]):\n    return lambda x: x in a") == {"f(a)"}
    assert walked_again("def f(a: Iterable[str]):\n    return [x for x in a]") == set()
