"""A call that no turn makes: a person's, a program's or an app's. All of them are permitted, timed
and recorded in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.tool import Permission, ToolSpec
from casual_mcp_nb.conversation.audit import (
    AuditRecord,
    AuditTrail,
    Caller,
    size_of_arguments,
    size_of_result,
)
from casual_mcp_nb.conversation.direct_calls import DirectCall, RecordedCalls
from casual_mcp_nb.conversation.event import CallStatus
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.engine.results import with_result
from casual_mcp_nb.errors import ServerError, ToolCallError, ToolTimeoutError


class CallOutsideATurn:
    """One call while it is made.

    Args:
        tool: The tool.
        arguments: Its arguments.
        permission: The permission, if nobody has to be asked.

    Attributes:
        call: The call as far as it has come. It counts as stopped until it has ended.
        at: When it began, in seconds since 1970.
        permission: Who allowed or refused it, or None before that is decided.
    """

    def __init__(
        self, tool: ToolSpec, arguments: Mapping[str, Any], permission: Permission | None = None
    ) -> None:
        self.at = time.time()
        self.permission = permission
        self.call = ToolCall(
            id="",
            name=tool.wire_name,
            tool=tool.tool_name,
            arguments=dict(arguments),
            status="stopped",
        )
        self._tool = tool
        self._began = time.monotonic()

    async def allow(self, deciding: Awaitable[Permission]) -> None:
        """Wait for the decision. The call's time counts from then on: a person's is not the tool's.

        Raises:
            ToolCallError: It was refused.
        """
        self.permission = await deciding
        self._began = time.monotonic()
        if not self.permission.allowed:
            reason = f"This call was not approved. {self.permission.reason}".strip()
            self.call = replace(self.call, status="denied", result=reason)
            raise ToolCallError(reason, server=self._tool.server, tool=self._tool.wire_name)

    async def run(self, calling: Awaitable[ToolResult]) -> ToolResult:
        """Wait for the result, and give it to the call.

        Raises:
            ServerError: The server failed.
        """
        try:
            result = await calling
            self.call = await with_result(self.call, result)
        except ServerError as error:
            self.fail(error)
            raise
        return result

    def fail(self, error: ServerError) -> None:
        """Note why it failed."""
        status: CallStatus = "timeout" if isinstance(error, ToolTimeoutError) else "error"
        self.call = replace(self.call, status=status, result=str(error))

    def record(
        self, calls: RecordedCalls, trail: AuditTrail, caller: Caller, listed_as: Caller
    ) -> DirectCall:
        """Record it, however it ended.

        Args:
            calls: The list of calls that a person sees.
            trail: The audit trail.
            caller: Who made it, for the audit trail.
            listed_as: The same for the list.
        """
        self.call = replace(self.call, seconds=time.monotonic() - self._began)
        arguments_size = size_of_arguments(self.call.arguments)
        result_size = size_of_result(self.call.original, self.call.result)
        trail.add(
            AuditRecord(
                self.at,
                tool=self._tool.tool_name,
                caller=caller,
                permission=self.permission,
                status=self.call.status,
                seconds=self.call.seconds,
                arguments_size=arguments_size,
                result_size=result_size,
            )
        )
        return calls.add(self.at, self.call, listed_as)
