"""The help of `%mcp help`."""

from __future__ import annotations

from dataclasses import dataclass

from casual_mcp_nb.types.displayable import Displayable


@dataclass(frozen=True)
class HelpRow:
    """One command: its syntax, its purpose, and an example."""

    usage: str
    summary: str
    example: str = ""


@dataclass(frozen=True)
class Help(Displayable):
    """Commands by group.

    Args:
        title: The title.
        groups: The commands of each group, by the group's title.
    """

    title: str
    groups: tuple[tuple[str, tuple[HelpRow, ...]], ...]
