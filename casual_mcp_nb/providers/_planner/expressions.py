"""Arithmetic as people write it: `17 * 23 + 4`, `5 plus 7`, `15% of 80`, `the square root of 2`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,200}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?"
_N = rf"-?(?:{NUMBER})"
_SPOKEN_OPERATORS = {
    "plus": "+",
    "minus": "-",
    "times": "*",
    "multiplied by": "*",
    "divided by": "/",
    "to the power of": "**",
    "modulo": "%",
}
_SIGNS = {"\u00d7": "*", "\u00f7": "/", "^": "**"} | _SPOKEN_OPERATORS
_OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power"}
_FUNCTIONS = "sqrt|sin|cos|tan|log10|log2|log|exp|abs|factorial|round|floor|ceil|min|max|sum"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>{NUMBER})(?![A-Za-z:])|(?P<name>(?:{_FUNCTIONS})(?=\s*\()|pi\b)"
    rf"|(?P<sign>\*\*|//|[-+*/%(),\u00d7\u00f7^\[\]]|(?:{'|'.join(_SPOKEN_OPERATORS)})\b))",
    re.IGNORECASE,
)
_START = re.compile(rf"(?<![\w.])(?:(?=\d)|[-(](?=[\s(]*\d)|(?=(?:{_FUNCTIONS})\s*\())", re.IGNORECASE)
_SPOKEN = tuple(
    (re.compile(pattern, re.IGNORECASE), form)
    for pattern, form in (
        (rf"\b(?:the )?square root of ({_N})", "sqrt({0})"),
        (rf"\b(?:the )?cube root of ({_N})", "({0}) ** (1 / 3)"),
        (r"\b(?:the )?factorial of (\d+)", "factorial({0})"),
        (rf"({_N})\s*(?:%|percent|per cent) of ({_N})", "{0} / 100 * {1}"),
        (rf"\bsubtract ({_N}) from ({_N})", "{1} - {0}"),
        (rf"\badd ({_N}) (?:and|to) ({_N})(?!\s*(?:,|and)\s*\d)", "{0} + {1}"),
        (rf"\bsum of ({_N}) and ({_N})", "{0} + {1}"),
        (rf"\bmultiply ({_N}) (?:by|with|and) ({_N})", "{0} * {1}"),
        (rf"\bproduct of ({_N}) and ({_N})", "{0} * {1}"),
        (rf"\bdivide ({_N}) by ({_N})", "{0} / {1}"),
        (rf"({_N}) squared\b", "{0} ** 2"),
        (rf"({_N}) cubed\b", "{0} ** 3"),
    )
)
_MAX_TOKENS = 100
_MAX_TRIES = 300
"""How often a text is tried as an expression: what is no expression would be tried at each of its digits."""


def find_expressions(text: str) -> Iterator[tuple[int, int, str]]:
    """The calculations in a text: start, end and the expression in Python's notation."""
    taken = 0
    for start, end, expression in sorted([*_spoken(text), *_written(text)], key=lambda found: (found[0], -found[1])):
        if start >= taken:
            yield start, end, expression
            taken = end


def operation(expression: str) -> tuple[str, int | float, int | float] | None:
    """The name of the operation and its two numbers where an expression is no more than that, such as `5 + 7`."""
    match = re.fullmatch(rf"({_N}) (\*\*|[-+*/]) ({_N})", expression)
    return (_OPERATIONS[match[2]], number(match[1]), number(match[3])) if match else None


def number(text: str) -> int | float:
    """A number as people write it, with or without thousands separators."""
    plain = text.replace(",", "")
    try:
        return int(plain)
    except ValueError:
        return float(plain)


def _spoken(text: str) -> Iterator[tuple[int, int, str]]:
    for pattern, form in _SPOKEN:
        for match in pattern.finditer(text):
            yield match.start(), match.end(), form.format(*(group.replace(",", "") for group in match.groups()))


def _written(text: str) -> Iterator[tuple[int, int, str]]:
    end = tries = 0
    for match in _START.finditer(text):
        if match.start() < end:
            continue
        run = list(_run(text, match.start()))
        while run and tries < _MAX_TRIES:
            tries += 1
            if _calculates("".join(token for _, token in run)):
                break
            run.pop()
        if tries >= _MAX_TRIES:
            return
        if run:
            end = run[-1][0]
            yield match.start(), end, _tidy("".join(token for _, token in run))


def _run(text: str, position: int) -> Iterator[tuple[int, str]]:
    depth, after_value = 0, False
    for _ in range(_MAX_TOKENS):
        match = _TOKEN.match(text, position)
        if match is None:
            return
        position = match.end()
        token = (match["number"] or match["name"] or match["sign"]).casefold()
        depth += (token in "([") - (token in ")]")
        if (token == "," and depth <= 0) or (match["number"] and after_value):
            return
        after_value = bool(match["number"]) or token == ")"
        yield position, token.replace(",", "") if match["number"] else f" {_SIGNS.get(token, token)} "


def _calculates(expression: str) -> bool:
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return isinstance(tree.body, ast.BinOp | ast.Call)


def _tidy(expression: str) -> str:
    return re.sub(r"(?<=[(\[]) | (?=[)\],])|(?<=\w) (?=\()", "", " ".join(expression.split()))
