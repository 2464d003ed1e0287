"""Widgets over a session: thin front ends over plain states."""

from __future__ import annotations

from casual_mcp_nb.widgets.conversation import Panel
from casual_mcp_nb.widgets.explorer import (
    Explorer,
    ManifestView,
    SearchBox,
    ServerToggles,
    ToolsetPicker,
)
from casual_mcp_nb.widgets.searches import ModelSearches
from casual_mcp_nb.widgets.tokens import TokenMeter

__all__ = [
    "Explorer",
    "ManifestView",
    "ModelSearches",
    "Panel",
    "SearchBox",
    "ServerToggles",
    "TokenMeter",
    "ToolsetPicker",
]
