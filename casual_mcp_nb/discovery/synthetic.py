"""Synthetic tools, which no server runs: their interface, and what they leave in a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from casual_mcp_nb.discovery._cards import loaded_in
from casual_mcp_nb.types.event import READ_RESULT, SearchRow
from casual_mcp_nb.types.tool import Catalog, ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

SEARCH_TOOLS = "search_tools"
"""The search tool's name. Defined only here; use `SearchToolsTool.name` elsewhere."""

BROWSE_TOOLKIT = "browse_toolkit"
LOAD_TOOLS = "load_tools"
UNLOAD_TOOLS = "unload_tools"

BUILT_IN = frozenset({SEARCH_TOOLS, BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS, READ_RESULT})
"""The names of the synthetic tools of this package, all of them harmless."""


class SyntheticToolResult(NamedTuple):
    """The result of a synthetic tool.

    Args:
        content: The result as the model reads it.
        newly_loaded_tools: Tools to offer from the next step on.
        rows: The hits, best first; None if there was no search.
        unloaded: Tools to stop offering from the next step on.
    """

    content: str
    newly_loaded_tools: list[ToolSpec]
    rows: tuple[SearchRow, ...] | None = ()
    unloaded: tuple[ToolSpec, ...] = ()


class SyntheticTool(Protocol):
    """A tool that this package provides itself; no server runs it."""

    @property
    def name(self) -> str:
        """The wire name."""

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters` (a JSON schema)."""

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Run the tool. Whatever the arguments, it returns text for the model and never raises."""


def discovered_in(messages: Iterable[ChatMessage], catalog: Catalog) -> list[ToolSpec]:
    """Return the tools that a conversation has loaded and not unloaded since, according to its messages.

    Args:
        messages: The conversation.
        catalog: The tools available now; others are left out.

    Returns:
        Each tool once, in the order in which they were loaded.
    """
    names: dict[str, None] = {}
    for message in messages:
        if message.role != "tool" or not isinstance(message.content, str):
            continue
        if message.name in (SEARCH_TOOLS, LOAD_TOOLS):
            names.update(dict.fromkeys(loaded_in(message.content)))
        elif message.name == UNLOAD_TOOLS:
            for name in loaded_in(message.content):
                names.pop(name, None)
    return [catalog.by_wire_name[name] for name in names if name in catalog.by_wire_name]


def not_loaded_error(name: str, loader: str = SEARCH_TOOLS) -> str:
    """Return the message for a model that calls a tool it has not loaded.

    Args:
        name: The name as the model wrote it.
        loader: Name of the tool that can load it.
    """
    way = "discover and load it first" if loader == SEARCH_TOOLS else "load it first"
    return f"Error: Tool '{name}' is not yet loaded. Use the '{loader}' tool to {way}, then call it again."
