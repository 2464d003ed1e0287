"""Compare and measure with the servers and models of a session, and show comparisons while they run.

A comparison answers the same prompts in several ways. Each run is a conversation with one turn.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from casual_mcp_nb.base.displayable import Namespace, display
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.conversation.event import Event
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.turn_fields import spelled_out
from casual_mcp_nb.errors import CasualMcpError, UsageError, brief
from casual_mcp_nb.experiments.evaluate import Strategy as SearchStrategy
from casual_mcp_nb.experiments.evaluate import cases_of, evaluate, lint, load_cases, save_cases
from casual_mcp_nb.experiments.results import (
    Case,
    ComparedRun,
    Comparison,
    ComparisonStatus,
    Evaluation,
    Experiments,
    Lint,
    RunStatus,
    Way,
)
from casual_mcp_nb.notebook.live import LiveDisplay, ShownInCell, values_of
from casual_mcp_nb.notebook.loop import EngineThread, notebook_shell
from casual_mcp_nb.notebook.parts import SessionParts
from casual_mcp_nb.notebook.questions import Channel
from casual_mcp_nb.notebook.starting import warm_up, warmed_up
from casual_mcp_nb.notebook.sync_and_async import awaited, blocking, on_engine

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.base.config import Discovery, Strategy
    from casual_mcp_nb.base.model_options import DeliverySetting
    from casual_mcp_nb.providers.chat_model import ChatModel


MAX_RUNS = 100
"""How many runs a comparison may have unless the person changes it: each calls a model."""

Check = str | re.Pattern[str] | Callable[[Turn], Any]
"""The check of a turn: a text that its answer contains, a pattern that matches in it, or a function of the turn."""

_STOPPED = "Stopped before it began."


@dataclass(frozen=True)
class Ways:
    """The options that differ between runs: each field has the values of one option; empty leaves the session's.

    Args:
        discovery: Whether deferred tools are hidden; `auto` decides it by their size.
        models: Names of models in the config, or model objects.
        tool_sets: Names of toolsets. None is the toolset of the session.
        strategies: How the model finds deferred tools.
        deliveries: How it receives search results.
    """

    discovery: Sequence[Discovery] = ()
    models: Sequence[str | Model | ChatModel] = ()
    tool_sets: Sequence[str | None] = ()
    strategies: Sequence[Strategy] = ()
    deliveries: Sequence[DeliverySetting] = ()


def options_of(chat: McpToolChat, ways: Ways, options: TurnOptions) -> dict[Way, TurnOptions]:
    """Build the options of a turn for each variant: all combinations, in order.

    Without discovery nothing is found, so that strategies and deliveries make one way there.

    Raises:
        UsageError: A name does not exist, or the ways do not differ.
    """
    for model in ways.models:
        if isinstance(model, str):
            chat.models.check(model)
        elif not hasattr(model, "default_options"):
            raise UsageError(f"A model cannot be {brief(model)}.", hint="Give names of models of the config, or model objects.")
    for tool_set in ways.tool_sets:
        if tool_set is not None:
            chat.names.check_tool_set(tool_set)
    selection = chat.selection
    if (ways.strategies or ways.deliveries) and not (ways.discovery or selection.discovery):
        raise UsageError(
            "Discovery is off, so strategies and deliveries make no difference.", hint="Add discovery=True, or [False, True]."
        )
    labels = _unique(model if isinstance(model, str) else model.name for model in ways.models)
    models = dict(zip(labels, ways.models, strict=True))
    values: dict[str, list[Any]] = {
        "model": list(models),
        "tool_set": list(dict.fromkeys(ways.tool_sets)),
        "discovery": list(dict.fromkeys(ways.discovery)),
        "strategy": list(dict.fromkeys(ways.strategies)),
        "delivery": list(dict.fromkeys(ways.deliveries)),
    }
    all_tools = "all tools" if selection.tool_set is None else "the session's toolset"
    result: dict[Way, TurnOptions] = {}
    for combination in product(*(each or [None] for each in values.values())):
        given: dict[str, Any] = dict(zip(values, combination, strict=True))
        if given["discovery"] is False:
            given |= {"strategy": None, "delivery": None}
        words = {
            **given,
            "tool_set": given["tool_set"] or (all_tools if ways.tool_sets else None),
            "discovery": {True: "discovery on", False: "discovery off", "auto": "discovery auto"}.get(given["discovery"]),
        }
        words = {name: word for name, word in words.items() if word is not None}
        differing = [word for name, word in words.items() if len(values[name]) > 1]
        way = Way(" · ".join(differing or words.values()) or "as the session is set", **given)
        changes = {name: value for name, value in given.items() if value is not None}
        if way.model is not None:
            changes["model"] = models[way.model]
        result[way] = options.replaced(**changes)
    return result


def prompts_of(prompt: str | Iterable[str]) -> tuple[str, ...]:
    """List the prompts, each once.

    Raises:
        UsageError: There are none, or one is not a text.
    """
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt) if isinstance(prompt, Iterable) else (prompt,)
    for each in prompts:
        if not isinstance(each, str) or not each.strip():
            raise UsageError(f"A prompt cannot be {brief(each)}.", hint="Give a text, or a list of texts.")
    if not prompts:
        raise UsageError("There is no prompt to compare.")
    return tuple(dict.fromkeys(prompts))


def checks_of(check: Check | Sequence[Check | None] | None, prompts: Sequence[str]) -> dict[str, Check | None]:
    """Read the check of each prompt.

    Raises:
        UsageError: It is neither.
    """
    checks: Sequence[Any] = [check] * len(prompts) if not isinstance(check, list | tuple) else check
    if len(checks) != len(prompts):
        raise UsageError(f"There are {len(checks):,} checks for {len(prompts):,} prompts.", hint="Give one for each, or one.")
    for each in checks:
        if each is not None and not isinstance(each, str | re.Pattern) and not callable(each):
            hint = "Give a text of the answer, a compiled pattern, or a function of the turn."
            raise UsageError(f"A check cannot be {brief(each)}.", hint=hint)
    return dict(zip(prompts, checks, strict=True))


class Comparing:
    """A comparison while it runs, one run after another, on the loop of its chat.

    Runs do not overlap, so that their times can be compared and questions to the person come one at a time. The ways alternate,
    so that one that is stopped early has runs of each.

    Args:
        chat: Its servers and models are used. Its conversation stays as it is.
        ways: The options of a turn for each way.
        prompts: The prompts, each once.
        repeats: How often each prompt is sent in each way.
        checks: The check of each prompt.
        max_runs: The most runs that it may have.

    Attributes:
        on_change: Called whenever something changed, on the chat's loop or on the thread of `end`.

    Raises:
        UsageError: There are too many runs.
    """

    def __init__(
        self,
        chat: McpToolChat,
        ways: Mapping[Way, TurnOptions],
        prompts: Sequence[str],
        *,
        repeats: int = 1,
        checks: Mapping[str, Check | None] | None = None,
        max_runs: int = MAX_RUNS,
    ) -> None:
        for name, value in {"repeats": repeats, "max_runs": max_runs}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name} cannot be {brief(value)}.", hint="It must be 1 or more.")
        count = len(ways) * len(prompts) * repeats
        if count > max_runs:
            factors = f"variants {len(ways):,}, prompts {len(prompts):,}, repeats {repeats:,}"
            raise UsageError(
                f"That would be {count:,} runs ({factors}), and the limit is {max_runs:,}.",
                hint="Each run calls a model. To make them all, raise max_runs.",
            )
        self.on_change: Callable[[], None] = lambda: None
        self._chat = chat.apart()
        self._ways = dict(ways)
        self._prompts = tuple(prompts)
        self._repeats = repeats
        self._checks = dict(checks or {})
        # Replaced as a whole, since other threads read it.
        self._runs = tuple(
            ComparedRun(way, prompt, repeat) for repeat in range(repeats) for prompt in self._prompts for way in self._ways
        )
        self._status: ComparisonStatus = "running"
        self._began = time.monotonic()
        self._seconds: float | None = None

    @property
    def comparison(self) -> Comparison:
        """The comparison as it is now. For any thread."""
        runs = tuple(run.measured() if run.status == "running" else run for run in self._runs)
        seconds = time.monotonic() - self._began if self._seconds is None else self._seconds
        return Comparison(runs, tuple(self._ways), self._prompts, self._repeats, self._status, seconds)

    @property
    def runs(self) -> tuple[ComparedRun, ...]:
        """All runs. The figures of one that is being made are left out."""
        return self._runs

    async def run(self) -> None:
        """Make all runs. A failed run does not end the others. When cancelled, completed runs stay."""
        self._began = time.monotonic()
        try:
            for index in range(len(self._runs)):
                await self._run(index)
        finally:
            self.end()

    def end(self) -> None:
        """Mark unfinished runs as stopped; harmless at the end of all runs, and safe on any thread."""
        if self._status != "running":
            return
        self._seconds = time.monotonic() - self._began
        runs = tuple(map(_stopped, self._runs))
        self._status = "stopped" if any(run.status == "stopped" for run in runs) else "done"
        self._runs = runs
        self.on_change()

    async def _run(self, index: int) -> None:
        from casual_llm.messages import UserMessage

        run = self._runs[index]
        turn = Turn(Trace())
        self._set(index, replace(run, status="running", turn=turn))
        chat = self._chat.apart(self._chat.consent)
        options = self._ways[run.way]
        error: str | None = None

        def on_event(_: Event) -> None:
            self.on_change()

        try:
            await chat.run([UserMessage(content=run.prompt)], options, turn=turn, on_event=on_event)
        except Exception as failure:
            error = str(failure) if isinstance(failure, CasualMcpError) else f"{type(failure).__name__}: {failure}"
        status: RunStatus = "done" if error is None and turn.status == "done" else "failed"
        ended = replace(run, status=status, turn=turn, error=error or turn.error)
        self._set(index, await self._checked(await asyncio.to_thread(ended.measured)))

    async def _checked(self, run: ComparedRun) -> ComparedRun:
        check = self._checks.get(run.prompt)
        if check is None:
            return run
        if run.status != "done" or run.turn is None:
            return replace(run, right=False)
        if isinstance(check, str | re.Pattern):
            pattern = _contains(check) if isinstance(check, str) else check
            return replace(run, right=pattern.search(run.answer) is not None)
        function, turn = check, run.turn
        try:
            right = await self._chat.run_function(lambda: function(turn), inspect.iscoroutinefunction(function))
            return replace(run, right=bool(right))
        except Exception as failure:
            return replace(run, problem=f"The check failed: {type(failure).__name__}: {failure}")

    def _set(self, index: int, run: ComparedRun) -> None:
        if self._status == "running":
            self._runs = (*self._runs[:index], run, *self._runs[index + 1 :])
            self.on_change()


def _stopped(run: ComparedRun) -> ComparedRun:
    if run.status not in ("waiting", "running"):
        return run
    error = _STOPPED if run.status == "waiting" else "Stopped."
    return replace(run.measured(), status="stopped", error=error)


def _contains(text: str) -> re.Pattern[str]:
    """Compile a pattern for a text as whole words and whole numbers: `391` is not found in `1391` or `391.5`."""
    return re.compile(rf"(?<!\w)(?<!\d[.,]){re.escape(text.strip())}(?!\w)(?![.,]\d)", re.IGNORECASE)


def _unique(names: Iterable[str]) -> list[str]:
    """Number the names that occur more than once."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return result


_MAX_READ = 100
"""The number of saved conversations that `save_cases` reads."""


class SessionExperiments(Namespace):
    """Comparisons and measurements beside a conversation, which stays as it is: `session.experiments`.

    Args:
        parts: Those of the session; none of its turns runs meanwhile.
    """

    def __init__(self, parts: SessionParts) -> None:
        self._engine = parts.engine
        self._comparison: Comparison | None = None
        self._chat = parts.chat
        self._turns = parts.turn_service
        self._starter = parts.starter
        self._tools = parts.tools
        self._questions = parts.questions

    @property
    def comparison(self) -> Comparison | None:
        """The last comparison, even an interrupted one, or None before the first one."""
        return self._comparison

    @property
    def now(self) -> Experiments:
        """The last comparison, as a value."""
        return Experiments(self._comparison)

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
        max_runs: int = 100,
        progress: bool = True,
        **options: Unpack[ModelOptions],
    ) -> Comparison:
        """Answer prompts with several set-ups, and compare their cost and correctness.

        Each run is a conversation with one turn. This session's conversation and selection stay as they are, and no turn of it
        can run meanwhile. Tools are really called, in each run; calls that need approval ask as usual. Runs are made one after
        another. An interrupt or `Session.stop` ends them early, and `comparison` has what was done.

        Args:
            prompt: The text, or several texts.
            discovery: Whether deferred tools are hidden behind a search, such as `[False, True]`, or `auto`.
            models: Names of models in the config, or model objects.
            tool_sets: Names of toolsets, or None in the list is the session's own choice.
            strategies: `search`, `browse`, or both.
            deliveries: How the model receives search results: `auto`, `definitions`, `native`, `bridge`.
            repeats: How often each prompt is sent in each way.
            check: The check of a turn: a text that the answer contains as whole words, a compiled pattern that is found in
                it, or a function that gets the `Turn`; or a list with one for each prompt.
            max_runs: The most runs to make: one for each way, prompt and repeat.
            progress: Show it while it runs.
            options: See `Session.chat`: those that go to the model, such as `temperature`.

        Returns:
            The variants by name, each with its runs and their figures. It names the cheapest variant, and shows where
            deferring loses. A run that failed does not raise.

        Raises:
            UsageError: A name does not exist, there are too many runs, or a turn is running; nothing was sent.
            ConnectError: No server could be connected.
        """
        ways = Ways(*map(_several, (discovery, models, tool_sets, strategies, deliveries)))
        self._turns.check_open()
        prompts = prompts_of(prompt)
        shared = TurnOptions(model=self._turns.model, **options)
        comparing = Comparing(
            self._chat,
            options_of(self._chat, ways, shared),
            prompts,
            repeats=repeats,
            checks=checks_of(check, prompts),
            max_runs=max_runs,
        )
        with self._shown(comparing, progress):
            try:
                await on_engine(lambda blocks: self._run(comparing, blocks))
            finally:
                comparing.end()
                self._comparison = comparing.comparison
        shell = notebook_shell() if progress else None
        return ShownComparison.of(self._comparison, shell) if shell else self._comparison

    compare_async = awaited(compare)

    @blocking
    async def evaluate(
        self,
        cases: Iterable[Case] | str | Path,
        strategies: Mapping[str, SearchStrategy] | None = None,
        *,
        k: int | None = None,
        executor: Executor | None = None,
        progress: bool = True,
    ) -> Evaluation:
        """Measure how well the model's search finds the tools that the selection includes.

        Args:
            cases: The queries and the tools that should be found, or a file with one case per line, as
                `{"query": text, "gold": [[[server, tool]]]}`, where `gold` lists the tools that meet each need.
            strategies: The strategies to compare, as for `casual_mcp_nb.experiments.evaluate.evaluate`, or None for the
                built-in search.
            k: Number of results that count in each search, or None for the selection's limit.
            executor: Runs the work elsewhere, see `casual_mcp_nb.experiments.evaluate.evaluate`.
            progress: Show a progress bar on stderr.

        Returns:
            A score for each strategy, with its misses and the reason for each. No model is called.

        Raises:
            UsageError: There are no cases, the file cannot be read, or `k` is less than 1.
        """
        return await self._starter.run_shown(self._evaluate(cases, strategies, k, executor, progress))

    evaluate_async = awaited(evaluate)

    def save_cases(self, path: str | Path) -> tuple[Case, ...]:
        """Write a first file of cases for `evaluate`, from past conversations: this one and the last hundred saved ones.

        A case is what the model searched for, with the tools that the search found and it then called; or your message, with
        the tools that it called without a search. Read the file, and correct the model's mistakes.

        Args:
            path: A new file.

        Returns:
            The cases.

        Raises:
            UsageError: No tool was called in any of them, or the file exists or cannot be written.
        """
        cases = cases_of([*self._turns.runner.turns, *self._saved_turns()])
        if not cases:
            raise UsageError(
                "No tool was called in this conversation or a saved one.",
                hint='Ask something that takes a tool, or write the file yourself: {"query": text, "gold": [[[server, tool]]]}',
            )
        save_cases(cases, path)
        return cases

    @blocking
    async def lint(self) -> Lint:
        """Check the tools that the selection includes for problems that make them hard to find, or expensive.

        Returns:
            A finding for each problem that the authors of the servers should fix.
        """
        return await self._starter.run_shown(self._lint())

    lint_async = awaited(lint)

    async def _evaluate(
        self,
        cases: Iterable[Case] | str | Path,
        strategies: Mapping[str, SearchStrategy] | None,
        k: int | None,
        executor: Executor | None,
        progress: bool,
    ) -> Evaluation:
        return await asyncio.to_thread(
            evaluate,
            (await self._tools.searchable()).tools,
            load_cases(cases) if isinstance(cases, str | Path) else cases,
            strategies,
            k=self._chat.selection.max_search_results if k is None else k,
            executor=executor,
            progress=progress,
            manifest_max_tokens=self._chat.selection.manifest_max_tokens,
        )

    async def _lint(self) -> Lint:
        return await asyncio.to_thread(lint, (await self._tools.searchable()).tools)

    def _saved_turns(self) -> Iterator[Turn]:
        """Yield the turns of other saved conversations, the last changed ones first. A damaged one has none."""
        saver = self._turns.runner.saver
        for stored in saver.store.find(status=None, limit=_MAX_READ) if saver.store else ():
            if stored.id != saver.id:
                with suppress(UsageError):
                    yield from saver.required.load(stored.id)

    async def _run(self, comparing: Comparing, blocks: bool) -> None:
        channel: Channel = "input" if blocks else self._questions.channel_of_awaited_cells()
        async with self._questions.prompt_on(channel), self._turns.runner.apart():
            warm_up()
            await self._starter.view()
            await warmed_up()
            await comparing.run()

    @contextmanager
    def _shown(self, comparing: Comparing, progress: bool) -> Iterator[None]:
        """Show a comparison while the body runs."""
        live = LiveComparison(self._engine, comparing) if progress and notebook_shell() is not None else None
        try:
            with self._starter.shown(quiet=not progress, handle=live.handle if live else None) as display:
                if live is None:
                    with _bar(comparing, shown=progress):
                        yield
                    return

                def on_change() -> None:
                    if display is not None:
                        display.stop()
                    live.draw()

                comparing.on_change = on_change
                yield
        finally:
            if live is not None:
                live.finish()


class ShownComparison(ShownInCell, Comparison):
    """A comparison that was shown live in its cell."""

    @classmethod
    def of(cls, comparison: Comparison, shell: Any) -> ShownComparison:
        """Wrap the comparison as one that the running cell shows already."""
        copy = cls(**values_of(comparison))
        copy._shown_in(shell)
        return copy

    def __reduce__(self) -> tuple[type[Comparison], tuple[Any, ...]]:
        return Comparison, tuple(values_of(self).values())


class LiveComparison(LiveDisplay):
    """Shows a comparison while it runs."""

    def __init__(self, engine: EngineThread, comparing: Comparing) -> None:
        self._comparing = comparing
        super().__init__(engine, lambda: any(run.status == "running" for run in comparing.runs))

    def draw(self) -> None:
        """Draw it soon, from any thread."""
        self._throttle()

    def _live(self) -> dict[str, str]:
        return display().mimebundle(self._comparing.comparison)

    _final = _live


@contextmanager
def _bar(comparing: Comparing, *, shown: bool) -> Iterator[None]:
    """Show a bar on stderr if that is a terminal."""
    from tqdm import tqdm

    with tqdm(total=len(comparing.runs), unit="run", leave=False, delay=1.0, disable=None if shown else True) as bar:

        def on_change() -> None:
            waiting = sum(run.status in ("waiting", "running") for run in comparing.runs)
            bar.set_description(next((run.way.name for run in comparing.runs if run.status == "running"), ""), refresh=False)
            bar.update(len(comparing.runs) - waiting - bar.n)

        comparing.on_change = on_change
        yield


def _several(value: Any) -> tuple[Any, ...]:
    """Return a value of which there may be several as a tuple."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
