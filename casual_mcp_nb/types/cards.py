"""Read the answer of a search again: the tools that its marker lines name. `discovery` writes them.

A marker is a line with only the tool's wire name, after an empty line. Text from a server is indented and has no empty lines,
so it can never look like a marker, even if the answer is cut later.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_MARKER = re.compile(r"(?<=\n\n)## ([A-Za-z0-9_-]{1,64})$", re.MULTILINE)
_CARD = re.compile(rf"{_MARKER.pattern}(?:\n(?!\n).*)*", re.MULTILINE)


def unmarked(content: str) -> str:
    """Change a text so that nothing in it marks a tool as loaded."""
    return _MARKER.sub(r" ## \1", f"\n\n{content}")[2:]


def unloaded(content: str, name: str) -> str:
    """Mark a tool in an answer as unloaded by the person instead.

    Args:
        content: The answer.
        name: The wire name of the tool.
    """
    marker = re.compile(rf"(?<=\n\n)## {re.escape(name)}$", re.MULTILINE)
    return marker.sub(lambda match: f" {match[0]} (unloaded since by the person)", content)


def loaded_in(content: str) -> list[str]:
    """Parse the wire names of the tools that an answer presents as loaded, now or before."""
    return list(dict.fromkeys(_MARKER.findall(content)))


def without_cards(content: str, names: Collection[str]) -> str:
    """Cut these tools' cards in an answer to their marker lines: the definitions have the rest.

    Args:
        content: The answer.
        names: The wire names of the tools.
    """
    return _CARD.sub(lambda card: f"## {card[1]}" if card[1] in names else card[0], content)
