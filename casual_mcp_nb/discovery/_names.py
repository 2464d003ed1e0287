"""Finding tools by the names that a model gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from casual_mcp_nb.errors import closest
from casual_mcp_nb.types.tool import ToolSpec


class ToolNames:
    """Tools by each of their names. The owner of a tool comes from the tool; no name is taken apart.

    Args:
        tools: The tools that can be found.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        self._by_wire_name = {tool.wire_name: tool for tool in tools}
        self._by_folded: dict[str, list[ToolSpec]] = defaultdict(list)
        for tool in tools:
            for name in {alias.casefold() for alias in (*tool.aliases, tool.wire_name)}:
                self._by_folded[name].append(tool)

    def find(self, name: str, server: str | None = None) -> list[ToolSpec]:
        """All tools that a name can mean, of one server or of all.

        The name on the wire comes first. Otherwise every owner of a tool with that name counts, and within one server the
        tool that is called exactly so; letter case counts only where it makes a difference.
        """
        tool = self._by_wire_name.get(name)
        if tool is not None and server in (None, tool.server):
            return [tool]
        folded = [tool for tool in self._by_folded.get(name.casefold(), ()) if server in (None, tool.server)]
        found = [tool for tool in folded if name in tool.aliases] or folded
        bare = {tool.server for tool in found if tool.name == name}
        return [tool for tool in found if tool.name == name or tool.server not in bare]

    def like(self, name: str, server: str | None = None) -> list[str]:
        """Return the names closest to one that does not exist, of one server or of all."""
        tools = [tool for tool in self._tools if server in (None, tool.server)]
        return closest(name, (tool.name for tool in tools)) or closest(name, (tool.wire_name for tool in tools))
