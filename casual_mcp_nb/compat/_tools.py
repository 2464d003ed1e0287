"""Tools, config, search, manifest and logging with casual-mcp's names and calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from casual_mcp_nb.base.config import (
    ClientConfig,
    Config,
    DiscoveryConfig,
    ExcludeSpec,
    ModelConfig,
    ServerConfig,
    ToolSetConfig,
)
from casual_mcp_nb.base.search import SearchHit
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import ToolSpec, by_server
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.discovery import manifest, search_tools
from casual_mcp_nb.discovery import manifest as partition
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult
from casual_mcp_nb.discovery.toolsets import check_tool_set, filter_tools
from casual_mcp_nb.engine.options import always_loaded, mode_of
from casual_mcp_nb.errors import ToolSetError
from casual_mcp_nb.servers import convert

if TYPE_CHECKING:
    import mcp
    from casual_llm import Tool


McpClientConfig = ClientConfig
McpModelConfig = ModelConfig
McpServerConfig = ServerConfig
ToolDiscoveryConfig = DiscoveryConfig
ToolSetValidationError = ToolSetError
ToolRule = bool | list[str] | ExcludeSpec
"""A toolset's rule for a server; `ToolSpec` in casual-mcp's modules."""


class _Kind(type(ServerConfig)):  # type: ignore[misc]
    """Tells which kind a loaded config's server is."""

    way: str

    def __instancecheck__(cls, instance: Any) -> bool:
        of_kind = type(instance) is ServerConfig and getattr(instance, cls.way) is not None
        return of_kind or bool(super().__instancecheck__(instance))


class StdioServerConfig(ServerConfig, metaclass=_Kind):
    """A server that is a command, as `ServerConfig`.

    `isinstance` recognizes a loaded config's as well.
    """

    way: ClassVar[str] = "command"
    command: str
    transport: Literal["stdio"] | None = "stdio"


class RemoteServerConfig(ServerConfig, metaclass=_Kind):
    """A server at a URL, as `ServerConfig`. `isinstance` recognizes a loaded config's as well."""

    way: ClassVar[str] = "url"
    url: str
    transport: Literal["http", "streamable-http", "sse"] | None = None


for _kind in (
    Config,
    ClientConfig,
    ModelConfig,
    DiscoveryConfig,
    ToolSetConfig,
    ExcludeSpec,
    StdioServerConfig,
    RemoteServerConfig,
):
    # Signatures, which editors show, are left for the first use otherwise.
    _kind.model_rebuild()


def get_logger(name: str) -> logging.Logger:
    """Create a logger by its name within this package."""
    return logging.getLogger(f"casual_mcp_nb.{name}")


def configure_logging(level: str | int = "INFO", logger: logging.Logger | None = None) -> None:
    """Write the log to standard error from a given level.

    Calling it again replaces the earlier settings.

    Args:
        level: The lowest level to write, such as `WARNING`.
        logger: Which logger, or None for this package's.
    """
    logger = logger or logging.getLogger("casual_mcp_nb")
    for handler in [handler for handler in logger.handlers if isinstance(handler, _Handler)]:
        logger.removeHandler(handler)
    handler = _Handler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    for each in (logger, logging.getLogger("fastmcp"), logging.getLogger("mcp")):
        each.setLevel(level)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Ours, to distinguish it from the person's."""


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
    loaded, deferred = partition.partition_tools(
        converted,
        {name: mode_of(server) for name, server in config.servers.items()},
        discovery=bool(options.enabled),
        defer_all=options.defer_all,
        always_loaded=[
            entry
            for name, server in config.servers.items()
            for entry in always_loaded(name, server)
        ],
    )
    by_name = {
        server: [given[id(spec)] for spec in owned] for server, owned in by_server(deferred).items()
    }
    return [given[id(spec)] for spec in loaded], by_name


def generate_manifest(
    deferred_by_server: Mapping[str, Sequence[ToolSpec | mcp.Tool]] | Iterable[ToolSpec],
) -> str:
    """List deferred servers with their tools' names and a summary, as the model reads it.

    Args:
        deferred_by_server: The deferred tools by server, or the tools themselves.
    """
    return manifest.generate_manifest(_flat(deferred_by_server))


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


@dataclass(frozen=True, eq=False)
class PairedHit(SearchHit):
    """A hit that unpacks as casual-mcp's pair: the server, and the tool as it was given to the
    index.
    """

    given: Any = None

    @property
    def pair(self) -> tuple[str, Any]:
        """The server and the tool."""
        return self.tool.server, self.given


class ToolSearchIndex(search_tools.ToolSearchIndex):
    """Ranks tools by a query's words, with casual-mcp's methods in addition to the index's own.

    Args:
        tools: The tools.
        tool_server_map: Each MCP SDK tool's server, by its name. Other tools know theirs.
        embed: Returns an array with one row per text. See the guide to discovery.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec | mcp.Tool],
        tool_server_map: Mapping[str, str] | None = None,
        *,
        embed: Callable[[list[str]], Any] | None = None,
    ) -> None:
        tools, servers = list(tools), tool_server_map or {}
        converted = specs(tools, lambda name: servers.get(name, "unknown"))
        super().__init__(converted, embed=embed)
        self._given = {spec.tool_name: tool for tool, spec in zip(tools, converted, strict=True)}

    def search(  # type: ignore[override]
        self,
        query: str,
        max_results: int = 5,
        server_filter: str | None = None,
        *,
        server: str | None = None,
    ) -> list[PairedHit]:
        """Find the best tools for a query.

        Each hit has `tool`, `score` and `explain`, and unpacks as server and tool.

        Args:
            query: The search words.
            max_results: How many tools to return at most.
            server_filter: Return only this server's tools.
            server: The same.
        """
        hits = super().search(query, max_results, server_filter if server is None else server)
        return [
            PairedHit(hit.tool, hit.score, hit.rank, hit.explain, self._given[hit.tool.tool_name])
            for hit in hits
        ]

    def get_by_server(self, server_name: str) -> list[tuple[str, Any]]:
        """List all tools on a server, each after the server's name."""
        return [
            (server_name, self._given[tool.tool_name])
            for tool in self.tools
            if tool.server == server_name
        ]

    def get_by_names(self, tool_names: Sequence[str]) -> tuple[list[tuple[str, Any]], list[str]]:
        """Find the tools with these names, each after its server's name, and list the names that no
        tool has.

        Args:
            tool_names: Wire names, or any unique spelling.
        """
        matches, missing = [], []
        for name in tool_names:
            owners = [tool for tool in self.tools if name == tool.wire_name]
            if not owners:
                owners = [tool for tool in self.tools if name in tool.aliases]
            matches += [(tool.server, self._given[tool.tool_name]) for tool in owners]
            missing += [] if owners else [name]
        return matches, missing

    @property
    def tool_count(self) -> int:
        """The number of tools."""
        return len(self.tools)

    @property
    def server_names(self) -> list[str]:
        """The tools' servers."""
        return list(by_server(self.tools))


class SearchToolsTool(search_tools.SearchToolsTool):
    """The search tool with casual-mcp's arguments.

    Args:
        deferred_tools: The deferred tools by server.
        server_names: Ignored: the tools know their servers.
        search_index: Their index. Built if not given.
        config: Defines how many tools a query returns.
    """

    def __init__(
        self,
        deferred_tools: Mapping[str, Sequence[ToolSpec | mcp.Tool]],
        server_names: Sequence[str] = (),
        search_index: ToolSearchIndex | None = None,
        config: DiscoveryConfig | None = None,
    ) -> None:
        converted = _flat(deferred_tools)
        super().__init__(
            converted,
            index=(lambda: search_index) if search_index is not None else None,
            max_search_results=config.max_search_results if config is not None else 5,
            max_search_tokens=config.max_search_tokens if config is not None else 20_000,
        )
        given = (tool for owned in deferred_tools.values() for tool in owned)
        self._given = {spec.tool_name: tool for spec, tool in zip(converted, given, strict=True)}

    @property
    def definition(self) -> Tool:  # type: ignore[override]
        """The definition sent to the model, in casual-llm's form, with the manifest in its
        description.
        """
        from casual_llm import Tool

        plain = super().definition
        return Tool.from_input_schema(plain["name"], plain["description"], plain["parameters"])

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Search the deferred tools. It loads the tools that it was given.

        Args:
            args: `query`, `server_name` and `tool_names`, at least one of them.
        """
        result = await super().execute(args)
        loaded = [self._given[tool.tool_name] for tool in result.newly_loaded_tools]
        return SyntheticToolResult(result.content, loaded, result.rows, result.unloaded)  # type: ignore[arg-type]

    @property
    def system_prompt(self) -> str:
        """The manifest.

        `definition` includes it here, so nothing needs to be added to the system prompt.
        """
        return self._manifest


def _flat(
    tools: Mapping[str, Sequence[ToolSpec | mcp.Tool]] | Iterable[ToolSpec],
) -> list[ToolSpec]:
    if not isinstance(tools, Mapping):
        return list(tools)
    listed: list[ToolSpec] = []
    for server, owned in tools.items():

        def owner(_: str, server: str = server) -> str:
            return server

        listed += specs(owned, owner)
    return listed
