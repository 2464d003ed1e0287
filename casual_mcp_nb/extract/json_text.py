"""Read JSON out of a text that a model wrote: bare, in a fence, or between words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_TEXT = 2_000_000
"""How many characters of a text are looked at."""

_MAX_STARTS = 200
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"[{\[]")
# A string, also one that does not end, is one match, so that no comma in it is taken for another.
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*+[}\]])', re.DOTALL)


def json_from_text(text: str) -> Any:
    """Extract the JSON value from a text that a model wrote.

    Models put JSON in fences, add words before and after it, and leave a comma after the last item. Nothing is evaluated.

    Args:
        text: The text, of which the first `MAX_TEXT` characters are read.

    Returns:
        The first object or list in the likeliest place: the whole text, a fenced block, or between words. Where there is none,
        another JSON value, such as a number, that is all there is in the text or in a fenced block.

    Raises:
        ValueError: There is no JSON in the text.
    """
    values = list(_first_of_each_kind(text))
    if not values:
        raise ValueError("There is no JSON in the text." if text.strip() else "The text is empty.")
    return next((value for value in values if isinstance(value, dict | list)), values[0])


def _first_of_each_kind(text: str) -> Iterator[Any]:
    """Yield JSON values until the first object or list."""
    for value in json_values(text):
        yield value
        if isinstance(value, dict | list):
            return


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text, the likeliest first: the whole text, fenced blocks, then each object or list in it.

    Args:
        text: The text, of which the first `MAX_TEXT` characters are read.
    """
    text = text[:MAX_TEXT]
    for piece in (text, *_FENCED.findall(text)):
        try:
            yield json.loads(piece)
        except (ValueError, RecursionError):
            continue
    # A space in place of each comma before a closing bracket: what is where does not change.
    tolerant = _STRING_OR_COMMA.sub(lambda match: " " if match[0] == "," else match[0], text)
    end = tried = 0
    while (match := _OPENING.search(text, end)) and tried < _MAX_STARTS:
        tried += 1
        end = match.start() + 1
        for source in dict.fromkeys((text, tolerant)):
            try:
                value, end = _DECODER.raw_decode(source, match.start())
            except (ValueError, RecursionError):
                continue
            yield value
            break
