"""Evaluate how well search strategies find the tools that cases need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from casual_mcp_nb.discovery import generate_manifest, manifest_budget
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.evaluation._judge import CaseResult, Strategy, judge, judged
from casual_mcp_nb.types.config import DiscoveryConfig
from casual_mcp_nb.types.evaluation import Case, Evaluation, StrategyScore
from casual_mcp_nb.types.tokens import estimate_tokens
from casual_mcp_nb.types.tool import Catalog, ToolSpec

_CASES_A_JOB = 100
PROGRESS_DELAY = 1.0
"""Seconds before the progress bar appears: what is done by then needs none."""
_Advance = Callable[[int], Any]


def evaluate(
    catalog: Iterable[ToolSpec],
    cases: Iterable[Case],
    strategies: Mapping[str, Strategy] | None = None,
    *,
    k: int = 5,
    executor: Executor | None = None,
    progress: bool = True,
    manifest_max_tokens: int | None = None,
) -> Evaluation:
    """Search for each case with each strategy, and check whether the right tools come first.

    Args:
        catalog: The tools to search.
        cases: The queries and the tools that should be found.
        strategies: For each name, a function that takes the tools and returns a searcher: an object with `search(query,
            max_results)`, or such a function. Either returns hits, tools, tool names or `(server, name)`, best first.
            `ToolSearchIndex` when not given.
        k: Number of tools of each search that count.
        executor: Runs the work, a hundred cases per job: a process pool, or the executor of a Dask or Ray cluster
            (`client.get_executor()`). Strategies must then be picklable, such as functions or classes of a module. None for
            this thread.
        progress: Show a progress bar on stderr.
        manifest_max_tokens: Token limit of the manifest; None for the config's default.

    Returns:
        A score for each strategy, with its misses; the same with and without an executor.

    Raises:
        UsageError: There are no cases, or `k` is less than 1.
    """
    tools, cases = Catalog(catalog), tuple(cases)
    if not cases or k < 1:
        raise UsageError("There are no cases to evaluate." if not cases else f"k must be 1 or more, not {k}.")
    if strategies is None:
        from casual_mcp_nb.discovery.index import ToolSearchIndex

        strategies = {"search": ToolSearchIndex}
    with _bar(len(cases) * len(strategies), progress) as advance:
        if executor is None:
            outcomes = {name: _here(strategy, tools, cases, k, advance) for name, strategy in strategies.items()}
        else:
            outcomes = _elsewhere(strategies, tools, cases, k, executor, advance)
    definitions = sum(tool.tokens for tool in tools)
    most = DiscoveryConfig().manifest_max_tokens if manifest_max_tokens is None else manifest_max_tokens
    return Evaluation(
        scores=tuple(_score(name, outcomes[name], tools) for name in strategies),
        k=k,
        cases=len(cases),
        tools=len(tools),
        definition_tokens=definitions,
        manifest_tokens=estimate_tokens(generate_manifest(tools, manifest_budget(definitions, most))),
    )


def _here(strategy: Strategy, tools: Catalog, cases: Sequence[Case], k: int, advance: _Advance) -> list[CaseResult]:
    outcomes = []
    for outcome in judged(strategy, tools, cases, k):
        outcomes.append(outcome)
        advance(1)
    return outcomes


def _elsewhere(
    strategies: Mapping[str, Strategy], tools: Catalog, cases: Sequence[Case], k: int, executor: Executor, advance: _Advance
) -> dict[str, list[CaseResult]]:
    """Collect the outcomes by strategy, in the order of the cases, whichever job is done first."""
    futures: dict[str, list[Future[list[CaseResult]]]] = {
        name: [
            executor.submit(judge, strategy, tuple(tools), cases[start : start + _CASES_A_JOB], k)
            for start in range(0, len(cases), _CASES_A_JOB)
        ]
        for name, strategy in strategies.items()
    }
    every = [future for jobs in futures.values() for future in jobs]
    try:
        for future in as_completed(every):
            advance(len(future.result()))
    finally:
        for future in every:
            future.cancel()
    return {name: [outcome for future in jobs for outcome in future.result()] for name, jobs in futures.items()}


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[_Advance]:
    """Show a progress bar: text on stderr, which needs no widget and leaves nothing behind in a notebook."""
    from tqdm import tqdm

    with tqdm(total=total, unit="case", leave=False, delay=PROGRESS_DELAY, disable=not shown) as bar:
        yield bar.update


def _score(name: str, outcomes: Sequence[CaseResult], tools: Catalog) -> StrategyScore:
    prices = {tool.tool_name: tool.tokens for tool in tools}
    return StrategyScore(
        name=name,
        recall_any=fmean(any(outcome.met) for outcome in outcomes),
        recall_all=fmean(all(outcome.met) for outcome in outcomes),
        recall=fmean(fmean(outcome.met) for outcome in outcomes),
        mrr=fmean(outcome.reciprocal_rank for outcome in outcomes),
        server=fmean(outcome.right_server for outcome in outcomes),
        loaded_tokens=fmean(sum(prices.get(tool, 0) for tool in outcome.found) for outcome in outcomes),
        misses=tuple(outcome.miss for outcome in outcomes if outcome.miss),
    )
