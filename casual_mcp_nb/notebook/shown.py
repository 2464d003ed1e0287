"""Values that their cell already shows: as the last value of the same cell they are not displayed again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from casual_mcp_nb.types.comparison import Comparison
from casual_mcp_nb.types.session import Servers, SessionStatus
from casual_mcp_nb.types.trace import Trace, Turn


class ShownInCell:
    """The mixin of such values."""

    _shell: Any
    _cell: int

    def _shown_in(self, shell: Any) -> None:
        # Some models are frozen.
        object.__setattr__(self, "_shell", shell)
        object.__setattr__(self, "_cell", shell.execution_count)

    def _ipython_display_(self) -> None:
        if self._shell.execution_count == self._cell:
            return
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[attr-defined, no-untyped-call]


class ShownTurn(ShownInCell, Turn):
    """A turn that was shown live in its cell.

    Args:
        trace: The turn's events.
        shell: IPython's shell.
    """

    def __init__(self, trace: Trace, shell: Any) -> None:
        super().__init__(trace)
        self._shown_in(shell)

    def __reduce__(self) -> tuple[type[Turn], tuple[Trace]]:
        return Turn, (self.trace,)


class ShownServers(ShownInCell, Servers):
    """Servers that were shown in their cell while they started.

    Args:
        servers: The servers.
        shell: IPython's shell.
    """

    def __init__(self, servers: Servers, shell: Any) -> None:
        super().__init__(dict(servers), servers.modes)
        self._shown_in(shell)

    def __reduce__(self) -> tuple[type[Servers], tuple[Any, ...]]:
        return Servers, (dict(self), self.modes)


class ShownStatus(ShownInCell, SessionStatus):
    """The status of a session that was shown in its cell."""

    @classmethod
    def of(cls, status: SessionStatus, shell: Any) -> ShownStatus:
        """Wrap the status as one that the running cell shows already."""
        copy = cls(**_values(status))
        copy._shown_in(shell)
        return copy

    def __reduce__(self) -> tuple[type[SessionStatus], tuple[Any, ...]]:
        return SessionStatus, tuple(_values(self).values())


class ShownComparison(ShownInCell, Comparison):
    """A comparison that was shown live in its cell."""

    @classmethod
    def of(cls, comparison: Comparison, shell: Any) -> ShownComparison:
        """Wrap the comparison as one that the running cell shows already."""
        copy = cls(**_values(comparison))
        copy._shown_in(shell)
        return copy

    def __reduce__(self) -> tuple[type[Comparison], tuple[Any, ...]]:
        return Comparison, tuple(_values(self).values())


def _values(status: SessionStatus | Comparison) -> dict[str, Any]:
    return {field.name: getattr(status, field.name) for field in fields(status)}
