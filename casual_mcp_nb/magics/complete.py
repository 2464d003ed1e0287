"""Completion and help of `%mcp` and `%%mcp`: commands, options, and the names in a session. Does not connect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from casual_mcp_nb.base.model_options import DELIVERY_SETTINGS
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.magics.args import CELL_OPTIONS, COMPARE_OPTIONS, DISCOVERY, STRATEGIES
from casual_mcp_nb.magics.commands import COMMANDS, Command

if TYPE_CHECKING:
    from casual_mcp_nb.base.diagnosis import Help, HelpRow
    from casual_mcp_nb.session import Session


def help_of(command: str = "") -> Help:
    """Build the whole help, or that of one command.

    Raises:
        UnknownNameError: There is no such command.
    """
    from casual_mcp_nb.base.diagnosis import Help, HelpRow

    if command:
        name = command.removeprefix("%mcp").strip() or command
        if name not in COMMANDS:
            raise UnknownNameError("%mcp command", name, COMMANDS)
        return Help(f"%mcp {name}", ((COMMANDS[name].group, (_row(name, COMMANDS[name]),)),))
    groups = [
        (group, tuple(_row(name, row) for name, row in rows))
        for group, rows in groupby(COMMANDS.items(), lambda item: item[1].group)
    ]
    options = tuple(HelpRow(f"{name} {flag.takes}".strip(), flag.help) for name, flag in CELL_OPTIONS.items())
    cells = (
        HelpRow("%%mcp [options]", "send the text below to the model", "%%mcp --echo text"),
        HelpRow("%%mcp_config [FILE] [--overwrite]", "check the config below, save it and connect", "%%mcp_config"),
        HelpRow("%config McpMagics", "the defaults of %%mcp", '%config McpMagics.echo = "all"'),
    )
    start = (
        HelpRow("%mcp demo", "start seven small servers that need no key", "%mcp demo"),
        HelpRow("%%mcp", "ask: the question goes below it", "%mcp ask What is 17 * 24?"),
        HelpRow("%mcp explore", "see the cost of each tool, and choose the model's tools", "%mcp explore"),
    )
    return Help("%mcp and %%mcp", (("Start here", start), *groups, ("Cells", cells), ("Options of %%mcp", options)))


def _row(name: str, command: Command) -> HelpRow:
    from casual_mcp_nb.base.diagnosis import HelpRow

    return HelpRow(f"%mcp {name} {command.usage}".strip(), command.summary, command.example)


_NAMES_OF_OPTION = {
    "--model": "models",
    "--toolset": "tool_sets",
    "--template": "templates",
    "--strategy": "strategies",
    "--tool-choice": "tools",
    "--var": "variables",
    "--attach": "resources",
}

_WAIT = 0.5
"""How many seconds completion waits for servers to list their resources and prompts."""
_NEEDS_CONVERSATIONS = re.compile(r"%mcp\s+(?:resume|rename|archive|restore|delete)\b")
_NEEDS_RESOURCES = re.compile(r"%mcp\s+(?:read|prompt)\s|%%mcp\s.*--attach\s")


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
    resources: Sequence[str] = ()
    prompts: Sequence[str] = ()
    conversations: Sequence[str] = ()
    doctor: Sequence[str] = ()
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strategies: Sequence[str] = STRATEGIES
    deliveries: Sequence[str] = DELIVERY_SETTINGS
    commands: Sequence[str] = tuple(COMMANDS)

    @classmethod
    def of(cls, session: Session | None, variables: Iterable[str] = (), text: str = "") -> Names:
        """Collect the names in a session; without one only those of commands and variables.

        Args:
            session: The session.
            variables: The variables of the notebook.
            text: The line, see `complete`: for some, servers that are connected are queried for a moment.
        """
        own = sorted(name for name in variables if not name.startswith("_"))
        if session is None:
            return cls(variables=own)
        resources, prompts = session.resource_service.known_soon(_WAIT if _NEEDS_RESOURCES.match(text) else 0)
        return cls(
            resources=[resource.uri for resource in resources],
            prompts=[f"{prompt.server}:{prompt.name}" for prompt in prompts],
            arguments={
                **{resource.uri: resource.parameters or () for resource in resources},
                **{f"{each.server}:{each.name}": [argument.name for argument in each.arguments] for each in prompts},
            },
            conversations=[each.id for each in session.conversations] if _NEEDS_CONVERSATIONS.match(text) else (),
            servers=list(session.servers),
            tools=[tool.wire_name for tool in session.tools],
            doctor=[*session.servers, *(str(tool.tool_name) for tool in session.tools)],
            tool_sets=list(session.config.tool_sets),
            models=list(session.config.models),
            templates=[name.removesuffix(".j2") for name in session.models.templates()],
            variables=own,
            cases=sorted(path.name for path in Path.cwd().glob("*.jsonl")),
        )


def complete(text: str, names: Names) -> list[str]:
    """List the completions of the last word of a line.

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
    """Find the word that is being typed; empty after a space."""
    return "" if not text or text[-1].isspace() else text.split()[-1]


def _of_line(words: list[str], names: Names) -> Sequence[str]:
    if not words:
        return names.commands
    if words[0] == "compare":
        return _of_compare(words[1:], names)
    command = COMMANDS.get(words[0])
    if command is None or not command.names:
        return ()
    candidates: Sequence[str] = getattr(names, command.names)
    if words[0] == "toolset":
        candidates = [*candidates, "all"]
    if command.usage.endswith("…"):
        return [name for name in candidates if name not in words[1:]]
    if len(words) > 1:
        given = {word.partition("=")[0] for word in words[2:]}
        return [f"{name}=" for name in names.arguments.get(words[1], ()) if name not in given]
    return candidates


def _of_compare(words: list[str], names: Names) -> Sequence[str]:
    last = words[-1] if words else ""
    if last == "--discovery":
        return tuple(DISCOVERY)
    if last in COMPARE_OPTIONS:
        candidates: Sequence[str] = getattr(names, COMPARE_OPTIONS[last], ())
        return candidates
    return [option for option in COMPARE_OPTIONS if option not in words]


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
