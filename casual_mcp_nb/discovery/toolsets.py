"""Toolsets: which tools a conversation may use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import ToolName, ToolSpec, by_server, tool_names
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.errors import ToolSetError, UnknownNameError, closest, did_you_mean, shown

Spec = bool | tuple[str, ...] | ExcludeSpec


def filter_tools(tools: Iterable[ToolSpec], tool_set: ToolSetConfig | None) -> tuple[ToolSpec, ...]:
    """Filter the tools to those that a toolset includes. None includes all.

    It can name a tool by its bare name, its wire name, `server:tool` or `server_tool`. The tool
    must belong to the server under which the toolset lists it.
    """
    tools = tuple(tools)
    if tool_set is None:
        return tools
    owned = by_server(tools)
    included: set[ToolName] = set()
    for server, spec in tool_set.servers.items():
        included.update(tool_names(_included(owned.get(server, ()), spec)))
    return tuple(tool for tool in tools if tool.tool_name in included)


def includes_for_apps(tool: ToolSpec, tool_set: ToolSetConfig | None) -> bool:
    """Check whether a toolset lets its server's apps call a tool.

    It binds apps as it binds a model. A list of names speaks of the tools that a model can see, so
    tools that are only for apps come with their server, unless the list is empty.
    """
    if tool.restriction == "app only" and tool_set is not None:
        rule = tool_set.servers.get(tool.server, False)
        if isinstance(rule, tuple):
            return bool(rule)
    return bool(filter_tools([tool], tool_set))


def check_tool_set(
    tool_set: ToolSetConfig | None,
    servers: Mapping[str, ServerStatus],
    tools: Iterable[ToolSpec],
    name: str | None = None,
) -> None:
    """Check that everything a toolset names exists, except tools on servers that could not list
    theirs: see `missing_servers`.

    A ToolSetError lists all unknown servers and tools, each with the closest names.
    """
    if tool_set is None:
        return
    owned = by_server(tools)
    problems = []
    for server, hint in unknown_servers(tool_set, servers).items():
        problems.append(f"there is no server {shown(server)}. {hint}")
    for server, spec in tool_set.servers.items():
        if server in servers and _listed(servers[server]):
            problems += _unknown_tools(server, owned.get(server, ()), spec)
    if problems:
        which = f"Toolset {shown(name)}" if name else "The toolset"
        lines = "\n".join(f"- {problem}" for problem in problems)
        raise ToolSetError(f"{which} does not match the servers:\n{lines}")


def unknown_servers(tool_set: ToolSetConfig, servers: Collection[str]) -> dict[str, str]:
    """Find the servers that a toolset names and that do not exist, each with the closest names."""
    unknown = [server for server in tool_set.servers if server not in servers]
    return {server: did_you_mean(closest(server, servers), servers) for server in unknown}


def missing_servers(
    tool_set: ToolSetConfig | None, servers: Mapping[str, ServerStatus]
) -> tuple[Notice, ...]:
    """Build a notice for each server whose tools are missing because it is not connected, with the
    reason.
    """
    wanted = list(servers)
    if tool_set is not None:
        wanted = [server for server, spec in tool_set.servers.items() if spec is not False]
    known = [servers[server] for server in wanted if server in servers]
    return tuple(_missing(status) for status in known if not _listed(status))


def resolve_tool_set(
    value: str | ToolSetConfig | Mapping[str, Any] | None, tool_sets: Mapping[str, ToolSetConfig]
) -> ToolSetConfig | None:
    """Resolve the toolset for its name, a toolset, a mapping with `servers`, or None for all tools.

    Raises UnknownNameError if no toolset has that name, and ToolSetError if the value is not a
    toolset.
    """
    if value is None or isinstance(value, ToolSetConfig):
        return value
    if isinstance(value, str):
        if value not in tool_sets:
            raise UnknownNameError("toolset", value, tool_sets)
        return tool_sets[value]
    if not isinstance(value, Mapping):
        hint = (
            "Give a toolset's name, a ToolSetConfig, or a mapping such as {'servers': {'math':"
            " True}}."
        )
        raise ToolSetError(f"A {type(value).__name__} is not a toolset.", hint=hint)
    try:
        return ToolSetConfig.model_validate(dict(value))
    except ValidationError as error:
        raise ToolSetError(f"Invalid toolset: {_wrong_parts(error)}.") from error


def _included(owned: Sequence[ToolSpec], spec: Spec) -> Sequence[ToolSpec]:
    if isinstance(spec, bool):
        return owned if spec else ()
    listed: set[str] = set()
    for name in _names(spec):
        listed.update(tool.name for tool in _named(name, owned))
    if isinstance(spec, ExcludeSpec):
        return [tool for tool in owned if tool.name not in listed]
    return [tool for tool in owned if tool.name in listed]


def _named(name: str, owned: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Find the tools on one server that a name means: the exact match, else all possible ones."""
    possible = [tool for tool in owned if name == tool.wire_name or name in tool.aliases]
    return [tool for tool in possible if tool.name == name] or possible


def _names(spec: Spec) -> tuple[str, ...]:
    if isinstance(spec, bool):
        return ()
    if isinstance(spec, ExcludeSpec):
        return spec.exclude
    return spec


def _unknown_tools(server: str, owned: Sequence[ToolSpec], spec: Spec) -> Iterator[str]:
    valid = [tool.name for tool in owned]
    for name in _names(spec):
        if not _named(name, owned):
            hint = did_you_mean(closest(name, valid), valid)
            yield f"server {shown(server)} has no tool {shown(name)}. {hint}"


def _listed(status: ServerStatus) -> bool:
    return status.state == "ready" and status.error is None


def _missing(status: ServerStatus) -> Notice:
    reason = " ".join((status.error or "no reason was given").split()).rstrip(".")
    what = f"failed: {reason}"
    if status.error is None and status.state == "starting":
        what = "is still starting"
    elif status.error is None and status.state == "closed":
        what = "is closed"
    text = f"Server {shown(status.name)} {what}, so its tools are missing."
    return Notice(text, server=status.name)


def _wrong_parts(error: ValidationError) -> str:
    """Describe the errors, one phrase per part.

    Pydantic reports a union as one error per member.
    """
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        where = list(map(str, problem["loc"][:2]))
        if where[:1] == ["servers"] and len(where) == 2:
            parts.append(
                f'servers.{where[1]} is true, a list of tool names, or {{"exclude": [names]}}'
            )
        else:
            parts.append(f"{'.'.join(where)}: {problem['msg']}")
    return "; ".join(dict.fromkeys(parts))
