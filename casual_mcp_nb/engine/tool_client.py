"""A tool client other than the session's model: another program, with its found tools and its
approvals.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import Token
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.content import OnProgress
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tool import Permission, ToolName, ToolSpec, tool_names
from casual_mcp_nb.conversation.audit import AuditRecord, Caller, size_of_arguments, size_of_result
from casual_mcp_nb.conversation.event import SYNTHETIC, Notice
from casual_mcp_nb.conversation.step import NamedCall, ToolCall, named_call
from casual_mcp_nb.engine.build_run import build_dispatcher
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.dispatch import CallListener, Dispatcher
from casual_mcp_nb.engine.nesting import NestedCall, Nesting, ended_call
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.outcomes import CallOutcome
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.engine.turn_fields import NamedTurnFields
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.servers.askers import ASKER, Asker

MAX_FOUND = 256
"""Maximum number of found tools that one client keeps.

Beyond that, it drops the tool found or called least recently.
"""


def tool_options(
    tool_set: str | ToolSetConfig | None, *, all_tools: bool = False, bridge: bool = False
) -> TurnOptions:
    """Build the options that select a client's tools."""
    if all_tools and bridge:
        raise UsageError(
            "all_tools and bridge exclude each other. With all_tools, nothing is deferred, so"
            " nothing can be found."
        )
    chosen: NamedTurnFields = {"tool_set": tool_set}
    if all_tools:
        chosen["discovery"], chosen["delivery"] = False, "definitions"
    if bridge:
        chosen["delivery"] = "bridge"
    return TurnOptions(**chosen)


@dataclass(eq=False, repr=False)
class ToolClient:
    """Lists and calls a chat's tools for one client. Belongs to the chat's event loop.

    Args:
        options: Which tools: a toolset, discovery, delivery. Options left unset follow the chat's
            current selection.
        admit: Awaited before each use. It raises if the servers may not start.
        remembers: Whether the same client uses it again. If not, the client's found tools are
            unknown, and any tool that it calls counts as found.
    """

    chat: McpToolChat
    options: TurnOptions
    consent: Consent
    admit: Callable[[], Awaitable[None]]
    on_notice: Callable[[Notice], None] = ignore
    remembers: bool = True
    _found_tools: dict[str, ToolSpec] = field(default_factory=dict)
    _used: set[ToolName] = field(default_factory=set)

    async def offered(self) -> tuple[ToolSpec, ...]:
        """List the tools that the client can call now: the loaded, the found and the search
        tools.
        """
        await self.admit()
        return self._offered_in(await self.chat.tools.current_view(self._selection))

    def known_tools(self) -> tuple[ToolSpec, ...]:
        """List the current tools. Does not connect and does not wait."""
        return self._offered_in(self.chat.current_view(self._selection))

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        asker: Asker,
        on_progress: OnProgress = ignore,
        on_resolved: Callable[[ToolName], None] = ignore,
    ) -> CallOutcome:
        """Call a tool. Every failure becomes an outcome with a text. Only a cancellation raises."""
        await self.admit()
        view = await self.chat.tools.current_view(self._selection)
        # A copy for this call: the context of the conversation may be another one for the next.
        chat = self.chat.apart(self.consent)
        offered = OfferedTools.of(view, self._found_in(view), self._used)
        meant = named_call(name, arguments) if offered.bridges else NamedCall(name, arguments)
        wire_name = offered.wire_name(meant.name) or ""
        if not self.remembers and wire_name in view.deferred_by_name:
            offered.discovered[wire_name] = view.deferred_by_name[wire_name]
        dispatcher = build_dispatcher(chat, offered, TurnOptions(), on_notice=self.on_notice)
        tool = offered.resolve(meant.name)
        on_resolved(tool)
        run = partial(dispatcher.dispatch, meant.name, meant.arguments, bridged=meant.bridged)
        token: Token[Asker | None] = ASKER.set(asker)
        try:
            outcome = await self._run(
                dispatcher,
                call_id="",
                tool=tool,
                arguments=meant.arguments,
                run=run,
                on_progress=on_progress,
                caller="host",
            )
        finally:
            ASKER.reset(token)
        if outcome.synthetic is not None:
            self._remember(outcome.synthetic.newly_loaded_tools, outcome.synthetic.unloaded)
        elif tool.server != SYNTHETIC:
            self._used.add(tool)
            if wire_name in offered.discovered:
                self._remember([offered.discovered[wire_name]])
        return outcome._replace(text=encodable(outcome.text))

    @property
    def _selection(self) -> Selection:
        return self.options.applied_to(self.chat.selection)

    def _found_in(self, view: ToolView) -> dict[str, ToolSpec]:
        """Look up the found tools that the selection still defers, with their current
        definitions.
        """
        found = {}
        for name in self._found_tools:
            if name in view.deferred_by_name:
                found[name] = view.deferred_by_name[name]
        return found

    def _offered_in(self, view: ToolView) -> tuple[ToolSpec, ...]:
        found_tools = () if view.bridged or view.coded else self._found_in(view).values()
        return (*view.offered, *found_tools)

    def _remember(self, loaded: list[ToolSpec], unloaded: tuple[ToolSpec, ...] = ()) -> None:
        """Keep tools that were found or called as the most recent ones, and forget others."""
        for tool in loaded:
            self._found_tools.pop(tool.wire_name, None)
            self._found_tools[tool.wire_name] = tool
        for tool in unloaded:
            self._found_tools.pop(tool.wire_name, None)
        while len(self._found_tools) > MAX_FOUND:
            self._found_tools.pop(next(iter(self._found_tools)))
        self._used.intersection_update(tool_names(self._found_tools.values()))

    async def _run(
        self,
        dispatcher: Dispatcher,
        *,
        call_id: str,
        tool: ToolName,
        arguments: dict[str, Any] | str,
        run: Callable[[CallListener], Awaitable[CallOutcome]],
        on_progress: OnProgress,
        caller: Caller,
        depth: int = 0,
    ) -> CallOutcome:
        """Run a call, including calls nested in it by a notebook function, and add it to the audit
        list.
        """
        at, start = time.time(), time.monotonic()
        waited = 0.0
        permission: Permission | None = None

        def on_approval(waiting: bool) -> None:
            nonlocal waited
            if waiting:
                waited -= time.monotonic()
            else:
                waited += time.monotonic()

        def on_permission(decided: Permission) -> None:
            nonlocal permission
            permission = decided

        outcome = CallOutcome("stopped", "")
        try:
            async with Nesting(
                call_id, dispatcher.context, partial(self._nested, dispatcher), depth
            ):
                outcome = await run(CallListener(on_progress, on_approval, on_permission))
        finally:
            end = time.monotonic()
            if waited < 0:
                # It was stopped while it waited.
                waited += end
            self.chat.audit.add(
                AuditRecord(
                    at,
                    tool=tool,
                    caller=caller,
                    permission=permission,
                    status=outcome.status,
                    seconds=end - start - waited,
                    arguments_size=size_of_arguments(arguments),
                    result_size=size_of_result(outcome.result, outcome.text),
                )
            )
        return outcome

    async def _nested(self, dispatcher: Dispatcher, nested: NestedCall) -> ToolCall:
        tool, start = dispatcher.offered.view.catalog.resolve(nested.name), time.monotonic()
        outcome = await self._run(
            dispatcher,
            call_id=nested.id,
            tool=tool.tool_name,
            arguments=nested.arguments,
            run=partial(dispatcher.dispatch_nested, tool, nested.arguments),
            on_progress=ignore,
            caller="tool",
            depth=nested.depth,
        )
        return ended_call(nested, tool, outcome, time.monotonic() - start)
