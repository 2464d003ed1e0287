"""What the person of another program is asked: whether a call may run, and what servers want to know."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from casual_mcp_nb.connections.running_calls import ASKER
from casual_mcp_nb.engine.approval import ApprovalRequest, Decision, NoOneToAsk
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.tool import ToolSpec

logger = logging.getLogger(__name__)

HostApproval = Literal["ask", "host"]
"""Calls for which a policy requires approval: `ask` asks through the host, and denies them where it cannot; `host` leaves it to
the host, which asks before each call as it sees fit."""

MAX_SHOWN = 20_000
"""Maximum number of characters of arguments that somebody is asked to approve; longer ones could hide something."""
ONCE, ALWAYS, DENY = "allow this call", "allow this tool from now on", "deny"

_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "title": "May it run?", "enum": [ONCE, ALWAYS, DENY], "default": DENY},
    },
    "required": ["answer"],
}


@dataclass(frozen=True, eq=False)
class HostCall:
    """A call that a host makes; an `Asker`.

    Args:
        client: The host's connection.
        context: The request.
        approval: What is done where a policy requires approval.
    """

    client: object
    context: ServerRequestContext[Any, Any]
    approval: HostApproval

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Ask the host's person whether a call may run."""
        if self.approval == "host":
            return Decision(True, answered=False)
        tool = request.tool
        # A host asks its person before calls anyway: nobody is asked twice about tools that say nothing.
        if not self._can("form") or (request.policy == "default" and request.reason == "unannotated"):
            raise NoOneToAsk
        arguments = json.dumps(request.arguments, indent=2, ensure_ascii=False, default=str)
        if len(arguments) > MAX_SHOWN:
            return Decision(f"Its arguments are too long to be shown: {len(arguments):,} characters.", answered=False)
        change = " Its definition has changed since it was last approved." if request.change else ""
        message = f"May the tool {shown(tool.name)} of {shown(tool.server)} be called?{change}\n{_visible(arguments)}"
        answer = await self._elicit(mcp.ElicitRequestFormParams(message=message, requested_schema=_FORM))
        given = (answer.content or {}).get("answer") if answer.action == "accept" else DENY
        if given in (ONCE, ALWAYS):
            return Decision(True, "tool" if given == ALWAYS else "call")
        return Decision(False, answered=answer.action != "cancel")

    async def elicit(self, server: str, message: str, params: Any) -> mcp.ElicitResult:
        """Pass on what a server asks, or decline where the host cannot ask its person."""
        address = getattr(params, "url", None)
        text = f"The server {shown(server)} asks:\n{message}"
        passed: mcp.ElicitRequestParams
        if address is not None:
            passed = mcp.ElicitRequestURLParams(
                message=text, url=str(address), elicitation_id=getattr(params, "elicitation_id", None)
            )
        else:
            passed = mcp.ElicitRequestFormParams(message=text, requested_schema=params.requested_schema)
        if not self._can("form" if address is None else "url"):
            return mcp.ElicitResult(action="decline")
        return await self._elicit(passed)

    def _can(self, mode: Literal["form", "url"]) -> bool:
        capabilities = self.context.session.client_capabilities
        declared = capabilities.elicitation if capabilities else None
        if declared is None:
            return False
        # Without a mode it is that of the versions that had only forms.
        return getattr(declared, mode) is not None or (mode == "form" and declared.url is None)

    async def _elicit(self, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        related = ServerMessageMetadata(related_request_id=self.context.request_id)
        try:
            return await self.context.session.send_request(mcp.ElicitRequest(params=params), mcp.ElicitResult, metadata=related)
        except (MCPError, ValueError) as error:
            logger.warning("A host did not answer a question: %s", shown(str(error)))
            return mcp.ElicitResult(action="cancel")


def allowed_by_host(tool: ToolSpec) -> str:
    """Return how calls of a tool are allowed where a host cannot ask its person."""
    return (
        "This program cannot pass on the question. Whoever set up this server can leave it to it with `--approval host` "
        f'(`approval="host"` in Python), or set the approval of {shown(tool.server)} in the config.'
    )


async def approve(request: ApprovalRequest) -> Decision:
    """Ask whoever makes the call of this task; an `Approver`."""
    asker = ASKER.get()
    if not isinstance(asker, HostCall):
        raise NoOneToAsk
    return await asker.approve(request)


def _visible(text: str) -> str:
    """Return a text in which nothing changes how the rest of it reads."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
