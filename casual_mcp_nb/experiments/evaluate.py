"""Evaluate how well search strategies find the tools that cases need. No model is called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import DiscoveryConfig
from casual_mcp_nb.base.search import Explanation, SearchHit
from casual_mcp_nb.base.tokens import estimate_tokens, total_tokens
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec, tool_names
from casual_mcp_nb.discovery.manifest import generate_manifest, manifest_budget
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.rows import Fields, rows_of
from casual_mcp_nb.experiments.search_scores import Evaluation, Miss, StrategyScore

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.meaning import Meaning


def load_catalog(path: str | Path) -> Catalog:
    """Read tools from a file.

    Args:
        path: A file with one object per line: `server`, `name`, and optionally `description` and
            `input_schema`.

    Raises:
        UsageError: The file cannot be read, or a line is not a tool. The line is named.
    """
    return Catalog([_tool(row.fields, row.where) for row in rows_of(path).strict()])


def _tool(row: Fields, where: str) -> ToolSpec:
    server, name = row.get("server"), row.get("name")
    if not (isinstance(server, str) and isinstance(name, str)):
        raise UsageError(f"{where} is not a tool: it needs a server and a name, both strings.")
    schema = row.get("input_schema")
    return ToolSpec(
        server,
        name,
        str(row.get("description") or ""),
        schema if isinstance(schema, Mapping) else {},
    )


def searches_of(cases: Iterable[ToolUseCase]) -> tuple[ToolUseCase, ...]:
    """Convert cases to searches: a case whose calls have queries of their own becomes one case for
    each query.

    The same query in several cases is one search for all their tools. Cases that expect no tool are
    left out.
    """
    searches: dict[int | str, ToolUseCase] = {}
    needs: dict[str, dict[frozenset[str], None]] = defaultdict(dict)
    for case in cases:
        calls = case.acceptable[0]
        if calls and not any(call.query for call in calls):
            searches[len(searches)] = case
            continue
        for call in calls:
            query = call.query or case.query
            needs[query][frozenset(call.tools)] = None
            searches[query] = ToolUseCase(query, tuple(needs[query]))
    return tuple(searches.values())


Needs = tuple[frozenset[ToolName], ...]
DEPTH = 10
"""Maximum rank at which the first right tool counts."""

_EXPLAINED = 3

Hits = Sequence[SearchHit | ToolSpec | ToolName | tuple[str, str]]


class Searcher(Protocol):
    """A tool search, such as `ToolSearchIndex`.

    With an `explain(query, tool, max_results)` it can explain misses.
    """

    def search(self, query: str, max_results: int) -> Hits:
        """Find the best tools, best first."""
        ...


Advance = Callable[[int], Any]
"""Called with how many more cases were searched for."""
Strategy = Callable[[Sequence[ToolSpec]], Searcher | Callable[[str, int], Hits]]


@dataclass(frozen=True)
class CaseResult:
    """One case's outcome: the first k tools, the needs they meet, other figures, and the miss, if
    any.
    """

    found: tuple[ToolName, ...]
    met: tuple[bool, ...]
    reciprocal_rank: float
    right_server: bool
    miss: Miss | None


def judge(
    strategy: Strategy,
    tools: Sequence[ToolSpec],
    cases: Iterable[ToolUseCase],
    k: int,
    advance: Advance = ignore,
) -> list[CaseResult]:
    """Search for each case.

    Args:
        strategy: Returns a searcher over the tools.
        tools: The tools.
        cases: The cases.
        k: How many results count in each search.
        advance: Called after each.
    """
    judging = _Judging(strategy(tools), tools, k)
    results = []
    for case in cases:
        results.append(judging.result(case))
        advance(1)
    return results


class _Judging:
    """Compares what a searcher finds with what cases need."""

    def __init__(self, searcher: Any, tools: Sequence[ToolSpec], k: int) -> None:
        self._search: Callable[[str, int], Hits] = getattr(searcher, "search", searcher)
        self._explain: Callable[..., Explanation] | None = getattr(searcher, "explain", None)
        self._k = k
        self._catalog = Catalog(tools)

    def result(self, case: ToolUseCase) -> CaseResult:
        """Search for a case."""
        ranked = list(map(_name, self._search(case.query, max(self._k, DEPTH))))
        top = tuple(ranked[: self._k])
        needs = self._needs(case)
        wanted = frozenset().union(*needs)
        servers = {name.server for name in wanted}
        unmet = tuple(need for need in needs if need.isdisjoint(top))
        return CaseResult(
            found=top,
            met=tuple(need not in unmet for need in needs),
            reciprocal_rank=next(
                (1 / rank for rank, name in enumerate(ranked, 1) if name in wanted), 0.0
            ),
            right_server=any(name.server in servers for name in top),
            miss=self._miss(case, unmet, top) if unmet else None,
        )

    def _needs(self, case: ToolUseCase) -> Needs:
        """List a case's needs, each once. A name that no tool has is kept as it is written."""
        needs: dict[frozenset[ToolName], None] = {}
        for call in case.acceptable[0]:
            need: set[ToolName] = set()
            for name in call.tools:
                need |= tool_names(self._catalog.matches(name)) or {ToolName.split(name)}
            needs[frozenset(need)] = None
        return tuple(needs)

    def _miss(self, case: ToolUseCase, unmet: Needs, top: tuple[ToolName, ...]) -> Miss:
        candidates: list[ToolSpec] = []
        for name in sorted(unmet[0]):
            candidates += self._catalog.matches(name)
        explanations = []
        if self._explain is not None:
            for tool in candidates[:_EXPLAINED]:
                explanations.append(self._explain(case.query, tool, self._k))
        nearest = max(explanations, key=attrgetter("score"), default=None)
        return Miss(case, unmet, top, nearest, bool(candidates))


def _name(result: SearchHit | ToolSpec | ToolName | tuple[str, str]) -> ToolName:
    if isinstance(result, SearchHit):
        return result.tool.tool_name
    if isinstance(result, ToolSpec):
        return result.tool_name
    return result if isinstance(result, ToolName) else ToolName(*result)


_CASES_A_JOB = 100
PROGRESS_DELAY = 1.0
"""Seconds before the progress bar appears. Shorter work needs none."""


def evaluate(
    catalog: Iterable[ToolSpec],
    cases: Iterable[ToolUseCase],
    strategies: Mapping[str, Strategy] | None = None,
    *,
    k: int = 5,
    executor: Executor | None = None,
    progress: bool = True,
    manifest_max_tokens: int | None = None,
    stopped: Event | None = None,
) -> Evaluation:
    """Search for each case with each strategy, and check whether the right tools come first.

    Args:
        catalog: The tools to search.
        cases: What is searched for, and the tools that should be found: each case's message and
            expected calls, or the `query` of its calls where they have one. Cases that expect no
            tool are left out.
        strategies: For each name, a function that takes the tools and returns a searcher: an object
            with `search(query, max_results)`, or such a function. Either returns hits, tools, tool
            names or `(server, name)`, best first. `ToolSearchIndex` when not given.
        k: How many results count in each search.
        executor: Runs the work, a hundred cases per job: a process pool, or a Dask or Ray executor
            (`client.get_executor()`). Strategies must then be picklable, such as a module's
            functions or classes. None for this thread.
        progress: Show a progress bar on stderr.
        manifest_max_tokens: The manifest's token limit, or None for the config's default.
        stopped: Ends the work early once it is set, by another thread.

    Returns:
        A score for each strategy, with its misses. The same with and without an executor.

    Raises:
        UsageError: There are no cases, none expects a tool, or `k` is less than 1.
        CancelledError: It was stopped.
    """
    from tqdm import tqdm

    tools, cases = Catalog(catalog), searches_of(cases)
    if not cases:
        raise UsageError(
            "There are no cases to evaluate.", hint="A case must expect at least one call."
        )
    if k < 1:
        raise UsageError(f"k must be 1 or more, not {k}.")
    if strategies is None:
        strategies = {"search": ToolSearchIndex}
    # Text on stderr needs no widget and leaves nothing behind in a notebook.
    with tqdm(
        total=len(cases) * len(strategies),
        unit="case",
        leave=False,
        delay=PROGRESS_DELAY,
        disable=not progress,
    ) as bar:

        def advance(count: int) -> None:
            if stopped is not None and stopped.is_set():
                raise CancelledError
            bar.update(count)

        if executor is None:
            outcomes = {}
            for name, strategy in strategies.items():
                outcomes[name] = judge(strategy, tools, cases, k, advance)
        else:
            outcomes = _elsewhere(strategies, tools, cases, k, executor, advance)
    definitions = total_tokens(tools)
    most = manifest_max_tokens
    if most is None:
        most = DiscoveryConfig().manifest_max_tokens
    manifest = generate_manifest(tools, manifest_budget(definitions, most))
    return Evaluation(
        scores=tuple(_score(name, outcomes[name], tools) for name in strategies),
        k=k,
        cases=len(cases),
        tools=len(tools),
        definition_tokens=definitions,
        manifest_tokens=estimate_tokens(manifest),
    )


async def with_and_without(
    meaning: Meaning | None, tools: Sequence[ToolSpec], cases: Iterable[ToolUseCase]
) -> dict[str, Strategy] | None:
    """Build a session's strategies, or None without an embedding model.

    If the model fails, only by words.
    """
    if meaning is None:
        return None
    vectors = await meaning.known_vectors(tools, (case.query for case in searches_of(cases)))
    by_words: dict[str, Strategy] = {"words": ToolSearchIndex}
    if vectors is None:
        return by_words
    return {**by_words, "words and meaning": partial(ToolSearchIndex, embed=vectors)}


def _elsewhere(
    strategies: Mapping[str, Strategy],
    tools: Catalog,
    cases: Sequence[ToolUseCase],
    k: int,
    executor: Executor,
    advance: Advance,
) -> dict[str, list[CaseResult]]:
    """Collect the outcomes by strategy, in the case order, whichever job is done first."""
    jobs: list[tuple[str, Future[list[CaseResult]]]] = []
    try:
        for name, strategy in strategies.items():
            for start in range(0, len(cases), _CASES_A_JOB):
                part = cases[start : start + _CASES_A_JOB]
                jobs.append((name, executor.submit(judge, strategy, tuple(tools), part, k)))
        for future in as_completed([future for _, future in jobs]):
            advance(len(future.result()))
    finally:
        for _, future in jobs:
            future.cancel()
    outcomes: dict[str, list[CaseResult]] = defaultdict(list)
    for name, future in jobs:
        outcomes[name] += future.result()
    return outcomes


def _score(name: str, outcomes: Sequence[CaseResult], tools: Catalog) -> StrategyScore:
    prices = {tool.tool_name: tool.tokens for tool in tools}
    loaded = []
    for outcome in outcomes:
        loaded.append(sum(prices.get(tool, 0) for tool in outcome.found))
    return StrategyScore(
        name=name,
        recall_any=fmean(any(outcome.met) for outcome in outcomes),
        recall_all=fmean(all(outcome.met) for outcome in outcomes),
        recall=fmean(fmean(outcome.met) for outcome in outcomes),
        mrr=fmean(outcome.reciprocal_rank for outcome in outcomes),
        server=fmean(outcome.right_server for outcome in outcomes),
        loaded_tokens=fmean(loaded),
        misses=tuple(outcome.miss for outcome in outcomes if outcome.miss),
    )
