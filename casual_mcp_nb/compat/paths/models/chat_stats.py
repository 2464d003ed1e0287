"""Statistics."""

from __future__ import annotations

from casual_mcp_nb.conversation.stats import ChatStats, DiscoveryStats, TokenUsageStats, ToolCallStats

__all__ = ["ChatStats", "DiscoveryStats", "TokenUsageStats", "ToolCallStats"]
