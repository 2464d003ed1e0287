"""Tool discovery: deferred tools stay out of the request, and the model finds them by search. Pure functions, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery.browse import browse_tools
from casual_mcp_nb.discovery.manifest import generate_manifest, list_servers, manifest_budget
from casual_mcp_nb.discovery.partition import partition_tools
from casual_mcp_nb.discovery.search_tools import SearchToolsTool
from casual_mcp_nb.discovery.synthetic import (
    SyntheticTool,
    SyntheticToolResult,
    discovered_in,
    first_presented,
    not_loaded_error,
    used_in,
)
from casual_mcp_nb.types.cards import loaded_in
from casual_mcp_nb.types.event import LOAD_TOOLS, SEARCH_TOOLS

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex

__all__ = [
    "LOAD_TOOLS",
    "SEARCH_TOOLS",
    "SearchToolsTool",
    "SyntheticTool",
    "SyntheticToolResult",
    "ToolSearchIndex",
    "browse_tools",
    "discovered_in",
    "first_presented",
    "generate_manifest",
    "list_servers",
    "loaded_in",
    "manifest_budget",
    "not_loaded_error",
    "partition_tools",
    "used_in",
]


def __getattr__(name: str) -> Any:
    """Import the index on first use: it needs numpy, which takes longer to import than everything else."""
    if name != "ToolSearchIndex":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from casual_mcp_nb.discovery.index import ToolSearchIndex

    return ToolSearchIndex
