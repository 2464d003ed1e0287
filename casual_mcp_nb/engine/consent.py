"""The single place that all approvals go through: who is asked, for how long, and which calls the
answers cover.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import (
    OTHER_TOOLS,
    Approval,
    Policies,
    ServerConfig,
    checked_approval,
)
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.base.mcp import (
    SAMPLING_METHOD,
    NobodyToAsk,
    SamplingAnswer,
    SamplingRefused,
    SamplingRequest,
)
from casual_mcp_nb.base.passed import FilledArguments, PassedResult
from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.base.tool import (
    Authority,
    Denial,
    Permission,
    Risk,
    ToolChange,
    ToolName,
    ToolSpec,
    forget_server,
)
from casual_mcp_nb.bundled import BUNDLED, BundledServer
from casual_mcp_nb.conversation.audit import AuditRecord, size_of_arguments
from casual_mcp_nb.conversation.event import CallStatus, Notice
from casual_mcp_nb.conversation.step import ModelResponse, text_of
from casual_mcp_nb.engine.tools import ToolChangeTracker
from casual_mcp_nb.errors import (
    CasualMcpError,
    ConfigError,
    UnknownNameError,
    UsageError,
    closest,
    shown,
)
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK
from casual_mcp_nb.providers.factory import ModelFactory

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.providers.spending import Account


Policy = Approval | Literal["default"]
"""When a call needs approval.

- `never`, `destructive`, `always`: as set for the server or the tool, see `Approval`.
- `default`: nothing is set. A person is asked about tools that are destructive, and about tools of
  other people's servers that do not declare whether they are.
"""

Reason = Literal[
    "always",
    "destructive",
    "unannotated",
    "changed",
    "passed",
    "sampling",
    "outgoing",
    "proposal",
]
"""Why the person is asked before a call.

- `always`: the policy is `always`.
- `destructive`: the tool is destructive, or, under the policy `destructive`, may be.
- `unannotated`: the tool's server does not declare whether the tool is destructive.
- `changed`: the tool's definition is not the approved one, or the server now declares less risk.
- `passed`: the call passes a large result of another server to the tool's server.
- `sampling`: a server requests an answer from the model. There is no tool call.
- `outgoing`: a bundled server's tool sends something to other people in the user's name.
- `proposal`: a model is to propose descriptions of tools.
"""

ONE_BY_ONE: frozenset[Reason] = frozenset({"sampling", "outgoing", "proposal"})
"""Reasons for which each call needs an answer: none is remembered."""

Scope = Literal["call", "tool", "server"]
"""What the person's answer is for.

- `call`: this call.
- `tool`: all calls to the tool in this conversation, while its definition is the same.
- `server`: all of the server's tools in this conversation that are not destructive. Only for the
  reason `unannotated`.
"""

MAX_REASON = 1_000
"""How many characters of a denial's reason the model reads."""


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that waits for a person's answer.

    Args:
        tool: The tool, with its server.
        arguments: The complete arguments. For an outgoing call, exactly as it would send them. A
            large result that is passed is an object with its handle.
        policy: The policy that asks.
        reason: Why the person is asked. `unannotated` can be answered for the whole server.
        change: How the tool's definition differs from the one seen or approved before; None: it
            does not.
        passed: The large results that it passes.
    """

    tool: ToolSpec
    arguments: dict[str, Any]
    policy: Policy
    reason: Reason = "always"
    change: ToolChange | None = None
    passed: tuple[PassedResult, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The other servers whose results it passes."""
        servers = [result.server for result in self.passed if result.server != self.tool.server]
        return tuple(dict.fromkeys(servers))


ApprovalAnswer = bool | str
"""Only True lets the call run.

False denies it, and a text denies it and tells the model why, see `MAX_REASON`.
"""


@dataclass(frozen=True)
class Decision:
    """The person's answer for a call.

    Args:
        verdict: See `ApprovalAnswer`.
        scope: To which calls a True applies.
        answered: Whether it is an answer at all, or False where nobody gave one.
    """

    verdict: ApprovalAnswer
    scope: Scope = "call"
    answered: bool = True


Approver = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | Decision]]
"""Ask the person."""


def checked_overrides(
    approval: Mapping[str, Policies] | None, servers: Collection[str]
) -> dict[str, Policies]:
    """Check policies given in Python, and return them by server."""
    if approval is not None and not isinstance(approval, Mapping):
        raise UsageError(
            f"approval is {shown(str(approval))}, not a mapping from servers to policies.",
            hint='Name the servers: approval={"files": "never"}.',
        )
    checked: dict[str, Policies] = {}
    for server, policy in (approval or {}).items():
        if server not in servers:
            raise UnknownNameError("server", server, servers)
        try:
            policies = checked_approval(policy)
        except ValueError as error:
            raise ConfigError(f"approval of server {server}: {error}", key="approval") from None
        if policies is not None:
            checked[server] = policies
    return checked


def policy_of(
    tool: ToolSpec,
    config: ServerConfig | None,
    override: Policies | None = None,
    *,
    strict: bool = False,
) -> Policy:
    """Resolve a tool's policy. With `strict` it is `always` unless somebody set it to `never`."""
    if is_outgoing(tool, config):
        return "always"
    return _policy_of(tool.name, _given(config, override), config, strict=strict)


def policies_of(
    config: ServerConfig | None, override: Policies | None = None, *, strict: bool = False
) -> dict[str, Policy]:
    """Resolve a server's policy, under the name `*`, and those of tools that have their own."""
    given = _given(config, override)
    names = [OTHER_TOOLS]
    if isinstance(given, Mapping):
        names += [name for name in given if name != OTHER_TOOLS]
    resolved = {name: _policy_of(name, given, config, strict=strict) for name in names}
    bundled = _bundled(config)
    if bundled is not None:
        resolved.update(dict.fromkeys(sorted(bundled.asks_each_time), "always"))
    return resolved


def _given(config: ServerConfig | None, override: Policies | None) -> Policies | None:
    if override is None and config is not None:
        return config.approval
    return override


def _policy_of(
    name: str, policies: Policies | None, config: ServerConfig | None, *, strict: bool
) -> Policy:
    if isinstance(policies, Mapping):
        policies = policies.get(name, policies.get(OTHER_TOOLS))
    if strict:
        return "never" if policies == "never" else "always"
    if policies is not None:
        return policies
    bundled = _bundled(config)
    return bundled.approval if bundled else "default"


def _bundled(config: ServerConfig | None) -> BundledServer | None:
    """Look up the bundled server that a config names, if it does."""
    if config is None or not config.bundled:
        return None
    return BUNDLED.get(config.bundled)


def is_outgoing(tool: ToolSpec, config: ServerConfig | None) -> bool:
    """Check whether a tool sends something in the user's name, so that each call needs an answer,
    whatever the policy and earlier answers are.
    """
    bundled = _bundled(config)
    return bundled is not None and tool.name in bundled.asks_each_time


def as_sent(arguments: dict[str, Any], config: ServerConfig | None) -> dict[str, Any]:
    """Complete an outgoing call's arguments to what it will send, so that the person approves
    exactly that.

    Raises:
        ValueError: The call cannot send anything with them. The message has the reason, for the
            model.
    """
    bundled = _bundled(config)
    if bundled is None or bundled.finished is None:
        return arguments
    return bundled.finished(arguments)


def reason_to_ask(tool: ToolSpec, policy: Policy, third_party: bool) -> Reason | None:
    """Find the reason to ask a person before a call to a tool with this definition, or None if
    there is none.
    """
    if policy == "always":
        return "always"
    if policy == "never":
        return None
    if tool.risk is Risk.DESTRUCTIVE:
        return "destructive"
    if tool.risk is Risk.UNKNOWN:
        if policy == "destructive":
            # By MCP's default, a tool without a hint is destructive.
            return "destructive"
        if third_party:
            return "unannotated"
    return None


logger = logging.getLogger(__name__)

_RANK: Mapping[Reason | None, int] = {None: 0, "unannotated": 1, "destructive": 2, "always": 2}
"""How much approval a reason needs, for those that `reason_to_ask` finds."""

NO_ONE = "No one is available to approve it."
_WRITE_IT = "A result cannot be passed to a tool that sends it to other people: write the text."


def allowed_in_python(tool: ToolSpec) -> str:
    """Format a hint on how to allow a tool's calls where Python code created the chat or
    service.
    """
    if tool.server == NOTEBOOK:
        return 'To allow it, add the function with approval="never".'
    policy = json.dumps({tool.name: "never"}, ensure_ascii=False)
    allowing = f"approval={{{json.dumps(tool.server, ensure_ascii=False)}: {policy}}}"
    return f'To allow it, use {allowing}, or set "approval": {policy} on this server in the config.'


def always() -> bool:
    """Return that somebody can be asked."""
    return True


def never(tool: ToolSpec) -> bool:
    """Return that a tool's calls run something: no cassette replays them."""
    return False


@dataclass
class _Answers:
    """The answers in one conversation.

    Args:
        tools: Tools that are always allowed, with their definitions at that time.
        servers: Servers that are allowed, each with all its tools and their definitions at that
            time.
        seen: Tools that the person was asked about, with their definitions at that time.
        notified: Servers for which a notice reported that their tools run without approval.
        passed: Tools that may always get results of a server, each with that server.
    """

    tools: dict[ToolName, ToolSpec] = field(default_factory=dict)
    servers: dict[str, dict[ToolName, ToolSpec]] = field(default_factory=dict)
    seen: dict[ToolName, ToolSpec] = field(default_factory=dict)
    notified: set[str] = field(default_factory=set)
    passed: dict[tuple[str, ToolName], ToolSpec] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Consent:
    """Decides whether a call may run, and asks the person where the policy requires it.

    Args:
        approver: Asks the person; None: no one is available.
        can_ask: Returns whether somebody could answer now. If nobody can, a call that asks runs
            only if its policy is the default and the tool does not declare whether it is
            destructive.
        how_to_allow: Returns a sentence on how to allow a call that was denied because no one was
            available to approve it.
        runs_nothing: Returns whether a tool's calls run nothing, because a cassette replays them:
            then they need no approval.
    """

    tool_changes: ToolChangeTracker
    config_of: Callable[[str], ServerConfig | None]
    _: KW_ONLY
    overrides: dict[str, Policies] = field(default_factory=dict)
    approver: Approver | None = None
    can_ask: Callable[[], bool] = always
    limits: AnswerLimits = field(default_factory=AnswerLimits)
    strict: bool = False
    how_to_allow: Callable[[ToolSpec], str] = allowed_in_python
    runs_nothing: Callable[[ToolSpec], bool] = never

    def __post_init__(self) -> None:
        self._answers = _Answers()

    def forget(self) -> None:
        """Forget all answers: another conversation begins."""
        self._answers = _Answers()

    def apart(
        self,
        approver: Approver | None = None,
        can_ask: Callable[[], bool] | None = None,
        how_to_allow: Callable[[ToolSpec], str] | None = None,
    ) -> Consent:
        """Create another conversation's consent: the same policies, and no answers yet."""
        return replace(
            self,
            overrides={**self.overrides},
            approver=approver or self.approver,
            can_ask=can_ask or self.can_ask,
            how_to_allow=how_to_allow or self.how_to_allow,
        )

    def forget_server(self, server: str) -> None:
        """Forget all about a removed server, so that a new server with its name does not inherit
        its trust.
        """
        self.overrides.pop(server, None)
        answers = self._answers
        answers.servers.pop(server, None)
        answers.notified.discard(server)
        for tools in (answers.tools, answers.seen):
            forget_server(tools, server)
        for pair in [pair for pair in answers.passed if server in (pair[0], pair[1].server)]:
            del answers.passed[pair]

    @property
    def policies(self) -> dict[str, Policies]:
        """The policies that were given in Python, by server. They go before those of the config."""
        given = dict(self.overrides)
        # Those of the notebook's own functions come from their decorators.
        given.pop(NOTEBOOK, None)
        return given

    def policies_of(self, server: str) -> dict[str, Policy]:
        """Resolve a server's policies, see `policies_of`."""
        return policies_of(self.config_of(server), self.overrides.get(server), strict=self.strict)

    def set_policy(self, server: str, policy: Approval, tool: str | None = None) -> None:
        """Set the policy of a server, or of one of its tools; its other tools keep theirs."""
        if tool is None:
            self.overrides[server] = policy
            return
        config = self.config_of(server)
        policies = self.overrides.get(server, config.approval if config else None)
        if policies is None:
            policies = {}
        elif not isinstance(policies, dict):
            policies = {OTHER_TOOLS: policies}
        self.overrides[server] = {**policies, tool: policy}

    def policy(self, tool: ToolSpec) -> Policy:
        """Resolve a tool's policy."""
        return policy_of(
            tool, self.config_of(tool.server), self.overrides.get(tool.server), strict=self.strict
        )

    def foreseen(self, tool: ToolSpec) -> Reason | None:
        """Predict the reason to ask the person before a call to a tool, given earlier answers, or
        None if there is none.
        """
        if is_outgoing(tool, self.config_of(tool.server)):
            return "outgoing"
        request = self._request(tool, {}, self._answers)
        return request.reason if isinstance(request, ApprovalRequest) else None

    def unknown_tools(self) -> Iterator[Notice]:
        """Yield a notice for each tool that a policy names and its server does not have."""
        for server, tools in self.tool_changes.catalog.by_server.items():
            config = self.config_of(server)
            policies = self.overrides.get(server, config.approval if config else None)
            if not isinstance(policies, dict):
                continue
            names = [tool.name for tool in tools]
            for name in policies:
                if name == OTHER_TOOLS or name in names:
                    continue
                text = (
                    f"approval of server {shown(server)} names a tool that it does not have:"
                    f" {shown(name)}."
                )
                for close in closest(name, names, 1):
                    text += f" Did you mean {shown(close)}?"
                yield Notice(text, server)

    async def permission(
        self,
        tool: ToolSpec,
        arguments: dict[str, Any],
        on_asked: Callable[[bool], None],
        on_notice: Callable[[Notice], None],
    ) -> Permission:
        """Decide whether a call may run, and record who decided it.

        Ask the person where the policy requires it.
        """
        answers = self._answers
        request = self._request(tool, arguments, answers)
        if isinstance(request, Permission):
            return request
        # With a policy that was set, code can answer too, where neither a terminal nor a panel is.
        if self.approver is None or (request.policy == "default" and not self.can_ask()):
            return self._unasked(request, answers, on_notice)
        on_asked(True)
        try:
            by, decision = await self._answer(self.approver, request)
        except NobodyToAsk:
            on_asked(False)
            return self._unasked(request, answers, on_notice)
        on_asked(False)
        self._remember(request, decision, answers)
        return _decided(
            request,
            by,
            allowed=decision.verdict is True,
            scope=decision.scope if by == "person" else "",
            reason=_reason_of_denial(decision),
        )

    async def sampling(
        self,
        server: str,
        arguments: dict[str, Any],
        asking: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        method: str = SAMPLING_METHOD,
        reason: Reason = "sampling",
    ) -> Permission:
        """Ask the person whether the model may answer a server's messages, or other ones.

        Each time needs a new answer.
        """
        if self.approver is None or not self.can_ask():
            return Permission("nobody", False, reason=NO_ONE)
        try:
            request = ApprovalRequest(ToolSpec(server, method), arguments, "always", reason)
            with asking():
                by, decision = await self._answer(self.approver, request)
        except NobodyToAsk:
            return Permission("nobody", False, reason=NO_ONE)
        return Permission(
            by,
            allowed=decision.verdict is True,
            policy="always",
            scope="call",
            reason=_reason_of_denial(decision),
        )

    def denial(self, tool: ToolSpec) -> Denial | None:
        """Find the reason for denying a tool's calls where no one is available to approve them, or
        None if they run.
        """
        if is_outgoing(tool, self.config_of(tool.server)):
            return Denial(
                tool.tool_name, "It sends something to other people in the user's name.", ""
            )
        answers = _Answers()
        request = self._request(tool, {}, answers)
        if isinstance(request, Permission):
            return None
        if self._unasked(request, answers, on_notice=ignore).allowed:
            return None
        if request.policy == "always":
            reason = 'Its policy is "always".'
            if self.strict:
                reason = "Every call asks under strict."
        elif tool.risk is Risk.UNKNOWN:
            reason = (
                'It does not declare whether it is destructive, and its policy is "destructive".'
            )
        elif tool.risk is Risk.DESTRUCTIVE:
            reason = "It is declared destructive."
        else:
            reason = "It said that it is destructive."
        return Denial(tool.tool_name, reason, self.how_to_allow(tool))

    def _unasked(
        self, request: ApprovalRequest, answers: _Answers, on_notice: Callable[[Notice], None]
    ) -> Permission:
        """Decide about a call that no one is available to approve: the one rule for scripts, the
        command line, HTTP and MCP.
        """
        tool = request.tool
        if self.runs_nothing(tool):
            return _decided(request, "nobody")
        destructive = Risk.DESTRUCTIVE in (tool.risk, self.tool_changes.riskiest(tool).risk)
        if request.policy == "default" and not destructive and request.reason != "passed":
            if tool.server not in answers.notified:
                answers.notified.add(tool.server)
                on_notice(_runs_unasked(tool))
            return _decided(request, "nobody")
        why = NO_ONE
        if request.reason == "passed":
            servers = " and ".join(map(shown, request.sources))
            why = f"It passes a result of {servers} to {shown(tool.server)}. {why}"
        if request.reason not in ONE_BY_ONE:
            why += f" {self.how_to_allow(tool)}"
        return _decided(request, "nobody", allowed=False, reason=why)

    def _request(
        self, tool: ToolSpec, arguments: dict[str, Any], answers: _Answers
    ) -> ApprovalRequest | Permission:
        """Build the question for the person before a call, or the permission that makes asking
        unnecessary.
        """
        name, config = tool.tool_name, self.config_of(tool.server)
        passed: tuple[PassedResult, ...] = ()
        if isinstance(arguments, FilledArguments):
            passed = arguments.passed
            arguments = arguments.written
        policy = policy_of(tool, config, self.overrides.get(tool.server), strict=self.strict)
        riskiest = self.tool_changes.riskiest(tool)
        allowed = Permission("policy", policy=policy, definition=tool.digest)
        reason: Reason | None
        if is_outgoing(tool, config):
            reason = "outgoing"
            if passed:
                # The person approves exactly what is sent.
                return replace(allowed, allowed=False, reason=_WRITE_IT)
            try:
                arguments = as_sent(arguments, config)
            except ValueError as error:
                return replace(allowed, allowed=False, reason=str(error)[:MAX_REASON])
        else:
            third_party = config is not None and not config.bundled
            reason = _reason_with_history(tool, riskiest, policy, third_party)
            if any(self._asks_to_take(result, tool, answers) for result in passed):
                reason = "passed"
        if reason is None:
            return allowed
        remembered = _same(answers.tools.get(name), tool)
        if remembered and reason != "passed" and reason not in ONE_BY_ONE:
            return replace(allowed, by="remembered", scope="tool")
        before = answers.seen.get(name, riskiest)
        if before.risk < riskiest.risk:
            before = riskiest
        if reason == "unannotated" and tool.server in answers.servers:
            before = answers.servers[tool.server].get(name, riskiest)
            if _same(before, tool):
                return replace(allowed, by="remembered", scope="server")
            reason = "changed"
        change = None if _same(before, tool) else ToolChange(before, tool)
        return ApprovalRequest(
            tool, arguments=arguments, policy=policy, reason=reason, change=change, passed=passed
        )

    def _asks_to_take(self, result: PassedResult, tool: ToolSpec, answers: _Answers) -> bool:
        """Check whether the person is asked before a tool gets another server's result."""
        if tool.server == result.server:
            return False
        config, override = self.config_of(tool.server), self.overrides.get(tool.server)
        # That a bundled server with an account never asks by itself is no decision about what
        # other servers gave. Those without one keep what they get on this computer.
        bundled = _bundled(config)
        has_account = bundled is not None and bundled.credentials is not None
        if policy_of(tool, config, override, strict=has_account) == "never":
            return False
        return not _same(answers.passed.get((result.server, tool.tool_name)), tool)

    async def _answer(
        self, approver: Approver, request: ApprovalRequest
    ) -> tuple[Authority, Decision]:
        """Ask the approver, and wait for the answer within the limits.

        Raises:
            NobodyToAsk: The approver found nobody.
        """
        try:
            answering = asyncio.ensure_future(approver(request))
        except NobodyToAsk:
            raise
        except Exception as error:
            return "nobody", _failed(error)
        try:
            # Not `wait_for`: an approver that ignores its cancellation must not hold the call.
            await asyncio.wait({answering}, timeout=self.limits.seconds)
            if not answering.done():
                return "nobody", Decision(self.limits.nobody_answered)
            answer = answering.result()
        except NobodyToAsk:
            raise
        except Exception as error:
            return "nobody", _failed(error)
        finally:
            answering.cancel()
        decision = answer if isinstance(answer, Decision) else Decision(answer)
        return "person" if decision.answered else "nobody", decision

    def _remember(self, request: ApprovalRequest, decision: Decision, answers: _Answers) -> None:
        name = request.tool.tool_name
        answers.seen[name] = request.tool
        if decision.verdict is not True or request.reason in ONE_BY_ONE:
            return
        if decision.scope == "tool":
            answers.tools[name] = request.tool
            for source in request.sources:
                answers.passed[source, name] = request.tool
        elif decision.scope == "server" and request.reason == "unannotated":
            answers.servers[name.server] = {
                **self.tool_changes.last_of(name.server),
                name: request.tool,
            }


def _reason_with_history(
    tool: ToolSpec, riskiest: ToolSpec, policy: Policy, third_party: bool
) -> Reason | None:
    """Find the reason to ask as `reason_to_ask` does. `changed` if an earlier definition needed
    more approval: a server cannot avoid a question by claiming less risk than before.
    """
    reason = reason_to_ask(tool, policy, third_party)
    if riskiest is tool:
        return reason
    before = reason_to_ask(riskiest, policy, third_party)
    return "changed" if _RANK[reason] < _RANK[before] else reason


def _reason_of_denial(decision: Decision) -> str:
    """Return the reason in a denial's words, or an empty text if there is none."""
    return decision.verdict[:MAX_REASON] if isinstance(decision.verdict, str) else ""


def _same(one: ToolSpec | None, other: ToolSpec) -> bool:
    """Check whether an earlier definition is the same as this one."""
    return one is not None and (one is other or one.as_listed == other.as_listed)


def _decided(
    request: ApprovalRequest, by: Authority, allowed: bool = True, scope: str = "", reason: str = ""
) -> Permission:
    return Permission(
        by,
        allowed=allowed,
        policy=request.policy,
        scope=scope,
        reason=reason,
        definition=request.tool.digest,
    )


def _failed(error: Exception) -> Decision:
    logger.error("The approver failed, so the call is denied.", exc_info=error)
    return Decision(f"Asking for approval failed ({type(error).__name__}).")


def _runs_unasked(tool: ToolSpec) -> Notice:
    """Build the notice for a server whose tools have no annotations, and run because no one can be
    asked.
    """
    text = (
        f"No one can be asked here, and tools of server {shown(tool.server)} do not declare whether"
        " they delete data"
    )
    hint = 'set "approval" of this server to "never", "destructive" or "always" to decide it'
    return Notice(
        f"{text}: they run without approval, {shown(tool.name)} first. In the config, {hint}.",
        tool.server,
    )


@dataclass(eq=False, repr=False)
class Sampling:
    """Lets the default model answer servers whose entry allows it.

    Args:
        account: Returns what an answer to a server counts for.
        add: Called with the audit record for each request that needs a person's approval.
        asking: Returns a context manager to enter while the person answers a question about a
            server's request.
    """

    models: ModelFactory
    consent: Consent
    secrets: Callable[[], Collection[str]]
    account: Callable[[str], Account]
    add: Callable[[AuditRecord], None] = ignore
    asking: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()

    async def answer(self, server: str, request: SamplingRequest) -> SamplingAnswer:
        """Ask the person, and then the model."""
        try:
            model = await self.models.ready()
            arguments: dict[str, Any] = {"model": model.name}
            if request.system:
                arguments["system"] = request.system
            arguments["messages"] = [
                {"role": role, "text": text} for role, text in request.messages
            ]
            arguments["max_tokens"] = request.max_tokens
            at = time.time()
            asking = partial(self.asking, server)
            permission = await self.consent.sampling(server, arguments, asking)
            record = AuditRecord(
                at,
                tool=ToolName(server, SAMPLING_METHOD),
                caller="server",
                permission=permission,
                status="denied",
                seconds=None,
                arguments_size=size_of_arguments(arguments),
                result_size=0,
            )
            if not permission.allowed:
                self.add(record)
                reason = f": {permission.reason}" if permission.reason else ""
                raise SamplingRefused(f"the user did not allow it{reason}")
            response = await self._complete(model, request, record)
        except CasualMcpError as error:
            details = f"{type(error).__name__}: {redacted(str(error), self.secrets())}"
            # What went wrong at a provider is none of the server's business.
            raise SamplingRefused("the model could not answer", details) from None
        return SamplingAnswer(
            text_of(response.message.content),
            model.model,
            response.truncated,
            _note_on_usage(model, response),
        )

    async def _complete(
        self, model: ChatModel, request: SamplingRequest, record: AuditRecord
    ) -> ModelResponse:
        """Have the model answer, and add the record, however it ends."""
        start, size = time.perf_counter(), 0
        status: CallStatus = "error"
        try:
            response = await _answer(model, request, self.account(record.tool.server))
            status, size = "ok", len(text_of(response.message.content))
            return response
        except asyncio.CancelledError:
            status = "stopped"
            raise
        finally:
            seconds = time.perf_counter() - start
            self.add(replace(record, status=status, seconds=seconds, result_size=size))


def _note_on_usage(model: ChatModel, response: ModelResponse) -> str:
    """Write the notice for the person: that the model answered, and what that took."""
    note = f"Model {shown(model.name)} answered messages of this server"
    usage, counts = response.usage, []
    if usage is not None and usage.prompt_tokens is not None:
        counts.append(f"{usage.prompt_tokens:,} tokens in")
    if usage is not None and usage.completion_tokens is not None:
        counts.append(f"{usage.completion_tokens:,} tokens out")
    if counts:
        note += f": {' + '.join(counts)}"
    if model.price and (cost := model.price.of(usage)):
        note += f", {cost}"
    return f"{note}."


async def _answer(model: ChatModel, request: SamplingRequest, account: Account) -> ModelResponse:
    from casual_llm import AssistantMessage, SystemMessage, UserMessage

    kinds = {"user": UserMessage, "assistant": AssistantMessage}
    messages: list[ChatMessage] = []
    if request.system:
        messages.append(SystemMessage(content=request.system))
    for role, text in request.messages:
        messages.append(kinds[role](content=text))
    # The person allowed an answer to these messages, and nothing that the provider's own tools
    # would do with them.
    limited = (
        model.unforced()
        .without_hosted_tools()
        .with_options(RequestOptions(max_tokens=request.max_tokens))
    )
    return await limited.complete(messages, stream=False, account=account)
