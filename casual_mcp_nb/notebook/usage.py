"""Which tools a person's conversations really used, and the selection without the others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.base.tool import ToolName, tool_names
from casual_mcp_nb.conversation.usage import ToolUsage, ToolUse
from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    # The table of views imports this module, and needs no engine.
    from casual_mcp_nb.engine.chat import McpToolChat

WithoutThem = Literal["deferred", "off"]
"""What becomes of tools that were never used: found by a search if they are needed after all, or
not offered at all.
"""


@dataclass(frozen=True)
class UsageChange(Displayable):
    """What a turn would cost without the tools that were never used. Nothing has changed yet.

    Attributes:
        mode: What would become of them.
        tools: The tools.
        turns: How many turns offered them, at most: no call was made in any.
        before: The cost of turns now.
        after: The cost of turns with the change.
    """

    mode: WithoutThem
    tools: tuple[ToolUse, ...]
    turns: int
    before: Budget
    after: Budget
    _apply: Callable[[], object] = field(repr=False)

    def apply(self) -> None:
        """Change the selection, from the next turn on."""
        self._apply()


@dataclass(frozen=True)
class SessionUsage(ToolUsage, items="tools"):
    """How a session's tools were used, and what deferring or turning off the others would save."""

    _chat: McpToolChat = field(repr=False, compare=False, kw_only=True)

    def defer(self) -> UsageChange:
        """Compare with a selection in which the tools that were never used are deferred: a search
        finds them. Nothing changes before `apply()`.

        Raises:
            UsageError: Every tool that is loaded was used, or none was ever sent.
        """
        unused = self._unused_now()
        selection = selection_deferring(self._chat, {tool.tool for tool in unused})
        return self._change("deferred", unused, selection)

    def turn_off(self) -> UsageChange:
        """Compare with a selection in which the tools that were never used are off. Nothing changes
        before `apply()`.

        Raises:
            UsageError: Every tool that is loaded was used, or none was ever sent.
        """
        unused = self._unused_now()
        selection = self._chat.selection.snapshot()
        for tool in unused:
            selection.tools_off.add(str(tool.tool))
        return self._change("off", unused, selection)

    def _unused_now(self) -> tuple[ToolUse, ...]:
        """Find the tools that are loaded and were never used."""
        loaded = tool_names(self._chat.current_view().loaded)
        unused = tuple(tool for tool in self.never_used if tool.tool in loaded)
        if not unused:
            raise UsageError(
                "There is nothing to change: no loaded tool went unused.",
                hint="session.tools.usage() lists how each was used. A tool counts once a request"
                " has sent its definition.",
            )
        return unused

    def _change(
        self, mode: WithoutThem, unused: tuple[ToolUse, ...], selection: Selection
    ) -> UsageChange:
        from casual_mcp_nb.notebook.status import estimated_budget

        return UsageChange(
            mode=mode,
            tools=unused,
            turns=max(tool.turns for tool in unused),
            before=estimated_budget(self._chat, self._chat.current_view()),
            after=estimated_budget(self._chat, self._chat.current_view(selection)),
            _apply=partial(self._chat.selection.assign, selection),
        )


def selection_deferring(chat: McpToolChat, names: Collection[ToolName]) -> Selection:
    """Copy the selection, with these tools deferred. The other loaded tools of their servers stay
    loaded.
    """
    servers = {name.server for name in names}
    selection = chat.selection.snapshot()
    selection.discovery = True
    for server in servers:
        selection.servers[server] = "deferred"
    for tool in chat.current_view().loaded:
        if tool.server in servers and tool.tool_name not in names:
            selection.always_loaded = (*selection.always_loaded, str(tool.tool_name))
    return selection
