"""Make cases from the searches and calls of models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from casual_mcp_nb.types.evaluation import Case
from casual_mcp_nb.types.event import SYNTHETIC, UNKNOWN, ToolsSearched
from casual_mcp_nb.types.tool import ToolName
from casual_mcp_nb.types.trace import Turn

_MAX_QUERY = 300


def cases_of(turns: Iterable[Turn]) -> tuple[Case, ...]:
    """Build cases from past turns: each search, with the tools that it found and the model then called.

    For tools that were called without a search, the query is the person's message. Failed calls do not count.

    Args:
        turns: The turns.

    Returns:
        The cases in the order of the turns, each query once; a first draft, to be read and corrected by a person.
    """
    needs: dict[str, dict[ToolName, None]] = {}
    for turn in turns:
        for query, tool in _called(turn):
            if text := " ".join(query.split())[:_MAX_QUERY]:
                needs.setdefault(text, {})[tool] = None
    return tuple(Case(query, tuple(frozenset([tool]) for tool in tools)) for query, tools in needs.items())


def _called(turn: Turn) -> Iterator[tuple[str, ToolName]]:
    """Yield each tool that was called, with the last query that found it."""
    searches: list[ToolsSearched] = []
    for call in turn.tool_calls:
        if call.search is not None:
            searches.append(call.search)
        elif call.status == "ok" and call.tool.server not in (SYNTHETIC, UNKNOWN):
            by = (each.query for each in reversed(searches) if any(row.tool == call.tool for row in each.rows))
            yield next(by, "") or turn.prompt, call.tool
