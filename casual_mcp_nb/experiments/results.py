"""A session's experiments, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from casual_mcp_nb.base.displayable import Displayable


@dataclass(frozen=True)
class Experiments(Displayable):
    """A session's results.

    Args:
        results: The last results, or None.
    """

    results: Displayable | None = None
