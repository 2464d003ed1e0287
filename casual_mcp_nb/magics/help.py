"""The help of the magics, made from the commands and options themselves."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.magics.args import CELL_OPTIONS
from casual_mcp_nb.magics.commands import COMMANDS, Command

if TYPE_CHECKING:
    from casual_mcp_nb.types.help import Help, HelpRow

_OPTION_WORDS = {
    "--model": "the model for this turn",
    "--toolset": "the toolset for this turn",
    "--system": "the system prompt for this turn",
    "--template": "the template of the system prompt for this turn",
    "--echo": "what the cell shows: nothing, the answer, the usual, or everything",
    "--no-discovery": "send all tools at once",
    "--max-steps": "calls of the model at most",
    "--temperature": "how freely the model chooses its words",
    "--top-p": "from which share of the likeliest tokens",
    "--max-tokens": "limit of an answer in tokens",
    "--seed": "the same answer again, where the provider can do that",
    "--stop": "a text at which the answer ends",
    "--tool-choice": "auto, none, required, or the tool that the first step calls",
    "--reasoning-effort": "how much the model thinks before it answers",
    "--var": "put the variable NAME in where the text has {{ NAME }}; can be given again",
    "-o": "keep the turn in the variable NAME; `%mcp` takes it too",
}


def help_of(command: str = "") -> Help:
    """The whole help, or that of one command.

    Raises:
        UnknownNameError: There is no such command.
    """
    from casual_mcp_nb.types.help import Help, HelpRow

    if command:
        name = command.removeprefix("%mcp").strip() or command
        if name not in COMMANDS:
            raise UnknownNameError("%mcp command", name, COMMANDS)
        return Help(f"%mcp {name}", ((COMMANDS[name].group, (_row(name, COMMANDS[name]),)),))
    groups = [
        (group, tuple(_row(name, row) for name, row in rows))
        for group, rows in groupby(COMMANDS.items(), lambda item: item[1].group)
    ]
    options = tuple(HelpRow(f"{name} {takes}".strip(), _OPTION_WORDS[name]) for name, takes in CELL_OPTIONS.items())
    cells = (
        HelpRow("%%mcp [options]", "send the text below to the model as it is", "%%mcp --echo text"),
        HelpRow("%%mcp_config [FILE] [--overwrite]", "check the config below, write it and connect", "%%mcp_config"),
        HelpRow("%config McpMagics", "what %%mcp does without options", '%config McpMagics.echo = "all"'),
    )
    return Help("%mcp and %%mcp", (*groups, ("Cells", cells), ("Options of %%mcp", options)))


def _row(name: str, command: Command) -> HelpRow:
    from casual_mcp_nb.types.help import HelpRow

    return HelpRow(f"%mcp {name} {command.usage}".strip(), command.summary, command.example)
