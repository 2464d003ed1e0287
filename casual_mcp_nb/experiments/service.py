"""Compare and measure with the servers and models of a session, and show comparisons while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from casual_mcp_nb.base.displayable import Namespace, display
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.signatures import spelled_out
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.compare import Check, Comparing, Ways, checks_of, options_of, prompts_of
from casual_mcp_nb.experiments.evaluate import Strategy as SearchStrategy
from casual_mcp_nb.experiments.evaluate import cases_of, evaluate, lint, load_cases, save_cases
from casual_mcp_nb.experiments.results import Case, Comparison, Evaluation, Experiments, Lint
from casual_mcp_nb.notebook.live import LiveDisplay, ShownInCell, values_of
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.prompts import Questions
from casual_mcp_nb.notebook.questions import Channel
from casual_mcp_nb.notebook.shell import notebook_shell
from casual_mcp_nb.notebook.starting import ServerStarter, warm_up, warmed_up
from casual_mcp_nb.notebook.sync_and_async import awaited, blocking, on_engine
from casual_mcp_nb.notebook.tools import SessionTools
from casual_mcp_nb.notebook.turn_service import TurnService

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.base.config import Discovery, Strategy
    from casual_mcp_nb.base.model_options import DeliverySetting
    from casual_mcp_nb.providers.chat_model import ChatModel

_MAX_READ = 100
"""The number of saved conversations that `save_cases` reads."""


class SessionExperiments(Namespace):
    """Comparisons and measurements beside a conversation, which stays as it is: `session.experiments`.

    Args:
        chat: Has the servers and the models.
        engine: The thread of the engine.
        turns: Has the conversation; none of its turns runs meanwhile.
        starter: Connects the servers, and shows them starting.
        tools: Searches them.
        questions: The turns' questions to the person.
    """

    def __init__(
        self,
        chat: McpToolChat,
        engine: EngineThread,
        turns: TurnService,
        starter: ServerStarter,
        tools: SessionTools,
        questions: Questions,
    ) -> None:
        self.engine = engine
        self._comparison: Comparison | None = None
        self._chat = chat
        self._turns = turns
        self._starter = starter
        self._tools = tools
        self._questions = questions

    @property
    def comparison(self) -> Comparison | None:
        """The last comparison, also one that was interrupted; None before the first one."""
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
        another; an interrupt or `Session.stop` ends them early, and `comparison` has what was done.

        Args:
            prompt: The text, or several texts.
            discovery: Whether deferred tools are hidden behind a search, such as `[False, True]`, or `auto`.
            models: Names of models of the config, or model objects.
            tool_sets: Names of toolsets; None in the list is the session's own choice.
            strategies: `search`, `browse`, or both.
            deliveries: How the model receives search results: `auto`, `definitions`, `native`, `bridge`.
            repeats: How often each prompt is sent in each way.
            check: The check of a turn: a text that the answer contains as whole words, a compiled pattern that is found in
                it, or a function that gets the `Turn`; or a list with one for each prompt.
            max_runs: The most runs to make: one for each way, prompt and repeat.
            progress: Show it while it runs.
            options: See `Session.chat`: those that go to the model, such as `temperature`.

        Returns:
            The ways by name, each with its runs and their figures; it says which way costs least, and where deferring loses. A
            run that failed does not raise.

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
            strategies: The strategies to compare, as for `casual_mcp_nb.experiments.evaluate.evaluate`; None for the
                built-in search.
            k: Number of tools of each search that count; None for the selection's limit.
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
        """Yield the turns of other saved conversations, the last changed ones first; a damaged one has none."""
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
        live = LiveComparison(self.engine, comparing) if progress and notebook_shell() is not None else None
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
    """Shows a comparison while it runs.

    Args:
        engine: The thread on which it runs.
        comparing: The comparison.
    """

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
