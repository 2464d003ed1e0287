"""Compare and measure with a session's servers and models, and show experiments while they run.

`compare` and `run` are two doors to the same experiment: prompts, or cases with expected calls, in
several arms. Each run is a separate conversation.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.displayable import Namespace
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.base.secret import Mask, mask_of
from casual_mcp_nb.base.tool import by_server
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.turn_fields import spelled_out
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.arms import (
    Check,
    Descriptions,
    OtherServers,
    cases_of_prompts,
    factors_of,
)
from casual_mcp_nb.experiments.budget import Budget
from casual_mcp_nb.experiments.case_files import CaseSource, load_tool_cases, save_tool_cases
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.checks import Functions
from casual_mcp_nb.experiments.drafts import cases_of_turns
from casual_mcp_nb.experiments.evaluate import Strategy as SearchStrategy
from casual_mcp_nb.experiments.evaluate import evaluate, with_and_without
from casual_mcp_nb.experiments.findings import Lint
from casual_mcp_nb.experiments.graded import Judge, check_judge
from casual_mcp_nb.experiments.inspect_logs import solver_of
from casual_mcp_nb.experiments.jobs import (
    JOB_SECONDS,
    Job,
    JobResult,
    Recipe,
    SessionRecipe,
    Submits,
)
from casual_mcp_nb.experiments.judging import graded_again
from casual_mcp_nb.experiments.lint import lint
from casual_mcp_nb.experiments.live import (
    LiveExperiment,
    RunsWidget,
    ShownResults,
    progress_bar,
)
from casual_mcp_nb.experiments.plan import Plan, as_judge, read_servers
from casual_mcp_nb.experiments.proposing import ask_for_texts
from casual_mcp_nb.experiments.results import Experiments, RunResults
from casual_mcp_nb.experiments.results_file import ResultsFile, load_runs
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.runs import CaseRuns
from casual_mcp_nb.experiments.search_scores import Evaluation
from casual_mcp_nb.experiments.workshop import Workshop
from casual_mcp_nb.experiments.worth import Worth, plan_joint, targets_of, worth_of
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine, on_engine_told
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.parts import SessionParts
from casual_mcp_nb.notebook.warming import warm_up, warmed_up

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.base.config import Discovery, Strategy
    from casual_mcp_nb.base.model_options import DeliverySetting
    from casual_mcp_nb.providers.chat_model import ChatModel


_MAX_READ = 100
"""How many saved conversations `save_cases` reads."""


class SessionExperiments(Namespace):
    """Comparisons and measurements: `session.experiments`.

    The session's own conversation stays as it is.

    Args:
        parts: The session's parts. Its own turns wait meanwhile.
        widget: Makes a widget that shows runs, from an object with `parts` and a function that
            returns the results.
    """

    def __init__(
        self, parts: SessionParts, widget: Callable[..., RunsWidget] | None = None
    ) -> None:
        self._parts = parts
        self._widget = widget
        self._work: CaseRuns | None = None
        self._engine = parts.engine
        self._results: RunResults | None = None
        self._recipe = partial(SessionRecipe.of, parts, OpenedSession)
        self._secrets = parts.secrets
        self._chat = parts.chat
        self._turns = parts.turn_service
        self._starter = parts.starter
        self._tools = parts.tools
        self._questions = parts.questions

    @property
    def results(self) -> RunResults | None:
        """The last results from `compare` or `run`, even if it was stopped, or None before the
        first.
        """
        return self._results

    @property
    def now(self) -> Experiments:
        """The last results, as a value."""
        return Experiments(self._results)

    @blocking
    @spelled_out(ModelOptions)
    async def compare(
        self,
        prompt: str | Sequence[str],
        *,
        discovery: Discovery | Sequence[Discovery] = (),
        models: str | Sequence[str | Model | ChatModel] = (),
        tool_sets: str | Sequence[str | None] = (),
        strategies: Strategy | Sequence[Strategy] = (),
        deliveries: DeliverySetting | Sequence[DeliverySetting] = (),
        repeats: int = 1,
        check: Check | Sequence[Check | None] | None = None,
        judge: str | Model | ChatModel | Judge | None = None,
        max_runs: int = 100,
        progress: bool = True,
        **options: Unpack[ModelOptions],
    ) -> RunResults:
        """Answer prompts with several set-ups, and compare their cost and correctness.

        This is the short form of `run` for prompts instead of cases. Each run is a conversation
        with one turn. This session's conversation and selection stay as they are, and its own turns
        cannot run meanwhile. Each run really calls tools. Calls that need approval ask as usual.
        Runs follow one another, so that their times are comparable, and arms alternate. After an
        interrupt or `Session.stop`, `results` has the completed runs.

        Args:
            prompt: The text, or several texts.
            discovery: Whether deferred tools are hidden behind a search, such as `[False, True]`,
                or `auto`.
            models: Model names in the config, or model objects.
            tool_sets: Toolset names. None in the list is the session's own choice.
            strategies: `search`, `browse`, or both.
            deliveries: How the model receives search results: `auto`, `definitions`, `native`,
                `bridge`.
            repeats: How often each arm answers each prompt.
            check: A check for the answer: a text that it contains as whole words, a compiled
                pattern that it matches, or a function that gets the `Turn`. Or a list with one per
                prompt.
            judge: The model that grades answers if a check is `Graded`. See `run`.
            max_runs: How many runs are allowed: one per arm, prompt and repeat.
            progress: Show it while it runs.
            options: Options for the model, such as `temperature`. See `Session.chat`.

        Returns:
            The arms by name, each with its runs and their figures. It names the cheapest arm, and
            shows where deferring loses. A failed run does not raise.

        Raises:
            UsageError: A name does not exist, there are too many runs, or a turn is running.
                Nothing was sent.
            ConnectError: No server could be connected.
        """
        stops = self._turns.runner.stops
        plan = Plan(
            cases=cases_of_prompts(prompt, check),
            factors=factors_of(
                discovery=discovery,
                model=models,
                tool_set=tool_sets,
                strategy=strategies,
                delivery=deliveries,
            ),
            options=options,
            judge=as_judge(judge),
            repeats=repeats,
            max_runs=max_runs,
        )
        return await self._measured(plan, progress=progress, stops=stops, explored=False)

    compare_async = awaited(compare)

    @blocking
    @spelled_out(ModelOptions)
    async def run(
        self,
        cases: CaseSource,
        *,
        models: str | Sequence[str | Model | ChatModel] = (),
        deliveries: DeliverySetting | Sequence[DeliverySetting] = (),
        tool_sets: str | Sequence[str | None] = (),
        discovery: Discovery | Sequence[Discovery] = (),
        strategies: Strategy | Sequence[Strategy] = (),
        descriptions: Mapping[str, Descriptions] | None = None,
        without: Sequence[str | Sequence[str]] = (),
        servers: Mapping[str, OtherServers] | None = None,
        repeats: int = 1,
        results: str | Path | None = None,
        max_total_tokens: int | None = None,
        max_cost: float | None = None,
        max_runs: int = 1_000,
        concurrency: int = 4,
        executor: Submits | None = None,
        recipe: Recipe | None = None,
        functions: Functions | None = None,
        judge: str | Model | ChatModel | Judge | None = None,
        system: str | None = None,
        max_steps: int | None = None,
        mock: Mapping[str, Any] | None = None,
        progress: bool = True,
        **options: Unpack[ModelOptions],
    ) -> RunResults:
        """Measure how well models call tools: run tool-use cases, and judge each run by its calls.

        Each run is a separate conversation. Each combination of models, deliveries, toolsets,
        descriptions and so on is an arm. Arms are compared case by case. **Tools are really
        called**, unless stubs answer (`mock`). Calls that need approval ask as usual. After an
        interrupt or `Session.stop`, `results` has the completed runs.

        Args:
            cases: A file, a DataFrame, or `ToolUseCase`s. See `load_tool_cases`.
            models: Model names in the config, or model objects.
            deliveries: How the model receives search results: `auto`, `definitions`, `native`,
                `bridge`.
            tool_sets: Toolset names. None in the list is the session's own choice.
            discovery: Whether deferred tools are hidden behind a search, such as `[False, True]`,
                or `auto`.
            strategies: `search`, `browse`, or both.
            descriptions: Other tool descriptions by name: `{"shorter": {"mail:send": "Send an
                email."}}`. Each is compared with the servers' own.
            without: Servers or tools. Each is left out in an arm. Several in a list are left out
                together.
            servers: Other servers by the arm's name, in place of the session's or besides them:
                `{"new": {"shop": {"command": "…"}}}`. An entry is as in the config, a FastMCP
                server in this process, or None to leave that server out. They are started for the
                arm, and end with the runs. If one does not start, the other arms are run.
            repeats: How often each case is run in each arm.
            results: A file to which each run is appended. What it has already is not asked again,
                even after a killed process, and only judged again if a case expects something else
                now.
            max_total_tokens: Limit on input and output tokens over all runs, with those that the
                file records. A model call that could exceed it is not made.
            max_cost: The same limit in money, for models with a price.
            max_runs: How many runs are allowed.
            concurrency: How many runs may overlap. With 1, servers that remember something see one
                run at a time.
            executor: Makes the runs in other processes: a process pool, a Dask executor, or any
                object whose `submit` takes a function and returns a `concurrent.futures.Future`.
            recipe: Opens the session in such a process, such as `partial(Session.from_config,
                path)`. The default uses the same config, selection and cassette, and cannot have
                in-process servers or tools.
            functions: The functions that `$function` in a case file may name.
            judge: The model that grades answers of cases with a `Graded` check, or a `Judge` with
                its own instructions. What it takes counts against the budget, and not in the runs'
                own figures.
            system: The system prompt.
            max_steps: How many model calls a turn may make.
            mock: Stubs that answer in place of tools, see `session.tools.mock`.
            progress: Show it while it runs.
            options: Options for the model, such as `temperature`. See `Session.chat`.

        Returns:
            The arms by name, with intervals, comparisons and failures. A run that could not be made
            does not raise.

        Raises:
            UsageError: A name does not exist, a case is wrong, there are too many runs, or a turn
                is running. Nothing was sent.
            ConnectError: No server could be connected.
        """
        stops = self._turns.runner.stops
        plan = Plan(
            cases=load_tool_cases(cases, functions=functions),
            factors=factors_of(
                discovery=discovery,
                model=models,
                tool_set=tool_sets,
                strategy=strategies,
                delivery=deliveries,
            ),
            options={"system": system, "max_steps": max_steps, "mock": mock, **options},
            descriptions=descriptions or {},
            without=tuple(without),
            servers=read_servers(servers or {}, read_environment(self._parts.config.folder)),
            judge=as_judge(judge),
            repeats=repeats,
            max_runs=max_runs,
            concurrency=concurrency,
        )
        return await self._measured(
            plan,
            results=results,
            budget=Budget(max_total_tokens, max_cost),
            progress=progress,
            executor=executor,
            recipe=recipe,
            stops=stops,
        )

    run_async = awaited(run)

    @blocking
    @spelled_out(ModelOptions)
    async def worth(
        self,
        cases: CaseSource,
        *,
        targets: Sequence[str] | None = None,
        model: str | Model | ChatModel | None = None,
        repeats: int = 1,
        results: str | Path | None = None,
        max_total_tokens: int | None = None,
        max_cost: float | None = None,
        max_runs: int = 1_000,
        concurrency: int = 4,
        functions: Functions | None = None,
        judge: str | Model | ChatModel | Judge | None = None,
        mock: Mapping[str, Any] | None = None,
        progress: bool = True,
        **options: Unpack[ModelOptions],
    ) -> Worth:
        """Measure what each server and tool is worth: run the cases with everything, and without
        each one.

        What could be turned off is then judged together: another arm runs without all of it, and if
        that loses cases, further ones run with the cheapest tools put back that these cases need.

        Args:
            cases: See `run`, for this and the arguments below.
            targets: The servers and tools to measure, or None for each server, and each tool that a
                case expects or that takes 5% of all definition tokens.
            model: The model, or None for the session's.
            repeats: See `run`.
            results: See `run`.
            max_total_tokens: See `run`.
            max_cost: See `run`.
            max_runs: See `run`.
            concurrency: See `run`.
            functions: See `run`.
            judge: See `run`.
            mock: See `run`.
            progress: See `run`.
            options: See `run`.

        Returns:
            For each, its gain in right runs and cost in tokens, with the advice to load it, defer
            it or turn it off. Its `apply` writes the toolset.

        Raises:
            UsageError: A name does not exist, a case is wrong, there are too many runs, or a turn
                is running. Nothing was sent.
            ConnectError: No server could be connected.
        """
        self._turns.check_open()
        stops = self._turns.runner.stops
        loaded = load_tool_cases(cases, functions=functions)
        tools = (await self._starter.run_shown(self._chat.view())).included
        if targets is None:
            targets = targets_of(loaded, tools)
        plan = Plan(
            cases=loaded,
            factors=factors_of() if model is None else factors_of(model=model),
            options={"mock": mock, **options},
            without=tuple(targets),
            judge=as_judge(judge),
            repeats=repeats,
            max_runs=max_runs,
            concurrency=concurrency,
        )
        with tempfile.TemporaryDirectory(prefix="worth-") as folder:
            while True:
                measured = await self._measured(
                    plan,
                    # Each further arm is compared with the same runs.
                    results=results or Path(folder, "runs.jsonl"),
                    # The file carries on what was spent.
                    budget=Budget(max_total_tokens, max_cost),
                    progress=progress,
                    stops=stops,
                )
                left = plan.max_runs - len(measured.records) + measured.reused
                together = await on_engine(asyncio.to_thread(plan_joint, measured, tools))
                ended_early = measured.status != "done" or left < len(loaded) * repeats
                if ended_early or not together.missing:
                    break
                plan = replace(plan, without=(*plan.without, together.missing), max_runs=left)
        worths = await on_engine(asyncio.to_thread(worth_of, measured, tools, together))
        return Worth(worths, measured, tuple(by_server(tools)), together, self._apply)

    worth_async = awaited(worth)

    @blocking
    async def judge(
        self,
        results: RunResults | str | Path,
        cases: CaseSource,
        judge: str | Model | ChatModel | Judge,
        *,
        functions: Functions | None = None,
    ) -> RunResults:
        """Judge runs again by their transcripts, and have a model grade the answers of cases with a
        `Graded` check.

        No other model is asked. Grades that the same model gave to the same answers are kept.

        Args:
            results: Results, or a file that `run` wrote. New verdicts are appended to the file.
            cases: The cases, as for `run`.
            judge: The model. See `run`.
            functions: The functions that `$function` in a case file may name.

        Returns:
            The results with the new verdicts. Runs of other messages are left out.

        Raises:
            UsageError: A model or the file does not exist, or a case is wrong.
        """
        loaded = load_tool_cases(cases, functions=functions)
        keep: Callable[[RunRecord], None] = ignore
        if isinstance(results, str | Path):
            file = ResultsFile(results, mask_of(self._secrets()))
            file.check_format()
            keep, results = file.add, load_runs(results)
        if not isinstance(judge, Judge):
            judge = Judge(judge)
        model = await on_engine(self._chat.ready_model(judge.model))
        ready = replace(judge, model=model, account=self._chat.account())
        again = graded_again(results.records, results.setups, loaded, ready, keep)
        return results.with_verdicts(await on_engine(again), loaded)

    judge_async = awaited(judge)

    def explore(self, results: RunResults | str | Path | None = None) -> Any:
        """Return a widget to look through runs: by case and arm, filtered by failure, each with its
        transcript.

        Args:
            results: Results, or a file that `run` wrote. None for the latest, even while they run.

        Returns:
            A widget. As a cell's last value it shows itself.

        Raises:
            UsageError: There was no run, or the file does not exist or is another one.
        """
        if results is None:
            work = self._work
            if work is None:
                raise UsageError(
                    "Nothing was run yet.",
                    hint="Call session.experiments.run(cases), or name a results file.",
                )
            explorer, on_change = self._explorer(lambda: work.results), work.on_change

            def on_both() -> None:
                on_change()
                explorer.draw()

            work.on_change = on_both
            return explorer
        if isinstance(results, str | Path):
            results = load_runs(results)
        return self._explorer(lambda: results)

    def _explorer(self, source: Callable[[], RunResults]) -> RunsWidget:
        if self._widget is None:
            raise UsageError("There are no widgets here.")
        # A widget that held the session would keep its servers running.
        return self._widget(SimpleNamespace(parts=self._parts), source)

    def _apply(self, worth: Worth, name: str | None) -> None:
        """Apply the advice from `worth` to the session."""
        selection = worth.applied_to(self._chat.selection)
        if name is not None:
            self._tools.save_set(name, worth.tool_set, overwrite=True)
            selection.tool_set = name
        self._chat.selection.assign(selection)

    async def _measured(
        self,
        plan: Plan,
        *,
        results: str | Path | None = None,
        budget: Budget | None = None,
        progress: bool,
        executor: Submits | None = None,
        recipe: Recipe | None = None,
        stops: int,
        explored: bool = True,
    ) -> RunResults:
        """Make a plan's runs, and show them meanwhile.

        For `stops`, see `ConversationRunner.apart`.
        """
        self._turns.check_open()
        check_judge(plan.cases, plan.judge)
        mask = self._mask(plan)
        file = None
        if results is not None:
            file = ResultsFile(results, mask)
        runs = CaseRuns(
            self._chat,
            plan,
            plan.arms(self._chat, self._turns.model),
            file=file,
            budget=budget,
            mask=mask,
            notify=self._parts.observers.served.notify,
        )
        make = runs.run
        if executor is not None:
            job = partial(Job, recipe or self._recipe(), plan)
            make = partial(runs.run_elsewhere, executor, job)

        async def make_all(blocks: bool) -> None:
            async with self._apart(blocks, stops), aclosing(runs):
                await runs.prepare()
                await make()

        self._work = runs
        refused = False
        with self._shown(runs, progress, explored):
            try:
                await on_engine_told(make_all)
            except UsageError:
                refused = not runs.prepared
                raise
            finally:
                runs.end()
                made = runs.results
                if not refused:
                    self._results = made
        if progress and (shell := notebook_shell()):
            made = ShownResults.of(made, shell)
        return made

    @blocking
    async def workshop(
        self, /, tool: str, cases: CaseSource | None = None, *, seed: int = 0, **options: Any
    ) -> Workshop:
        """Open a workshop on one tool's texts: edit them, and see the effect.

        Args:
            tool: The tool, as `server:tool`.
            cases: The cases, as for `run`. Half are to work with, half for the verdict. Without
                cases there are prices and ranks, but no runs.
            seed: For splitting the cases.
            options: Arguments for `run`, such as `models`, `repeats`, `max_total_tokens`, `mock`
                and `results`.

        Returns:
            The workshop: `edit`, `run`, `test`, `propose`, `keep` and `patch`.

        Raises:
            UsageError: There is no such tool, or a case is wrong.
        """
        if wrong := {"descriptions", "without", "executor", "recipe"} & options.keys():
            raise UsageError(
                f"A workshop takes no {min(wrong)}.",
                hint="It compares the texts as listed with the edited ones.",
            )
        loaded: tuple[ToolUseCase, ...] = ()
        if cases is not None:
            loaded = load_tool_cases(cases, functions=options.get("functions"))
        view = await self._starter.run_shown(self._starter.view())
        name = view.catalog.resolve(tool).tool_name
        listed = self._chat.catalog.resolve(name)
        tools = []
        for each in view.catalog:
            if each.restriction is None or each.tool_name == name:
                tools.append(each)
        return Workshop(self, self._parts, listed, tools, loaded, seed=seed, options=options)

    workshop_async = awaited(workshop)

    async def _ask_for_texts(self, text: str, n: int, model: Any, max_total_tokens: int) -> str:
        """Ask a model for other texts for a tool, with consent and within the budget.

        Return its answer.
        """
        stops = self._turns.runner.stops

        async def ask(blocks: bool) -> str | None:
            async with self._apart(blocks, stops):
                name = model or self._turns.model
                return await ask_for_texts(self._chat, text, n, name, max_total_tokens)
            return None

        answer = await on_engine_told(ask)
        if answer is None:
            raise UsageError("It was stopped before the model had answered.")
        return answer

    def to_solver(self, **options: Any) -> Any:
        """Build an inspect-ai solver that asks this session, for a `Task` with its datasets and
        scorers.

        Args:
            options: Arguments for `run`, such as `models`, `deliveries` and `mock`, with one value
                each.

        Raises:
            MissingDependencyError: inspect-ai is not installed.
        """
        return solver_of(self.run_async, options)

    def _mask(self, plan: Plan) -> Mask:
        """Build what removes secrets from results, also those of the arms' own servers."""
        return mask_of([*self._secrets(), *plan.secrets()])

    def _run_job(self, job: Job) -> JobResult:
        """Make a job's runs in this process, which another one started."""
        budget = Budget.of(job.left)
        mask = self._mask(job.plan)
        file = job.file.opened(mask) if job.file is not None else None
        arms = job.plan.arms(self._chat, self._turns.model)
        runs = CaseRuns(self._chat, job.plan, arms, file=file, budget=budget, mask=mask)

        async def make() -> None:
            async with self._apart(True), aclosing(runs):
                await runs.prepare(job.wanted)
                await runs.run(JOB_SECONDS)

        self._engine.run(make())
        return JobResult(
            runs.results.records,
            budget.spent,
            written=file is not None,
            spend_limit=runs.spend_limit,
        )

    @blocking
    async def evaluate(
        self,
        cases: CaseSource,
        strategies: Mapping[str, SearchStrategy] | None = None,
        *,
        k: int | None = None,
        executor: Executor | None = None,
        progress: bool = True,
    ) -> Evaluation:
        """Measure how well the model's search finds the tools that the selection includes.

        Args:
            cases: The cases, as for `run`: their messages are searched for, and their expected
                calls should be found. A call's `query` is searched for in place of the message.
                Rows such as `{"query": text, "gold": [[[server, tool]]]}`, where `gold` lists the
                tools that meet each need, are read too.
            strategies: The strategies to compare, as for
                `casual_mcp_nb.experiments.evaluate.evaluate`, or None for the built-in search: with
                an embedding model, by `words` and by `words and meaning`.
            k: How many results count in each search, or None for the selection's limit.
            executor: Runs the work elsewhere, see `casual_mcp_nb.experiments.evaluate.evaluate`.
            progress: Show a progress bar on stderr.

        Returns:
            A score for each strategy, with its misses and the reason for each. No model is called.

        Raises:
            UsageError: There are no cases, the file cannot be read, or `k` is less than 1.
        """
        loaded = load_tool_cases(cases)
        tools = (await self._starter.run_shown(self._tools.searchable())).tools
        selection = self._chat.selection
        if not strategies:
            meaning = self._chat.tools.meaning
            strategies = await on_engine(with_and_without(meaning, tools, loaded))
        stopped = threading.Event()
        work = partial(
            evaluate,
            tools,
            loaded,
            strategies,
            k=selection.max_search_results if k is None else k,
            executor=executor,
            progress=progress,
            manifest_max_tokens=selection.manifest_max_tokens,
            stopped=stopped,
        )
        try:
            return await on_engine(asyncio.to_thread(work))
        finally:
            stopped.set()

    evaluate_async = awaited(evaluate)

    def save_cases(self, path: str | Path) -> tuple[ToolUseCase, ...]:
        """Draft a case file for `run` and `evaluate` from past conversations: this one and the last
        hundred saved ones.

        A case is your message, with the calls that the model made and the search that found each
        tool. Read the file, and correct the model's mistakes.

        Args:
            path: A new file.

        Returns:
            The cases.

        Raises:
            UsageError: No tool was called, or the file exists or cannot be written.
        """
        cases = cases_of_turns([*self._turns.runner.turns, *self._saved_turns()])
        if not cases:
            raise UsageError(
                "No tool was called in this conversation or a saved one.",
                hint=(
                    'Ask something that takes a tool, or write the file yourself: {"message": text,'
                    ' "calls": ["server:tool"]}'
                ),
            )
        save_tool_cases(cases, path, mask=mask_of(self._secrets()))
        return tuple(cases)

    @blocking
    async def lint(self) -> Lint:
        """Check the tools that the selection includes for problems that make them hard to find, or
        expensive.

        Returns:
            A finding for each problem that server authors should fix.
        """
        tools = (await self._starter.run_shown(self._tools.searchable())).tools
        return await on_engine(asyncio.to_thread(lint, tools))

    lint_async = awaited(lint)

    def _saved_turns(self) -> Iterator[Turn]:
        """Yield turns from other saved conversations, the last changed ones first.

        A damaged one has none.
        """
        saver = self._turns.runner.saver
        if not saver.store:
            return
        for stored in saver.store.find(status=None, limit=_MAX_READ):
            if stored.id != saver.id:
                with suppress(UsageError):
                    yield from saver.required.load(stored.id)

    @asynccontextmanager
    async def _apart(self, blocks: bool, stops: int | None = None) -> AsyncIterator[None]:
        """Let the body work beside the conversation, when the servers are connected.

        A stop ends the body early, without an error. For `stops`, see `ConversationRunner.apart`.
        """
        channel = "input" if blocks else self._questions.channel_of_awaited_cells()
        async with self._questions.prompt_on(channel), self._turns.runner.apart(stops):
            warm_up()
            await self._starter.view()
            await warmed_up()
            yield

    @contextmanager
    def _shown(self, work: CaseRuns, progress: bool, explored: bool) -> Iterator[None]:
        """Show runs while the body makes them: to be explored in a widget, or as they are displayed
        afterwards.
        """
        live: LiveExperiment | RunsWidget | None = None
        if progress and notebook_shell() is not None:
            if explored and self._widget is not None:
                live = self._explorer(lambda: work.results)
            else:
                live = LiveExperiment(self._engine, work)
        handle = None
        try:
            if isinstance(live, LiveExperiment):
                live.begin()
                handle = live.handle
            elif live is not None:
                live._ipython_display_()
            with self._starter.shown(quiet=not progress, handle=handle) as display:
                if live is None:
                    with progress_bar(work, shown=progress):
                        yield
                    return

                def on_change() -> None:
                    if display is not None:
                        display.stop()
                    live.draw()

                work.on_change = on_change
                yield
        finally:
            work.end()
            if live is not None:
                live.finish()


class OpenedSession:
    """A session that makes runs for another process."""

    def __init__(self, parts: SessionParts) -> None:
        self.experiments = SessionExperiments(parts)
        self._parts = parts

    def close(self) -> None:
        """End its servers."""
        if not self._parts.engine.inherited:
            self._parts.engine.run(self._parts.close())
