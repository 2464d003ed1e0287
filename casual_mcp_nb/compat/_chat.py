"""McpToolChat with casual-mcp's constructor."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from casual_mcp_nb.compat._client import McpClient, ToolCache
from casual_mcp_nb.connections import ServerManager
from casual_mcp_nb.discovery import SyntheticTool
from casual_mcp_nb.engine import chat as engine
from casual_mcp_nb.providers import ModelFactory
from casual_mcp_nb.types.config import Config

if TYPE_CHECKING:
    from fastmcp import Client


class McpToolChat(engine.McpToolChat):
    """Chats with a model that can call the tools of MCP servers.

    It belongs to one event loop. Use it as an async context manager, or call `close` at the end. `from_config` also sets up
    discovery, toolsets, templates and the policies of a config.

    Args:
        mcp_client: What `load_mcp_client` returned, a `ServerManager`, or a FastMCP client.
        system: The system prompt where neither the turn nor the model's template gives one; None for the default template.
        tool_cache: A `ToolCache` of the same client, which has set how long lists of tools are fresh.
        server_names: The name of the server of a FastMCP client for one server of this process; other servers know theirs.
        synthetic_tools: Your own synthetic tools, see `add_synthetic_tool`.
        model_factory: The models that `chat` can name; None for none.
        more: Further arguments, such as `selection`, `tool_sets`, `limits`, `approver` and `approval`.

    Attributes:
        mcp_client: The connections.
        server_names: The names of their servers.
        tool_cache: The list of tools.
        model_factory: The models.

    Raises:
        UsageError: An argument is not what it should be.
    """

    def __init__(
        self,
        mcp_client: McpClient | ServerManager | Client[Any],
        system: str | None = None,
        tool_cache: ToolCache | None = None,
        server_names: Iterable[str] | None = None,
        synthetic_tools: Iterable[SyntheticTool] = (),
        model_factory: ModelFactory | None = None,
        **more: Any,
    ) -> None:
        client = McpClient.of(mcp_client, server_names or ()) if tool_cache is None else tool_cache.client
        factory = model_factory or ModelFactory(Config())
        super().__init__(client.server_manager, factory, system=system, synthetic_tools=synthetic_tools, **more)
        self.mcp_client = client
        self.model_factory = factory
        if tool_cache is not None:
            self.__dict__["tool_cache"] = tool_cache

    @classmethod
    def _of(cls, server_manager: ServerManager, models: ModelFactory, **more: Any) -> Self:
        return cls(server_manager, model_factory=models, **more)

    @cached_property
    def tool_cache(self) -> ToolCache:
        """The list of tools."""
        return ToolCache(self.mcp_client)

    @property
    def server_names(self) -> set[str]:
        """The names of the servers."""
        return set(self.server_manager.names)
