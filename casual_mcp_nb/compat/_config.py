"""The config's classes under casual-mcp's names."""

from __future__ import annotations

from typing import Literal

from casual_mcp_nb.errors import ToolSetError
from casual_mcp_nb.types.config import ClientConfig, Config, DiscoveryConfig, ExcludeSpec, ModelConfig, ToolSetConfig
from casual_mcp_nb.types.server import ServerConfig

McpClientConfig = ClientConfig
McpModelConfig = ModelConfig
McpServerConfig = ServerConfig
ToolDiscoveryConfig = DiscoveryConfig
ToolSetValidationError = ToolSetError
ToolRule = bool | list[str] | ExcludeSpec
"""What a toolset says of a server; `ToolSpec` in casual-mcp's modules."""


class StdioServerConfig(ServerConfig):
    """A server that is a command, as `ServerConfig`; one of a loaded config is that class."""

    command: str
    transport: Literal["stdio"] | None = "stdio"


class RemoteServerConfig(ServerConfig):
    """A server at a URL, as `ServerConfig`; one of a loaded config is that class."""

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
