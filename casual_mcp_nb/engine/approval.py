"""Whether a person is asked before a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.types.server import Approval, ServerConfig
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


Verdict = bool | str
"""True lets the call run, and nothing else does: False denies it, and a text denies it and tells the model why."""

Approver = Callable[[ApprovalRequest], Awaitable[Verdict]]
"""Asks the person."""


def policy_of(config: ServerConfig | None) -> Approval:
    """The policy of a server: that of its config, else that of the bundled server that it is."""
    if config is None:
        return "never"
    bundled = BUNDLED.get(config.bundled or "")
    return config.approval or (bundled.approval if bundled else "never")


def needs_approval(tool: ToolSpec, policy: Approval) -> bool:
    """Whether a call of this tool waits for a person under this policy."""
    return policy == "always" or (policy == "destructive" and tool.destructive)
