"""What an experiment runs: its cases, and what makes its arms. Other processes get it with their
jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.iterables import drop_none
from casual_mcp_nb.config.quick import is_in_process, read_server
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import cannot_be, shown
from casual_mcp_nb.experiments.arms import (
    ArmSetup,
    Descriptions,
    Factors,
    OtherServers,
    arms_of,
    options_of,
)
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.graded import Judge
from casual_mcp_nb.experiments.results import check_count

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.providers.chat_model import ChatModel


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment, as `session.experiments.run` is told of it.

    Args:
        cases: The cases.
        factors: The options that differ between arms.
        options: Options for all turns. None means not given.
        descriptions: Other tool descriptions by name.
        without: Servers and tools, each left out in an arm. Several in a list are left out
            together.
        servers: Other servers by the arm's name, as `read_servers` returns them.
        judge: Grades answers of cases with a `Graded` check.
        repeats: How often each case is run in each arm.
        max_runs: How many runs are allowed, since each calls a model.
        concurrency: How many runs may overlap. With 1 they follow one another, each case in all
            arms before the next case.

    Raises:
        UsageError: A number is not a whole number from 1.
    """

    cases: tuple[ToolUseCase, ...]
    factors: Factors
    options: Mapping[str, Any]
    descriptions: Mapping[str, Descriptions] = field(default_factory=dict)
    without: tuple[str | Sequence[str], ...] = ()
    servers: Mapping[str, OtherServers] = field(default_factory=dict)
    judge: Judge | None = None
    repeats: int = 1
    max_runs: int
    concurrency: int = 1

    def __post_init__(self) -> None:
        for name in ("repeats", "max_runs", "concurrency"):
            check_count(name, getattr(self, name))

    def arms(self, chat: McpToolChat, model: str | None) -> list[ArmSetup]:
        """Build the arms for a chat whose turns ask `model` unless the plan names another.

        Raises:
            UsageError: A name does not exist, or the arms do not differ.
        """
        given = drop_none(self.options)
        options = options_of(chat, self.factors, TurnOptions(model=model, **given))
        return arms_of(options, self.descriptions, self.without, self.servers)

    def secrets(self) -> list[str]:
        """List the secrets of the arms' own servers."""
        secrets: list[str] = []
        for servers in self.servers.values():
            for entry in servers.values():
                if isinstance(entry, ServerConfig):
                    secrets += entry.secrets()
        return secrets


def read_servers(
    servers: Mapping[str, OtherServers], environ: Mapping[str, str]
) -> dict[str, OtherServers]:
    """Read the entries of other servers.

    Raises:
        UsageError: One is neither an entry, nor a server, nor None.
        ConfigError: An entry is wrong.
    """
    read: dict[str, OtherServers] = {}
    for arm, entries in servers.items():
        if not isinstance(entries, Mapping):
            raise cannot_be(f"The servers of arm {shown(arm)}", entries, 'Give {"server": {…}}.')
        configs = {}
        for name, entry in entries.items():
            if entry is not None and not is_in_process(entry):
                _, entry = read_server(entry, name, environ=environ)
            configs[name] = entry
        read[arm] = configs
    return read


def as_judge(judge: str | Model | ChatModel | Judge | None) -> Judge | None:
    """Turn a judge's model into a judge. None stays None."""
    if judge is None or isinstance(judge, Judge):
        return judge
    return Judge(judge)
