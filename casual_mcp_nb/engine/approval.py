"""Whether a person is asked before a call, and what an answer holds for.

The policy of a tool is, in this order: what was given in Python for its server, the `approval` of the server's config, the
policy of the bundled server that it is, the default. The default asks before each call of a tool that its server calls
destructive. A server that the person did not write (a command or a url) is asked about once, before the first call of a tool of
which it does not say whether it destroys something.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.errors import ConfigError, UnknownNameError
from casual_mcp_nb.types.server import OTHER_TOOLS, Approval, Policies, ServerConfig, checked_approval
from casual_mcp_nb.types.tool import Risk, ToolChange, ToolSpec

Policy = Approval | Literal["default"]

Reason = Literal["always", "destructive", "unannotated", "changed"]
"""Why it is asked: the policy is `always`; the tool can destroy something; its server does not say whether it can; or its
definition is not the one that was answered for, and less would be asked of the new one."""

Scope = Literal["call", "tool", "server"]


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that waits for a person's answer.

    Args:
        tool: The tool, with its server.
        arguments: The complete arguments.
        policy: The policy that asks.
        reason: Why it is asked; `unannotated` can be answered for the whole server.
        change: How the tool's definition differs from the one that was seen or answered for before; None: it does not.
    """

    tool: ToolSpec
    arguments: dict[str, Any]
    policy: Policy
    reason: Reason = "always"
    change: ToolChange | None = None


ApprovalAnswer = bool | str
"""True lets the call run, and nothing else does: False denies it, and a text denies it and tells the model why."""


@dataclass(frozen=True)
class Decision:
    """What the person says to a call.

    Args:
        verdict: See `ApprovalAnswer`.
        scope: What a True holds for in this conversation: the `call`, all calls of the `tool` with this definition, or, where
            the reason is `unannotated`, all tools of the `server` that are not destructive.
    """

    verdict: ApprovalAnswer
    scope: Scope = "call"


class NoOneToAsk(Exception):
    """An approver found that there is nobody who could answer."""


Approver = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | Decision]]
"""Asks the person."""


def checked_overrides(approval: Mapping[str, Policies] | None, servers: Mapping[str, object]) -> dict[str, Policies]:
    """Policies by server, as given in Python.

    Raises:
        ConfigError: A policy is not one.
        UnknownNameError: There is no such server.
    """
    for server, policy in (approval or {}).items():
        if server not in servers:
            raise UnknownNameError("server", server, servers)
        try:
            checked_approval(policy)
        except ValueError as error:
            raise ConfigError(f"approval of server {server}: {error}", key="approval") from None
    return {server: policy for server, policy in (approval or {}).items() if policy is not None}


def policy_of(tool: ToolSpec, config: ServerConfig | None, override: Policies | None = None) -> Policy:
    """The policy of a tool.

    Args:
        tool: The tool.
        config: The config of its server; None for one that lives in this process.
        override: What counts instead of the config's `approval`.
    """
    policies = override if override is not None else config.approval if config else None
    if isinstance(policies, Mapping):
        policies = policies.get(tool.name, policies.get(OTHER_TOOLS))
    if policies is not None:
        return policies
    bundled = BUNDLED.get(config.bundled or "") if config else None
    return bundled.approval if bundled else "default"


def reason_to_ask(tool: ToolSpec, policy: Policy, third_party: bool) -> Reason | None:
    """Why a person is asked before a call of a tool as it is defined now; None: nobody is asked.

    Args:
        tool: The tool.
        policy: Its policy.
        third_party: Whether its server is one that neither the person nor this package brought.
    """
    if policy == "always":
        return "always"
    if policy == "never":
        return None
    if tool.risk is Risk.DESTRUCTIVE:
        return "destructive"
    if tool.risk is Risk.UNKNOWN and policy == "destructive":
        # MCP's default for a tool that does not say so is that it can.
        return "destructive"
    return "unannotated" if tool.risk is Risk.UNKNOWN and third_party else None
