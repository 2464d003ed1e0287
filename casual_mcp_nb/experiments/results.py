"""Results from comparisons, evaluations and lints."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, get_args

from casual_mcp_nb.base.config import Discovery, Strategy
from casual_mcp_nb.base.displayable import Displayable, DisplayableList, count, display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.model_options import DeliverySetting
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tokens import Origin
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import FINDING, RUN_CODE, SYNTHETIC, TurnStarted
from casual_mcp_nb.conversation.stats import StepStats
from casual_mcp_nb.conversation.step import with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown
from casual_mcp_nb.experiments.cases import ToolUseCase

FindingKind = Literal[
    "same text",
    "no description",
    "generic description",
    "hard to find",
    "parameter without description",
    "long description",
    "name",
    "provider",
    "host",
]


@dataclass(frozen=True)
class Miss:
    """A case with a need that the first k tools do not meet.

    Args:
        case: The case.
        unmet: The needs that are not met.
        found: The first k tools, best first.
        explanation: Why the closest tool for the first such need is not among them, or None if the strategy cannot tell.
        known: Whether the catalog has a tool for that need at all.
    """

    case: ToolUseCase
    unmet: tuple[frozenset[ToolName], ...]
    found: tuple[ToolName, ...]
    explanation: Explanation | None = None
    known: bool = True

    @property
    def reason(self) -> str:
        """The reason in one sentence, or empty if the strategy cannot tell."""
        if not self.known:
            return "The catalog has no tool for it."
        if self.explanation is None:
            return ""
        missing = ", ".join(map(self.explanation.word, self.explanation.missing))
        return f"{self.explanation.verdict} It lacks: {missing}." if missing else self.explanation.verdict


@dataclass(frozen=True)
class StrategyScore:
    """How well one strategy finds tools. Figures are means over the cases, from 0 to 1 unless noted.

    Args:
        name: Its name.
        recall_any: Cases with at least one need met by the first k tools.
        recall_all: Cases with all needs met.
        recall: Share of needs met.
        mrr: One divided by the rank of the first tool that meets a need, among the first ten (or k, if that is more).
        server: Cases in which the first k tools include the right server.
        loaded_tokens: Estimated tokens for the first k tools' definitions.
        misses: The cases with an unmet need, in the case order.
    """

    name: str
    recall_any: float
    recall_all: float
    recall: float
    mrr: float
    server: float
    loaded_tokens: float
    misses: tuple[Miss, ...]


@dataclass(frozen=True, repr=False)
class Evaluation(Mapping[str, StrategyScore], Displayable):
    """Scores for search strategies over the same cases.

    Args:
        scores: Each strategy's score, in the order given.
        k: How many results count in each search.
        cases: How many cases there were.
        tools: How many tools were searched.
        definition_tokens: Estimated tokens for all their definitions.
        manifest_tokens: Their manifest's estimated tokens.
    """

    scores: tuple[StrategyScore, ...]
    k: int
    cases: int
    tools: int
    definition_tokens: int
    manifest_tokens: int

    def __getitem__(self, name: str) -> StrategyScore:
        return {score.name: score for score in self.scores}[name]

    def __iter__(self) -> Iterator[str]:
        return (score.name for score in self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        return f"<Evaluation: {', '.join(self)} over {count(self.cases, 'case')}>"

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per strategy, for a DataFrame or a CSV file."""
        return [
            {
                "strategy": score.name,
                "k": self.k,
                "recall_any": score.recall_any,
                "recall": score.recall,
                "recall_all": score.recall_all,
                "mrr": score.mrr,
                "server": score.server,
                "loaded_tokens": score.loaded_tokens,
                "misses": len(score.misses),
            }
            for score in self.scores
        ]


@dataclass(frozen=True)
class LintFinding:
    """A problem with a tool that makes it harder to find, or more expensive than necessary.

    Args:
        kind: Its kind.
        tool: Which tool.
        text: The problem, in words.
        others: Other tools involved.
    """

    kind: FindingKind
    tool: ToolName
    text: str
    others: tuple[ToolName, ...] = ()


@dataclass(frozen=True, repr=False)
class Lint(DisplayableList[LintFinding], items="findings"):
    """The problems in a catalog, sorted by kind, then in catalog order.

    Args:
        findings: The problems.
        tools: How many tools were checked.
    """

    findings: tuple[LintFinding, ...]
    tools: int

    def __repr__(self) -> str:
        return f"<Lint: {count(len(self), 'finding')} in {count(self.tools, 'tool')}>"

    def by_kind(self) -> dict[FindingKind, tuple[LintFinding, ...]]:
        """Group the findings by kind."""
        kinds = dict.fromkeys(finding.kind for finding in self.findings)
        return {kind: tuple(finding for finding in self.findings if finding.kind == kind) for kind in kinds}

    def rows(self) -> list[dict[str, str]]:
        """Build a list of rows, one per finding, for a DataFrame or a CSV file."""
        return [
            {
                "kind": finding.kind,
                "server": finding.tool.server,
                "tool": finding.tool.tool,
                "text": finding.text,
                "others": ", ".join(map(str, finding.others)),
            }
            for finding in self.findings
        ]


RunStatus = Literal["waiting", "running", "done", "failed", "stopped"]
ComparisonStatus = Literal["running", "done", "stopped"]
FigureName = Literal["steps", "calls", "searches", "tokens_in_full", "tokens_reused", "output_tokens", "seconds", "cost"]
FIGURES: tuple[FigureName, ...] = get_args(FigureName)

REUSED_WEIGHT = 0.1
"""A reused token's weight without prices: providers with a cache bill about a tenth."""


@dataclass(frozen=True)
class Way:
    """One set-up for answering a prompt. None means as the session is set.

    Args:
        name: Its name, from the differences between the variants.
        model: The model.
        tool_set: The toolset.
        discovery: Whether deferred tools are hidden.
        strategy: How the model finds them.
        delivery: How it receives search results.
        descriptions: The name for the tool descriptions that it reads in place of the servers' own, if any.
        without: The server or tool that it leaves out.
    """

    name: str
    model: str | None = None
    tool_set: str | None = None
    discovery: Discovery | None = None
    strategy: Strategy | None = None
    delivery: DeliverySetting | None = None
    descriptions: str | None = None
    without: str | None = None


@dataclass(frozen=True)
class ComparedRun:
    """One turn in a comparison. Unknown figures are None.

    Args:
        way: The way.
        prompt: The prompt.
        repeat: Which repeat, from 0.
        status: `waiting` until it begins, then `running`. Then how it ended, or `stopped`, perhaps before it began.
        error: Why it failed or was stopped.
        right: Whether the person's check passed, or None if there is none, or it could not tell.
        problem: Why the check could not tell.
        steps: Model calls.
        calls: Tool calls without searches, nested ones included.
        searches: Calls to tools that find tools.
        ranked_by: Whether its searches ranked by `words` or `words and meaning`, both if they differ, or None without a search.
        tokens_in_full: Input tokens, over all requests, without `tokens_reused`.
        tokens_reused: Input tokens that providers read from their caches. If they do not report this, an estimate of how much
            each request repeats from the previous one.
        output_tokens: Tokens in all answers.
        origin: Who counted the input.
        reused_origin: Who counted `tokens_reused`.
        seconds: How long it took, without waiting for the person's approval.
        cost: Estimated cost by the user's price table, over all model calls.
        answer: The last step's text.
        tools: The tools called, in order, without those that find tools.
        model: The model's name.
        provider: Its provider.
        discovery: Whether deferred tools were hidden.
        deferred: How many tools were searchable at the start.
        undeferred_tokens: Input tokens if every tool had been loaded, estimated.
        turn: The turn, or None before it begins.
    """

    way: Way
    prompt: str
    repeat: int = 0
    status: RunStatus = "waiting"
    error: str | None = None
    right: bool | None = None
    problem: str = ""
    steps: int | None = None
    calls: int | None = None
    searches: int | None = None
    ranked_by: str | None = None
    tokens_in_full: int | None = None
    tokens_reused: int | None = None
    output_tokens: int | None = None
    origin: Origin = "estimated"
    reused_origin: Origin = "estimated"
    seconds: float | None = None
    cost: Cost | None = None
    answer: str = ""
    tools: tuple[str, ...] = ()
    model: str | None = None
    provider: str | None = None
    discovery: bool | None = None
    deferred: int | None = None
    undeferred_tokens: int | None = None
    turn: Turn | None = field(default=None, repr=False, compare=False)

    @property
    def input_tokens(self) -> int | None:
        """All input tokens, reused or not."""
        return None if self.tokens_in_full is None else self.tokens_in_full + (self.tokens_reused or 0)

    def measured(self) -> ComparedRun:
        """Copy it with its turn's figures as they are now."""
        turn = self.turn
        if turn is None or not turn.trace.of(TurnStarted):
            return self
        stats, calls = turn.stats, list(with_nested(turn.tool_calls))
        searches = sum(call.tool.server == SYNTHETIC and call.tool.tool in FINDING for call in calls)
        used = [call.tool for call in calls if call.tool.server != SYNTHETIC or call.tool.tool not in (*FINDING, RUN_CODE)]
        reused, reused_origin = _reused(stats.steps)
        tokens, cost = stats.tokens, stats.cost
        answered = stats.llm_calls > 0 and not tokens.unknown_calls
        return dataclasses.replace(
            self,
            steps=len(stats.steps),
            calls=len(used),
            searches=searches,
            ranked_by=_listed(search.ranked_by for search in turn.searches if search.query),
            tokens_in_full=stats.sent_tokens - (reused or 0) if stats.steps else None,
            tokens_reused=reused,
            output_tokens=tokens.completion_tokens if answered else None,
            origin=stats.parts.origin,
            reused_origin=reused_origin,
            seconds=turn.seconds,
            cost=cost if cost is not None and not cost.unknown_calls and not cost.unknown_hosted else None,
            answer=turn.answer,
            tools=tuple(dict.fromkeys(map(str, used))),
            model=turn.started.model,
            provider=turn.started.provider,
            discovery=turn.started.discovery,
            deferred=turn.started.deferred,
            undeferred_tokens=stats.undeferred_tokens if stats.discovery else None,
        )

    def row(self) -> dict[str, Any]:
        """Collect its figures as plain values."""
        way = self.way
        return {
            "way": way.name,
            "model": self.model or way.model,
            "tool_set": way.tool_set,
            "discovery": way.discovery if self.discovery is None else self.discovery,
            "strategy": way.strategy,
            "delivery": way.delivery,
            "prompt": self.prompt,
            "repeat": self.repeat,
            "status": self.status,
            "right": self.right,
            "ranked_by": self.ranked_by,
            **{name: getattr(self, name) for name in FIGURES if name != "cost"},
            "tokens_origin": self.origin,
            "reused_origin": self.reused_origin,
            "cost": self.cost.amount if self.cost else None,
            "currency": self.cost.currency if self.cost else None,
            "tools": ", ".join(self.tools),
            "answer": self.answer,
            "error": self.error,
        }


@dataclass(frozen=True)
class Figure:
    """A figure over several runs.

    Args:
        mean: Its mean.
        low: The lowest value.
        high: The highest value.
        runs: How many runs it averages.
    """

    mean: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True)
class WayResult:
    """All runs for one variant.

    Args:
        way: The way.
        runs: Its runs, in the order in which they began.
    """

    way: Way
    runs: tuple[ComparedRun, ...]

    @property
    def done(self) -> tuple[ComparedRun, ...]:
        """The runs with an answer. All figures are about these."""
        return tuple(run for run in self.runs if run.status == "done")

    @property
    def failed(self) -> int:
        """How many runs failed."""
        return sum(run.status == "failed" for run in self.runs)

    @property
    def ranked_by(self) -> str | None:
        """How its runs' searches ranked, or None if there was none."""
        return _listed(run.ranked_by for run in self.done)

    @property
    def checked(self) -> int:
        """How many runs were judged right or wrong."""
        return sum(run.right is not None for run in self.runs)

    @property
    def right(self) -> int | None:
        """How many runs are right, or None if none was checked."""
        return sum(run.right is True for run in self.runs) if self.checked else None

    @property
    def origin(self) -> Origin:
        """Who counted the input tokens."""
        return "estimated" if any(run.origin == "estimated" for run in self.done) else "reported"

    @property
    def reused_origin(self) -> Origin:
        """Who counted the reused tokens."""
        return "estimated" if any(run.reused_origin == "estimated" for run in self.done) else "reported"

    @property
    def currency(self) -> str | None:
        """The cost currency, None if they have none or several."""
        currencies = {run.cost.currency for run in self.done if run.cost}
        return currencies.pop() if len(currencies) == 1 else None

    def figure(self, name: FigureName) -> Figure | None:
        """Compute a figure over completed runs, or None if there are none, or any lacks it."""
        values = [run.cost.amount if name == "cost" and run.cost else getattr(run, name) for run in self.done]
        if not values or None in values or (name == "cost" and self.currency is None):
            return None
        return Figure(fmean(values), min(values), max(values), len(values))

    @property
    def weighted_tokens(self) -> float | None:
        """A run's mean input tokens, with reused ones counted as a tenth. Ranks variants without prices."""
        full, reused = self.figure("tokens_in_full"), self.figure("tokens_reused")
        return None if full is None or reused is None else full.mean + REUSED_WEIGHT * reused.mean


@dataclass(frozen=True)
class DiscoveryEffect:
    """The effect of deferring in one variant, compared with every tool loaded.

    Args:
        on: The variant with discovery.
        off: The variant without, or None if it was not run, so that `every_tool_loaded` is an estimate.
        price: A run's mean cost. Without prices its `weighted_tokens`, or if `off` is None all its input tokens.
        every_tool_loaded: The same for every tool loaded.
        currency: The currency for both, or None for tokens.
        fewer_right: How much lower the share of right runs is than without discovery, from 0 to 1, or None if unknown.
    """

    on: Way
    off: Way | None
    price: float
    every_tool_loaded: float
    currency: str | None = None
    fewer_right: float | None = None

    @property
    def costs_more(self) -> bool:
        """Whether deferring costs more."""
        return self.price > self.every_tool_loaded

    @property
    def loses(self) -> bool:
        """Whether deferring costs more here, or makes answers wrong."""
        return self.costs_more or (self.fewer_right or 0) > 0


class Exportable(Displayable, ABC):
    """A displayable value with rows that can be written to a file. Subclasses set `_kind`."""

    _kind: ClassVar[str] = "A comparison"

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per run, for a DataFrame or a CSV file."""

    @abstractmethod
    def _about(self) -> dict[str, Any]:
        """Collect what a JSON file has beside the rows."""

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write it to a file.

        Args:
            path: The file. Its extension decides the format: `.html` (one page, without scripts or network access), `.csv`
                (a row per run), or `.json` (the same rows).
            overwrite: Replace a file that exists.

        Returns:
            The file. It is written whole or not at all.

        Raises:
            UsageError: The extension is unknown, or the file exists or cannot be written.
        """
        path = Path(path).expanduser()
        formats = {".html": self._page, ".csv": self._csv, ".json": self._json}
        write = formats.get(path.suffix.casefold())
        if write is None:
            hint = did_you_mean(closest(path.suffix, formats), formats)
            raise UsageError(f"{self._kind} cannot be saved as {shown(path.suffix or path.name)}.", hint=hint)
        write_text(path, write(), overwrite=overwrite, hint="To replace it: overwrite=True.")
        return path

    def _page(self) -> str:
        return display().page(self, f"{self._kind} with casual_mcp_nb")

    def _json(self) -> str:
        return json.dumps({**self._about(), "runs": self.rows()}, ensure_ascii=False, indent=2) + "\n"

    def _csv(self) -> str:
        text, rows = io.StringIO(), self.rows()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _as_text(value) for name, value in row.items()} for row in rows)
        return text.getvalue()


@dataclass(frozen=True, repr=False)
class Comparison(Mapping[str, WayResult], Exportable):
    """The same prompts answered by several variants: a mapping from their names.

    Args:
        runs: All runs, in order.
        ways: The ways, in the order given.
        prompts: The prompts.
        repeats: How often each variant answers each prompt.
        status: `running`, `done`, or `stopped` if it ended early.
        seconds: How long it has taken.
    """

    runs: tuple[ComparedRun, ...]
    ways: tuple[Way, ...]
    prompts: tuple[str, ...]
    repeats: int = 1
    status: ComparisonStatus = "done"
    seconds: float = 0.0

    def __getitem__(self, name: str) -> WayResult:
        way = {way.name: way for way in self.ways}[name]
        return WayResult(way, tuple(run for run in self.runs if run.way == way))

    def __iter__(self) -> Iterator[str]:
        return (way.name for way in self.ways)

    def __len__(self) -> int:
        return len(self.ways)

    def __repr__(self) -> str:
        ways, runs = count(len(self.ways), "variant"), count(len(self.runs), "run")
        return f"<Comparison: {self.status}, {ways}, {self.ended} of {runs} done>"

    @property
    def ended(self) -> int:
        """How many runs have ended."""
        return sum(run.status in ("done", "failed") for run in self.runs)

    @property
    def running(self) -> ComparedRun | None:
        """The run in progress."""
        return next((run for run in self.runs if run.status == "running"), None)

    def of_prompt(self, prompt: str) -> Comparison:
        """Select one prompt's part."""
        runs = tuple(run for run in self.runs if run.prompt == prompt)
        return dataclasses.replace(self, runs=runs, prompts=(prompt,))

    @property
    def comparable(self) -> tuple[WayResult, ...]:
        """The variants with an answer, each with its runs for the prompts that all have answered."""
        results = [result for result in self.values() if result.done]
        answered = [{run.prompt for run in result.done} for result in results]
        common = set.intersection(*answered) if answered else set()
        return tuple(
            WayResult(result.way, tuple(run for run in result.runs if run.prompt in common)) for result in results if common
        )

    @property
    def cheapest(self) -> WayResult | None:
        """The cheapest among the variants that are right most often, or None without two to compare.

        Variants are ranked by cost if all have one, else by `weighted_tokens`.
        """
        results = self.comparable
        if len(results) < 2:
            return None
        most = max(map(_share, results))
        return min((result for result in results if _share(result) == most), key=lambda each: price_of(each, results)[0])

    @property
    def discovery_effects(self) -> tuple[DiscoveryEffect, ...]:
        """The effect of deferring, for each variant that deferred something."""
        results = self.comparable
        effects = []
        for result in results:
            if not any(run.discovery and run.deferred for run in result.done):
                continue
            way = result.way
            off = next((each for each in results if _is_counterpart(each, way)), None)
            if off is not None:
                price, currency = price_of(result, results)
                fewer = _share(off) - _share(result) if off.checked and result.checked else None
                effects.append(DiscoveryEffect(way, off.way, price, price_of(off, results)[0], currency, fewer))
            else:
                tokens = [(run.input_tokens or 0, run.undeferred_tokens or 0) for run in result.done]
                effects.append(DiscoveryEffect(way, None, fmean(one for one, _ in tokens), fmean(all_ for _, all_ in tokens)))
        return tuple(effects)

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per run, for a DataFrame or a CSV file."""
        return [run.row() for run in self.runs]

    def _about(self) -> dict[str, Any]:
        return {"status": self.status, "prompts": self.prompts, "ways": list(self), "repeats": self.repeats}


def price_of(result: WayResult, results: tuple[WayResult, ...]) -> tuple[float, str | None]:
    """Compute a variant's price per run and the currency, or `weighted_tokens` and None unless all variants have a cost."""
    costs = [each.figure("cost") for each in results]
    cost = result.figure("cost")
    if cost is not None and None not in costs and len({each.currency for each in results}) == 1:
        return cost.mean, result.currency
    return result.weighted_tokens or 0.0, None


def _listed(values: Iterable[str | None]) -> str | None:
    return ", ".join(sorted(set(filter(None, values)))) or None


def _share(result: WayResult) -> float:
    """Compute the share of right runs, or without checks the share that did not fail."""
    if result.checked:
        return (result.right or 0) / result.checked
    return len(result.done) / (len(result.done) + result.failed)


def _is_counterpart(other: WayResult, way: Way) -> bool:
    """Check whether a way is the same but without discovery, where strategy and delivery do not matter."""
    same = (other.way.model, other.way.tool_set) == (way.model, way.tool_set)
    return same and not any(run.discovery for run in other.done)


def _reused(steps: tuple[StepStats, ...]) -> tuple[int | None, Origin]:
    answered = [step for step in steps if step.seconds is not None]
    cached = [step.cached_tokens for step in answered if step.cached_tokens is not None]
    if answered and len(cached) == len(answered):
        return sum(cached), "reported"
    return (sum(step.reused or 0 for step in steps) if steps else None), "estimated"


def _as_text(value: Any) -> Any:
    """Escape a value for a CSV cell, so that a spreadsheet sees no formula in a model's words."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


@dataclass(frozen=True)
class Experiments(Displayable):
    """A session's comparisons and results.

    Args:
        comparison: The last comparison, or None.
        results: The last case results, if they are newer.
    """

    comparison: Comparison | None = None
    results: Displayable | None = None
