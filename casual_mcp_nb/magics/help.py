"""The help of `%mcp`: its commands, each with its usage and an example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.magics.args import CELL_OPTIONS
from casual_mcp_nb.magics.commands import COMMANDS, Command

if TYPE_CHECKING:
    from casual_mcp_nb.base.status import Help, HelpRow


def help_of(command: str = "") -> Help:
    """Build the whole help, or one command's."""
    from casual_mcp_nb.base.status import Help, HelpRow

    if command:
        name = command.removeprefix("%mcp").strip() or command
        if name not in COMMANDS:
            raise UnknownNameError("%mcp command", name, COMMANDS)
        return Help(f"%mcp {name}", ((COMMANDS[name].group, (_row(name, COMMANDS[name]),)),))
    groups: dict[str, tuple[HelpRow, ...]] = {}
    for name, row in COMMANDS.items():
        groups[row.group] = (*groups.get(row.group, ()), _row(name, row))
    options = tuple(
        HelpRow(f"{name} {flag.takes}".strip(), flag.help) for name, flag in CELL_OPTIONS.items()
    )
    cells = (
        HelpRow("%%mcp [options]", "send the text below to the model", "%%mcp --echo text"),
        HelpRow(
            "%%mcp write [--model MODEL] [--var NAME]",
            "have the model write a cell for the task below",
            "%%mcp write",
        ),
        HelpRow(
            "%%mcp_config [FILE] [--overwrite]",
            "check the config below, save it and connect",
            "%%mcp_config",
        ),
        HelpRow("%config McpMagics", "the defaults of %%mcp", '%config McpMagics.echo = "all"'),
    )
    start = (
        HelpRow("%mcp demo", "start seven small servers that need no key", "%mcp demo"),
        HelpRow("%%mcp", "ask: the question goes below it", "%mcp ask What is 17 * 24?"),
        HelpRow(
            "%mcp explore",
            "see the cost of each tool, and choose the model's tools",
            "%mcp explore",
        ),
    )
    return Help(
        "%mcp and %%mcp",
        (("Start here", start), *groups.items(), ("Cells", cells), ("Options of %%mcp", options)),
    )


def _row(name: str, command: Command) -> HelpRow:
    from casual_mcp_nb.base.status import HelpRow

    example = f"%mcp {name} {command.example}" if command.example else ""
    return HelpRow(f"%mcp {name} {command.usage}".strip(), command.summary, example)
