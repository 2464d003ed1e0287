"""Whether a person is asked before a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.types.config import Approval
from casual_mcp_nb.types.tool import ToolSpec


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that waits for a person's word.

    Args:
        tool: The tool, with its server.
        arguments: The complete arguments.
        policy: Why it is asked: the server's policy.
    """

    tool: ToolSpec
    arguments: dict[str, Any]
    policy: Approval


Approver = Callable[[ApprovalRequest], Awaitable[bool]]
"""Asks the person; True lets the call run."""


def needs_approval(tool: ToolSpec, policy: Approval) -> bool:
    """Whether a call of this tool waits for a person under this policy."""
    return policy == "always" or (policy == "destructive" and tool.destructive)
