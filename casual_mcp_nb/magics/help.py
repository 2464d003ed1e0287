"""The help of `%mcp`: the commands of every day, one command, a topic, or everything."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import UnknownNameError, shown
from casual_mcp_nb.magics.args import CELL_OPTIONS, CELL_OPTIONS_OF_EVERY_DAY
from casual_mcp_nb.magics.commands import COMMANDS, EVERY_DAY, SAME, TOPICS, Command

if TYPE_CHECKING:
    from casual_mcp_nb.base.status import Help, HelpRow

    Group = tuple[str, tuple[HelpRow, ...]]

_CELLS = "cells"


def help_of(about: str = "") -> Help:
    """Build the help on a command, a topic or a word of summaries, or on everything (`--all`).

    Without a name, it has the commands of every day, and the topics of the others.

    Raises:
        UnknownNameError: There is no such command or topic.
    """
    from casual_mcp_nb.base.status import Help

    name = about.removeprefix("%mcp").strip() or about
    name = SAME.get(name, name)
    if not name:
        return Help("%mcp and %%mcp", (_every_day(), _topics()))
    if name == "--all":
        groups = list(map(_topic, _titles()))
        return Help("%mcp and %%mcp", (*groups, *_cells()), folded=True)
    if name in ("%%mcp", _CELLS):
        return Help("Cells", tuple(_cells()))
    found: list[Group] = []
    if name in COMMANDS:
        command = COMMANDS[name]
        topic = f"{_titles()[command.topic]} (%mcp help {command.topic})"
        found.append((topic, (_row(name, command),)))
    if name in _titles():
        found.append(_topic(name, without=name))
    if not found:
        found += _about(name)
    if not found:
        raise UnknownNameError("%mcp command or topic", name, [*_titles(), _CELLS, *COMMANDS])
    title = name
    if name in COMMANDS:
        title = f"%mcp {name}"
    return Help(title, tuple(found))


def _about(word: str) -> list[Group]:
    """Find the commands whose summary has a word, for what has no command or topic of its name."""
    if len(word) < _LEAST_WORD:
        return []
    rows = []
    for name, command in COMMANDS.items():
        if re.search(rf"\b{re.escape(word)}", command.summary, re.IGNORECASE):
            rows.append(_row(name, command))
    return [(f"Commands about {shown(word)}", tuple(rows))] if rows else []


_LEAST_WORD = 4
"""Shorter words are misspelt commands rather than subjects."""


def _titles() -> dict[str, str]:
    """List the topics with what they are for. A command added from outside can have its own."""
    titles = dict(TOPICS)
    for command in COMMANDS.values():
        titles.setdefault(command.topic, command.topic)
    return titles


def _every_day() -> Group:
    from casual_mcp_nb.base.status import HelpRow

    asking = HelpRow("%%mcp", "ask: your question goes on the lines below it", "a %%mcp cell")
    rows = []
    for name in EVERY_DAY:
        command = COMMANDS[name]
        rows.append(HelpRow(f"%mcp {name}", command.summary, _example(name, command)))
    return "Every day", (rows[0], asking, *rows[1:])


def _topics() -> Group:
    from casual_mcp_nb.base.status import HelpRow

    rows = []
    for topic, title in _titles().items():
        names = [name for name, command in COMMANDS.items() if command.topic == topic]
        rows.append(HelpRow(f"%mcp help {topic}", title, ", ".join(names)))
    options = f"{len(CELL_OPTIONS)} options, %%mcp write, %%mcp_config"
    rows.append(HelpRow(f"%mcp help {_CELLS}", "Ask with options, in a cell", options))
    rows.append(HelpRow("%mcp help --all", "Everything"))
    return "By topic", tuple(rows)


def _topic(topic: str, without: str = "") -> Group:
    """List a topic's commands, without the one that is shown above them."""
    rows: list[HelpRow] = []
    for name, command in COMMANDS.items():
        if command.topic == topic and name != without:
            rows.append(_row(name, command))
    return _titles()[topic], tuple(rows)


def _cells() -> list[Group]:
    from casual_mcp_nb.base.status import HelpRow

    cells = (
        HelpRow("%%mcp [options]", "send the text below to the model", "%%mcp --echo text"),
        HelpRow(
            "%%mcp write [--model NAME | PROVIDER:MODEL] [--var NAME]",
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
    others = [name for name in CELL_OPTIONS if name not in CELL_OPTIONS_OF_EVERY_DAY]
    return [
        ("Cells", cells),
        ("Options of %%mcp", _options(CELL_OPTIONS_OF_EVERY_DAY)),
        ("More options of %%mcp", _options(others)),
    ]


def _options(names: Iterable[str]) -> tuple[HelpRow, ...]:
    from casual_mcp_nb.base.status import HelpRow

    rows = []
    for name in names:
        flag = CELL_OPTIONS[name]
        rows.append(HelpRow(f"{name} {flag.takes}".strip(), flag.help))
    return tuple(rows)


def _row(name: str, command: Command) -> HelpRow:
    from casual_mcp_nb.base.status import HelpRow

    usage = f"%mcp {name} {command.usage}".strip()
    return HelpRow(usage, command.summary, _example(name, command))


def _example(name: str, command: Command) -> str:
    if not command.example:
        return ""
    return f"%mcp {name} {command.example}"
