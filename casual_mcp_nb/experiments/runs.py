"""Run cases: each in each arm, several at a time, within a budget, here or in other processes.

Each run is a separate conversation with the session's servers. What was asked before, as a results
file has it, is not asked again, and only judged.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.iterables import by_id
from casual_mcp_nb.base.secret import NO_SECRETS, Mask
from casual_mcp_nb.base.tool import Catalog, full_names
from casual_mcp_nb.conversation.event import Event, Request, StepFinished, StepStarted
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.engine.tools import described_tool
from casual_mcp_nb.errors import (
    CasualMcpError,
    ConnectError,
    SpendLimitError,
    UsageError,
    shown,
)
from casual_mcp_nb.experiments.arms import ArmSetup
from casual_mcp_nb.experiments.asking import hash_of, run_key, setup_key
from casual_mcp_nb.experiments.budget import Budget, BudgetReachedError, is_refusal
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.jobs import JOBS, RUNS_A_JOB, JobResult, Submits
from casual_mcp_nb.experiments.judging import Judging, may_change, places_of, turns_of
from casual_mcp_nb.experiments.matching import LIMITS
from casual_mcp_nb.experiments.measuring import measured
from casual_mcp_nb.experiments.plan import Plan
from casual_mcp_nb.experiments.results import ResultsStatus, RunResults
from casual_mcp_nb.experiments.results_file import ResultsFile, masked_json
from casual_mcp_nb.experiments.run_record import RunRecord, Setup
from casual_mcp_nb.providers.chat_model import ChatModel

MAX_FAILING = 20
"""If this many runs in a row could not be made, and none before, the others are not tried."""


@dataclass
class _Prepared:
    """An arm with its chat, and what its runs depend on."""

    options: TurnOptions
    chat: McpToolChat
    model: ChatModel
    digest: str
    catalog: Catalog
    setup: Setup


class CaseRuns:
    """Case runs in progress, on their chat's loop.

    Args:
        chat: Its servers and models are used. Its conversation stays as it is.
        plan: What is run. Its judge's requests count against the budget too.
        arms: The plan's arms.
        file: The results file, or None to keep results in memory only.
        budget: The spending limit.
        mask: Removes secrets from a text.
        notify: Called with each turn and event.

    Attributes:
        on_change: Called when a run begins or ends, on the chat's loop or the thread that calls
            `end`.
        prepared: Whether all names were found to be right, so that runs can be made.
        spend_limit: Which of the session's spend limits ended the runs, or empty.

    Raises:
        UsageError: The file has another format.
    """

    def __init__(
        self,
        chat: McpToolChat,
        plan: Plan,
        arms: Sequence[ArmSetup],
        *,
        file: ResultsFile | None = None,
        budget: Budget | None = None,
        mask: Mask = NO_SECRETS,
        notify: Callable[[Turn, Event], object] = ignore,
    ) -> None:
        self.on_change: Callable[[], None] = ignore
        self.prepared = False
        self.spend_limit = ""
        self.budget = budget or Budget()
        self._chat, self._plan, self._arms = chat.apart(), plan, arms
        self._file, self._notify, self._mask = file, notify, mask
        self._cases, self._judge = by_id(plan.cases), plan.judge
        self._prepared: dict[str, _Prepared] = {}
        self._failed: dict[str, str] = {}
        self._chats: list[McpToolChat] = []
        self._records: list[RunRecord] = []
        self._pending: list[RunRecord] = []
        self._active: Counter[tuple[str, str]] = Counter()
        self._is_part = False
        self._reused = 0
        self._status: ResultsStatus = "running"
        self._problem = ""
        self._threads = ThreadPoolExecutor(plan.concurrency, "casual-mcp-judging")
        self._began = time.monotonic()
        self._seconds: float | None = None
        if file is not None:
            file.check_format()
            self.budget.continue_from(file.ledger)

    @property
    def _setups(self) -> dict[str, Setup]:
        """What the prepared arms offer, by digest. Thread-safe."""
        return {each.digest: each.setup for each in tuple(self._prepared.values())}

    @property
    def results(self) -> RunResults:
        """The results so far. Thread-safe."""
        seconds = self._seconds
        if seconds is None:
            seconds = time.monotonic() - self._began
        records = tuple(self._records)
        if self._status != "running":
            cases = {case: index for index, case in enumerate(self._cases)}
            arms = {each.name: index for index, each in enumerate(self._arms)}

            def place(each: RunRecord) -> tuple[int, int, int]:
                return each.repeat, cases[each.case], arms[each.arm]

            records = tuple(sorted(records, key=place))
        return RunResults(
            records=records,
            arms=tuple(each.arm for each in self._arms if each.name not in self._failed),
            cases=tuple(self._cases),
            repeats=self._plan.repeats,
            status=self._status,
            planned=self.total,
            reused=self._reused,
            seconds=seconds,
            problem=self._problem,
            clusters=len({case.unit for case in self._plan.cases}),
            active=frozenset(self._active),
            setups=self._setups,
            failed_arms=dict(self._failed),
            looks=max(1, self._file.looks) if self._file is not None else 1,
            spent=self.budget.spent,
        )

    @property
    def running(self) -> bool:
        """Whether runs are in progress."""
        return self._status == "running"

    @property
    def total(self) -> int:
        """How many runs there are, including earlier ones."""
        return len(self._cases) * (len(self._arms) - len(self._failed)) * self._plan.repeats

    @property
    def ended(self) -> int:
        """How many have ended."""
        return len(self._records)

    async def prepare(self, wanted: Iterable[RunRecord] | None = None) -> None:
        """Connect the servers, check all names, and find out which runs the file has already.

        Args:
            wanted: The only runs to make, for another process. None for all.

        Raises:
            UsageError: A case or a description names a tool that does not exist, or there are too
                many runs.
            ConnectError: No server could be connected.
        """
        if self._judge is not None:
            model = await self._chat.ready_model(self._judge.model)
            self._judge = replace(self._judge, model=model, account=self._chat.account())
        await self._prepare_arms()
        if wanted is not None:
            self._is_part = self.prepared = True
            self._pending += wanted
            return
        for each in self._arms:
            # Other servers may have other tools: that is what their arm shows.
            if not each.servers:
                for case in self._plan.cases:
                    _check_tools(case, self._prepared[each.name].catalog)
        earlier = self._divide()
        self._reused = len(earlier)
        self._check_limits()
        if self._file is not None:
            self._file.add_arms([each.arm for each in self._arms], self._setups, self._plan.cases)
        self.prepared = True
        await self._judge_earlier(earlier)

    async def _prepare_arms(self) -> None:
        seen: Counter[str] = Counter()
        for each in self._arms:
            try:
                prepared = await self._prepare(each)
            except ConnectError as error:
                # A server of this arm alone costs the other arms nothing.
                if not each.servers or len(self._failed) == len(self._arms) - 1:
                    raise
                self._failed[each.name] = self._mask(str(error))
                continue
            # Arms that are alike are asked separately.
            digest = prepared.digest
            if seen[digest]:
                prepared.digest = hash_of([digest, seen[digest]])
            seen[digest] += 1
            self._prepared[each.name] = prepared

    def _check_limits(self) -> None:
        """Check that there are not too many runs, and that a limit on their cost can be kept."""
        most, repeats = self._plan.max_runs, self._plan.repeats
        if len(self._pending) > most:
            factors = f"arms {len(self._arms):,}, cases {len(self._cases):,}, repeats {repeats:,}"
            raise UsageError(
                f"That would be {len(self._pending):,} runs ({factors}), and the limit is"
                f" {most:,}.",
                hint="Each run calls a model. To make them all, raise max_runs.",
            )
        if self.budget.limits[1] == math.inf:
            return
        models = [each.model for each in self._prepared.values()]
        if self._judge is not None:
            models.append(cast("ChatModel", self._judge.model))
        for model in models:
            if model.price is None:
                raise UsageError(
                    f"Model {shown(model.name)} has no price, so its cost has no limit.",
                    hint="Add it to prices.",
                )

    def _divide(self) -> list[RunRecord]:
        """Divide the runs into those to be made, and those that the file has, which are only
        judged.
        """
        found = []
        cases = zip(self._plan.cases, places_of(self._plan.cases), strict=True)
        repeats = range(self._plan.repeats)
        for repeat, (case, place), (arm, prepared) in product(
            repeats, cases, self._prepared.items()
        ):
            key = run_key(prepared.digest, case, place, repeat)
            asked = self._file.asked.get(key) if self._file is not None else None
            if asked is not None and asked.made:
                # The same run, perhaps under another name, or of a case that expects something
                # else now.
                found.append(replace(asked, arm=arm, case=case.id))
                continue
            run = RunRecord(
                key, case.id, arm, repeat, case.unit, case.messages, place, prepared.digest
            )
            if asked is not None:
                run = replace(run, attempts=asked.attempts + 1)
            self._pending.append(run)
        return found

    async def _judge_earlier(self, runs: Sequence[RunRecord]) -> None:
        """Take over earlier verdicts, or judge again what expects something else now."""
        file, few = self._file, asyncio.Semaphore(self._plan.concurrency)
        if file is None:
            return
        newest = {(each.case, each.arm, each.repeat): each.key for each in file.newest()[0]}

        async def judge(asked: RunRecord) -> None:
            async with few:
                case = self._cases[asked.case]
                earlier = file.records.get(_place(asked))
                # Without a verdict, its `judged_by` is empty.
                record = earlier or asked
                if record.judged_by == case.digest and not may_change(case):
                    record = replace(record, case=case.id, cluster=case.unit, tags=tuple(case.tags))
                else:
                    turns = await turns_of(asked)
                    record = await self._judged(replace(asked, grades=record.grades), turns)
                is_known = (
                    record == earlier
                    and newest.get((case.id, record.arm, record.repeat)) == record.key
                )
                self.add(record, written=is_known)

        await asyncio.gather(*map(judge, runs))

    async def _judged(self, record: RunRecord, turns: Sequence[Turn]) -> RunRecord:
        """Judge a run.

        If its answer cannot be graded within the budget, the runs end, and it is not judged.
        """
        case, prepared = self._cases[record.case], self._prepared[record.arm]
        worker = prepared.chat.server_manager.worker
        judging = Judging(worker, self._threads, self._judge, self.budget)
        stored = self._without_secrets(record)
        if stored.transcript != record.transcript:
            # As they are judged again later; and a judge must not read what a tool or a model told.
            turns = await turns_of(stored)
        try:
            return await judging.judged(record, case, turns, prepared.setup)
        except SpendLimitError as error:
            self._over_limit(error)
            record = replace(record, grades=())
            return await judging.by_rules(record, case, turns, prepared.setup)

    async def run(self, seconds: float = math.inf) -> None:
        """Make all pending runs, or those that can start within some seconds.

        When cancelled, completed runs stay.
        """
        self._began = time.monotonic()
        queue = iter(tuple(self._pending))
        failing = 0

        async def work() -> None:
            nonlocal failing
            for number, run in enumerate(queue):
                if self._status != "running" or (
                    number and time.monotonic() - self._began > seconds
                ):
                    return
                pair = run.case, run.arm
                self._active[pair] += 1
                self.on_change()
                try:
                    record = await self._run(run)
                except SpendLimitError as error:
                    self._over_limit(error)
                    return
                finally:
                    self._active -= Counter([pair])
                self.add(record)
                failing += 1
                if record.made:
                    failing = 0
                if failing >= MAX_FAILING and not any(each.made for each in self._records):
                    self._stop(
                        "failing",
                        f"None of the first {failing} runs could be made: {record.detail}",
                    )

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._plan.concurrency, max(1, len(self._pending)))):
                    group.create_task(work())
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None
        finally:
            self.end()

    async def run_elsewhere(
        self, executor: Submits, job: Callable[..., Callable[[], JobResult]]
    ) -> None:
        """Make all pending runs in other processes.

        Args:
            executor: Runs the jobs.
            job: Builds a job from runs, its share of the budget, and the file.

        Raises:
            UsageError: A job cannot be sent there.
            CasualMcpError: A process ended. Runs that had ended are kept.
        """
        self._began = time.monotonic()
        pending = list(self._pending)
        size = max(self._plan.concurrency, min(RUNS_A_JOB, -(-len(pending) // JOBS)))
        part = self._file.part() if self._file is not None else None
        try:
            while pending and self._status == "running":
                batches = [pending[start : start + size] for start in range(0, len(pending), size)]
                tokens, cost = self.budget.left()
                if min(tokens, cost) <= 0:
                    self._stop("over budget", "The budget is spent.")
                    return
                count = len(self._records)
                jobs = []
                for batch in batches:
                    share = len(batch) / len(pending)
                    jobs.append(job(batch, (tokens * share, cost * share), part))
                await self._collect(executor, jobs)
                ended = set(map(_place, self._records))
                pending = [each for each in pending if _place(each) not in ended]
                if len(self._records) == count and not self.budget.limited:
                    self._stop("failing", "The other processes made no run.")
                elif len(self._records) == count and len(batches) == 1:
                    self._stop("over budget", "The next run could pass the budget.")
                # Too little is left for so many shares: the last job gets it all.
                size = max(size, -(-2 * len(pending) // len(batches)))
        finally:
            self.end()

    async def _collect(self, executor: Submits, jobs: Sequence[Callable[[], JobResult]]) -> None:
        """Submit jobs, and add what they return as it comes."""
        futures: list[asyncio.Future[JobResult]] = []
        try:
            for each in jobs:
                futures.append(asyncio.wrap_future(executor.submit(each)))
            for coming in asyncio.as_completed(futures):
                result = await coming
                self.budget.take(result.spent, recorded=result.written)
                self.add(*result.records, written=result.written)
                if result.spend_limit:
                    # Each process has its share of a budget, and the limits are the same for all.
                    self._stop("over budget", result.spend_limit)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"A job could not be sent to another process: {error}.",
                hint=(
                    "Name models instead of passing objects, and use functions of a module, not"
                    " lambdas."
                ),
            ) from error
        except BrokenExecutor as error:
            raise self._broken(error) from error
        finally:
            for future in futures:
                future.cancel()

    def _broken(self, error: Exception) -> CasualMcpError:
        """Explain that a process ended, after taking over what it had appended to the file."""
        if self._file is not None:
            self._file.read()
            missing = set(map(_place, self._pending)).difference(map(_place, self._records))
            for place, record in self._file.records.items():
                if place in missing and record.made:
                    self.add(record, written=True)
        kept = f"{sum(record.made for record in self._records):,} of {self.total:,} runs are kept"
        hint = (
            f"{kept} in session.experiments.results. With results=FILE, the same call would make"
            " only the others."
        )
        if self._file is not None:
            hint = f"The same call makes only the others: {kept} in {shown(self._file.path)}."
        self._stop("stopped", "A process that made runs ended.")
        return CasualMcpError(
            f"A process that made runs ended: {str(error) or type(error).__name__}", hint=hint
        )

    def add(self, *records: RunRecord, written: bool = False) -> None:
        """Add runs that ended: to the file first, unless another process has written them there."""
        if not written:
            records = tuple(map(self._without_secrets, records))
            if self._file is not None:
                self._file.add(*records)
        self._records += records
        self.on_change()

    def _without_secrets(self, record: RunRecord) -> RunRecord:
        """Remove secrets that a tool or a model told, since results are exported without a
        session.
        """
        transcript = record.transcript and masked_json(record.transcript, self._mask)
        grades = tuple(replace(each, reason=self._mask(each.reason)) for each in record.grades)
        return replace(
            record,
            answer=self._mask(record.answer),
            detail=self._mask(record.detail),
            transcript=transcript,
            grades=grades,
        )

    async def aclose(self) -> None:
        """End the servers that were started for an arm."""
        for chat in self._chats:
            await chat.server_manager.close_added()
        self._chats.clear()

    def end(self) -> None:
        """Mark the end. Harmless after it. On any thread."""
        if self._seconds is not None:
            return
        self._seconds = time.monotonic() - self._began
        self._threads.shutdown(wait=False)
        if self._status == "running":
            self._status = "done" if self.ended >= self.total else "stopped"
        is_compared = not self._is_part and len(self._prepared) > 1
        if self._status == "done" and self._file is not None and is_compared:
            # An arm that is added is one more candidate, and no look at those that were there.
            runs = Counter(record.arm for record in self._records if record.made)
            self._file.add_look(max(runs.values(), default=0))
        self.on_change()

    def _over_limit(self, error: SpendLimitError) -> None:
        if not isinstance(error, BudgetReachedError):
            self.spend_limit = str(error)
        self._stop("over budget", str(error))

    def _stop(self, status: ResultsStatus, problem: str) -> None:
        if self._status == "running":
            self._status, self._problem = status, problem

    async def _prepare(self, setup: ArmSetup) -> _Prepared:
        """Build an arm's chat, and a hash of all that its runs depend on."""
        chat = self._chat.apart(self._chat.consent)
        if setup.servers:
            chat = await chat.with_servers(setup.servers)
            self._chats.append(chat)
        await chat.view()
        if setup.descriptions:
            overrides = {}
            for name, text in setup.descriptions.items():
                tool = chat.catalog.resolve(name)
                described_tool(tool, text)
                overrides[tool.tool_name] = text
            chat.tools = chat.tools.described(overrides)
        for name in setup.arm.without:
            if name in chat.server_manager.names:
                chat.selection.servers[name] = "off"
            else:
                chat.selection.tools_off.add(str(chat.catalog.resolve(name).tool_name))
        model = await chat.ready_model(setup.options.given.get("model"))
        view = await chat.tools.connected_view(setup.options.applied_to(chat.selection), model)
        if view.problem:
            raise UsageError(view.problem)
        off = {name for name, mode in view.selection.servers.items() if mode == "off"}
        absent = {name: why for name, why in chat.server_manager.absent.items() if name not in off}
        offered = Setup(
            tuple(full_names(view.loaded)),
            tuple(full_names(view.deferred)),
            {name: self._mask(why) for name, why in absent.items()},
        )
        digest = setup_key(chat, view, model, setup.options, self._mask, setup.arm.servers)
        return _Prepared(setup.options, chat, model, digest, view.catalog, offered)

    async def _run(self, run: RunRecord) -> RunRecord:
        """Make a run: send the case's messages, one after another, and judge the turns.

        Raises:
            SpendLimitError: A model call could have passed the budget, or a spend limit.
        """
        prepared = self._prepared[run.arm]
        turns: list[Turn] = []
        error = ""
        try:
            await self._converse(run.messages, prepared, turns)
        except SpendLimitError:
            raise
        except CasualMcpError as failure:
            error = str(failure)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        if turns and turns[-1].status == "failed":
            last = turns[-1]
            # At a limit the model is wrong, and the run is made.
            if last.failure is None or last.failure.kind not in LIMITS:
                error = last.error or "The turn failed."
        run = replace(run, made=not error, detail=error, model=prepared.model.name)
        # A case's pattern may take long on a model's text.
        run = await asyncio.to_thread(measured, run, turns, prepared.model)
        return await self._judged(run, turns)

    async def _converse(
        self, messages: Iterable[str], prepared: _Prepared, turns: list[Turn]
    ) -> None:
        """Send the messages within the budget, and append a turn for each.

        Raises:
            SpendLimitError: A model call could have passed the budget, or a spend limit.
        """
        from casual_llm.messages import UserMessage

        run, price = id(turns), prepared.model.price
        chat = prepared.chat.apart(prepared.chat.consent)
        requests: dict[int, Request] = {}
        history: list[Any] = []
        refused = False

        async def gate(step: int, request: Request) -> None:
            if not await self.budget.reserve(run, request, price):
                raise BudgetReachedError("The next model call could pass the budget.")

        def on_event(event: Event) -> None:
            self._notify(turn, event)
            if isinstance(event, StepStarted):
                requests[event.step] = event.request
            elif isinstance(event, StepFinished):
                answer = text_of(event.message.content)
                self.budget.spend(run, event.usage, requests[event.step], answer, price)

        options = TurnOptions(gate=gate, **prepared.options.given)
        try:
            for message in messages:
                turn = Turn(Trace())
                setup = TurnSetup(
                    messages=[UserMessage(content=message)],
                    options=options,
                    history=history,
                    turn=turn,
                    before=turns[-1] if turns else None,
                    on_event=on_event,
                )
                await chat.take_turn(setup)
                turns.append(turn)
                history += turn.messages
                refused = is_refusal(turn.exception)
                if isinstance(turn.exception, SpendLimitError):
                    raise turn.exception
                if turn.status != "done":
                    return
        finally:
            self.budget.release(run, refused=refused)


def _place(record: RunRecord) -> tuple[str, str]:
    """Return a run's place in the results: its arm and its key."""
    return record.arm, record.key


def _check_tools(case: ToolUseCase, catalog: Catalog) -> None:
    """Check that each expected call of a case names a tool.

    Raises:
        UsageError: One does not.
        ConnectError: One is of a server that did not start.
    """
    for call in case.expected_calls:
        if not any(map(catalog.matches, call.tools)):
            try:
                catalog.resolve(call.tools[0])
            except ConnectError as error:
                raise ConnectError(f"Case {shown(case.id)}: {error}", server=error.server) from None
            except UsageError as error:
                raise UsageError(f"Case {shown(case.id)}: {error}") from None
