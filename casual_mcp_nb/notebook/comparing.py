"""Run comparisons, and show them while they run: in the cell, or as a bar on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from casual_mcp_nb.base.displayable import display
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.experiments.compare import Check, Comparing, Ways, checks_of, options_of, prompts_of
from casual_mcp_nb.experiments.results import Comparison
from casual_mcp_nb.notebook.live import LiveDisplay, ShownComparison
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.prompts import Questions
from casual_mcp_nb.notebook.questions import Channel
from casual_mcp_nb.notebook.shell import notebook_shell
from casual_mcp_nb.notebook.starting import warm_up, warmed_up
from casual_mcp_nb.notebook.sync_and_async import on_engine
from casual_mcp_nb.notebook.tool_service import ToolService
from casual_mcp_nb.notebook.turn_service import TurnService


class ComparisonService:
    """Runs comparisons beside a conversation, which stays as it is.

    Args:
        chat: Has the servers and the models.
        engine: The thread of the engine.
        turns: Has the conversation; none of its turns runs meanwhile.
        tools: Connects the servers, and shows them starting.
        questions: What turns ask the person.

    Attributes:
        last: The last comparison, also one that was interrupted; None before the first one.
    """

    def __init__(
        self, chat: McpToolChat, engine: EngineThread, turns: TurnService, tools: ToolService, questions: Questions
    ) -> None:
        self.last: Comparison | None = None
        self._chat = chat
        self._engine = engine
        self._turns = turns
        self._tools = tools
        self._questions = questions

    async def compare(
        self,
        prompt: str | Sequence[str],
        ways: Ways,
        options: ModelOptions,
        check: Check | Sequence[Check | None] | None,
        *,
        repeats: int,
        max_runs: int,
        progress: bool,
    ) -> Comparison:
        """Compare, see `Session.compare`; a coroutine of the caller's side, see `on_engine`."""
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
                self.last = comparing.comparison
        shell = notebook_shell() if progress else None
        return ShownComparison.of(self.last, shell) if shell else self.last

    async def _run(self, comparing: Comparing, blocks: bool) -> None:
        channel: Channel = "input" if blocks else self._questions.channel_of_awaited_cells()
        async with self._questions.prompt_on(channel), self._turns.runner.apart():
            warm_up()
            await self._tools.view()
            await warmed_up()
            await comparing.run()

    @contextmanager
    def _shown(self, comparing: Comparing, progress: bool) -> Iterator[None]:
        """Show a comparison while the body runs."""
        live = LiveComparison(self._engine, comparing) if progress and notebook_shell() is not None else None
        try:
            with self._tools.start_shown(quiet=not progress, handle=live.handle if live else None) as display:
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
