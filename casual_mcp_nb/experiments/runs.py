"""Run cases: arms, keys, a budget, and the processes that share the work.

An arm is one set-up: a model, a delivery, a toolset, tool descriptions. Each run is a separate conversation with the session's
servers. Runs that a results file has already are not repeated.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import math
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.base.arguments_by_schema import problems
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.event import FINDING, SYNTHETIC, UNKNOWN, Event, Request, StepFinished, StepStarted
from casual_mcp_nb.conversation.step import text_of, with_nested
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.build_run import prompt_source
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.tools import Described, described_tool
from casual_mcp_nb.errors import CasualMcpError, ConnectError, LimitError, UsageError, brief, shown
from casual_mcp_nb.experiments.arms import MARGIN, Arm, Budget, BudgetReachedError
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.matching import LIMITS, Judgement, judge_turns
from casual_mcp_nb.experiments.records import ResultsFile, ResultsStatus, RunRecord, RunResults, transcript_of
from casual_mcp_nb.notebook.cassettes import opened_cassette
from casual_mcp_nb.notebook.parts import SessionParts

if TYPE_CHECKING:
    from casual_mcp_nb.cassettes import MatchOn
    from casual_mcp_nb.providers.chat_model import ChatModel

MAX_RUNS = 1_000
"""How many runs are allowed by default, since each calls a model."""
MAX_FAILING = 20
"""If this many runs in a row could not be made, and none before, the others are not tried."""
RUNS_A_JOB = 20
JOB_SECONDS = 2.0
"""How long a job starts new runs before it returns its results. A killed process loses no more."""
JOBS = 8
"""How many jobs a few runs are divided into, so that several processes have some."""


@dataclass(frozen=True)
class _Planned:
    """A run to be made."""

    key: str
    arm: Arm
    case: ToolUseCase
    repeat: int


@dataclass
class _Prepared:
    """An arm with its chat, and what its runs depend on."""

    arm: Arm
    chat: McpToolChat
    model: ChatModel
    digest: str
    catalog: Any
    deferred: frozenset[str]


class Evaluating:
    """Case runs in progress, on their chat's loop.

    Args:
        chat: Its servers and models are used. Its conversation stays as it is.
        arms: The arms.
        cases: The cases.
        repeats: How often each case is run in each arm.
        file: The results file, or None to keep results in memory only.
        budget: The spending limit.
        concurrency: How many runs may overlap.
        max_runs: How many runs are allowed.
        notify: Called with each turn and event.

    Attributes:
        on_change: Called when a run ends, on the chat's loop or the thread that calls `end`.

    Raises:
        UsageError: A value is not valid.
    """

    def __init__(
        self,
        chat: McpToolChat,
        arms: Sequence[Arm],
        cases: Sequence[ToolUseCase],
        *,
        repeats: int = 1,
        file: ResultsFile | None = None,
        budget: Budget | None = None,
        concurrency: int = 4,
        max_runs: int = MAX_RUNS,
        notify: Callable[[Turn, Event], object] = lambda _turn, _event: None,
    ) -> None:
        for name, value in {"repeats": repeats, "concurrency": concurrency, "max_runs": max_runs}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name} cannot be {brief(value)}.", hint="It must be 1 or more.")
        self.on_change: Callable[[], None] = lambda: None
        self.budget = budget or Budget()
        self._chat, self._arms, self._cases = chat.apart(), tuple(arms), tuple(cases)
        self._notify = notify
        self._repeats, self._file, self._concurrency, self._max_runs = repeats, file, concurrency, max_runs
        self._prepared: dict[str, _Prepared] = {}
        self._records: list[RunRecord] = []
        self._pending: list[_Planned] = []
        self._active: Counter[tuple[str, str]] = Counter()
        self._reused = 0
        self._status: ResultsStatus = "running"
        self._problem = ""
        self._began = time.monotonic()
        self._seconds: float | None = None

    @property
    def results(self) -> RunResults:
        """The results so far. Thread-safe."""
        seconds = time.monotonic() - self._began if self._seconds is None else self._seconds
        records = tuple(self._records)
        if self._status != "running":
            places = {case.id: index for index, case in enumerate(self._cases)}
            arms = {arm.way.name: index for index, arm in enumerate(self._arms)}
            records = tuple(sorted(records, key=lambda each: (each.repeat, places[each.case], arms[each.arm])))
        return RunResults(
            records,
            tuple(arm.way for arm in self._arms),
            tuple(case.id for case in self._cases),
            self._repeats,
            self._status,
            self.total,
            self._reused,
            seconds,
            self._problem,
            len({case.cluster or case.id for case in self._cases}),
            frozenset(self._active),
        )

    @property
    def running(self) -> bool:
        """Whether runs are in progress."""
        return self._status == "running"

    @property
    def total(self) -> int:
        """How many runs there are, including earlier ones."""
        return len(self._cases) * len(self._arms) * self._repeats

    @property
    def ended(self) -> int:
        """How many have ended."""
        return len(self._records)

    async def prepare(self, wanted: Iterable[tuple[str, str, int]] | None = None) -> None:
        """Connect the servers, check all names, and find out which runs the file has already.

        Args:
            wanted: The only runs to make, by arm, case and repeat. None for all.

        Raises:
            UsageError: A case or a description names a tool that does not exist, or there are too many runs.
            ConnectError: No server could be connected.
        """
        for arm in self._arms:
            self._prepared[arm.way.name] = await self._prepare(arm)
        chosen = None if wanted is None else set(wanted)
        for prepared in self._prepared.values() if chosen is None else ():
            for case in self._cases:
                _check_tools(case, prepared.catalog)
        existing = self._file.records if self._file is not None else {}
        for repeat in range(self._repeats):
            for case in self._cases:
                for arm in self._arms:
                    if chosen is not None and (arm.way.name, case.id, repeat) not in chosen:
                        continue
                    key = _hash([self._prepared[arm.way.name].digest, case.id, case.digest, repeat])
                    record = existing.get(key)
                    if record is not None and record.made:
                        # The same run, perhaps under another name.
                        self._records.append(replace(record, arm=arm.way.name, cluster=case.cluster or case.id))
                    else:
                        self._pending.append(_Planned(key, arm, case, repeat))
        self._reused = len(self._records)
        if len(self._pending) > self._max_runs:
            factors = f"arms {len(self._arms):,}, cases {len(self._cases):,}, repeats {self._repeats:,}"
            raise UsageError(
                f"That would be {len(self._pending):,} runs ({factors}), and the limit is {self._max_runs:,}.",
                hint="Each run calls a model. To make them all, raise max_runs.",
            )
        if self._file is not None:
            self._file.add(*(arm.way for arm in self._arms))
        if self.budget.limits[1] < math.inf:
            unpriced = [each.model.name for each in self._prepared.values() if each.model.price is None]
            if unpriced:
                raise UsageError(
                    f"Model {shown(unpriced[0])} has no price, so its cost has no limit.", hint="Add it to prices."
                )

    async def run(self, seconds: float = math.inf) -> None:
        """Make all pending runs, or those that can start within some seconds. When cancelled, completed runs stay."""
        self._began = time.monotonic()
        queue = iter(tuple(self._pending))
        failing = 0

        async def work() -> None:
            nonlocal failing
            for number, planned in enumerate(queue):
                if self._status != "running" or (number and time.monotonic() - self._began > seconds):
                    return
                pair = planned.case.id, planned.arm.way.name
                self._active[pair] += 1
                self.on_change()
                try:
                    record = await self._run(planned)
                except BudgetReachedError as error:
                    self._stop("over budget", str(error))
                    return
                finally:
                    self._active -= Counter([pair])
                self.add(record)
                failing = 0 if record.made else failing + 1
                if failing >= MAX_FAILING and not any(each.made for each in self._records):
                    self._stop("failing", f"None of the first {failing} runs could be made: {record.detail}")

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, max(1, len(self._pending)))):
                    group.create_task(work())
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None
        finally:
            self.end()

    async def run_elsewhere(self, executor: Executor, job: Callable[..., Callable[[], JobResult]]) -> None:
        """Make all pending runs in other processes.

        Args:
            executor: Runs the jobs.
            job: Builds a job from runs (arm, case, repeat) and its share of the budget.
        """
        self._began = time.monotonic()
        pending = list(self._pending)
        size = max(self._concurrency, min(RUNS_A_JOB, -(-len(pending) // JOBS)))
        try:
            while pending and self._status == "running":
                batches = [pending[start : start + size] for start in range(0, len(pending), size)]
                keys = {(each.arm.way.name, each.case.id, each.repeat): each.key for each in pending}
                tokens, cost = self.budget.left()
                if min(tokens, cost) <= 0:
                    self._stop("over budget", "The budget is spent.")
                    return
                futures = []
                for batch in batches:
                    share = len(batch) / len(pending)
                    wanted = [(each.arm.way.name, each.case.id, each.repeat) for each in batch]
                    futures.append(asyncio.wrap_future(executor.submit(job(wanted, tokens * share, cost * share))))
                count = len(self._records)
                try:
                    for future in asyncio.as_completed(futures):
                        try:
                            result = await future
                        except (pickle.PicklingError, AttributeError, TypeError) as error:
                            raise UsageError(
                                f"A job could not be sent to another process: {error}.",
                                hint="Name models instead of passing objects, and use functions of a module, not lambdas.",
                            ) from error
                        self.budget.spent = tuple(  # type: ignore[assignment]
                            one + other for one, other in zip(self.budget.spent, result.spent, strict=True)
                        )
                        self.add(*(replace(each, key=keys[each.arm, each.case, each.repeat]) for each in result.records))
                finally:
                    for future in futures:
                        future.cancel()
                ended = {record.key for record in self._records}
                pending = [each for each in pending if each.key not in ended]
                if len(self._records) == count and (len(batches) == 1 or not self.budget.limited):
                    self._stop("over budget" if self.budget.limited else "failing", "The other processes made no run.")
                # Too little is left for so many shares: the last job gets it all.
                size = max(size, -(-2 * len(pending) // len(batches)))
        finally:
            self.end()

    def add(self, *records: RunRecord) -> None:
        """Add runs that ended: to the file first."""
        if self._file is not None:
            self._file.add(*records)
        self._records += records
        self.on_change()

    def end(self) -> None:
        """Mark the end. Harmless after it. On any thread."""
        if self._seconds is not None:
            return
        self._seconds = time.monotonic() - self._began
        if self._status == "running":
            self._status = "done" if self.ended >= self.total else "stopped"
        self.on_change()

    def _stop(self, status: ResultsStatus, problem: str) -> None:
        if self._status == "running":
            self._status, self._problem = status, problem

    async def _prepare(self, arm: Arm) -> _Prepared:
        """Build an arm's chat, and a hash of all that its runs depend on."""
        chat = self._chat.apart(self._chat.consent)
        await chat.view()
        if arm.descriptions:
            overrides: dict[ToolName, Described] = {}
            for name, text in arm.descriptions.items():
                tool = chat.catalog.resolve(name)
                described_tool(tool, text)
                overrides[tool.tool_name] = text
            chat.tools = chat.tools.described(overrides)
        for name in arm.off:
            if name in chat.server_manager.names:
                chat.selection.servers[name] = "off"
            else:
                chat.selection.tools_off.add(str(chat.catalog.resolve(name).tool_name))
        given = arm.options.given
        model = await chat.ready_model(given.get("model"))
        view = await chat.tools.connected_view(arm.options.applied_to(chat.selection), model)
        if view.problem:
            raise UsageError(view.problem)
        system, template = prompt_source(given.get("system"), given.get("template"), model.template, chat.system)
        selection = view.selection.model_dump(mode="json", exclude={"servers", "tools_off", "tool_set", "delivery"})
        in_view = ("model", "tool_set", "discovery", "strategy", "delivery")
        options = {name: value for name, value in given.items() if name not in in_view}
        parts = [
            *(model.provider, model.model, model.with_options(arm.options.request).sendable(tools=True).options.shown()),
            *(options, system, None if system is not None else chat.templates.source(template)),
            *(selection, chat.deliveries.of(view, model), view.definitions),
            *(sorted(json.dumps(tool.definition, sort_keys=True) for tool in view.deferred), view.instructions),
        ]
        deferred = frozenset(str(tool.tool_name) for tool in view.deferred)
        return _Prepared(arm, chat, model, _hash(parts), view.catalog, deferred)

    async def _run(self, planned: _Planned) -> RunRecord:
        """Make a run: send the case's messages, one after another, and judge the turns.

        Raises:
            BudgetReachedError: A model call could have passed the budget.
        """
        from casual_llm.messages import UserMessage

        prepared, run = self._prepared[planned.arm.way.name], id(planned)
        chat = prepared.chat.apart(prepared.chat.consent)
        options, price = planned.arm.options, prepared.model.price
        if self.budget.limited:

            async def gate(step: int, request: Request) -> None:
                if not self.budget.reserve(run, request, price):
                    raise BudgetReachedError("The next model call could pass the budget.")

            options = TurnOptions(gate=gate, **options.given)

        requests: dict[int, Request] = {}

        def on_event(event: Event) -> None:
            self._notify(turn, event)
            if isinstance(event, StepStarted):
                requests[event.step] = event.request
            elif isinstance(event, StepFinished):
                self.budget.spend(run, event.usage, requests[event.step], text_of(event.message.content), price)

        turns: list[Turn] = []
        history: list[Any] = []
        error = ""
        try:
            for message in planned.case.messages:
                turn = Turn(Trace())
                before = turns[-1] if turns else None
                await chat.run(
                    [UserMessage(content=message)], options, history=history, turn=turn, before=before, on_event=on_event
                )
                turns.append(turn)
                history += turn.messages
                if isinstance(turn.exception, BudgetReachedError):
                    raise turn.exception
                if turn.status != "done":
                    break
        except BudgetReachedError:
            raise
        except Exception as failure:
            error = str(failure) if isinstance(failure, CasualMcpError) else f"{type(failure).__name__}: {failure}"
        finally:
            self.budget.release(run)
        last = turns[-1] if turns else None
        if last is not None and last.status == "failed" and not (last.failure and last.failure.kind in LIMITS):
            error = last.error or "The turn failed."
        judgement = None if error else await self._judged(planned.case, turns, prepared)
        return await asyncio.to_thread(self._record, planned, prepared, turns, judgement, error)

    async def _judged(self, case: ToolUseCase, turns: Sequence[Turn], prepared: _Prepared) -> Judgement:
        worker = prepared.chat.server_manager.worker

        def against_schema(name: ToolName, arguments: Mapping[str, Any]) -> bool:
            tool = prepared.catalog.get(name)
            return isinstance(tool, ToolSpec) and bool(problems(tool.input_schema, arguments, worker))

        # A case's pattern may take long on a model's text.
        return await asyncio.to_thread(judge_turns, case, turns, against_schema)

    def _record(
        self, planned: _Planned, prepared: _Prepared, turns: Sequence[Turn], judgement: Judgement | None, error: str
    ) -> RunRecord:
        """Collect a run's figures."""
        case = planned.case
        record = RunRecord(
            planned.key,
            case.id,
            planned.arm.way.name,
            planned.repeat,
            case.cluster or case.id,
            message=case.messages[-1],
            made=judgement is not None,
            detail=error,
            model=prepared.model.name,
            needed=tuple(str(name) for name in _needed(case, prepared.catalog)),
        )
        if judgement is not None:
            record = replace(
                record,
                right=judgement.right,
                failure=judgement.failure,
                detail=judgement.detail,
                tool=judgement.tool,
                parameters=judgement.parameters,
                matched=judgement.matched,
                expected=judgement.expected,
                extra=judgement.extra,
            )
        if not turns:
            return record
        stats = turns[0].stats
        for turn in turns[1:]:
            stats = stats + turn.stats
        calls = [call for turn in turns for call in with_nested(turn.tool_calls)]
        searches = [call for call in calls if call.tool.server == SYNTHETIC and call.tool.tool in FINDING]
        called = [str(call.tool) for call in calls if call.tool.server not in (SYNTHETIC, UNKNOWN)]
        hits = dict.fromkeys(str(row.tool) for turn in turns for search in turn.searches for row in search.rows)
        cost = stats.cost
        known_cost = cost is not None and not cost.unknown_calls and not cost.unknown_hosted
        names = dict.fromkeys((*record.needed, *hits, *called))
        return replace(
            record,
            steps=len(stats.steps),
            calls=len(called),
            searches=len(searches),
            input_tokens=stats.sent_tokens,
            output_tokens=None if stats.tokens.unknown_calls or not stats.llm_calls else stats.tokens.completion_tokens,
            origin=stats.parts.origin,
            seconds=sum(turn.seconds for turn in turns),
            cost=cost.amount if cost is not None and known_cost else None,
            currency=cost.currency if cost is not None and known_cost else None,
            answer=turns[-1].answer,
            deferred=tuple(name for name in names if name in prepared.deferred),
            found=tuple(hits),
            called=tuple(dict.fromkeys(called)),
            transcript=transcript_of(turns),
        )


def _needed(case: ToolUseCase, catalog: Any) -> list[ToolName]:
    """Resolve the tools that a case expects first of all."""
    names = (call.tools[0] for call in case.acceptable[0])
    return list(dict.fromkeys(tool.tool_name for name in names for tool in catalog.matches(name)[:1]))


def _check_tools(case: ToolUseCase, catalog: Any) -> None:
    """Check that each expected call of a case names a tool.

    Raises:
        UsageError: One does not.
        ConnectError: One is of a server that did not start.
    """
    for call in (call for calls in case.acceptable for call in calls):
        if not any(catalog.matches(name) for name in call.tools):
            try:
                catalog.resolve(call.tools[0])
            except ConnectError as error:
                raise ConnectError(f"Case {shown(case.id)}: {error}", server=error.server) from None
            except UsageError as error:
                raise UsageError(f"Case {shown(case.id)}: {error}") from None


def _hash(value: Any) -> str:
    def plain(part: Any) -> str:
        # A function's address differs in each process.
        return getattr(part, "__qualname__", None) or type(part).__name__ if callable(part) else str(part)

    return hashlib.sha256(json.dumps(value, sort_keys=True, default=plain).encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True)
class JobResult:
    """The result of another process's job: its runs, and the tokens and money that they took."""

    records: tuple[RunRecord, ...]
    spent: tuple[float, float]


class Opened(Protocol):
    """A session in another process."""

    experiments: Any

    def close(self) -> None:
        """End it."""


Recipe = Callable[[], Opened]
"""Opens a session in another process. It must be picklable, such as `functools.partial(Session.from_config, path)`."""


@dataclass(frozen=True)
class SessionRecipe:
    """Opens a session like this one in another process. It has no secrets: the config is read there.

    Args:
        path: The config file, or a cassette that answers in place of models and servers.
        selection: The selection.
        model: The default model.
        system: The system prompt.
        open: Builds the job's objects from the session's parts.
        match_on: The request parts that must match the cassette, or None for a config.
    """

    path: Path
    selection: Mapping[str, Any]
    model: str | None
    system: str | None
    open: Callable[[SessionParts], Opened]
    match_on: tuple[MatchOn, ...] | None = None

    @classmethod
    def of(cls, parts: SessionParts, open: Callable[[SessionParts], Opened]) -> SessionRecipe:
        """Describe a session.

        Raises:
            UsageError: It has a config, servers, tools or a cassette that only this process has.
        """
        source, current, manager = parts.cassettes.source, parts.cassettes.current, parts.chat.server_manager
        settings = (parts.chat.selection.model_dump(), parts.turn_service.model, parts.turn_service.system, open)
        if source is not None and current is not None:
            return cls(current.path, *settings, tuple(sorted(source.match_on)))
        own = next((name for name in manager.names if parts.config.servers.get(name) is None), None)
        if own is None and current is None and parts.config.path is not None:
            return cls(parts.config.path, *settings)
        what = "a config without a file" if parts.config.path is None else "a cassette that is in use"
        what = f"server {shown(own)}" if own is not None else what
        hint = "Give recipe=…, a function of a module that opens such a session there."
        raise UsageError(f"Another process does not have {what}.", hint=hint)

    def __call__(self) -> Opened:
        """Open it."""
        # With a separate name it replaces no session that is open with the same config.
        options: dict[str, Any] = {"name": f"runs {id(self)}", "trust": True, "quiet": True}
        if self.match_on is None:
            parts = SessionParts(self.path, system=self.system, **options)
        else:
            file, cassette, config = opened_cassette(self.path, {})
            parts = SessionParts(config, system=self.system, **options)
            parts.cassettes.replay_only(cassette, file, 0, self.match_on, None)
        parts.chat.selection.assign(Selection.model_validate(dict(self.selection)))
        parts.turn_service.model = self.model
        return self.open(parts)


@dataclass(frozen=True)
class Job:
    """Runs for another process, which opens its own session once.

    Args:
        recipe: Opens the session.
        plan: Arguments for `session.experiments.run`.
        wanted: The runs, by arm, case and repeat.
        tokens: Its share of the budget, in tokens.
        cost: Its share of the budget, in money.
    """

    recipe: Recipe
    plan: Mapping[str, Any]
    wanted: Sequence[tuple[str, str, int]]
    tokens: float
    cost: float

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


async def ask_for_texts(
    chat: McpToolChat, text: str, n: int, name: Any, max_total_tokens: int, add: Callable[[str], None]
) -> None:
    """Ask a model to propose texts for a tool, if the person allows it.

    Raises:
        UsageError: They do not.
        LimitError: The budget is too small.
    """
    from casual_llm.messages import UserMessage

    model = await chat.ready_model(name)
    left = max_total_tokens - round(estimate_tokens(text) * MARGIN)
    if left < 200:
        raise LimitError(f"The request has ≈ {estimate_tokens(text):,} tokens, and the budget is {max_total_tokens:,}.")
    arguments = {"model": model.name, "messages": [{"role": "user", "text": text}], "max_tokens": min(left, 1_000 * n)}
    permission = await chat.consent.sampling("workshop", arguments, method="propose", reason="proposal")
    if not permission.allowed:
        raise UsageError(f"Nothing was sent: {permission.reason.rstrip('.') or 'you did not allow it'}.")
    limited = model.unforced().without_hosted_tools().with_options(RequestOptions(max_tokens=min(left, 1_000 * n)))
    response = await limited.complete([UserMessage(content=text)], stream=False)
    add(text_of(response.message.content))
