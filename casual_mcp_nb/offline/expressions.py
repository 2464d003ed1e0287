"""Arithmetic as people write it: `17 * 23 + 4`, `5 plus 7`, `15% of 80`, `the square root of 2`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,200}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?"
_NUMBER_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety hundred
"""
# Not `one`, which is usually not a number: `which one`.
NUMBER_WORDS: dict[str, int] = dict(zip(_NUMBER_WORDS.split(), [*range(2, 20), *range(20, 101, 10)], strict=True))
_N = rf"-?(?:{NUMBER})"
_SPOKEN_OPERATORS = {
    "plus": "+",
    "minus": "-",
    "times": "*",
    "multiplied by": "*",
    "divided by": "/",
    "to the power of": "**",
    "modulo": "%",
    "percent of": "/ 100 *",
}
_SIGNS = {"\u00d7": "*", "\u00f7": "/", "^": "**", "% of": "/ 100 *", "squared": "** 2", "cubed": "** 3"}
_OPERATORS = _SIGNS | _SPOKEN_OPERATORS
_OF = {"square root": "sqrt({})", "cube root": "({}) ** (1 / 3)", "factorial": "factorial({})"}
_OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power"}
_FUNCTIONS = "sqrt|sin|cos|tan|log10|log2|log|exp|abs|factorial|round|floor|ceil|min|max|sum"
_FUNCTION_OF = rf"(?:the )?(?P<of>{'|'.join(_OF)}) of (?P<operand>{NUMBER})"
_TOKEN = re.compile(
    rf"\s*(?:{_FUNCTION_OF}|(?P<number>{NUMBER})(?![A-Za-z:])|(?P<name>(?:{_FUNCTIONS})(?=\s*\()|pi\b)"
    rf"|(?P<sign>(?:% of|squared|cubed|{'|'.join(_SPOKEN_OPERATORS)})\b|\*\*|//|[-+*/%(),\u00d7\u00f7^\[\]]))",
    re.IGNORECASE,
)
_START = re.compile(
    rf"(?<![\w.])(?:(?=\d)|[-(](?=[\s(]*\d)|(?=(?:{_FUNCTIONS})\s*\()|(?=(?:the )?(?:{'|'.join(_OF)}) of \d))", re.IGNORECASE
)
_WHOLE_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), form)
    for pattern, form in (
        (rf"\bsubtract ({_N}) from ({_N})", "{1} - {0}"),
        (rf"\badd ({_N}) (?:and|to) ({_N})(?!\s*(?:,|and)\s*\d)", "{0} + {1}"),
        (rf"\bsum of ({_N}) and ({_N})", "{0} + {1}"),
        (rf"\b(?:multiply|product of) ({_N}) (?:by|with|and) ({_N})", "{0} * {1}"),
        (rf"\bdivide ({_N}) by ({_N})", "{0} / {1}"),
        (rf"\bround ({_N}) to (\d|{'|'.join(NUMBER_WORDS)}) (?:decimal|digit|place)\w*(?: places)?", "round({0}, {1})"),
        (r"(?<![\w.])(\d+) factorial\b|(?<![\w.])(\d+)!(?=\W|$)", "factorial({0})"),
    )
)
_MAX_TOKENS = 100
_MAX_TRIES = 300
"""Maximum number of attempts to parse an expression in a text, instead of one per digit."""


def find_expressions(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the calculations in a text: start, end and the expression in Python's notation."""
    taken = 0
    for start, end, expression in sorted([*_phrases(text), *_written(text)], key=lambda one: (one[0], -one[1])):
        if start >= taken:
            yield start, end, expression
            taken = end


def operation(expression: str) -> tuple[str, int | float, int | float] | None:
    """Return the operation and its two numbers if an expression is as simple as `5 + 7`; else None."""
    match = re.fullmatch(rf"({_N}) (\*\*|[-+*/]) ({_N})", expression)
    return (_OPERATIONS[match[2]], number(match[1]), number(match[3])) if match else None


def number(text: str) -> int | float:
    """Return a number as people write it: in digits, with or without thousands separators, or in a word.

    Raises:
        ValueError: The text is not a number.
    """
    plain = text.replace(",", "")
    if plain.casefold() in NUMBER_WORDS:
        return NUMBER_WORDS[plain.casefold()]
    try:
        return int(plain)
    except ValueError:
        return float(plain)


def _phrases(text: str) -> Iterator[tuple[int, int, str]]:
    for pattern, form in _WHOLE_PHRASES:
        for match in pattern.finditer(text):
            yield match.start(), match.end(), form.format(*(number(group) for group in match.groups() if group))


def _written(text: str) -> Iterator[tuple[int, int, str]]:
    end = tries = 0
    for match in _START.finditer(text):
        if match.start() < end:
            continue
        # The longest run of tokens from here that can be evaluated.
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
    """Yield the tokens from here on: where each ends, and its text in Python's notation."""
    for _ in range(_MAX_TOKENS):
        match = _TOKEN.match(text, position)
        if match is None:
            return
        position = match.end()
        if operand := match["number"] or match["operand"]:
            plain = operand.replace(",", "")
            yield position, _OF[match["of"].casefold()].format(plain) if match["of"] else plain
        else:
            token = (match["name"] or match["sign"]).casefold()
            yield position, f" {_OPERATORS.get(token, token)} "


def _calculates(expression: str) -> bool:
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return isinstance(tree.body, ast.BinOp | ast.Call)


def _tidy(expression: str) -> str:
    return re.sub(r"(?<=[(\[]) | (?=[)\],])|(?<=\w) (?=\()", "", " ".join(expression.split()))
