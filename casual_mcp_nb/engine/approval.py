"""Approval policies: whether the user is asked before a call, and which calls the answer covers.

The policy of a tool is the first of these that is set: the one given in Python for its server, the `approval` of the server's
config, the policy of the bundled server, the default. The default asks before each call of a tool that its server calls
destructive. A server from elsewhere (a command or a url) is asked about once, before the first call of a tool without a hint on
whether it is destructive; see https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.errors import ConfigError, UnknownNameError
from casual_mcp_nb.types.server import OTHER_TOOLS, Approval, Policies, ServerConfig, checked_approval
from casual_mcp_nb.types.tool import Risk, ToolChange, ToolSpec

Policy = Approval | Literal["default"]

Reason = Literal["always", "destructive", "unannotated", "changed", "sampling", "outgoing"]
"""Why the person is asked: the policy is `always`; the tool is destructive; its server does not say whether it is; its
definition is not the one that was approved, and the new one would need less approval; a server requests an answer of the
model instead of a call of a tool; or the tool of a bundled server sends something to other people in the user's name."""

ONE_BY_ONE: frozenset[Reason] = frozenset({"sampling", "outgoing"})
"""Reasons for which each call needs an answer: none is remembered."""

Scope = Literal["call", "tool", "server"]

MAX_REASON = 1_000
"""How many characters of the reason of a denial the model is told."""


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that waits for a person's answer.

    Args:
        tool: The tool, with its server.
        arguments: The complete arguments; of an outgoing call as they are in what it would send.
        policy: The policy that asks.
        reason: Why the person is asked; `unannotated` can be answered for the whole server.
        change: How the tool's definition differs from the one that was seen or approved before; None: it does not.
    """

    tool: ToolSpec
    arguments: dict[str, Any]
    policy: Policy
    reason: Reason = "always"
    change: ToolChange | None = None


ApprovalAnswer = bool | str
"""Only True lets the call run; False denies it, and a text denies it and tells the model why, see `MAX_REASON`."""


@dataclass(frozen=True)
class Decision:
    """The person's answer for a call.

    Args:
        verdict: See `ApprovalAnswer`.
        scope: What a True applies to in this conversation: the `call`, all calls of the `tool` with this definition, or, where
            the reason is `unannotated`, all tools of the `server` that are not destructive.
        answered: Whether it is an answer at all; False where nobody gave one.
    """

    verdict: ApprovalAnswer
    scope: Scope = "call"
    answered: bool = True


class NoOneToAsk(Exception):
    """An approver has no one to ask."""


Approver = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | Decision]]
"""Ask the person."""


def checked_overrides(approval: Mapping[str, Policies] | None, servers: Collection[str]) -> dict[str, Policies]:
    """Check policies given in Python, and return them by server.

    Args:
        approval: The policies; None for none.
        servers: The names of the servers.

    Raises:
        ConfigError: A policy is not valid.
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


def policy_of(tool: ToolSpec, config: ServerConfig | None, override: Policies | None = None, *, strict: bool = False) -> Policy:
    """Resolve the policy of a tool.

    Args:
        tool: The tool.
        config: The config of its server; None for one that lives in this process.
        override: Replaces the config's `approval`.
        strict: Whether it is `always` unless somebody set it to `never`.
    """
    bundled = BUNDLED.get(config.bundled or "") if config else None
    if bundled is not None and tool.name in bundled.asks_each_time:
        return "always"
    policies = override if override is not None else config.approval if config else None
    if isinstance(policies, Mapping):
        policies = policies.get(tool.name, policies.get(OTHER_TOOLS))
    if strict:
        return "never" if policies == "never" else "always"
    if policies is not None:
        return policies
    return bundled.approval if bundled else "default"


def is_outgoing(tool: ToolSpec, config: ServerConfig | None) -> bool:
    """Check whether a tool sends something in the user's name, so that no policy or earlier answer lets it run.

    Args:
        tool: The tool.
        config: The config of its server.
    """
    bundled = BUNDLED.get(config.bundled or "") if config else None
    return bundled is not None and tool.name in bundled.asks_each_time


def as_sent(arguments: dict[str, Any], config: ServerConfig | None) -> dict[str, Any]:
    """Fill in an outgoing call's arguments as they will be sent, so that the person approves exactly that.

    Args:
        arguments: The arguments as the model wrote them.
        config: The config of the tool's server.

    Raises:
        ValueError: Nothing can be sent with them; the message says why, for the model.
    """
    bundled = BUNDLED.get(config.bundled or "") if config else None
    return bundled.finished(arguments) if bundled and bundled.finished else arguments


def reason_to_ask(tool: ToolSpec, policy: Policy, third_party: bool) -> Reason | None:
    """Find the reason to ask a person before a call of a tool as it is defined now; None if there is none.

    Args:
        tool: The tool.
        policy: Its policy.
        third_party: Whether its server is neither bundled nor in this process.
    """
    if policy == "always":
        return "always"
    if policy == "never":
        return None
    if tool.risk is Risk.DESTRUCTIVE:
        return "destructive"
    if tool.risk is Risk.UNKNOWN and policy == "destructive":
        # By MCP's default, a tool without a hint is destructive.
        return "destructive"
    return "unannotated" if tool.risk is Risk.UNKNOWN and third_party else None
