"""Evaluate how well search strategies find the tools that cases need, and lint descriptions."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor, Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol, get_args

from casual_mcp_nb.base.config import DiscoveryConfig
from casual_mcp_nb.base.dialects import DIALECTS, HOSTS
from casual_mcp_nb.base.elsewhere import elsewhere
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.search import Explanation, SearchHit
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import MAX_WIRE_NAME, Catalog, ToolName, ToolSpec
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN, ToolsSearched
from casual_mcp_nb.conversation.step import calls_of_model
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.manifest import generate_manifest, manifest_budget
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import one_line, terms
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.experiments.results import Case, Evaluation, FindingKind, Lint, LintFinding, Miss, StrategyScore

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.meaning import Meaning


def load_catalog(path: str | Path) -> Catalog:
    """Read tools from a file.

    Args:
        path: A file with one object per line: `server`, `name`, and optionally `description` and `input_schema`.

    Raises:
        UsageError: The file cannot be read, or a line is not a tool. The line is named.
    """
    return Catalog([_tool(row, where) for where, row in _rows(path)])


def load_cases(path: str | Path) -> tuple[Case, ...]:
    """Read cases from a file.

    Args:
        path: A file with one object per line: `query`, and `gold`, a list of needs, each a list of `[server, tool]` pairs that
            meet it.

    Raises:
        UsageError: The file cannot be read, or a line is not a case. The line is named.
    """
    return tuple(_case(row, where) for where, row in _rows(path))


def save_cases(cases: Iterable[Case], path: str | Path) -> Path:
    """Write cases to a new file, as `load_cases` reads it.

    Args:
        cases: The cases.
        path: A new file.

    Returns:
        The file.

    Raises:
        UsageError: The file exists, or cannot be written.
    """
    path = Path(path)
    rows = ({"query": case.query, "gold": [_pairs(need) for need in case.needs]} for case in cases)
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{shown(path)} exists already.", hint="Name another file, or delete this one.") from None
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be written: {error.strerror}.") from error
    return path


def _pairs(need: Iterable[ToolName]) -> list[list[str]]:
    return sorted([name.server, name.tool] for name in need)


def _rows(path: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{shown(Path(path))} cannot be read: {reason}.") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{Path(path).name}, line {number}", _object(line, f"{Path(path).name}, line {number}")


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON: {error}.") from None
    if not isinstance(row, Mapping):
        raise UsageError(f"{where} is not an object.")
    return row


def _tool(row: Mapping[str, Any], where: str) -> ToolSpec:
    server, name = row.get("server"), row.get("name")
    if not (isinstance(server, str) and isinstance(name, str)):
        raise UsageError(f"{where} is not a tool: it needs a server and a name, both strings.")
    schema = row.get("input_schema")
    return ToolSpec(server, name, str(row.get("description") or ""), schema if isinstance(schema, Mapping) else {})


def _case(row: Mapping[str, Any], where: str) -> Case:
    try:
        needs = tuple(frozenset(ToolName(server, tool) for server, tool in need) for need in row["gold"])
        return Case(str(row["query"]), needs)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f'{where} is not a case, such as {{"query": text, "gold": [[[server, tool], ...], ...]}}.') from None


_MAX_QUERY = 300


def cases_of(turns: Iterable[Turn]) -> tuple[Case, ...]:
    """Build cases from past turns: each search, with the tools that it found and the model then called.

    For tools that were called without a search, the query is the person's message. Failed calls do not count.

    Args:
        turns: The turns.

    Returns:
        The cases in the turn order, each query once. A first draft, to be read and corrected by a person.
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
    for call in calls_of_model(turn.tool_calls):
        if call.search is not None:
            searches.append(call.search)
        elif call.status == "ok" and call.tool.server not in (SYNTHETIC, UNKNOWN):
            by = (each.query for each in reversed(searches) if any(row.tool == call.tool for row in each.rows))
            yield next(by, "") or turn.prompt, call.tool


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
    """One case's outcome: the first k tools, the needs they meet, other figures, and the miss, if any."""

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
        k: How many results count in each search.
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
    ranked: tuple[ToolName, ...],
    k: int,
    searcher: object,
    by_name: Mapping[ToolName, ToolSpec],
) -> Miss:
    unmet = tuple(need for need, is_met in zip(case.needs, met, strict=True) if not is_met)
    candidates = [by_name[name] for name in sorted(unmet[0]) if name in by_name]
    explain: Callable[..., Explanation] | None = getattr(searcher, "explain", None)
    explanations = [explain(case.query, tool, k) for tool in candidates[:_EXPLAINED]] if explain else []
    nearest = min(explanations, key=lambda explanation: -explanation.score, default=None)
    return Miss(case, unmet, ranked, nearest, bool(candidates))


def _name(result: SearchHit | ToolSpec | ToolName | tuple[str, str]) -> ToolName:
    if isinstance(result, SearchHit):
        return result.tool.tool_name
    if isinstance(result, ToolSpec):
        return result.tool_name
    return result if isinstance(result, ToolName) else ToolName(*result)


_ALIKE = 0.9
_LONG_DESCRIPTION = 300
_READ = 2_000
_NAMED = 5
_OBVIOUS = 120
_MAX_SEARCHED = 500
_EMPTY_WORDS = """
call calculation conversion data do does execute function handle handler helper input item method object operation output
perform process processing provide request result return run service task thing this tool use useful utility value work
"""
_GENERIC = frozenset(terms(_EMPTY_WORDS))
_ORDER = {kind: rank for rank, kind in enumerate(get_args(FindingKind))}


def lint(catalog: Iterable[ToolSpec]) -> Lint:
    """Check a catalog for defects that server authors should fix.

    Args:
        catalog: The tools.

    Returns:
        Tools that no query can distinguish (apart from the server's name, nine tenths of their words are the same, and neither
        name has a word that the other lacks), tools and parameters without a description, descriptions that add no word to the
        name, tools that a search for their own name or first sentence does not return, descriptions above 300 tokens, names
        that are too long for the wire, schemas that a provider refuses, and what other hosts change or leave out.
    """
    tools = Catalog(catalog)
    findings = list(_same_texts(tools))
    for check in _CHECKS:
        findings += [LintFinding(kind, tool.tool_name, text) for tool in tools for kind, text in check(tool)]
    described = [finding for finding in findings if finding.kind not in ("provider", "host")]
    findings += _hard_to_find(tools, {finding.tool for finding in described})
    return Lint(tuple(sorted(findings, key=lambda finding: _ORDER[finding.kind])), len(tools))


def _description(tool: ToolSpec) -> Iterator[tuple[FindingKind, str]]:
    if not tool.description.strip():
        yield "no description", "It has no description: only its name and parameters can be found."
        return
    words = set(terms(tool.description[:_READ]))
    if words <= _GENERIC.union(terms(tool.name)):
        yield "generic description", "Its description adds nothing to its name. What goes in, what comes out, when is it used?"
    tokens = estimate_tokens(tool.description)
    if tokens > _LONG_DESCRIPTION:
        yield "long description", f"Its description takes ≈ {tokens:,} of its ≈ {tool.tokens:,} tokens."


def _parameters(tool: ToolSpec) -> Iterator[tuple[FindingKind, str]]:
    properties = SchemaReader(tool.input_schema).properties
    silent = [name for name, part in properties.items() if not part.description.strip()]
    if silent:
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        names = ", ".join(one_line(name, 64) for name in silent[:_NAMED])
        yield "parameter without description", f"No description: {names}{more}."


def _wire_name(tool: ToolSpec) -> Iterator[tuple[FindingKind, str]]:
    length = len(tool.tool_name.joined)
    if length > MAX_WIRE_NAME:
        yield (
            "name",
            f"server__tool has {length} characters, and {MAX_WIRE_NAME} are allowed. The model reads {tool.wire_name}.",
        )


def _taken_elsewhere(tool: ToolSpec) -> Iterator[tuple[FindingKind, str]]:
    by_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in elsewhere(tool):
        by_reason[each.effect, each.reason].append(each.where)
    for (effect, reason), places in by_reason.items():
        where = "Every provider" if len(places) == len(DIALECTS) else ", ".join(places)
        if effect == "changed":
            yield "provider", f"{where}: its schema would be refused as it is, so another form is sent: {reason}."
        elif effect == "left out" and places[0] not in _HOSTS:
            yield "provider", f"{where}: it is left out, because {reason}."
        else:
            yield "host", f"{where}: {'it is left out, because ' if effect == 'left out' else ''}{reason}."


_HOSTS = {host.title for host in HOSTS}
_CHECKS: tuple[Callable[[ToolSpec], Iterator[tuple[FindingKind, str]]], ...] = (
    _description,
    _parameters,
    _wire_name,
    _taken_elsewhere,
)


def _same_texts(tools: Catalog) -> Iterator[LintFinding]:
    """Report each tool that duplicates an earlier one, so that a pair counts once."""
    texts = [frozenset(_words(tool)) for tool in tools]
    for index, near in _alike(texts).items():
        own = set(terms(tools[index].name))
        others = [other for other in near if own <= texts[other] and texts[index].issuperset(terms(tools[other].name))]
        names = tuple(tools[other].tool_name for other in others)
        if names:
            yield LintFinding(
                "same text", tools[index].tool_name, f"Its description is the same as that of {_listed(names)}.", names
            )


def _hard_to_find(tools: Catalog, reported: Set[ToolName]) -> Iterator[LintFinding]:
    """Report tools that their own obvious questions do not find: the name in words, and the description's first sentence.

    Those that are `reported` already have a reason.
    """
    limit = DiscoveryConfig().max_search_results
    index = ToolSearchIndex(tools)
    # Of a larger catalog only every nth tool is searched for: each takes two searches.
    for tool in tools[:: max(1, len(tools) // _MAX_SEARCHED)]:
        if tool.tool_name in reported:
            continue
        # In the other order, since the name itself would always find it.
        words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+", tool.name)[::-1]
        sentence = re.split(r"(?<=[.!?])\s", tool.description.strip()[:_OBVIOUS])[0]
        for query in filter(None, (" ".join(words), sentence)):
            names = [hit.tool.tool_name for hit in index.search(query, limit)]
            if names and tool.tool_name not in names:
                text = f"A search by words for “{one_line(query, 64)}” returns {_listed(names[:_NAMED])}, and not this tool."
                yield LintFinding("hard to find", tool.tool_name, text, tuple(names))
                break


def _words(tool: ToolSpec) -> list[str]:
    names = " ".join(SchemaReader(tool.input_schema).properties)
    return terms(f"{tool.name} {tool.description[:_READ]} {names[:_READ]}")


def _alike(texts: Sequence[frozenset[str]]) -> dict[int, list[int]]:
    """Find for each text the earlier ones that share nine tenths of its words. The first represents identical ones.

    Such texts share at least one of their rarest words, so only texts with a rare word in common are compared.
    """
    first: dict[frozenset[str], int] = {}
    frequency = Counter(word for text in texts for word in text)
    holders: dict[str, list[int]] = defaultdict(list)
    alike: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        if first.setdefault(text, index) != index:
            alike[index] = [first[text]] if text else []
            continue
        rarest = sorted(text, key=lambda word: (frequency[word], word))
        prefix = rarest[: len(text) - -(-len(text) * 9 // 10) + 1]
        near = sorted({other for word in prefix for other in holders[word]})
        same = [other for other in near if _share(text, texts[other]) >= _ALIKE]
        if same:
            alike[index] = same
        for word in prefix:
            holders[word].append(index)
    return alike


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    if not _ALIKE <= len(one) / len(other) <= 1 / _ALIKE:
        return 0.0
    both = len(one & other)
    return both / (len(one) + len(other) - both)


def _listed(names: Sequence[ToolName]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(str, names[:_NAMED])) + more


_CASES_A_JOB = 100
PROGRESS_DELAY = 1.0
"""Seconds before the progress bar appears. Shorter work needs none."""
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
        k: How many results count in each search.
        executor: Runs the work, a hundred cases per job: a process pool, or a Dask or Ray executor (`client.get_executor()`).
            Strategies must then be picklable, such as a module's functions or classes. None for this thread.
        progress: Show a progress bar on stderr.
        manifest_max_tokens: The manifest's token limit, or None for the config's default.

    Returns:
        A score for each strategy, with its misses. The same with and without an executor.

    Raises:
        UsageError: There are no cases, or `k` is less than 1.
    """
    tools, cases = Catalog(catalog), tuple(cases)
    if not cases or k < 1:
        raise UsageError("There are no cases to evaluate." if not cases else f"k must be 1 or more, not {k}.")
    if strategies is None:
        from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

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


async def with_and_without(
    meaning: Meaning | None, tools: Sequence[ToolSpec], cases: Iterable[Case]
) -> dict[str, Strategy] | None:
    """Build a session's strategies, or None without an embedding model. If the model fails, only by words."""
    if meaning is None:
        return None
    vectors = await meaning.known_vectors(tools, (case.query for case in cases))
    by_words: dict[str, Strategy] = {"words": ToolSearchIndex}
    return by_words if vectors is None else {**by_words, "words and meaning": partial(ToolSearchIndex, embed=vectors)}


def _here(strategy: Strategy, tools: Catalog, cases: Sequence[Case], k: int, advance: _Advance) -> list[CaseResult]:
    outcomes = []
    for outcome in judged(strategy, tools, cases, k):
        outcomes.append(outcome)
        advance(1)
    return outcomes


def _elsewhere(
    strategies: Mapping[str, Strategy], tools: Catalog, cases: Sequence[Case], k: int, executor: Executor, advance: _Advance
) -> dict[str, list[CaseResult]]:
    """Collect the outcomes by strategy, in the case order, whichever job is done first."""
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
