"""A turn that was shown live in a cell."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.types.trace import Trace, Turn


class ShownTurn(Turn):
    """A turn that its cell shows already: as the last value of that same cell it does not show itself a second time.

    Args:
        trace: The turn's events.
        shell: IPython's shell.
    """

    def __init__(self, trace: Trace, shell: Any) -> None:
        super().__init__(trace)
        self._shell = shell
        self._cell = shell.execution_count

    def __reduce__(self) -> tuple[type[Turn], tuple[Trace]]:
        return Turn, (self.trace,)

    def _ipython_display_(self) -> None:
        if self._shell.execution_count == self._cell:
            return
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
