"""The parameters of casual-mcp 1.0.0's names, in order; None for a property. `python casual_mcp_signatures.py` in an
environment with casual-mcp prints them anew."""

from __future__ import annotations

SIGNATURES: dict[str, list[str] | None] = {
    "McpToolChat": ["mcp_client", "system", "tool_cache", "server_names", "synthetic_tools", "model_factory"],
    "McpToolChat.get_stats": [],
    "McpToolChat.from_config": ["config", "system", "synthetic_tools"],
    "McpToolChat.chat": ["messages", "tool_set", "meta", "model", "system"],
    "ModelFactory": ["config"],
    "ModelFactory.get_model": ["name"],
    "ToolCache": ["client", "ttl_seconds"],
    "ToolCache.get_tools": ["force_refresh"],
    "ToolCache.invalidate": [],
    "ToolCache.version": None,
    "load_config": ["path"],
    "load_mcp_client": ["config"],
    "render_system_prompt": ["template_name", "tools", "extra"],
    "SyntheticToolResult": ["content", "newly_loaded_tools"],
    "convert_tools.tool_from_mcp": ["mcp_tool"],
    "convert_tools.tools_from_mcp": ["mcp_tools"],
    "tool_discovery.partition_tools": ["tools", "config", "server_names"],
    "tool_search_index.ToolSearchIndex": ["tools", "tool_server_map"],
    "tool_search_index.ToolSearchIndex.search": ["query", "max_results", "server_filter"],
    "tool_search_index.ToolSearchIndex.get_by_server": ["server_name"],
    "tool_search_index.ToolSearchIndex.get_by_names": ["tool_names"],
    "tool_search_index.ToolSearchIndex.tool_count": None,
    "tool_search_index.ToolSearchIndex.server_names": None,
    "search_tools_tool.SearchToolsTool": ["deferred_tools", "server_names", "search_index", "config"],
    "search_tools_tool.SearchToolsTool.definition": None,
    "search_tools_tool.SearchToolsTool.system_prompt": None,
    "search_tools_tool.SearchToolsTool.execute": ["args"],
    "search_tools_tool.generate_manifest": ["deferred_by_server"],
    "logging.configure_logging": ["level", "logger"],
    "logging.get_logger": ["name"],
    "models.ChatStats": ["tokens", "tool_calls", "llm_calls", "discovery"],
    "models.DiscoveryStats": ["tools_discovered", "search_calls"],
    "models.TokenUsageStats": ["prompt_tokens", "completion_tokens"],
    "models.TokenUsageStats.total_tokens": None,
    "models.ToolCallStats": ["by_tool", "by_server"],
    "models.ToolCallStats.total": None,
    "models.McpClientConfig": ["provider", "base_url", "api_key", "timeout"],
    "models.McpModelConfig": ["client", "model", "template", "temperature"],
    "models.StdioServerConfig": ["command", "args", "env", "cwd", "transport", "defer_loading"],
    "models.RemoteServerConfig": ["url", "headers", "transport", "defer_loading"],
    "models.ToolDiscoveryConfig": ["enabled", "defer_all", "max_search_results"],
    "models.ToolSetConfig": ["description", "servers"],
    "models.ExcludeSpec": ["exclude"],
    "tool_filter.ToolSetValidationError": [],
}


def signatures(package: str) -> dict[str, list[str] | None]:
    """Return the parameters of the same names in a package."""
    import importlib
    import inspect

    found: dict[str, list[str] | None] = {}
    for name in SIGNATURES:
        *home, last = name.split(".")
        lower = [part for part in home if part.islower()]
        value = importlib.import_module(".".join([package, *lower]))
        for part in [part for part in home if not part.islower()] + [last]:
            value = getattr(value, part)
        if isinstance(value, property) or hasattr(value, "func"):
            found[name] = None
        elif isinstance(value, type) and issubclass(value, Exception):
            found[name] = []
        else:
            found[name] = [parameter for parameter in inspect.signature(value).parameters if parameter != "self"]
    return found


if __name__ == "__main__":
    import json

    print(json.dumps(signatures("casual_mcp")))
