"""How deferred tools fared in runs: how often each was needed, searched for, found and called."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.base.displayable import DisplayableList, count
from casual_mcp_nb.experiments.arm_results import ArmResults


@dataclass(frozen=True)
class ToolUse:
    """How a deferred tool fared in an arm, as run counts.

    Args:
        tool: The tool.
        arm: The arm.
        runs: Runs in which it was deferred.
        needed: Runs whose case expects it. If the case names no tools, right runs that called it.
        searched: Of these, runs in which the model searched for tools.
        found: Of these, runs in which a search returned it.
        called: Of these, runs in which it was called.
        unneeded_found: Other runs in which a search returned it.
        unneeded_called: Other runs in which it was called.
    """

    tool: str
    arm: str
    runs: int
    needed: int
    searched: int
    found: int
    called: int
    unneeded_found: int = 0
    unneeded_called: int = 0


@dataclass(frozen=True, repr=False)
class ToolUses(DisplayableList[ToolUse], items="uses"):
    """How the deferred tools fared: how often each was needed, searched for, found and called."""

    uses: tuple[ToolUse, ...]

    def __repr__(self) -> str:
        return f"<ToolUses: {count(len(self), 'tool')}>"

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per tool and arm, for a DataFrame or a CSV file."""
        return list(map(dataclasses.asdict, self.uses))


def use_of(tool: str, arm: ArmResults) -> ToolUse:
    """Count an arm's uses of a deferred tool."""
    counts = Counter(needed=0, searched=0, found=0, called=0)
    for record in arm.done:
        by_answer = record.called if record.right else ()
        is_found, is_called = tool in record.found, tool in record.called
        if tool in (record.needed or by_answer):
            is_searched = record.searches > 0
            counts.update(needed=1, searched=is_searched, found=is_found, called=is_called)
        else:
            counts.update(unneeded_found=is_found, unneeded_called=is_called)
    return ToolUse(tool, arm.name, len(arm.done), **counts)
