"""The search tool, with which the model finds and loads deferred tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery._arguments import read_arguments
from casual_mcp_nb.discovery._cards import compose
from casual_mcp_nb.discovery._clean import one_line
from casual_mcp_nb.discovery._fields import words_found
from casual_mcp_nb.discovery._finder import Finder
from casual_mcp_nb.discovery.manifest import generate_manifest
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.delivery import Delivery
from casual_mcp_nb.types.event import CALL_TOOL, SEARCH_TOOLS, SearchRow
from casual_mcp_nb.types.tool import ToolCatalog, ToolName, ToolSpec

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex

_DESCRIPTION = """\
Load tools that you do not have yet, to call them{through} from your next step on. Give at least one parameter.
<manifest>
{manifest}
</manifest>"""

_MANIFEST = re.compile(r"<manifest>\n(.*)\n</manifest>\Z", re.DOTALL)

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to do, in the language of the manifest"},
        "server_name": {"type": "string", "description": "All its tools; with query, those that fit"},
        "tool_names": {"type": "array", "items": {"type": "string"}, "description": "Exact names"},
    },
}


def manifest_in(description: str) -> str | None:
    """Extract the manifest from the description of a search tool; None if it is not one."""
    manifest = _MANIFEST.search(description)
    return manifest[1] if manifest else None


class SearchToolsTool:
    """Finds deferred tools for one turn and records the loaded ones. It knows only the tools it is given.

    Args:
        deferred: The tools that can be found.
        index: Return their index, called at the first query; built if not given.
        manifest: Their manifest; generated on first use if not given.
        max_search_results: Maximum number of tools returned by one query.
        max_search_tokens: Maximum estimated tokens of the definitions that one search loads; one tool can always be loaded.
        loaded: Deferred tools that this conversation has already loaded.
        used: The tools that it has called; may grow. Those that are loaded and not among them step back in later searches.
        always: Tools that are always loaded.
        delivery: How the model gets what it finds.
    """

    name = SEARCH_TOOLS

    def __init__(
        self,
        deferred: ToolCatalog | Sequence[ToolSpec],
        *,
        index: Callable[[], ToolSearchIndex] | None = None,
        manifest: str | None = None,
        max_search_results: int = 5,
        max_search_tokens: int = 20_000,
        loaded: Iterable[ToolName] = (),
        used: Set[ToolName] = frozenset(),
        always: Iterable[ToolSpec] = (),
        delivery: Delivery = "definitions",
    ) -> None:
        self._deferred = deferred
        self._given_manifest = manifest
        always = tuple(always)
        self._finder = Finder(deferred, always, index, max_search_results)
        self._always = always
        self._loaded = set(loaded)
        self._max_tokens = max_search_tokens
        self._used = used
        self._delivery = delivery
        # Through the bridge, a schema is only in a card, and those of earlier turns may not be sent any more.
        self._presented = set[ToolName]() if delivery == "bridge" else self._loaded

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` with the manifest between its tags, and `parameters`."""
        return {
            "name": self.name,
            "description": _DESCRIPTION.format(
                manifest=self._manifest, through=f" through {CALL_TOOL}" if self._delivery == "bridge" else ""
            ),
            "parameters": deepcopy(_PARAMETERS),
        }

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Search the deferred tools.

        Args:
            args: `query`, `server_name` and `tool_names`, at least one of them, as the model sent them.

        Returns:
            A text of at most 12,000 characters, the tools that it loaded, and the hits with their scores. Invalid arguments are
            answered with a text that says what is wrong.
        """
        # Built only now: most turns do not search, and there can be thousands of tools.
        always = {tool.tool_name for tool in self._always}
        for names in (self._loaded, self._presented):
            names.update(always)
        try:
            wanted = read_arguments(args)
            result = self._finder.find(wanted, self._loaded, (self._loaded & self._presented) - always - self._used)
        except UsageError as error:
            return SyntheticToolResult(f"Error: {error}", [])
        if not result.tools:
            return SyntheticToolResult(one_line(" ".join(result.notes), 2_000), [])
        content, inside = compose(
            tuple(result.tools),
            self._loaded,
            result.notes,
            filled=result.filled,
            siblings=result.siblings,
            delivery=self._delivery,
            presented=self._presented,
            max_tokens=self._max_tokens,
        )
        new = [tool for tool in inside if tool.tool_name not in self._loaded]
        scores = {**result.tools, **result.stepped_back}
        returned = (*inside, *result.stepped_back)
        ranked = [tool for tool in returned if scores[tool]]
        words = dict(zip(ranked, words_found(wanted.query, ranked), strict=True))
        rows = tuple(
            SearchRow(
                tool.tool_name,
                scores[tool],
                tool.tool_name not in self._loaded,
                tool in result.filled,
                words.get(tool, ()),
            )
            for tool in returned
        )
        self._loaded.update(tool.tool_name for tool in new)
        self._presented.update(tool.tool_name for tool in inside)
        return SyntheticToolResult(content, new, rows)

    @cached_property
    def _manifest(self) -> str:
        return generate_manifest(self._deferred) if self._given_manifest is None else self._given_manifest
