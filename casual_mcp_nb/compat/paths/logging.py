"""How the log is written."""

from __future__ import annotations

from casual_mcp_nb.compat import configure_logging, get_logger

__all__ = ["configure_logging", "get_logger"]
