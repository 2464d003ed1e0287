"""What becomes of tools at other providers and in other hosts, by the tables of
`casual_mcp_nb.base.dialects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from casual_mcp_nb.base.dialects import DIALECTS, HOSTS, Dialect, Host
from casual_mcp_nb.base.displayable import DisplayableList
from casual_mcp_nb.base.tool import ToolSpec, full_names
from casual_mcp_nb.base.tool_door import admit

Effect = Literal["left out", "changed", "cut", "renamed"]
"""`left out`: the model does not get the tool.

`changed`: its schema would be refused, so another one is sent. `cut`: its model reads a part of its
description, or of its server's instructions. `renamed`: its name would be refused, so its model
reads another one.
"""
_MAX_CHANGES = 3
_PLACES: tuple[Host | Dialect, ...] = (*HOSTS, *DIALECTS.values())


@dataclass(frozen=True)
class Elsewhere:
    """What becomes of a tool at one provider or in one host.

    Args:
        where: The provider or host.
        effect: What becomes of it.
        reason: Why, in words.
    """

    where: str
    effect: Effect
    reason: str


def elsewhere(tool: ToolSpec) -> tuple[Elsewhere, ...]:
    """List the providers and hosts that take a tool only in part, or not at all.

    Those that take it as it is are left out.
    """
    return (*_at_providers(tool), *_in_hosts(tool))


def _at_providers(tool: ToolSpec) -> Iterator[Elsewhere]:
    for dialect in DIALECTS.values():
        admission = admit(tool.definition, dialect)
        if admission.definition is None:
            yield Elsewhere(dialect.title, "left out", admission.reason)
        elif admission.changes:
            more = len(admission.changes) - _MAX_CHANGES
            changes = list(admission.changes[:_MAX_CHANGES])
            if more > 0:
                changes.append(f"and {more} more changes")
            yield Elsewhere(dialect.title, "changed", "; ".join(changes))
        if dialect.names is not None and not dialect.names.fullmatch(tool.name):
            reason = f"its name would be refused, so it is sent as {tool.wire_name}"
            yield Elsewhere(dialect.title, "renamed", reason)


def _in_hosts(tool: ToolSpec) -> Iterator[Elsewhere]:
    for host in HOSTS:
        problem = _name_problem(host, tool)
        if problem and host.costs_all:
            problem += ", which costs the server all its tools there"
        if problem:
            yield Elsewhere(host.title, host.bad_names, problem)
        if read := _part_read(tool.description, host.longest_description):
            yield Elsewhere(host.title, "cut", f"{read} of the description")


def _part_read(text: str, longest: int | None) -> str:
    """Say how much of a text a host's model reads. Empty if it reads all."""
    if longest is None or len(text) <= longest:
        return ""
    return f"its model reads {longest:,} of {len(text):,} characters"


def _name_problem(host: Host, tool: ToolSpec) -> str:
    """Say why a host does not take a tool's name. Empty if it does."""
    name = host.name_prefix.replace("{server}", tool.server) + tool.name
    if host.longest_name is not None and len(name) > host.longest_name:
        return f"its name has {len(name)} characters there, and {host.longest_name} fit"
    if host.letters is not None and not host.letters.fullmatch(tool.name):
        return "its name has characters other than letters, digits, _ and -"
    return ""


@dataclass(frozen=True)
class Affected:
    """The tools that one provider or host takes only in part, or not at all.

    Args:
        where: The provider or host.
        effect: What becomes of them.
        tools: Their names, in catalog order. None if it is about the server's instructions.
        reason: Why, of the first one.
    """

    where: str
    effect: Effect
    tools: tuple[str, ...]
    reason: str


def affected(tools: Iterable[ToolSpec], instructions: str = "") -> tuple[Affected, ...]:
    """Group what becomes of tools, and of their server's instructions, by provider or host."""
    tools = tuple(tools)
    names: dict[tuple[str, Effect], list[str]] = {}
    reasons: dict[tuple[str, Effect], str] = {}
    for tool in tools:
        for change in elsewhere(tool):
            place = change.where, change.effect
            names.setdefault(place, []).append(str(tool.tool_name))
            reasons.setdefault(place, change.reason)
    found: list[Affected] = []
    for where, effect in names:
        group, reason = names[where, effect], reasons[where, effect]
        found.append(Affected(where, effect, tuple(group), reason))
    for each in _PLACES:
        most = each.most_tools
        if most is not None and len(tools) > most:
            reason = f"it takes {most} tools at a time, and there are {len(tools):,}"
            beyond = tuple(full_names(tools[most:]))
            found.append(Affected(each.title, "left out", beyond, reason))
    for host in HOSTS:
        if read := _part_read(instructions, host.longest_instructions):
            reason = f"{read} of the server's instructions"
            found.append(Affected(host.title, "cut", (), reason))
    return tuple(found)


@dataclass(frozen=True)
class SeenByHost:
    """What one provider or host makes of a server.

    Args:
        where: The provider or host.
        models: The providers whose models it uses, as far as the table knows: it meets their
            refusals, too. Empty for a provider.
        tools: How many tools it takes as they are.
        affected: What becomes of the others, and of the server's instructions.
        sources: Where the facts were read.
        checked: When, as a date.
    """

    where: str
    models: tuple[str, ...]
    tools: int
    affected: tuple[Affected, ...]
    sources: tuple[str, ...]
    checked: str


@dataclass(frozen=True)
class SeenByHosts(DisplayableList[SeenByHost], items="hosts"):
    """What providers and hosts make of a server's tools and instructions."""

    server: str
    hosts: tuple[SeenByHost, ...]


def seen_by_hosts(server: str, tools: Sequence[ToolSpec], instructions: str) -> SeenByHosts:
    """List each host, then each provider, with what it makes of a server.

    Args:
        server: The server's name.
        tools: Its tools.
        instructions: Its instructions, or empty.
    """
    found = affected(tools, instructions)
    hosts: list[SeenByHost] = []
    for place in _PLACES:
        changes = tuple(each for each in found if each.where == place.title)
        names: set[str] = set()
        for each in changes:
            names.update(each.tools)
        taken = len(tools) - len(names)
        models: tuple[str, ...] = ()
        if isinstance(place, Host):
            models = tuple(DIALECTS[name].title for name in place.dialects)
            if place.costs_all and names:
                taken = 0
        hosts.append(SeenByHost(place.title, models, taken, changes, place.sources, place.checked))
    return SeenByHosts(server, tuple(hosts))
