"""Tools with casual-mcp's names and calls: converted, by server, in toolsets, split, in templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.selection import Mode
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import ToolSpec, by_server
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.discovery import manifest
from casual_mcp_nb.discovery.toolsets import check_tool_set, filter_tools
from casual_mcp_nb.engine.options import always_loaded, mode_of
from casual_mcp_nb.servers import convert

if TYPE_CHECKING:
    import mcp
    from casual_llm import Tool


AnyTool = TypeVar("AnyTool", bound="ToolSpec | mcp.Tool")
"""A tool as given and returned: from a `ToolCache`, or the MCP SDK's."""


def tool_from_mcp(mcp_tool: ToolSpec | mcp.Tool) -> Tool:
    """Convert a tool to casual-llm's form, as in `ChatOptions(tools=[...])`.

    Args:
        mcp_tool: A server's tool, or the MCP SDK's.

    Returns:
        casual-llm's form, under the name that a model calls it by. It holds no `$defs`: schema
        references are left out.

    Raises:
        ValueError: It has no name, or its schema does not fit that form.
    """
    from casual_llm import Tool

    if isinstance(mcp_tool, ToolSpec):
        name, spec = mcp_tool.wire_name, mcp_tool
    else:
        name, spec = mcp_tool.name, convert.tool_from_mcp(sdk_tool(mcp_tool), "")
    definition = spec.definition
    return Tool.from_input_schema(name, definition["description"], definition["parameters"])


def tools_from_mcp(mcp_tools: Iterable[ToolSpec | mcp.Tool]) -> list[Tool]:
    """Convert tools to casual-llm's form. One that does not fit is left out with a logged warning.

    Args:
        mcp_tools: Servers' tools, or the MCP SDK's.
    """
    tools = []
    for mcp_tool in mcp_tools:
        try:
            tools.append(tool_from_mcp(mcp_tool))
        except ValueError as error:
            convert.warn_left_out("", str(mcp_tool.name), str(error))
    return tools


def specs(tools: Iterable[ToolSpec | mcp.Tool], server_of: Callable[[str], str]) -> list[ToolSpec]:
    """Convert tools to this package's form, keeping their order.

    An SDK tool's server is found by its name.
    """
    return [
        tool if isinstance(tool, ToolSpec) else _spec(tool, server_of(tool.name)) for tool in tools
    ]


def _spec(tool: mcp.Tool, server: str) -> ToolSpec:
    return convert.tool_from_mcp(sdk_tool(tool, _own_name(tool.name, server)), server)


def sdk_tool(tool: Any, name: str | None = None) -> mcp.Tool:
    """Convert a tool to the SDK's form: even one that only has its fields, under their names from
    before its version 2.
    """
    from mcp_types import Tool

    if isinstance(tool, Tool):
        return tool.model_copy(update={"name": name}) if name else tool
    if not tool.name:
        raise ValueError("it has no name")
    schema = getattr(tool, "input_schema", None) or getattr(tool, "inputSchema", None)
    return Tool(name=name or tool.name, description=tool.description, input_schema=schema or {})


def _own_name(name: str, server: str) -> str:
    """Strip the server from a tool's name."""
    for prefix in (f"{server}__", f"{server}_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix) or name
    return name


def extract_server_and_tool(tool_name: str, server_names: Iterable[str]) -> tuple[str, str]:
    """Split an MCP SDK tool's name, such as `math_add` or `math__add`, into server and tool.

    The longest server that fits counts, and a single one has every tool. If none fits, the server
    is `default`.
    """
    names = sorted(server_names, key=len, reverse=True)
    server = next(
        (name for name in names if tool_name.startswith(f"{name}_")),
        names[0] if len(names) == 1 else "default",
    )
    return server, _own_name(tool_name, server)


def _reader(servers: Iterable[str]) -> Callable[[str], str]:
    names = tuple(servers)
    return lambda tool: extract_server_and_tool(tool, names)[0]


def build_tool_server_map(
    tools: Iterable[ToolSpec | mcp.Tool], server_names: Iterable[str]
) -> dict[str, str]:
    """Map each tool's name to its server. For an MCP SDK tool, the server is read from the name."""
    tools = list(tools)
    return {
        tool.name: spec.server
        for tool, spec in zip(tools, specs(tools, _reader(server_names)), strict=True)
    }


def validate_toolset(
    toolset: ToolSetConfig, tools: Iterable[ToolSpec | mcp.Tool], server_names: Iterable[str]
) -> None:
    """Raise ToolSetValidationError if a toolset names servers or tools that do not exist.

    It lists all of them.
    """
    statuses = {name: ServerStatus(name=name, state="ready") for name in server_names}
    check_tool_set(toolset, statuses, specs(tools, _reader(statuses)))


def filter_tools_by_toolset(
    tools: Iterable[AnyTool],
    toolset: ToolSetConfig,
    server_names: Iterable[str],
    validate: bool = True,
) -> list[AnyTool]:
    """Filter tools by a toolset, keeping their order, after `validate_toolset` unless that is
    switched off.
    """
    tools, server_names = list(tools), set(server_names)
    converted = specs(tools, _reader(server_names))
    if validate:
        validate_toolset(toolset, converted, server_names)
    included = {id(spec) for spec in filter_tools(converted, toolset)}
    return [tool for tool, spec in zip(tools, converted, strict=True) if id(spec) in included]


def partition_tools(
    tools: Sequence[AnyTool], config: Config, server_names: Iterable[str] = ()
) -> tuple[list[AnyTool], dict[str, list[AnyTool]]]:
    """Split tools into those that the model sees and those that it finds by search.

    Args:
        tools: The tools, such as a `ToolCache`'s.
        config: Defines which servers are deferred.
        server_names: The servers, for MCP SDK tools, whose server is read from their name.

    Returns:
        The loaded tools, and the deferred ones by server.
    """
    options = config.tool_discovery
    converted = specs(tools, _reader(server_names))
    given = {id(spec): tool for tool, spec in zip(tools, converted, strict=True)}
    modes: dict[str, Mode] = {}
    always: list[str] = []
    for name, server in config.servers.items():
        modes[name] = mode_of(server)
        always += always_loaded(name, server)
    loaded, deferred = manifest.partition_tools(
        converted,
        modes,
        discovery=bool(options.enabled),
        defer_all=options.defer_all,
        always_loaded=always,
    )
    by_name = {}
    for owner, owned in by_server(deferred).items():
        by_name[owner] = [given[id(spec)] for spec in owned]
    return [given[id(spec)] for spec in loaded], by_name


def render_system_prompt(
    template_name: str, tools: Iterable[ToolSpec | mcp.Tool], extra: Mapping[str, Any] | None = None
) -> str:
    """Render a system prompt from a file in `prompt-templates/`, in the working directory or the
    package.

    Args:
        template_name: The file, with or without `.j2`.
        tools: The tools that the template lists.
        extra: Further variables.

    Raises:
        TemplateError: The template does not exist or fails. It runs in a sandbox, with limits.
    """
    return TemplateLibrary.for_config(None).render(
        template_name, tools=specs(tools, lambda name: ""), variables=extra
    )
