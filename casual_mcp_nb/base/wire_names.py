"""Which names of tools every provider accepts: 1 to 64 of `[A-Za-z0-9_-]`."""

from __future__ import annotations

import re

MAX_WIRE_NAME = 64
_WIRE_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_WIRE_NAME}}}")
_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


def is_wire_name(name: str) -> bool:
    """Check whether every provider accepts a name."""
    return _WIRE_NAME.fullmatch(name) is not None


def plain_characters(text: str) -> str:
    """Replace each character that providers refuse by `_`."""
    return _REFUSED.sub("_", text)


def accepted_name(name: str) -> str:
    """Turn any text into a name that every provider accepts. A valid one stays as it is."""
    return plain_characters(name[:MAX_WIRE_NAME]) or "unnamed"
