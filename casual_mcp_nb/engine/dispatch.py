"""One call of a tool, from what the model wrote to a result: the fence, the approval, the call, words for what went wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.discovery import not_loaded_error
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.results import result_words
from casual_mcp_nb.errors import ServerError, ToolTimeoutError, closest, did_you_mean, shown
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.event import SYNTHETIC, UNKNOWN, CallStatus, Notice
from casual_mcp_nb.types.nesting import problem_of
from casual_mcp_nb.types.tool import ToolName, ToolSpec

if TYPE_CHECKING:
    from casual_mcp_nb.discovery import SyntheticTool, SyntheticToolResult
    from casual_mcp_nb.engine.view import ToolView

ProgressHandler = Callable[[float, float | None, str | None], None]
ApprovalHandler = Callable[[bool], None]


class ToolCaller(Protocol):
    """What dispatch needs of the connections."""

    async def call(
        self,
        tool: ToolSpec,
        arguments: dict[str, Any],
        *,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call a tool at its server."""
        ...


@dataclass(frozen=True)
class CallOutcome:
    """How a call ended: its status, the text for the model, the result as it came, and what a search found."""

    status: CallStatus
    text: str
    result: ToolResult | None = None
    search: SyntheticToolResult | None = None


@dataclass(eq=False)
class Dispatcher:
    """Runs the calls of one turn.

    Args:
        view: What the model sees.
        discovered: What the conversation has loaded by search, by wire name; grows during the turn.
        synthetic: Our own tools by name.
        caller: The connections.
        consent: Decides whether a call may run, and asks the person where it must be.
        meta: Handed through to the servers with each call.
        on_notice: Called with what the person should know of a call.
        follow: Brings `view`, `discovered` and `synthetic` up to date with what servers changed meanwhile.
    """

    view: ToolView
    discovered: Mapping[str, ToolSpec]
    synthetic: Mapping[str, SyntheticTool]
    caller: ToolCaller
    consent: Consent
    meta: Mapping[str, Any] | None = None
    on_notice: Callable[[Notice], None] = lambda _: None
    follow: Callable[[], Awaitable[None]] | None = None

    def offered(self, name: str) -> ToolSpec | None:
        """The tool that a model means, if it is offered. A name is taken kindly, but never beyond what is offered."""
        tool = self.view.loaded_by_name.get(name) or self.discovered.get(name)
        if tool is not None:
            return tool
        offered = [tool for tool in self.view.catalog.matches(name) if self._is_offered(tool)]
        return offered[0] if len(offered) == 1 else None

    def _is_offered(self, tool: ToolSpec) -> bool:
        return tool.wire_name in self.view.loaded_by_name or tool.wire_name in self.discovered

    def wire_name(self, name: str) -> str | None:
        """The name on the wire of the tool that a model means; None where it means none."""
        if name in self.synthetic:
            return name
        tool = self.offered(name) or self.view.catalog.get(name)
        return tool.wire_name if tool else None

    def owner(self, name: str) -> ToolName:
        """Server and tool for a name as the model wrote it."""
        if name in self.synthetic:
            return ToolName(SYNTHETIC, name)
        tool = self.offered(name) or self.view.catalog.get(name)
        return tool.tool_name if tool else ToolName(UNKNOWN, name)

    async def run(
        self, name: str, arguments: dict[str, Any] | str, on_progress: ProgressHandler, on_approval: ApprovalHandler
    ) -> CallOutcome:
        """Run one call; every failure becomes an outcome with words for the model, only a cancellation passes.

        Args:
            name: The tool's name as the model wrote it.
            arguments: The arguments, or the text as it came where that is no JSON object.
            on_progress: Called with progress, total and message.
            on_approval: Called with True when the person is asked, and with False when the answer is there.
        """
        if isinstance(arguments, str):
            return CallOutcome("error", f"Error: the arguments of {shown(name)} {problem_of(arguments)}: {shown(arguments)}.")
        if name in self.synthetic:
            if arguments.get("query") and self.view.selection.strategy == "search":
                await self.view.searchable()
            found = await self.synthetic[name].execute(arguments)
            return CallOutcome("error" if found.content.startswith("Error") else "ok", found.content, search=found)
        tool = self.offered(name)
        if tool is None and self.follow is not None:
            # A call before it in the same answer may have brought the tool.
            await self.follow()
            tool = self.offered(name)
        if tool is None:
            return CallOutcome("error", await self._refusal(name))
        verdict = await self.consent.verdict(tool, arguments, on_approval, self.on_notice)
        if verdict is not True:
            why = f" {verdict}" if isinstance(verdict, str) and verdict else ""
            return CallOutcome("denied", f"Error: the call of {shown(name)} was not approved, so it was not run.{why}")
        return await self._call(tool, arguments, on_progress)

    async def _call(self, tool: ToolSpec, arguments: dict[str, Any], on_progress: ProgressHandler) -> CallOutcome:
        try:
            result = await self.caller.call(tool, arguments, on_progress=on_progress, meta=self.meta)
        except ToolTimeoutError as error:
            return CallOutcome("timeout", f"Error: {error}")
        except ServerError as error:
            return CallOutcome("error", f"Error: {error}")
        return CallOutcome("error" if result.is_error else "ok", await result_words(result), result)

    async def _refusal(self, name: str) -> str:
        tool = self.view.catalog.get(name)
        if tool and tool.wire_name in self.view.deferred_by_name:
            return not_loaded_error(name, self.view.loader)
        if tool and tool.tool_name in self.view.blocked:
            return f"Error: Tool {shown(name)} is blocked: its server changed its definition, and nobody has accepted that yet."
        if tool and tool.restriction == "task only":
            return f"Error: Tool {shown(name)} runs only as a task, which is not supported here. Use another tool."
        tools = [*self.view.loaded_by_name.values(), *self.discovered.values()]
        # Looking through the names of many tools would hold the loop.
        hint = await asyncio.to_thread(_meant, name, tools, list(self.synthetic))
        return f"Error: Tool {shown(name)} is not available. {hint}"


_MAX_MATCHES = 12
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def _meant(name: str, tools: Sequence[ToolSpec], synthetic: Sequence[str]) -> str:
    """What a name that is not a tool's can mean: the tools with that name in another spelling, else the names most like it."""
    folded = _folded(name)
    matches = [tool.wire_name for tool in tools if folded in {_folded(alias) for alias in (*tool.aliases, tool.wire_name)}]
    if len(matches) == 1:
        return f"You mean {shown(matches[0])}: call it by exactly this name."
    offered = [*(tool.wire_name for tool in tools), *synthetic]
    return did_you_mean(matches[:_MAX_MATCHES] or closest(name, offered), offered)


def _folded(name: str) -> str:
    return _SEPARATORS.sub("_", name.casefold()).strip("_")
