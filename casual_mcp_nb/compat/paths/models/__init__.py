"""Messages, config and statistics."""

from __future__ import annotations

from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage, SystemMessage, ToolResultMessage, UserMessage

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.compat import (
    McpClientConfig,
    McpModelConfig,
    McpServerConfig,
    RemoteServerConfig,
    StdioServerConfig,
    ToolDiscoveryConfig,
)
from casual_mcp_nb.compat import ToolRule as ToolSpec
from casual_mcp_nb.conversation.stats import ChatStats, DiscoveryStats, TokenUsageStats, ToolCallStats

__all__ = [
    "AssistantMessage",
    "AssistantToolCall",
    "ChatMessage",
    "ChatStats",
    "DiscoveryStats",
    "ExcludeSpec",
    "McpClientConfig",
    "McpModelConfig",
    "McpServerConfig",
    "RemoteServerConfig",
    "StdioServerConfig",
    "SystemMessage",
    "TokenUsageStats",
    "ToolCallStats",
    "ToolDiscoveryConfig",
    "ToolResultMessage",
    "ToolSetConfig",
    "ToolSpec",
    "UserMessage",
]
