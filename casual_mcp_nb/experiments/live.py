"""Show experiments while they run: in a cell, in a widget, or as a bar on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from casual_mcp_nb.base.displayable import display
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.runs import CaseRuns
from casual_mcp_nb.notebook.live import LiveDisplay, ShownInCell
from casual_mcp_nb.notebook.loop import EngineThread


class ShownResults(ShownInCell, RunResults):
    """Results that were shown live in their cell."""


class RunsWidget(Protocol):
    """A widget that shows runs, as far as it is needed here."""

    def draw(self) -> None:
        """Draw it soon, from any thread."""

    def finish(self) -> None:
        """Draw how it ended."""

    def _ipython_display_(self) -> None: ...


class LiveExperiment(LiveDisplay):
    """Shows runs in progress."""

    def __init__(self, engine: EngineThread, work: CaseRuns) -> None:
        self._work = work
        super().__init__(engine, lambda: work.running)

    def draw(self) -> None:
        """Draw it soon, from any thread."""
        self._throttle()

    def _live(self) -> dict[str, str]:
        return display().mimebundle(self._work.results)

    _final = _live


@contextmanager
def progress_bar(work: CaseRuns, *, shown: bool) -> Iterator[None]:
    """Show a bar on stderr if that is a terminal."""
    from tqdm import tqdm

    with tqdm(
        total=work.total, unit="run", leave=False, delay=1.0, disable=None if shown else True
    ) as bar:

        def on_change() -> None:
            bar.set_description(next((arm for _, arm in work.results.active), ""), refresh=False)
            bar.update(work.ended - bar.n)

        work.on_change = on_change
        yield
