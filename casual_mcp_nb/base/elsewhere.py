"""What becomes of tools at other providers and in other hosts, by the tables of
`casual_mcp_nb.base.dialects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from casual_mcp_nb.base.dialects import DIALECTS, HOSTS, Host
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.base.tool_door import admit

Effect = Literal["left out", "changed", "cut"]
"""`left out`: the model does not get the tool.

`changed`: its schema would be refused, so another one is sent. `cut`: its model reads a part of its
description.
"""
_MAX_CHANGES = 3


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


def _in_hosts(tool: ToolSpec) -> Iterator[Elsewhere]:
    for host in HOSTS:
        name = host.name_prefix.replace("{server}", tool.server) + tool.name
        if host.longest_name is not None and len(name) > host.longest_name:
            yield Elsewhere(
                host.title,
                "left out",
                f"its name has {len(name)} characters there, and {host.longest_name} fit",
            )
        longest = host.longest_description
        if longest is not None and len(tool.description) > longest:
            read = f"{longest:,} of {len(tool.description):,} characters"
            yield Elsewhere(host.title, "cut", f"its model reads {read} of the description")


@dataclass(frozen=True)
class Affected:
    """The tools that one provider or host takes only in part, or not at all.

    Args:
        where: The provider or host.
        effect: What becomes of them.
        tools: Their names, in catalog order.
        reason: Why, of the first one.
    """

    where: str
    effect: Effect
    tools: tuple[str, ...]
    reason: str


def affected(tools: Iterable[ToolSpec]) -> tuple[Affected, ...]:
    """Group what becomes of tools by provider or host."""
    tools = tuple(tools)
    names: dict[tuple[str, Effect], list[str]] = {}
    reasons: dict[tuple[str, Effect], str] = {}
    for tool in tools:
        for each in elsewhere(tool):
            place = each.where, each.effect
            names.setdefault(place, []).append(str(tool.tool_name))
            reasons.setdefault(place, each.reason)
    found: list[Affected | None] = []
    for where, effect in names:
        group, reason = names[where, effect], reasons[where, effect]
        found.append(Affected(where, effect, tuple(group), reason))
    found += [_too_many(host, tools) for host in HOSTS]
    return tuple(filter(None, found))


def _too_many(host: Host, tools: tuple[ToolSpec, ...]) -> Affected | None:
    if host.most_tools is None or len(tools) <= host.most_tools:
        return None
    beyond = tuple(str(tool.tool_name) for tool in tools[host.most_tools :])
    return Affected(
        host.title,
        "left out",
        beyond,
        f"it offers {host.most_tools} tools at a time, and there are {len(tools):,}",
    )
