"""Ask before the servers of a config file are started that the person has not accepted yet."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from casual_mcp_nb.config.trust import TrustStore
from casual_mcp_nb.errors import TrustRequiredError, UsageError, shown
from casual_mcp_nb.notebook.interaction.prompt import can_prompt
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.trust import Trust, exact

logger = logging.getLogger(__name__)

TRUST_VARIABLE = "MCP_TRUST_CONFIGS"
"""The variable of the process's environment that accepts every config; empty, `0` and `false` count as not set."""


class TrustGate:
    """The decision whether the servers of a session may start. It compares the config that is started, as it was read.

    Args:
        config: The config.
        trusted: Whether the caller vouches for it.
        strict: Whether only the person's own answer counts: neither the environment, nor a folder, nor that it is harmless.
        on_change: Called when the servers may start from now on, and when they were kept from it.

    Attributes:
        pending: What the person has to accept, once something was kept from starting.
    """

    def __init__(
        self, config: Config, *, trusted: bool = False, strict: bool = False, on_change: Callable[[], None] = lambda: None
    ):
        self._config = config
        self._trusted = trusted
        self._strict = strict
        self._on_change = on_change
        self.pending: Trust | None = None
        self._store = TrustStore()
        self._open = trusted or config.path is None

    @property
    def is_open(self) -> bool:
        """Whether the servers may start."""
        return self._open

    def report(self) -> Trust:
        """Report the servers that would be started, and whether the person must accept them first."""
        path = self._config.path
        entries = self._store.entries(self._config)
        ready = ("trusted",) if self._strict else ("trusted", "harmless")
        if path is None:
            why = "It is made in Python."
        elif self._trusted:
            why = "It was opened with trust=True."
        elif all(entry.state in ready for entry in entries):
            why = "It is as you accepted it." if any(entry.state == "trusted" for entry in entries) else "It is harmless."
        elif not self._strict and _environment_trusts():
            why = f"{TRUST_VARIABLE} is set."
        elif not self._strict and (folder := self._store.accepted_folder(path)):
            why = f"You trust the configs in {exact(str(folder))}."
        else:
            why = ""
        return Trust(str(path or ""), entries, not why, why, self._accept)

    def require(self) -> None:
        """Raise an error unless the servers may start.

        Raises:
            TrustRequiredError: The person has not accepted the config.
        """
        if not self._open:
            report = self.report()
            if report.required:
                raise self._refusal(report)
            self._set_open()

    def ask(self) -> None:
        """Ask the person if they have not accepted the config, with `input()`, on the thread of the cell.

        Raises:
            TrustRequiredError: They did not, or no one can be asked.
        """
        if self._open:
            return
        report = self.report()
        if report.required:
            if not can_prompt():
                raise self._refusal(report)
            self._ask(report)
        self._set_open()

    def _ask(self, report: Trust) -> None:
        path = self._config.path
        assert path is not None
        folder = path.resolve().parent
        question = f"Start the servers of {exact(str(path))}? You have not accepted this yet:\n{report.text}\n"
        choices = "[y] yes, and remember it" + ("" if self._strict else f"  [f] trust every config in {exact(str(folder))}")
        try:
            reply = input(f"{question}{choices}  [Enter] no: ").strip().lower()
        except (EOFError, KeyboardInterrupt, NotImplementedError):
            raise self._refusal(report) from None
        accept = {"y": self._remember, "yes": self._remember}
        if not self._strict:
            accept["f"] = lambda: self._store.accept_folder(folder)
        if reply not in accept:
            raise self._refusal(report)
        try:
            accept[reply]()
        except UsageError as error:
            logger.warning("The answer counts for this session only: %s", error)

    def _accept(self) -> None:
        self._remember()
        self._set_open()

    def _remember(self) -> None:
        self._store.accept(self._config)

    def _set_open(self) -> None:
        self._open, self.pending = True, None
        self._on_change()

    def _refusal(self, report: Trust) -> TrustRequiredError:
        if self.pending is None:
            self.pending = report
            self._on_change()
        path = self._config.path
        return TrustRequiredError(
            f"Nothing was started: you have not accepted the servers and keys of {shown(path.name if path else '')}.",
            hint="Read session.trust(), then session.trust().accept(); in a script: Session.from_config(…, trust=True).",
        )


def _environment_trusts() -> bool:
    # Not from a `.env`, which may have come with the config.
    return os.environ.get(TRUST_VARIABLE, "").strip().lower() not in ("", "0", "false")
