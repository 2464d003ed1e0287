"""Find tools that are not loaded: by a search, or by browsing likely categories and loading what matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from casual_mcp_nb.discovery.browse import BrowseLine, categories_in, lines_in, to_unload
from casual_mcp_nb.discovery.manifest import servers_in
from casual_mcp_nb.discovery.search_tools import manifest_in
from casual_mcp_nb.offline.conversation import PastCall, PlannedCall
from casual_mcp_nb.offline.needs import Need
from casual_mcp_nb.types.event import BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS
from casual_mcp_nb.types.tool import ToolSpec

BROWSING = (BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS)
_MAX_PAGES = 5
_MAX_CATEGORIES = 5
_MAX_LOADED = 3
_LEAST = 0.5
"""Fraction of the best tool's score that another tool of the category needs to be loaded with it."""


class ToolFinder:
    """The synthetic tools for finding others, as far as they are offered.

    Args:
        tools: All offered tools. A server's tool has its server in the name, so it is never one of these.
        calls: The calls since the request.
    """

    def __init__(self, tools: Sequence[ToolSpec], calls: Sequence[PastCall]) -> None:
        own = {tool.wire_name: tool.description for tool in tools if not tool.server}
        self._manifests = {name: manifest for name, text in own.items() if (manifest := manifest_in(text)) is not None}
        self.search = next(iter(self._manifests), None)
        self._toolkit = own.get(BROWSE_TOOLKIT) if LOAD_TOOLS in own else None
        self._defined = {tool.name for tool in tools if tool.server}
        self._calls = [call for call in calls if call.name in BROWSING]

    @property
    def servers(self) -> dict[str, int]:
        """The servers with deferred tools, and how many each has."""
        return servers_in(self._manifests[self.search]) if self.search else categories_in(self._toolkit or "")

    def next_call(self, need: Need, searched: bool) -> PlannedCall | None:
        """Return the next call for finding tools for a need.

        Args:
            need: What is wanted.
            searched: Whether a search has been made.

        Returns:
            The call; None if there is no way, or all likely tools are loaded.
        """
        if self.search is not None:
            return None if searched else PlannedCall(self.search, {"query": need.query})
        return self._browse(need) if self._toolkit is not None else None

    def _browse(self, need: Need) -> PlannedCall | None:
        categories: list[BrowseLine] = []
        for page in range(1, _MAX_PAGES + 1):
            arguments = {"page": page} if page > 1 else {}
            answer = self._answer(arguments)
            if answer is None:
                return PlannedCall(BROWSE_TOOLKIT, arguments)
            lines, more = lines_in(answer)
            categories += lines
            if not more or _ranked(need, categories):
                break
        likely = dict.fromkeys([*_ranked(need, categories), *(line.name for line in categories)])
        for category in list(likely)[:_MAX_CATEGORIES]:
            answer = self._answer({"category": category})
            if answer is None:
                return PlannedCall(BROWSE_TOOLKIT, {"category": category})
            # What was loaded in another way may have no definition here.
            lines = [line for line in lines_in(answer)[0] if not (line.loaded and line.name in self._defined)]
            names = _ranked(need, lines)[:_MAX_LOADED]
            step = self._load(names) if names else None
            if step is not None:
                return step
        return None

    def _answer(self, arguments: Mapping[str, Any]) -> str | None:
        answers = (call.result for call in self._calls if call.name == BROWSE_TOOLKIT and call.arguments == arguments)
        return next(answers, None)

    def _load(self, names: list[str]) -> PlannedCall | None:
        """Load tools; if there is no room, unload earlier ones and try again with the best one."""
        tries = [at for at, call in enumerate(self._calls) if call.name == LOAD_TOOLS and names[0] in call.arguments["names"]]
        if not tries:
            return PlannedCall(LOAD_TOOLS, {"names": names})
        last = self._calls[tries[-1]]
        loaded = to_unload(last.result) if last.failed and len(tries) == 1 else []
        if not loaded:
            return None
        if any(call.name == UNLOAD_TOOLS for call in self._calls[tries[-1] :]):
            return PlannedCall(LOAD_TOOLS, {"names": [names[0]]})
        return PlannedCall(UNLOAD_TOOLS, {"names": loaded})


def _ranked(need: Need, lines: Sequence[BrowseLine]) -> list[str]:
    """Return the names in lines that match a need, best first, without those that match far less."""
    from casual_mcp_nb.discovery.index import ToolSearchIndex

    hits = ToolSearchIndex(ToolSpec("", line.name, line.summary) for line in lines).search(need.query, 10)
    return [hit.tool.name for hit in hits if hit.score >= _LEAST * hits[0].score]
