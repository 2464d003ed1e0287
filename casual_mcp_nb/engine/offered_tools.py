"""The tools that calls can mean: those that are loaded, those that were found, and those of this
package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    OTHER_SEARCH_TOOLS,
    SEARCH_TOOLS,
    SYNTHETIC,
    UNKNOWN,
)
from casual_mcp_nb.engine.written_calls import bare

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.past_questions import PastQuestion
    from casual_mcp_nb.discovery.synthetic import SyntheticTool
    from casual_mcp_nb.engine.tool_view import ToolView


@dataclass(eq=False, repr=False)
class OfferedTools:
    """The tools that a caller is offered. These stay as they are, see `TurnTools` for others.

    Args:
        view: The tools under a selection.
        discovered: Those of its deferred tools that were found, by wire name.
        synthetic: The tools that no server runs, by wire name.
        used: The tools that were called. Grows.
        past_questions: The questions that searches learn from.
    """

    view: ToolView
    discovered: dict[str, ToolSpec]
    synthetic: Mapping[str, SyntheticTool]
    used: set[ToolName] = field(default_factory=set)
    past_questions: Sequence[PastQuestion] = ()

    @classmethod
    def of(
        cls, view: ToolView, discovered: dict[str, ToolSpec], used: Iterable[ToolName] = ()
    ) -> Self:
        """Offer a view and what was found, with the view's own delivery."""
        used = set(used)
        found_names = [tool.tool_name for tool in discovered.values()]
        return cls(view, discovered, view.synthetic_tools(found_names, used=used), used)

    async def refresh(self) -> None:
        """Do nothing: unlike those of a turn, these tools stay when servers change theirs."""

    def load_directly(self, tool: ToolSpec) -> None:
        """Do nothing: unlike in a turn, a tool that was called before it was found stays deferred."""

    @property
    def bridges(self) -> bool:
        """Whether found tools are called through `call_tool`."""
        return CALL_TOOL in self.synthetic

    def is_bridged(self, tool: ToolSpec) -> bool:
        """Check whether a tool is called through `call_tool`, so that it is defined nowhere."""
        return CALL_TOOL in self.synthetic and tool.wire_name not in self.view.loaded_by_name

    def find(self, name: str) -> ToolSpec | None:
        """Find the offered tool that a name means, in any spelling, or None if none or several
        match.
        """
        tool = self.view.loaded_by_name.get(name) or self.discovered.get(name)
        if tool is not None:
            return tool
        return self._one_of(name, self.is_callable)

    def find_deferred(self, name: str) -> ToolSpec | None:
        """Find the deferred tool that a name means, or None if none or several match."""
        return self._one_of(name, self._is_deferred)

    def _one_of(self, name: str, counts: Callable[[ToolSpec], bool]) -> ToolSpec | None:
        """Find the one tool that a name means, in any spelling, of those that count."""
        for spelling in dict.fromkeys((name, bare(name))):
            matches = [tool for tool in self.view.catalog.matches(spelling) if counts(tool)]
            if matches:
                return matches[0] if len(matches) == 1 else None
        return None

    def is_callable(self, tool: ToolSpec) -> bool:
        """Check whether a server's tool is loaded or was found."""
        return tool.wire_name in self.view.loaded_by_name or tool.wire_name in self.discovered

    def _is_deferred(self, tool: ToolSpec) -> bool:
        return tool.wire_name in self.view.deferred_by_name

    def is_known(self, name: str) -> bool:
        """Check whether a name means a tool that the model was offered, or that it can find."""
        return (
            name in self.synthetic
            or self.find(name) is not None
            or bare(name) in self.synthetic
            or self.find_deferred(name) is not None
        )

    def names(self) -> list[str]:
        """List the wire names of all offered tools."""
        return [*self.view.loaded_by_name, *self.discovered, *self.synthetic]

    def wire_name(self, name: str) -> str | None:
        """Find the wire name for the tool that a name means, if any."""
        if name in self.synthetic:
            return name
        if bare(name) in self.synthetic:
            return bare(name)
        catalog = self.view.catalog
        tool = self.find(name) or catalog.get(name) or catalog.get(bare(name))
        if tool is not None:
            return tool.wire_name
        if name == OTHER_SEARCH_TOOLS and SEARCH_TOOLS in self.synthetic:
            return SEARCH_TOOLS
        return None

    def resolve(self, name: str) -> ToolName:
        """Resolve a name as the model wrote it to server and tool.

        The server is `UNKNOWN` if there is no such tool.
        """
        return self.identify(name)[0]

    def identify(self, name: str) -> tuple[ToolName, str]:
        """Resolve a name to server and tool, and to the wire name, which is empty if there is no
        such tool.
        """
        if name in self.synthetic:
            return ToolName(SYNTHETIC, name), name
        tool = self.find(name) or self.view.catalog.get(name)
        return (tool.tool_name, tool.wire_name) if tool else (ToolName(UNKNOWN, name), "")

    def others_take(self, producer: ToolName) -> bool:
        """Check whether a tool other than this one could take its result as an argument.

        Where only programs call tools, they have whole results.
        """
        if self.view.coded:
            return False
        tools = self.view.included
        return any(
            tool.tool_name != producer and tool.input_schema.get("properties") for tool in tools
        )

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """Find the schema of the arguments that a tool takes, by the name that a model wrote.

        None if there is no such tool.
        """
        tool = self.find(name) or self.view.catalog.get(bare(name))
        return tool.input_schema if tool else None
