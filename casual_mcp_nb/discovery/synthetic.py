"""Tools of our own, which no server runs: what they have in common, and what they leave in a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from casual_mcp_nb.discovery._cards import loaded_in
from casual_mcp_nb.types.event import SearchRow
from casual_mcp_nb.types.tool import Catalog, ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

SEARCH_TOOLS = "search_tools"
"""The search tool's name. It stands here only; read `SearchToolsTool.name` elsewhere."""

BROWSE_TOOLKIT = "browse_toolkit"
LOAD_TOOLS = "load_tools"
UNLOAD_TOOLS = "unload_tools"


class SyntheticToolResult(NamedTuple):
    """What a synthetic tool came back with.

    Args:
        content: The result as the model reads it.
        newly_loaded_tools: The tools to offer from the next step on.
        rows: What was found, best first; None where nothing was looked for.
        unloaded: The tools to offer no more from the next step on.
    """

    content: str
    newly_loaded_tools: list[ToolSpec]
    rows: tuple[SearchRow, ...] | None = ()
    unloaded: tuple[ToolSpec, ...] = ()


class SyntheticTool(Protocol):
    """A tool of our own, which no server runs."""

    @property
    def name(self) -> str:
        """Its name on the wire."""

    @property
    def definition(self) -> dict[str, Any]:
        """What the model reads of it: `name`, `description` and `parameters` (a JSON schema)."""

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Run it. Whatever the arguments are, the answer is a text for the model and never an error raised."""


def discovered_in(messages: Iterable[ChatMessage], catalog: Catalog) -> list[ToolSpec]:
    """Read back from a conversation's messages the tools that it has loaded and not unloaded since.

    Args:
        messages: The conversation.
        catalog: The tools that it may use now; others are left out.

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
    """Write what a model reads when it calls a tool that it has not loaded.

    Args:
        name: The name as the model wrote it.
        loader: Name of the tool that loads it.
    """
    way = "discover and load it first" if loader == SEARCH_TOOLS else "load it first"
    return f"Error: Tool '{name}' is not yet loaded. Use the '{loader}' tool to {way}, then call it again."
