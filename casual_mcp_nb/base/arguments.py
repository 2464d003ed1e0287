"""Read a call's arguments as models and gateways write them.

What can only mean one object is that object.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from casual_mcp_nb.base.limits import MAX_DEPTH, is_too_deep, read_json

MAX_OBJECTS = 100
_ENCODED = 2
"""How many times arguments may be encoded as text within text."""
_DECODER = json.JSONDecoder(strict=False)


def parse_arguments(text: str | None) -> dict[str, Any] | str:
    """Parse a call's arguments as the model wrote them. None for an empty string or `null`.

    The text itself if it does not mean one JSON object, or one that is nested too deeply.
    `problem_of` names the problem.
    """
    if text is None or not text.strip():
        return {}
    value = read_json(text, text)
    if value is None:
        return {}
    meant: dict[str, Any] | None = value if isinstance(value, dict) else one_object(text)
    may_be_deep = text.count("{") + text.count("[") > MAX_DEPTH
    if meant is None or (may_be_deep and is_too_deep(meant)):
        return text
    return meant


def arguments_text(arguments: object) -> str:
    """Write a call's arguments as JSON.

    Text that means one object without being it is corrected, other text stays.
    """
    if not isinstance(arguments, str):
        return json.dumps(arguments or {}, ensure_ascii=False)
    if not arguments.strip():
        return "{}"
    value = read_json(arguments, arguments)
    if value is None or isinstance(value, dict):
        return arguments
    meant = one_object(arguments)
    return arguments if meant is None else json.dumps(meant, ensure_ascii=False)


def one_object(text: str) -> dict[str, Any] | None:
    """Find the one object that a text means, or None if it means several or something else.

    Gateways write an empty object before the real one, the same object twice, or the object's JSON
    as a text, and models write line breaks within texts as they are. None of this leaves a choice.
    """
    objects = objects_in(text)
    if objects is None:
        return None
    filled = list(filter(None, objects))
    # As text, because 1 and true are equal in Python.
    if len({json.dumps(each, sort_keys=True) for each in filled}) > 1:
        return None
    return filled[0] if filled else {}


def objects_in(text: str, encoded: int = _ENCODED) -> Sequence[dict[str, Any]] | None:
    """List the objects that a text consists of, one after the other, or None if there is anything
    else in it.
    """
    values, whole = values_in(text.strip(), MAX_OBJECTS)
    if not whole:
        return None
    objects: list[dict[str, Any]] = []
    for value in values:
        inner: Sequence[dict[str, Any]] | None = None
        if isinstance(value, dict):
            inner = [value]
        elif isinstance(value, str) and encoded:
            inner = objects_in(value, encoded - 1)
        if not inner or len(objects) + len(inner) > MAX_OBJECTS:
            return None
        objects += inner
    return objects


def values_in(text: str, limit: int, separators: str = "") -> tuple[list[Any], bool]:
    """Read JSON values, one after the other, up to the first thing that is not JSON.

    Line breaks within texts are read as they are. What is cut off is not completed, as lenient
    parsers do: the model may not have meant the call that would come out.

    Args:
        text: The text.
        limit: How many values to read.
        separators: Characters that may stand between values, besides spaces.

    Returns:
        The values, and whether the text has nothing else.
    """
    values: list[Any] = []
    position = 0
    while position < len(text) and len(values) < limit:
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        values.append(value)
        while position < len(text) and (text[position].isspace() or text[position] in separators):
            position += 1
    return values, position == len(text)


def problem_of(text: str) -> str:
    """Describe the problem with arguments that `parse_arguments` could not use, as a sentence's
    predicate.
    """
    objects = objects_in(text)
    if objects and len(objects) > 1:
        return "are several different JSON objects, and a call takes one"
    try:
        is_object = isinstance(json.loads(text), dict)
    except RecursionError:
        is_object = text.lstrip().startswith("{")
    except ValueError:
        is_object = False
    if is_object or objects:
        return f"are nested more than {MAX_DEPTH} levels deep"
    return "are not a JSON object"
