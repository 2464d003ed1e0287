"""A person's consent: which servers may start, and which changed tools are accepted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import get_args

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Approval, Config, Policies
from casual_mcp_nb.base.displayable import Namespace
from casual_mcp_nb.base.status import ConsentStatus
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.config.finding import FoundTrust
from casual_mcp_nb.config.trust import Trust, TrustState, TrustStore, exact
from casual_mcp_nb.conversation.audit import Audit
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import Policy
from casual_mcp_nb.errors import TrustRequiredError, UnknownNameError, UsageError, shown
from casual_mcp_nb.notebook.log import is_set
from casual_mcp_nb.notebook.open_questions import Questions
from casual_mcp_nb.notebook.session_memory import typing_place
from casual_mcp_nb.notebook.typed_lines import can_prompt
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK

logger = logging.getLogger(__name__)

TRUST_VARIABLE = "MCP_TRUST_CONFIGS"
"""The environment variable that accepts every config. Empty, `0` and `false` count as not set."""


_HOW_TO_ACCEPT = (
    "Read %mcp trust, then %mcp trust --accept. In a script: Session.from_config(…, trust=True)."
)


class TrustGate:
    """Decides whether a session's servers may start, from the config as it was read.

    Args:
        config: The config.
        trusted: Whether the person's code has accepted it.
        strict: Whether only the person's own answer counts. Then the config is asked about even if
            it is harmless, or accepted by the environment or by its folder.
        typed: Returns what the person typed, if it is new and to be saved.
        on_change: Called when servers are allowed to start, and when they are kept from it.

    Attributes:
        is_open: Whether the servers may start.
        pending: The report for the person to accept, once something was kept from starting.
    """

    def __init__(
        self,
        config: Config,
        *,
        trusted: bool = False,
        strict: bool = False,
        typed: Callable[[], Config | None] = ignore,
        on_change: Callable[[], None] = ignore,
    ):
        self._config = config
        self._trusted = trusted
        self._strict = strict
        self._typed = typed
        self._on_change = on_change
        self.pending: Trust | None = None
        self._store = TrustStore()
        self._source = str(config.path or config.recalled)
        self.is_open = trusted or not self._source

    def report(self) -> Trust:
        """Report which servers would start, and whether the person must accept them first."""
        typed_in = ""
        if not self._strict:
            typed_in = typing_place()
        entries = self._store.entries(self._config, self._config.recalled, typed_in)
        reason = self._reason_to_trust({entry.state for entry in entries})
        return Trust(self._source, entries, not reason, reason, self._accept)

    def _reason_to_trust(self, states: Collection[TrustState]) -> str:
        """Say why the person need not be asked. Empty if they must be."""
        if not self._source:
            return "It is made in Python."
        if self._trusted:
            return "It was opened with trust=True."
        ready: set[TrustState] = {"trusted"}
        if not self._strict:
            ready.add("harmless")
        if ready.issuperset(states):
            if "trusted" in states:
                return "It is as you accepted or typed it."
            return "It is harmless."
        if self._strict:
            return ""
        # `is_set` does not read a `.env`, which may have come with the config.
        if is_set(TRUST_VARIABLE):
            return f"{TRUST_VARIABLE} is set."
        folder = None
        if self._config.path:
            folder = self._store.accepted_folder(self._config.path)
        if folder:
            return f"You trust the configs in {exact(str(folder))}."
        return ""

    def remember_typed(self) -> None:
        """Remember what the person typed in this notebook, so that to resume it asks nothing.

        On the cell's thread, after servers were started.
        """
        place = typing_place()
        if self._strict or not place:
            return
        config = self._typed()
        if config is not None:
            try:
                self._store.accept_typed(config, place)
            except UsageError as error:
                logger.debug("What was typed is not remembered: %s", error)

    def require(self) -> None:
        """Raise TrustRequiredError unless the servers may start."""
        if not self.is_open:
            report = self.report()
            if report.required:
                raise self._refusal(report)
            self._set_open()

    def ask(self, hint: str = _HOW_TO_ACCEPT) -> None:
        """Ask the person with `input()` if they have not accepted the config.

        On the cell's thread.

        Args:
            hint: What to do next if they do not accept it.

        Raises:
            TrustRequiredError: They do not accept it, or nobody can be asked.
        """
        if self.is_open:
            return
        report = self.report()
        if report.required:
            if not can_prompt():
                raise self._refusal(report, hint)
            self._ask(report, hint)
        self._set_open()

    def _ask(self, report: Trust, hint: str) -> None:
        path = self._config.path
        question = (
            f"Start the servers of {exact(self._source)}? You have not accepted this"
            f" yet:\n{report.text}\n"
        )
        choices = "[y] yes, and remember it"
        accept = {"y": self._remember, "yes": self._remember}
        if path is not None and not self._strict:
            folder = path.resolve().parent
            choices += f"  [f] trust every config in {exact(str(folder))}"
            accept["f"] = partial(self._store.accept_folder, folder)
        try:
            reply = input(f"{question}{choices}  [Enter] no: ").strip().lower()
        except (EOFError, KeyboardInterrupt, NotImplementedError):
            raise self._refusal(report, hint) from None
        if reply not in accept:
            raise self._refusal(report, hint)
        try:
            accept[reply]()
        except UsageError as error:
            logger.warning("The answer counts for this session only: %s", error)

    def _accept(self) -> None:
        self._remember()
        self._set_open()

    def _remember(self) -> None:
        self._store.accept(self._config, self._config.recalled)

    def _set_open(self) -> None:
        self.is_open, self.pending = True, None
        self._on_change()

    def _refusal(self, report: Trust, hint: str = _HOW_TO_ACCEPT) -> TrustRequiredError:
        if self.pending is None:
            self.pending = report
            self._on_change()
        path = self._config.path
        return TrustRequiredError(
            "Nothing was started: you have not accepted the servers and keys of"
            f" {shown(path.name if path else self._source)}.",
            hint=hint,
        )


def accept_first(config: Config, *, trusted: bool = False, strict: bool = False) -> None:
    """Ask the person to accept a config before they type values into it, see `load_accepted`.

    On the cell's thread. Where nobody can be asked, the session's own question stays.

    Raises:
        TrustRequiredError: They do not accept it.
    """
    if can_prompt():
        gate = TrustGate(config, trusted=trusted, strict=strict or config.strict)
        gate.ask(
            "Open it again to be asked again. In a script: Session.from_config(…, trust=True)."
        )


def accept_found(listed: FoundTrust, *, trust: bool = False) -> None:
    """Ask the person with `input()` about a server that was found, unless they have accepted it.

    On the cell's thread.

    Args:
        listed: The server.
        trust: Accept it without asking, because the person's code does. That is not remembered.

    Raises:
        TrustRequiredError: They have not accepted it, or nobody can be asked.
    """
    report = listed.report()
    if trust or not report.required:
        return
    reply = ""
    if can_prompt():
        with suppress(EOFError, KeyboardInterrupt, NotImplementedError):
            reply = input(f"{listed.question}\n[y] yes, and remember it  [Enter] no: ")
    if reply.strip().lower() not in ("y", "yes"):
        raise TrustRequiredError(
            "Nothing was started or contacted: you have not accepted"
            f" {shown(listed.server.name)}.\n{listed.question}",
            hint="In a script: session.servers.add(name, …, trust=True).",
        )
    try:
        report.accept()
    except UsageError as error:
        logger.warning("The answer counts for this session only: %s", error)


class SessionConsent(Namespace):
    """A session's approvals and call record: `session.consent`."""

    def __init__(
        self,
        chat: McpToolChat,
        gate: TrustGate,
        questions: Questions,
        changed: Callable[[], object] = ignore,
    ) -> None:
        self._chat = chat
        self._gate = gate
        self._questions = questions
        self._changed = changed
        self._complete = True

    @property
    def now(self) -> ConsentStatus:
        """What the person has accepted, and what waits for them."""
        return ConsentStatus(
            accepted=self._gate.is_open,
            strict=self._chat.consent.strict,
            step_mode=self.step_mode,
            calls=self.call_count,
            changed=tuple(self._chat.changed_tools),
            problems=tuple(notice.text for notice in self.problems),
            policies=self.policies,
            effective=self._effective(),
        )

    def _effective(self) -> dict[str, dict[str, Policy]]:
        """Resolve the policies of each server, and of the notebook's functions if there are any."""
        consent = self._chat.consent
        names = [*self._chat.server_manager.names]
        if any(tool.server == NOTEBOOK for tool in self._chat.catalog):
            names.append(NOTEBOOK)
        return {name: consent.policies_of(name) for name in names}

    @property
    def policies(self) -> Mapping[str, Policies]:
        """The policies that were given to the session or set since, by server. They go before those
        of the config.
        """
        return self._chat.consent.policies

    def set_policy(self, name: str, policy: Approval) -> None:
        """Set when a server's tools, or one tool, ask before they run. The config file stays as it
        is.

        Args:
            name: A server, or a tool by any name that the catalog resolves.
            policy: `never`, `destructive` or `always`.

        Raises:
            UnknownNameError: There is no such server or tool.
            UsageError: There is no such policy.
        """
        if policy not in get_args(Approval):
            raise UnknownNameError("policy", policy, get_args(Approval))
        if name in self._chat.server_manager.names:
            self._chat.consent.set_policy(name, policy)
        else:
            tool = self._chat.catalog.resolve(name)
            self._chat.consent.set_policy(tool.server, policy, tool.name)
        self._changed()

    def trust(self) -> Trust:
        """Show the commands in the config and the addresses that get keys. Starts nothing.

        A config file that you have not accepted asks before its servers start for the first time,
        and again when a command, an address, a variable or header name, or a folder in it has
        changed. `session.consent.trust().accept()` accepts it without the question. Configs made in
        Python, bundled servers and `session.servers.add` do not ask.

        Returns:
            Each server with its complete command, folder, address and its variables' names and
            headers. Each client with its address and the variable that its key comes from. New and
            changed parts are marked. Secret values are never included.
        """
        return self._gate.report()

    @property
    def unaccepted(self) -> Trust | None:
        """The servers kept from starting until you accept them, or None if there are none."""
        return self._gate.pending

    @property
    def audit(self) -> Audit:
        """Every tool call in this session, oldest first: who made it, who allowed it, and how it
        ended.

        It has the lengths of arguments and results, and not their contents. `undo` and a new
        conversation leave it as it is. The last 10,000 calls are kept.
        `session.consent.audit.save("audit.jsonl")` writes it to a file.
        """
        return self._chat.audit.read()

    @property
    def call_count(self) -> int:
        """How many calls there were in the session, also those that `audit` no longer has."""
        return self._chat.audit.count

    def accept(self, name: str | ToolName) -> None:
        """Accept a changed tool's current definition.

        With `pin_tools` it is offered again from the next turn on. Your own `descriptions` for it,
        which were left out since the change, are used again. A skill (`server:skill`) that a server
        changed is accepted in the same way.

        Args:
            name: The tool, by any name that the catalog resolves, or a skill.

        Raises:
            UnknownNameError: There is no such tool or skill, or it has not changed.
        """
        self._chat.accept_change(name)

    @property
    def problems(self) -> tuple[Notice, ...]:
        """What the config says about tools that cannot be followed.

        These are tools that an approval policy, `include_tools` or `exclude_tools` names although
        their servers do not have them, and your own `descriptions` that were written for another
        definition of a tool, and are left out. Servers that are not connected yet have none.
        """
        tools = self._chat.tools
        unknown = (
            *self._chat.consent.unknown_tools(),
            *tools.exclusions.notices(self._chat.catalog),
        )
        # Reading the catalog finds out which texts fit.
        _ = tools.catalog
        return (*unknown, *tools.written_texts.notices())

    @property
    def step_mode(self) -> bool:
        """Whether turns pause before each model call.

        Takes effect immediately, even for a turn that is running.
        """
        return self._questions.step_mode

    @step_mode.setter
    def step_mode(self, on: bool) -> None:
        self._questions.step_mode = on
