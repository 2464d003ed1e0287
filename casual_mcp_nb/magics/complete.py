"""Completion of `%mcp` and `%%mcp`: commands, options, and the names in a session. Does not connect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from casual_mcp_nb.magics.args import CELL_OPTIONS, STRATEGIES
from casual_mcp_nb.magics.commands import COMMANDS

if TYPE_CHECKING:
    from casual_mcp_nb.session import Session

_NAMES_OF_OPTION = {
    "--model": "models",
    "--toolset": "tool_sets",
    "--template": "templates",
    "--tool-choice": "tools",
    "--var": "variables",
}


@dataclass(frozen=True)
class Names:
    """The names that can be completed, as far as they are known without waiting."""

    servers: Sequence[str] = ()
    tools: Sequence[str] = ()
    tool_sets: Sequence[str] = ()
    models: Sequence[str] = ()
    templates: Sequence[str] = ()
    variables: Sequence[str] = ()
    cases: Sequence[str] = ()
    strategies: Sequence[str] = STRATEGIES
    commands: Sequence[str] = tuple(COMMANDS)

    @classmethod
    def of(cls, session: Session | None, variables: Iterable[str] = ()) -> Names:
        """Return the names in a session; without one only those of commands and variables."""
        own = sorted(name for name in variables if not name.startswith("_"))
        if session is None:
            return cls(variables=own)
        return cls(
            servers=list(session.servers),
            tools=[tool.wire_name for tool in session.known_tools],
            tool_sets=list(session.config.tool_sets),
            models=list(session.config.models),
            templates=[name.removesuffix(".j2") for name in session.templates],
            variables=own,
            cases=sorted(path.name for path in Path.cwd().glob("*.jsonl")),
        )


def complete(text: str, names: Names) -> list[str]:
    """Return what can replace the last word of a line.

    Args:
        text: The line up to the cursor, from its `%` on.
        names: The names that can be completed.
    """
    prefix = last_word(text)
    words = text.split()[: -1 if prefix else None]
    if not words:
        return []
    candidates = _of_cell(words[1:], names) if words[0] == "%%mcp" else _of_line(words[1:], names)
    return [name for name in candidates if name.startswith(prefix)]


def last_word(text: str) -> str:
    """Return the word that is being typed; empty after a space."""
    return "" if not text or text[-1].isspace() else text.split()[-1]


def _of_line(words: list[str], names: Names) -> Sequence[str]:
    if not words:
        return names.commands
    command = COMMANDS.get(words[0])
    if command is None or not command.names:
        return ()
    candidates: Sequence[str] = getattr(names, command.names)
    if words[0] == "toolset":
        candidates = [*candidates, "all"]
    if command.usage.endswith("…"):
        return [name for name in candidates if name not in words[1:]]
    return candidates if len(words) == 1 else ()


def _of_cell(words: list[str], names: Names) -> Sequence[str]:
    last = words[-1] if words else ""
    takes = CELL_OPTIONS[last].takes if last in CELL_OPTIONS else ""
    if "|" in takes:
        return takes.split("|")
    if last in _NAMES_OF_OPTION:
        candidates: Sequence[str] = getattr(names, _NAMES_OF_OPTION[last])
        return candidates
    if takes:
        return ()
    return [option for option in CELL_OPTIONS if option == "--var" or option not in words]
