"""Runs in other processes: what is sent there, how a session is opened there, and what comes
back.
"""

from __future__ import annotations

import atexit
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.base.config import SpendLimits
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.experiments.budget import Amount
from casual_mcp_nb.experiments.plan import Plan
from casual_mcp_nb.experiments.results_file import FilePart
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.notebook.cassettes import opened_cassette
from casual_mcp_nb.notebook.parts import SessionParts

if TYPE_CHECKING:
    from casual_mcp_nb.cassettes import MatchOn

RUNS_A_JOB = 20
JOB_SECONDS = 2.0
"""How long a job starts new runs before it returns its results."""
JOBS = 8
"""How many jobs a few runs are divided into, so that several processes have some."""


class Submits(Protocol):
    """What makes runs elsewhere: a process pool, a Dask executor, or any object with this
    method.
    """

    def submit(self, job: Callable[[], JobResult], /) -> Future[JobResult]:
        """Run a job elsewhere."""


@dataclass(frozen=True)
class JobResult:
    """The result of another process's job.

    Args:
        records: Its runs.
        spent: The tokens and money that they took.
        written: Whether that process has already appended them to the results file.
        spend_limit: Which spend limit ended them, or empty.
    """

    records: tuple[RunRecord, ...]
    spent: Amount
    written: bool = False
    spend_limit: str = ""


class Opened(Protocol):
    """A session in another process."""

    experiments: Any

    def close(self) -> None:
        """End it."""


Recipe = Callable[[], Opened]
"""Opens a session in another process.

It must be picklable, such as `functools.partial(Session.from_config, path)`.
"""


@dataclass(frozen=True)
class SessionRecipe:
    """Opens a session like this one in another process.

    It has no secrets: the config is read there.

    Args:
        path: The config file, or a cassette that answers in place of models and servers.
        selection: The selection.
        model: The default model.
        system: The system prompt.
        limits: The spend limits.
        store: The file in which they are counted, or None.
        open: Builds the job's objects from the session's parts.
        match_on: The request parts that must match the cassette, or None for a config.
    """

    path: Path
    selection: Mapping[str, Any]
    model: str | None
    system: str | None
    limits: SpendLimits
    store: Path | None
    open: Callable[[SessionParts], Opened]
    match_on: tuple[MatchOn, ...] | None = None

    @classmethod
    def of(cls, parts: SessionParts, open: Callable[[SessionParts], Opened]) -> SessionRecipe:
        """Describe a session.

        Raises:
            UsageError: It has a config, servers, tools or a cassette that only this process has.
        """
        source, current = parts.cassettes.source, parts.cassettes.current
        store = parts.runner.saver.store
        settings = (
            parts.chat.selection.model_dump(),
            parts.turn_service.model,
            parts.turn_service.system,
            parts.chat.models.spending.limits,
            store.path if store is not None else None,
            open,
        )
        if source is not None and current is not None:
            return cls(current.path, *settings, tuple(sorted(source.match_on)))
        servers = parts.chat.server_manager.names
        own = next((name for name in servers if parts.config.servers.get(name) is None), None)
        if own is not None:
            what = f"server {shown(own)}"
        elif parts.config.path is None:
            what = "a config without a file"
        elif current is not None:
            what = "a cassette that is in use"
        else:
            return cls(parts.config.path, *settings)
        hint = "Give recipe=…, a function of a module that opens such a session there."
        raise UsageError(f"Another process does not have {what}.", hint=hint)

    def __call__(self) -> Opened:
        """Open it."""
        config: Any = self.path
        if self.match_on is not None:
            file, cassette, config = opened_cassette(self.path, {})
        parts = SessionParts(
            config,
            # With a separate name it replaces no session that is open with the same config.
            name=f"runs {id(self)}",
            system=self.system,
            store=self.store,
            trust=True,
            quiet=True,
        )
        if self.match_on is not None:
            parts.cassettes.replay_only(cassette, file, 0, self.match_on, None)
        parts.chat.selection.assign(Selection.model_validate(dict(self.selection)))
        parts.turn_service.model = self.model
        parts.chat.models.spending.limits = self.limits
        return self.open(parts)


@dataclass(frozen=True)
class Job:
    """Runs for another process, which opens its own session once.

    Args:
        recipe: Opens the session.
        plan: The experiment that they belong to.
        wanted: The runs, as far as they are known before.
        left: Its share of the budget.
        file: The results file. A process that can reach it appends each run as it ends, so that
            none is lost with the process.
    """

    recipe: Recipe
    plan: Plan
    wanted: Sequence[RunRecord]
    left: Amount
    file: FilePart | None = None

    def __call__(self) -> JobResult:
        """Make the runs, in this process's session."""
        key = pickle.dumps(self.recipe)
        with _lock:
            if key not in _sessions:
                session = self.recipe()
                _sessions[key] = session, threading.Lock()
                atexit.register(session.close)
            session, free = _sessions[key]
        # Jobs on a worker's threads wait for each other: runs within a job overlap anyway.
        with free:
            result: JobResult = session.experiments._run_job(self)
        return result


_sessions: dict[bytes, tuple[Opened, threading.Lock]] = {}
_lock = threading.Lock()
