"""Toolsets: which tools a conversation may use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import ToolName, ToolSpec, by_server
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
        included.update(tool.tool_name for tool in _included(owned.get(server, ()), spec))
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
    problems = [
        f"there is no server {shown(server)}. {hint}"
        for server, hint in unknown_servers(tool_set, servers).items()
    ]
    for server, spec in tool_set.servers.items():
        if server in servers and _listed(servers[server]):
            problems += _unknown_tools(server, owned.get(server, ()), spec)
    if problems:
        which = f"Toolset {shown(name)}" if name else "The toolset"
        lines = "\n".join(f"- {problem}" for problem in problems)
        raise ToolSetError(f"{which} does not match the servers:\n{lines}")


def unknown_servers(tool_set: ToolSetConfig, servers: Collection[str]) -> dict[str, str]:
    """Find the servers that a toolset names and that do not exist, each with the closest names."""
    return {
        server: did_you_mean(closest(server, servers), servers)
        for server in tool_set.servers
        if server not in servers
    }


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


def _included(owned: Iterable[ToolSpec], spec: Spec) -> Iterator[ToolSpec]:
    if isinstance(spec, bool):
        yield from owned if spec else ()
        return
    excluding = isinstance(spec, ExcludeSpec)
    owned = tuple(owned)
    listed = {tool.name for name in _names(spec) for tool in _named(name, owned)}
    yield from (tool for tool in owned if (tool.name in listed) is not excluding)


def _named(name: str, owned: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Find the tools on one server that a name means: the exact match, else all possible ones."""
    possible = [tool for tool in owned if name == tool.wire_name or name in tool.aliases]
    return [tool for tool in possible if tool.name == name] or possible


def _names(spec: Spec) -> tuple[str, ...]:
    if isinstance(spec, bool):
        return ()
    return spec.exclude if isinstance(spec, ExcludeSpec) else spec


def _unknown_tools(server: str, owned: Iterable[ToolSpec], spec: Spec) -> Iterator[str]:
    owned = tuple(owned)
    valid = [tool.name for tool in owned]
    for name in _names(spec):
        if not _named(name, owned):
            hint = did_you_mean(closest(name, valid), valid)
            yield f"server {shown(server)} has no tool {shown(name)}. {hint}"


def _listed(status: ServerStatus) -> bool:
    return status.state == "ready" and status.error is None


def _missing(status: ServerStatus) -> Notice:
    if status.state in ("starting", "closed") and status.error is None:
        word = "is still starting" if status.state == "starting" else "is closed"
        return Notice(
            f"Server {shown(status.name)} {word}, so its tools are missing.", server=status.name
        )
    reason = " ".join((status.error or "no reason was given").split()).rstrip(".")
    return Notice(
        f"Server {shown(status.name)} failed: {reason}, so its tools are missing.",
        server=status.name,
    )


def _wrong_parts(error: ValidationError) -> str:
    """Describe the errors, one phrase per part.

    Pydantic reports a union as one error per member.
    """
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        where = [str(step) for step in problem["loc"][:2]]
        if where[:1] == ["servers"] and len(where) == 2:
            parts.append(
                f'servers.{where[1]} is true, a list of tool names, or {{"exclude": [names]}}'
            )
        else:
            parts.append(f"{'.'.join(where)}: {problem['msg']}")
    return "; ".join(dict.fromkeys(parts))
