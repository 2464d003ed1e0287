"""Evaluate some cases with one strategy, in any process: everything here can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from casual_mcp_nb.types.evaluation import Case, Miss
from casual_mcp_nb.types.search import Explanation, SearchHit
from casual_mcp_nb.types.tool import ToolName, ToolSpec

DEPTH = 10
"""Maximum rank at which the first right tool counts."""

_EXPLAINED = 3

Hits = Sequence[SearchHit | ToolSpec | ToolName | tuple[str, str]]


class Searcher(Protocol):
    """A tool search, such as `ToolSearchIndex`. With an `explain(query, tool, max_results)` it can explain misses."""

    def search(self, query: str, max_results: int) -> Hits:
        """Find the best tools, best first."""
        ...


Strategy = Callable[[Sequence[ToolSpec]], Searcher | Callable[[str, int], Hits]]


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case: the first k tools, the needs they meet, its other figures, and the miss if it is one."""

    found: tuple[ToolName, ...]
    met: tuple[bool, ...]
    reciprocal_rank: float
    right_server: bool
    miss: Miss | None


def judge(strategy: Strategy, tools: Sequence[ToolSpec], cases: Iterable[Case], k: int) -> list[CaseResult]:
    """Collect `judged` in a list: the job of an executor."""
    return list(judged(strategy, tools, cases, k))


def judged(strategy: Strategy, tools: Sequence[ToolSpec], cases: Iterable[Case], k: int) -> Iterator[CaseResult]:
    """Search for each case.

    Args:
        strategy: Returns a searcher over the tools.
        tools: The tools.
        cases: The cases.
        k: Number of tools of each search that count.
    """
    searcher: Any = strategy(tools)
    search = getattr(searcher, "search", searcher)
    by_name = {tool.tool_name: tool for tool in tools}
    for case in cases:
        ranked = [_name(result) for result in search(case.query, max(k, DEPTH))]
        yield _outcome(case, ranked, k, searcher, by_name)


def _outcome(
    case: Case, ranked: Sequence[ToolName], k: int, searcher: object, by_name: Mapping[ToolName, ToolSpec]
) -> CaseResult:
    top = tuple(ranked[:k])
    met = tuple(not need.isdisjoint(top) for need in case.needs)
    wanted = frozenset().union(*case.needs)
    first = next((rank for rank, name in enumerate(ranked, 1) if name in wanted), None)
    servers = {name.server for name in wanted}
    return CaseResult(
        found=top,
        met=met or (True,),
        reciprocal_rank=1 / first if first else 0.0,
        right_server=any(name.server in servers for name in top),
        miss=None if all(met) else _miss(case, met, top, k, searcher, by_name),
    )


def _miss(
    case: Case,
    met: Sequence[bool],
    found: tuple[ToolName, ...],
    k: int,
    searcher: object,
    by_name: Mapping[ToolName, ToolSpec],
) -> Miss:
    unmet = tuple(need for need, is_met in zip(case.needs, met, strict=True) if not is_met)
    candidates = [by_name[name] for name in sorted(unmet[0]) if name in by_name]
    explain: Callable[..., Explanation] | None = getattr(searcher, "explain", None)
    explanations = [explain(case.query, tool, k) for tool in candidates[:_EXPLAINED]] if explain else []
    nearest = min(explanations, key=lambda explanation: -explanation.score, default=None)
    return Miss(case, unmet, found, nearest, bool(candidates))


def _name(result: SearchHit | ToolSpec | ToolName | tuple[str, str]) -> ToolName:
    if isinstance(result, SearchHit):
        return result.tool.tool_name
    if isinstance(result, ToolSpec):
        return result.tool_name
    return result if isinstance(result, ToolName) else ToolName(*result)
