"""The search tool: how a model finds and loads the tools that it cannot see yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from casual_mcp_nb.discovery._arguments import read_arguments
from casual_mcp_nb.discovery._cards import compose, loaded_in
from casual_mcp_nb.discovery._clean import one_line
from casual_mcp_nb.discovery._finder import Finder
from casual_mcp_nb.discovery.manifest import generate_manifest
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.event import SearchRow
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.discovery.index import ToolSearchIndex

SEARCH_TOOLS = "search_tools"
"""The search tool's name. It stands here only; read `SearchToolsTool.name` elsewhere."""

_DESCRIPTION = """\
Find and load tools that you do not have yet. A tool that is found can be called by its name from your next step on.
Give at least one of: query (what you want to do, in words), server_name (all tools of that server), tool_names (exact names).
The servers below have tools that you can load:
<manifest>
{manifest}
</manifest>"""

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What you want to do, such as: convert a time between time zones."},
        "server_name": {
            "type": "string",
            "description": "A server of the manifest. Alone it loads all its tools; with query it limits the search.",
        },
        "tool_names": {"type": "array", "items": {"type": "string"}, "description": "Names of tools of the manifest."},
    },
}


class SyntheticToolResult(NamedTuple):
    """What a synthetic tool came back with.

    Args:
        content: The result as the model reads it.
        newly_loaded_tools: The tools to offer from the next step on.
        rows: What a search came to, best first.
    """

    content: str
    newly_loaded_tools: list[ToolSpec]
    rows: tuple[SearchRow, ...] = ()


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


class SearchToolsTool:
    """Finds deferred tools for one turn and remembers what it has loaded. It knows only the tools that it is given.

    Args:
        deferred: The tools that can be found.
        index: Gives their index at the first query; one is made when not given.
        manifest: Their manifest; made at the first use when not given.
        max_search_results: How many tools one query finds at most.
        loaded: Deferred tools that were loaded before, in this conversation.
        always: Tools that the model saw from the start.
    """

    name = SEARCH_TOOLS

    def __init__(
        self,
        deferred: Sequence[ToolSpec],
        *,
        index: Callable[[], ToolSearchIndex] | None = None,
        manifest: str | None = None,
        max_search_results: int = 5,
        loaded: Iterable[ToolName] = (),
        always: Iterable[ToolSpec] = (),
    ) -> None:
        self._deferred = deferred
        self._given_manifest = manifest
        always = tuple(always)
        self._finder = Finder(deferred, always, index, max_search_results)
        self._loaded = {*loaded, *(tool.tool_name for tool in always)}

    @property
    def definition(self) -> dict[str, Any]:
        """What the model reads: `name`, `description` with the manifest between its tags, and `parameters`."""
        return {
            "name": self.name,
            "description": _DESCRIPTION.format(manifest=self._manifest),
            "parameters": deepcopy(_PARAMETERS),
        }

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Search.

        Args:
            args: `query`, `server_name` and `tool_names`, at least one of them, as the model sent them.

        Returns:
            A text of at most 12,000 characters, the tools that are new, and what was found with its scores. Arguments that
            cannot be understood are answered with a text that says what is wrong.
        """
        try:
            found = self._finder.find(read_arguments(args))
        except UsageError as error:
            return SyntheticToolResult(f"Error: {error}", [])
        if not found.tools:
            return SyntheticToolResult(one_line(" ".join(found.notes), 2_000), [])
        content, inside = compose(tuple(found.tools), self._loaded, found.notes)
        new = [tool for tool in inside if tool.tool_name not in self._loaded]
        rows = tuple(SearchRow(tool.tool_name, found.tools[tool], tool.tool_name not in self._loaded) for tool in inside)
        self._loaded.update(tool.tool_name for tool in new)
        return SyntheticToolResult(content, new, rows)

    @cached_property
    def _manifest(self) -> str:
        return generate_manifest(self._deferred) if self._given_manifest is None else self._given_manifest


def discovered_in(messages: Iterable[ChatMessage], catalog: Catalog) -> list[ToolSpec]:
    """The tools that a conversation has loaded by search, read back from its messages.

    Args:
        messages: The conversation.
        catalog: The tools that it may use now; others are left out.

    Returns:
        Each tool once, in the order in which they were found.
    """
    names: list[str] = []
    for message in messages:
        if message.role == "tool" and message.name == SEARCH_TOOLS:
            names += loaded_in(message.content) if isinstance(message.content, str) else []
    return [catalog.by_wire_name[name] for name in dict.fromkeys(names) if name in catalog.by_wire_name]


def not_loaded_error(name: str) -> str:
    """What a model reads when it calls a tool that it has not loaded."""
    load = f"Use the '{SEARCH_TOOLS}' tool to discover and load it first, then call it again."
    return f"Error: Tool '{name}' is not yet loaded. {load}"
