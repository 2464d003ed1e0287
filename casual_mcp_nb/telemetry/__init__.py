"""OpenTelemetry: a turn's events as spans and metrics, by the conventions for generative AI and MCP.

Importing this package does not import OpenTelemetry; a new `OpenTelemetry` does.
"""

from __future__ import annotations

from casual_mcp_nb.telemetry.observer import OpenTelemetry

__all__ = ["OpenTelemetry"]
