"""JSON with comments and trailing commas, as editors write it."""

from __future__ import annotations

import re
from collections.abc import Iterator

# An unclosed string or comment matches up to the end of the file, so that no part is scanned twice.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|//[^\r\n]*|/\*.*?(?:\*/|\Z)|[{}\[\],:]|[^\s{}\[\],:"/]+|/', re.DOTALL)
_VISIBLE = re.compile(r"[^\r\n]")
_BEFORE_A_VALUE = ("", "{", "[", ",", ":")


def plain_json(text: str) -> str:
    """Replace comments and trailing commas in `text` by spaces; every other character keeps its position.

    Args:
        text: JSON with comments. Errors in it are left for the parser to report.
    """
    blanks: list[tuple[int, int]] = []
    comma, last = -1, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith("//") or (token.startswith("/*") and len(token) > 3 and token.endswith("*/")):
            blanks.append(match.span())
            continue
        if token in ("}", "]") and comma >= 0:
            blanks.append((comma, comma + 1))
        comma = match.start() if token == "," and last not in _BEFORE_A_VALUE else -1
        last = token
    return "".join(_blanked(text, sorted(blanks)))


def _blanked(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    end = 0
    for start, stop in spans:
        yield text[end:start]
        yield _VISIBLE.sub(" ", text[start:stop])
        end = stop
    yield text[end:]
