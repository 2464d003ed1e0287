"""The names and calls in casual-mcp 1.0, each a thin wrapper around this package.

Code that was written for casual-mcp changes only the package name: all names that it imports from
`casual_mcp` are in `casual_mcp_nb`, and `casual_mcp_nb.tool_cache` and casual-mcp's other modules
are made from the table here.
"""

from __future__ import annotations

import importlib
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = "casual_mcp_nb"
_HERE = [
    f"{_PACKAGE}.compat.{name}"
    for name in ("_chat", "_clients", "_config", "_log", "_search", "_tools")
]
_STATS = "ChatStats DiscoveryStats TokenUsageStats ToolCallStats"
_TOOLSETS = "ExcludeSpec ToolSetConfig ToolRule=ToolSpec"
_MESSAGES = (
    "AssistantMessage AssistantToolCall ChatMessage SystemMessage ToolResultMessage UserMessage"
)
_SERVERS = "McpServerConfig RemoteServerConfig StdioServerConfig"

MODULES = {
    "convert_tools": "tool_from_mcp tools_from_mcp",
    "logging": "configure_logging get_logger",
    "mcp_tool_chat": "McpToolChat MetaDict",
    "model_factory": "ModelFactory",
    "models": (
        f"{_MESSAGES} {_STATS} {_TOOLSETS} {_SERVERS} McpClientConfig McpModelConfig"
        " ToolDiscoveryConfig"
    ),
    "models.chat_stats": _STATS,
    "models.config": "Config McpClientConfig McpModelConfig",
    "models.generation_error": "GenerationError",
    "models.mcp_server_config": _SERVERS,
    "models.tool_discovery_config": "ToolDiscoveryConfig",
    "models.toolset_config": _TOOLSETS,
    "search_tools_tool": "SearchToolsTool generate_manifest",
    "synthetic_tool": "SyntheticTool SyntheticToolResult",
    "tool_cache": "ToolCache",
    "tool_discovery": "build_tool_server_map partition_tools",
    "tool_filter": (
        "ToolSetValidationError extract_server_and_tool filter_tools_by_toolset validate_toolset"
    ),
    "tool_search_index": "ToolSearchIndex",
    "utils": "format_tool_call_result load_config load_mcp_client render_system_prompt",
}
"""The names in each casual-mcp module: public names in this package, or this room.

`A=B` is `A` here and `B` there.
"""


class ModuleFinder(MetaPathFinder, Loader):
    """Makes the modules in the table when they are imported."""

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module in the table by its full name, or return None."""
        package, _, name = fullname.partition(".")
        if package != _PACKAGE or name not in MODULES:
            return None
        return ModuleSpec(
            fullname,
            self,
            origin=__file__,
            is_package=any(other.startswith(f"{name}.") for other in MODULES),
        )

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with its names."""
        homes = [importlib.import_module(name) for name in (_PACKAGE, *_HERE)]
        name = module.__name__.partition(".")[2]
        module.__doc__ = f"The names of casual-mcp's module `{name}`."
        pairs = [pair.partition("=") for pair in MODULES[name].split()]
        module.__dict__["__all__"] = [there or here for here, _, there in pairs]
        for here, _, there in pairs:
            module.__dict__[there or here] = next(
                getattr(home, here) for home in homes if hasattr(home, here)
            )
