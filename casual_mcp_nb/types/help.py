"""What `%mcp help` shows."""

from __future__ import annotations

from dataclasses import dataclass

from casual_mcp_nb.types.displayable import Displayable


@dataclass(frozen=True)
class HelpRow:
    """One command: how it is written, what it is for, and an example."""

    usage: str
    summary: str
    example: str = ""


@dataclass(frozen=True)
class Help(Displayable):
    """Commands in groups.

    Args:
        title: What it is about.
        groups: The commands of each group, by the group's title.
    """

    title: str
    groups: tuple[tuple[str, tuple[HelpRow, ...]], ...]
