"""Damaged values: a file, a body or a message as somebody wrote it by hand, or to break its reader.

`mutations` changes a JSON value, and `broken` its text. Both depend on nothing but their seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

MISSING: Any = object()
WRONG_TYPES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    "",
    "x",
    "1",
    [],
    {},
    [None],
    {"x": None},
    [[]],
    ["x", 1],
)
NUMBERS: tuple[Any, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    2**63,
    -(2**63) - 1,
    10**400,
    1e308,
    -0.0,
)
TEXTS = (
    "",
    " ",
    "x" * 100_000,
    "\x00",
    "\x1b[31m\x07",
    "a\r\nb",
    "\ud800",
    "\u202e\u200b",
    "${HOME}",
    "../../x",
    "{{ 1 }}",
    "<b>",
)
DEPTHS = (60, 300)
"""How deep a value is nested: deeper than most limits, and not as deep as `json` reads."""


def mutations(value: Any, seed: int, count: int) -> Iterator[Any]:
    """Yield damaged copies of a JSON value, each with one to three changes; the value itself is
    left as it is.

    A change is a value of a wrong type, a missing, additional or renamed key, an item twice, left
    out or in another order, a text that is empty, huge, or of control characters and lone
    surrogates, a number that JSON lacks or that is huge, or a deep nesting. `json.dumps` writes all
    of them.

    Args:
        value: The value.
        seed: The same one gives the same copies.
        count: How many.
    """
    chance = random.Random(seed)
    paths = list(_paths(value))
    shallow = [path for path in paths if len(path) <= 3]
    for _ in range(count):
        changed, left = value, chance.choice((1, 1, 2, 3))
        while left > 0 or changed == value:
            # Most of a document is in its leaves, and most of its reader is about what they are in.
            path = chance.choice(shallow if chance.random() < 0.4 else paths)
            changed, left = _changed(changed, path, chance.choice(_CHANGES), chance), left - 1
        yield changed


def broken(text: str, seed: int, count: int) -> Iterator[bytes]:
    """Yield damaged copies of a text: cut short, with bytes left out, doubled or changed, or with
    invalid UTF-8 in it.

    Args:
        text: The text.
        seed: The same one gives the same copies.
        count: How many.
    """
    chance = random.Random(seed)
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(count):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 1, 1, 3, 40)))
        middle = chance.choice(
            (
                b"",
                data[start:end] * 2,
                b"\xff\xfe",
                b"\x00",
                b"[" * 100_000,
                b'"',
                b"}",
                b"NaN",
                b"1e999",
            )
        )
        yield data[:start] + middle + (data[end:] if chance.random() < 0.8 else b"")


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        path, each = waiting.pop()
        yield path
        if isinstance(each, dict):
            waiting += [((*path, key), item) for key, item in each.items()]
        elif isinstance(each, list):
            waiting += [((*path, index), item) for index, item in enumerate(each)]


def _changed(
    value: Any,
    path: tuple[Any, ...],
    change: Callable[[Any, random.Random], Any],
    chance: random.Random,
) -> Any:
    """Copy a value with a change at a path; the rest is shared."""
    if not path:
        after = change(value, chance)
        return None if after is MISSING else after
    key, rest = path[0], path[1:]
    if isinstance(value, dict) and key in value:
        after = _changed(value[key], rest, change, chance) if rest else change(value[key], chance)
        return {
            name: after if name == key else item
            for name, item in value.items()
            if name != key or after is not MISSING
        }
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        after = _changed(value[key], rest, change, chance) if rest else change(value[key], chance)
        return [*value[:key], *(() if after is MISSING else (after,)), *value[key + 1 :]]
    return value


def _with_key(value: Any, chance: random.Random) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        **value,
        chance.choice(("", "x", "__class__", "$ref", "id", "name", *value)): chance.choice(
            WRONG_TYPES
        ),
    }


def _renamed(value: Any, chance: random.Random) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    old = chance.choice(list(value))
    new = chance.choice((f"{old}s", str(old).upper(), str(old)[1:], f" {old}", "\u0430" + str(old)))
    return {new if key == old else key: item for key, item in value.items()}


def _reordered(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        return dict(chance.sample(list(value.items()), len(value)))
    if not isinstance(value, list) or not value:
        return value
    how = chance.choice(("shuffled", "reversed", "doubled", "many"))
    one = chance.choice(value)
    if how == "many":
        return [*value, *[one] * 200]
    return {
        "shuffled": chance.sample(value, len(value)),
        "reversed": value[::-1],
        "doubled": [*value, one],
    }[how]


def _nested(value: Any, chance: random.Random) -> Any:
    wrap: Callable[[Any], Any] = chance.choice((lambda inner: [inner], lambda inner: {"x": inner}))
    for _ in range(chance.choice(DEPTHS)):
        value = wrap(value)
    return value


_CHANGES: tuple[Callable[[Any, random.Random], Any], ...] = (
    lambda _, chance: chance.choice(WRONG_TYPES),
    lambda _, chance: chance.choice(WRONG_TYPES),
    lambda _, chance: chance.choice(NUMBERS),
    lambda _, chance: chance.choice(TEXTS),
    lambda value, chance: (
        value + chance.choice(TEXTS) if isinstance(value, str) else chance.choice(TEXTS)
    ),
    lambda _, __: MISSING,
    lambda _, __: MISSING,
    _with_key,
    _renamed,
    _reordered,
    _nested,
)
