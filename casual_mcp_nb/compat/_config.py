"""A config's classes by casual-mcp's names."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from casual_mcp_nb.base.config import (
    ClientConfig,
    Config,
    DiscoveryConfig,
    ExcludeSpec,
    ModelConfig,
    ServerConfig,
    ToolSetConfig,
)
from casual_mcp_nb.errors import ToolSetError

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
