"""Synthetic tools, which no server runs: their interface, and their traces in a conversation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.search import RankedBy
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    FINDING,
    LOAD_TOOLS,
    READ_RESULT,
    READ_SKILL,
    RUN_CODE,
    SEARCH_TOOLS,
    SYNTHETIC,
    UNLOAD_TOOLS,
    SearchRow,
)
from casual_mcp_nb.conversation.step import loaded_in, read_call, unmarked
from casual_mcp_nb.discovery.manifest import compose, presents_schema

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

IN_CARDS: tuple[Delivery, ...] = ("bridge", "code")
"""The deliveries with which only the cards of a search tell how to call what it found."""

BUILT_IN = FINDING | {READ_RESULT, READ_SKILL}
"""The names of this package's synthetic tools, all harmless."""


def synthetic_spec(name: str, description: str, properties: Mapping[str, Mapping[str, Any]], *required: str) -> ToolSpec:
    """Describe a synthetic tool like other tools: its `definition` goes to the model, and belongs to the caller."""
    more = {"required": list(required)} if required else {}
    schema = {"type": "object", "properties": {each: {**fields} for each, fields in properties.items()}, **more}
    return ToolSpec(SYNTHETIC, name, description, schema, wire_name=name)


def called_through(delivery: Delivery) -> str:
    """Write how the tools are called that a search loads, to follow `call them`."""
    return {"bridge": f" through {CALL_TOOL}", "code": f" in programs of {RUN_CODE}"}.get(delivery, "")


class _Result(NamedTuple):
    content: str
    newly_loaded_tools: list[ToolSpec]


class SyntheticToolResult(_Result):
    """A synthetic tool's result. As a tuple, the content and the tools to load.

    Args:
        content: The result as the model reads it.
        newly_loaded_tools: Tools to offer from the next step on.
        rows: The hits, best first, or None if there was no search.
        unloaded: Tools to stop offering from the next step on.
        ranked_by: Whether meaning counted in the search, or only words.
        skills: The skills that the search found.
    """

    rows: tuple[SearchRow, ...] | None
    unloaded: tuple[ToolSpec, ...]
    ranked_by: RankedBy
    skills: tuple[ToolName, ...]

    def __new__(
        cls,
        content: str,
        newly_loaded_tools: list[ToolSpec],
        rows: tuple[SearchRow, ...] | None = (),
        unloaded: tuple[ToolSpec, ...] = (),
        ranked_by: RankedBy = "words",
        skills: tuple[ToolName, ...] = (),
    ) -> Self:
        """Create a result."""
        result = super().__new__(cls, content, newly_loaded_tools)
        result.rows, result.unloaded, result.ranked_by, result.skills = rows, unloaded, ranked_by, skills
        return result


class SyntheticTool(Protocol):
    """A tool that no server runs: one from this package, or a person's own, see `session.tools.add_synthetic`."""

    @property
    def name(self) -> str:
        """The wire name."""

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters` (a JSON schema)."""

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Run the tool on the arguments as the model wrote them. This package's own tools never raise."""


def with_loaded(
    content: str, tools: Sequence[ToolSpec], delivery: Delivery = "definitions"
) -> tuple[str, tuple[ToolSpec, ...]]:
    """Mark a result's text with the tools that it loads: `discovered_in` finds those for which there is room, and no others."""
    content = unmarked(content)
    if not tools:
        return content, ()
    cards, inside = compose(tools, frozenset(), delivery=delivery)
    return f"{content}\n\n{cards}", inside


def discovered_in(messages: Iterable[ChatMessage], catalog: Catalog, own: Collection[str] = ()) -> list[ToolSpec]:
    """Find the tools that a conversation has loaded and not unloaded since, in that order, each once.

    `own` names a person's own synthetic tools, which load tools too. Leaves out tools that are not available now.
    """
    names: dict[str, None] = {}
    for message in messages:
        if message.role != "tool" or not isinstance(message.content, str):
            continue
        if message.name in (SEARCH_TOOLS, LOAD_TOOLS, *own):
            names.update(dict.fromkeys(loaded_in(message.content)))
        elif message.name == UNLOAD_TOOLS:
            for name in loaded_in(message.content):
                names.pop(name, None)
    return [catalog.by_wire_name[name] for name in names if name in catalog.by_wire_name]


def first_presented(messages: Iterable[ChatMessage], own: Collection[str] = ()) -> dict[str, tuple[int, bool]]:
    """Find where a conversation first presents each loaded tool, even if it unloaded it since.

    Maps the wire name to the message's index, and whether the message is a result from one of this package's tools rather than
    the person's `own`.
    """
    places: dict[str, tuple[int, bool]] = {}
    for index, message in enumerate(messages):
        if message.role == "tool" and isinstance(message.content, str) and message.name in (SEARCH_TOOLS, LOAD_TOOLS, *own):
            for name in loaded_in(message.content):
                places.setdefault(name, (index, message.name not in own))
    return places


def schemas_presented(
    messages: Iterable[ChatMessage], tools: Iterable[ToolSpec], own: Collection[str] = (), delivery: Delivery = "bridge"
) -> set[ToolName]:
    """Find the tools whose current schemas, or functions with `code`, are readable in the search results."""
    finding = (SEARCH_TOOLS, LOAD_TOOLS, *own)
    texts = [each.content for each in messages if each.role == "tool" and each.name in finding]
    read = [text for text in texts if isinstance(text, str)]
    return {tool.tool_name for tool in tools if any(presents_schema(text, tool, delivery) for text in read)}


def used_in(messages: Iterable[ChatMessage], catalog: Catalog) -> set[ToolName]:
    """Find the available tools that a conversation has called."""
    used: set[ToolName] = set()
    for message in messages:
        for call in (message.role == "assistant" and message.tool_calls) or ():
            name = call.function.name
            bridged = name == CALL_TOOL
            tool = catalog.get(read_call(name, call.function.arguments).name) if bridged else catalog.by_wire_name.get(name)
            if tool is not None:
                used.add(tool.tool_name)
    return used


def not_loaded_error(name: str, loader: str = SEARCH_TOOLS) -> str:
    """Write the message for a model that calls a tool it has not loaded."""
    way = "discover and load it first" if loader == SEARCH_TOOLS else "load it first"
    return f"Error: Tool '{name}' is not yet loaded. Use the '{loader}' tool to {way}, then call it again."
