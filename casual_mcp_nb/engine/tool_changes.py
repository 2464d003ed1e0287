"""Tools whose definitions change while a chat is open."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MappingProxyType

from casual_mcp_nb.errors import UnknownNameError, shown
from casual_mcp_nb.types.event import Notice
from casual_mcp_nb.types.tool import Catalog, ToolChange, ToolName, ToolSpec

_NONE = frozenset[ToolName]()


class ToolChangeTracker:
    """Remembers how each tool was defined, and reports each change; a tool that disappears and comes back is remembered too.

    Args:
        pinned: Returns for a server whether a changed tool is blocked until the change is accepted.
        own: Servers whose changes are the person's own, and so are not reported.

    Attributes:
        catalog: The last catalog that was compared.
    """

    def __init__(self, pinned: Callable[[str], bool], own: Collection[str] = ()) -> None:
        self._pinned = pinned
        self._own = own
        self.catalog = Catalog()
        self._accepted: dict[ToolName, ToolSpec] = {}
        self._riskiest: dict[ToolName, ToolSpec] = {}
        self._changes: dict[ToolName, ToolChange] = {}
        self._unreported: list[ToolChange] = []

    @property
    def changes(self) -> MappingProxyType[ToolName, ToolChange]:
        """The last change of each tool that was not accepted since, with old and new definition."""
        return MappingProxyType(self._changes)

    @property
    def blocked(self) -> frozenset[ToolName]:
        """The tools that are not offered until their change is accepted."""
        if not self._changes:
            return _NONE
        return frozenset(name for name, change in tuple(self._changes.items()) if change.blocked)

    def riskiest(self, tool: ToolSpec) -> ToolSpec:
        """Find the riskiest definition of a tool of those seen since one was accepted; the first of several."""
        return self._riskiest.get(tool.tool_name, tool)

    def last_of(self, server: str) -> dict[ToolName, ToolSpec]:
        """List all tools that a server has ever offered, with their last definitions."""
        return {name: tool for name, tool in self._accepted.items() if name.server == server}

    def update(self, catalog: Catalog) -> None:
        """Compare a catalog with the previous one."""
        if catalog is self.catalog:
            return
        self.catalog = catalog
        for tool in catalog:
            if tool.server in self._own:
                self._accepted[tool.tool_name] = self._riskiest[tool.tool_name] = tool
                continue
            before = self._accepted.setdefault(tool.tool_name, tool)
            if before is not tool and before.as_listed != tool.as_listed:
                self._changed(before, tool)
            elif tool.tool_name in self._changes and self._changes[tool.tool_name].blocked:
                # Its definition is the accepted one again.
                del self._changes[tool.tool_name]
            seen = self._accepted[tool.tool_name]
            if seen.risk > self._riskiest.setdefault(tool.tool_name, seen).risk:
                self._riskiest[tool.tool_name] = seen

    def accept(self, name: ToolName) -> None:
        """Accept the present definition of a tool.

        Raises:
            UnknownNameError: It has not changed.
        """
        if name not in self._changes:
            raise UnknownNameError("changed tool", str(name), map(str, self._changes))
        self._accepted[name] = self._riskiest[name] = self._changes.pop(name).after

    def forget(self, server: str) -> None:
        """Forget the tools of a server that was removed."""
        self._unreported = [change for change in self._unreported if change.tool.server != server]
        for tools in (self._accepted, self._riskiest, self._changes):
            for name in [name for name in tools if name.server == server]:
                del tools[name]

    def notices(self) -> list[Notice]:
        """Collect the notices on changes: each change once, and a blocked tool for as long as it is blocked."""
        if not self._changes and not self._unreported:
            return []
        changes, self._unreported = self._unreported, []
        blocked = [change for change in self._changes.values() if change.blocked]
        return [_notice(change) for change in dict.fromkeys([*changes, *blocked])]

    def _changed(self, before: ToolSpec, after: ToolSpec) -> None:
        change = ToolChange(before, after, blocked=self._pinned(after.server))
        if self._changes.get(after.tool_name) == change:
            return
        self._changes[after.tool_name] = change
        if not change.blocked:
            self._accepted[after.tool_name] = after
            self._unreported.append(change)


def _notice(change: ToolChange) -> Notice:
    server, tool = change.tool.server, change.tool.tool
    text = f"Server {shown(server)} changed the definition of tool {shown(tool)}."
    return Notice(f"{text} It is not offered until the change is accepted." if change.blocked else text, server=server)
