"""What completes a `%mcp` line: commands, options, and the names that are known without waiting."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from casual_mcp_nb.base.model_options import DELIVERY_SETTINGS
from casual_mcp_nb.magics.args import (
    CELL_OPTIONS,
    COMPARE_OPTIONS,
    DISCOVERY,
    METHODS,
    STRATEGIES,
    WIRE_OPTIONS,
)
from casual_mcp_nb.magics.commands import COMMANDS, SAME, TOPICS

if TYPE_CHECKING:
    from casual_mcp_nb.session import Session

WAIT = 0.5
"""How many seconds completion waits for servers to list their resources and prompts."""

NEEDS_CONVERSATIONS = re.compile(r"%mcp\s+(?:resume|rename|archive|restore|delete)\b")

NEEDS_RESOURCES = re.compile(r"%mcp\s+(?:read|prompt)\s|%%mcp\s.*--attach\s")

_NAMES_OF_OPTION = {
    "--model": "models",
    "--toolset": "tool_sets",
    "--template": "templates",
    "--strategy": "strategies",
    "--tool-choice": "tools",
    "--var": "variables",
    "--attach": "resources",
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
    resources: Sequence[str] = ()
    prompts: Sequence[str] = ()
    skills: Sequence[str] = ()
    conversations: Sequence[str] = ()
    doctor: Sequence[str] = ()
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strategies: Sequence[str] = STRATEGIES
    deliveries: Sequence[str] = DELIVERY_SETTINGS
    commands: Sequence[str] = tuple(COMMANDS)
    helped: Sequence[str] = tuple(dict.fromkeys([*TOPICS, "cells", *COMMANDS, "--all"]))

    @classmethod
    def of(cls, session: Session | None, variables: Iterable[str] = (), text: str = "") -> Names:
        """Collect the names in a session. Without one, only commands and variables.

        For a line in which resources or prompts can come next, connected servers are asked for
        theirs, for `WAIT` seconds at most.
        """
        own: list[str] = []
        for variable in sorted(variables):
            if not variable.startswith("_"):
                own.append(variable)
        if session is None:
            return cls(variables=own)
        wait = 0.0
        if NEEDS_RESOURCES.match(text):
            wait = WAIT
        # Loading the extension imports no tools.
        from casual_mcp_nb.base.tool import full_names

        resources, prompts = session.parts.resource_service.known_soon(wait)
        arguments: dict[str, Sequence[str]] = {}
        for resource in resources:
            arguments[resource.uri] = resource.parameters or ()
        for prompt in prompts:
            name = f"{prompt.server}:{prompt.name}"
            arguments[name] = [argument.name for argument in prompt.arguments]
        conversations: list[str] = []
        if NEEDS_CONVERSATIONS.match(text):
            conversations = [each.id for each in session.conversations]
        return cls(
            resources=[resource.uri for resource in resources],
            prompts=full_names(prompts),
            arguments=arguments,
            skills=full_names(session.resources.skills),
            conversations=conversations,
            servers=list(session.servers),
            tools=[tool.wire_name for tool in session.tools],
            doctor=[*session.servers, *full_names(session.tools)],
            tool_sets=list(session.config.tool_sets),
            models=list(session.config.models),
            templates=[name.removesuffix(".j2") for name in session.models.templates()],
            variables=own,
            cases=sorted(path.name for path in Path.cwd().glob("*.jsonl")),
        )


def complete(text: str, names: Names) -> list[str]:
    """List the completions for a line's last word, up to the cursor and from its `%` on."""
    prefix = last_word(text)
    words = text.split()
    if prefix:
        words.pop()
    if not words:
        return []
    if words[0] == "%%mcp":
        candidates = _of_cell(words[1:], names)
    else:
        candidates = _of_line(words[1:], names)
    return [name for name in candidates if name.startswith(prefix)]


def last_word(text: str) -> str:
    """Find the word that is being typed. It is empty after a space."""
    if not text or text[-1].isspace():
        return ""
    return text.split()[-1]


def _of_line(words: list[str], names: Names) -> Sequence[str]:
    if not words:
        return names.commands
    if words[0] == "compare":
        return _of_compare(words[1:], names)
    if words[0] == "wire":
        return _of_wire(words[1:], names)
    command = COMMANDS.get(SAME.get(words[0], words[0]))
    if command is None or not command.names:
        return ()
    candidates: list[str] = [*getattr(names, command.names)]
    if command is COMMANDS["toolset"]:
        candidates.append("all")
    if command.usage.endswith("…"):
        return _without(candidates, words[1:])
    if len(words) > 1:
        given = [word.partition("=")[0] for word in words[2:]]
        arguments = _without(names.arguments.get(words[1], ()), given)
        return [f"{name}=" for name in arguments]
    return candidates


def _without(names: Iterable[str], given: Collection[str]) -> list[str]:
    """List the names that are not given yet."""
    return [name for name in names if name not in given]


def _of_compare(words: list[str], names: Names) -> Sequence[str]:
    last = words[-1] if words else ""
    if last == "--discovery":
        return tuple(DISCOVERY)
    if last in COMPARE_OPTIONS:
        candidates: Sequence[str] = getattr(names, COMPARE_OPTIONS[last], ())
        return candidates
    return _without(COMPARE_OPTIONS, words)


def _of_wire(words: list[str], names: Names) -> Sequence[str]:
    last = words[-1] if words else ""
    if last == "--method":
        return METHODS
    if last in WIRE_OPTIONS:
        return ()
    options = _without(WIRE_OPTIONS, words)
    if words:
        return options
    return [*names.servers, *options]


def _of_cell(words: list[str], names: Names) -> Sequence[str]:
    last = words[-1] if words else ""
    if last in _NAMES_OF_OPTION:
        candidates: Sequence[str] = getattr(names, _NAMES_OF_OPTION[last])
        return candidates
    takes = ""
    if last in CELL_OPTIONS:
        takes = CELL_OPTIONS[last].takes
    if "|" in takes:
        return takes.split("|")
    if takes:
        return ()
    repeatable = "--var"
    return _without(CELL_OPTIONS, set(words) - {repeatable})
