"""One call of a tool, from what the model wrote to a result: the fence, the approval, the call, words for what went wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.discovery import not_loaded_error
from casual_mcp_nb.engine.approval import ApprovalRequest, Approver, Verdict, needs_approval
from casual_mcp_nb.engine.results import result_text
from casual_mcp_nb.errors import ServerError, ToolTimeoutError, closest, did_you_mean, shown
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.event import SYNTHETIC, UNKNOWN, CallStatus
from casual_mcp_nb.types.server import Approval
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
class Outcome:
    """How a call ended: its status, the text for the model, the result as it came, and what a search found."""

    status: CallStatus
    text: str
    result: ToolResult | None = None
    search: SyntheticToolResult | None = None


@dataclass(frozen=True)
class Dispatcher:
    """Runs the calls of one turn.

    Args:
        view: What the model sees.
        discovered: What the conversation has loaded by search, by wire name; grows during the turn.
        synthetic: Our own tools by name.
        caller: The connections.
        policy: Tells for a server whether a person is asked.
        approver: Asks the person; without one, a call that needs a word is denied.
        meta: Handed through to the servers with each call.
    """

    view: ToolView
    discovered: Mapping[str, ToolSpec]
    synthetic: Mapping[str, SyntheticTool]
    caller: ToolCaller
    policy: Callable[[str], Approval]
    approver: Approver | None = None
    meta: Mapping[str, Any] | None = None

    def offered(self, name: str) -> ToolSpec | None:
        """The tool that a model means, if it is offered. A name is taken kindly, but never beyond what is offered."""
        tool = self.view.loaded_by_name.get(name) or self.discovered.get(name)
        if tool is not None:
            return tool
        tool = self.view.catalog.get(name)
        if tool and (tool.wire_name in self.view.loaded_by_name or tool.wire_name in self.discovered):
            return tool
        return None

    def owner(self, name: str) -> ToolName:
        """Server and tool for a name as the model wrote it."""
        if name in self.synthetic:
            return ToolName(SYNTHETIC, name)
        tool = self.offered(name) or self.view.catalog.get(name)
        return tool.tool_name if tool else ToolName(UNKNOWN, name)

    async def run(
        self, name: str, arguments: dict[str, Any] | str, on_progress: ProgressHandler, on_approval: ApprovalHandler
    ) -> Outcome:
        """Run one call; every failure becomes an outcome with words for the model, only a cancellation passes.

        Args:
            name: The tool's name as the model wrote it.
            arguments: The arguments, or the text as it came where that is no JSON object.
            on_progress: Called with progress, total and message.
            on_approval: Called with True when the person is asked, and with False when the answer is there.
        """
        if isinstance(arguments, str):
            return Outcome("error", f"Error: the arguments of {shown(name)} are not a JSON object: {shown(arguments)}.")
        if name in self.synthetic:
            if arguments.get("query") and self.view.selection.strategy == "search":
                await self.view.searchable()
            found = await self.synthetic[name].execute(arguments)
            return Outcome("error" if found.content.startswith("Error") else "ok", found.content, search=found)
        tool = self.offered(name)
        if tool is None:
            return Outcome("error", self._refusal(name))
        verdict = await self._verdict(tool, arguments, on_approval)
        if verdict is not True:
            why = f" {verdict}" if isinstance(verdict, str) and verdict else ""
            return Outcome("denied", f"Error: the call of {shown(name)} was not approved, so it was not run.{why}")
        return await self._call(tool, arguments, on_progress)

    async def _call(self, tool: ToolSpec, arguments: dict[str, Any], on_progress: ProgressHandler) -> Outcome:
        try:
            result = await self.caller.call(tool, arguments, on_progress=on_progress, meta=self.meta)
        except ToolTimeoutError as error:
            return Outcome("timeout", f"Error: {error}")
        except ServerError as error:
            return Outcome("error", f"Error: {error}")
        return Outcome("error" if result.is_error else "ok", result_text(result), result)

    async def _verdict(self, tool: ToolSpec, arguments: dict[str, Any], on_approval: ApprovalHandler) -> Verdict:
        policy = self.policy(tool.server)
        if not needs_approval(tool, policy):
            return True
        if self.approver is None:
            return False
        on_approval(True)
        verdict = await self.approver(ApprovalRequest(tool, arguments, policy))
        on_approval(False)
        return verdict

    def _refusal(self, name: str) -> str:
        tool = self.view.catalog.get(name)
        if tool and tool.wire_name in self.view.deferred_by_name:
            return not_loaded_error(name, self.view.loader)
        if tool and tool.tool_name in self.view.blocked:
            return f"Error: Tool {shown(name)} is blocked: its server changed its definition, and nobody has accepted that yet."
        offered = [*self.view.loaded_by_name, *self.discovered, *self.synthetic]
        return f"Error: Tool {shown(name)} is not available. {did_you_mean(closest(name, offered), offered)}"


def parse_arguments(text: str | None) -> dict[str, Any] | str:
    """The arguments of a call as a model wrote them: nothing and `null` are no arguments; the text itself where it is no JSON
    object."""
    if text is None or not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if value is None:
        return {}
    return value if isinstance(value, dict) else text
