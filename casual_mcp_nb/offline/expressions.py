"""Arithmetic in a text, such as `17 * 23 + 4`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,200}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)"
_FUNCTION = r"(?:sqrt|sin|cos|tan|log10|log2|log|exp|abs|factorial|round|floor|ceil|min|max|sum)(?=\s*\()"
_TOKEN = rf"(?:{NUMBER}(?![A-Za-z:])|{_FUNCTION}|pi\b|\*\*|//|[-+*/%(),\[\]])"
_TOKENS = re.compile(_TOKEN, re.I)
_RUN = re.compile(rf"(?<![\w.])(?:{_TOKEN}\s*){{2,100}}", re.I)
_MAX_TRIES = 300
"""Maximum number of attempts to parse an expression in a text."""


def find_expressions(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the calculations in a text: start, end and the expression."""
    tries = 0
    for run in _RUN.finditer(text):
        tokens = list(_TOKENS.finditer(text, run.start(), run.end()))
        first, last = 0, len(tokens)
        # The longest part that can be evaluated, then what follows it.
        while last - first > 1 and tries < _MAX_TRIES:
            tries += 1
            expression = _tidy(tokens[first:last])
            if _calculates(expression):
                yield tokens[first].start(), tokens[last - 1].end(), expression
                first, last = last, len(tokens)
            else:
                last -= 1
                if last - first < 2:
                    first, last = first + 1, len(tokens)


def number(text: str) -> int | float:
    """Return a number in digits, with or without thousands separators.

    Raises:
        ValueError: The text is not a number.
    """
    plain = text.replace(",", "")
    try:
        return int(plain)
    except ValueError:
        return float(plain)


def _tidy(tokens: list[re.Match[str]]) -> str:
    spaced = " ".join(token[0].replace(",", "") if token[0][0].isdigit() else token[0].lower() for token in tokens)
    # Spaces around binary operators only.
    spaced = re.sub(r"(?<=[(\[]) | (?=[)\],])|(?<=[a-z0-9]) (?=\()", "", spaced)
    return re.sub(r"(^|[-+*/%(,\[] ?)(-) (?=[\d(a-z])", r"\1\2", spaced)


def _calculates(expression: str) -> bool:
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return isinstance(tree.body, ast.BinOp | ast.Call)
