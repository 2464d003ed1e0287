"""Results of evaluations: how well tools are found, and problems in a catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.types.counts import count
from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.search import Explanation
from casual_mcp_nb.types.tool import ToolName

FindingKind = Literal["same text", "no description", "parameter without description", "long description", "name"]


@dataclass(frozen=True)
class Case:
    """A query with the tools that should be found.

    Args:
        query: The query.
        needs: What the query needs: for each need, the tools that meet it.
    """

    query: str
    needs: tuple[frozenset[ToolName], ...]


@dataclass(frozen=True)
class Miss:
    """A case with a need that none of the first k tools meets.

    Args:
        case: The case.
        unmet: The needs that are not met.
        found: The first k tools, best first.
        explanation: Why the closest tool for the first such need is not among them; None if the strategy cannot say.
        known: Whether the catalog has a tool for that need at all.
    """

    case: Case
    unmet: tuple[frozenset[ToolName], ...]
    found: tuple[ToolName, ...]
    explanation: Explanation | None = None
    known: bool = True

    @property
    def reason(self) -> str:
        """The reason in one sentence; empty if the strategy cannot say."""
        if not self.known:
            return "The catalog has no tool for it."
        if self.explanation is None:
            return ""
        missing = ", ".join(map(self.explanation.word, self.explanation.missing))
        return f"{self.explanation.verdict} It lacks: {missing}." if missing else self.explanation.verdict


@dataclass(frozen=True)
class StrategyScore:
    """How well one strategy finds tools. All figures except the misses are means over the cases, from 0 to 1 unless noted.

    Args:
        name: Its name.
        recall_any: Cases with at least one need met by the first k tools.
        recall_all: Cases with all needs met.
        recall: Share of the needs that are met.
        mrr: One divided by the rank of the first tool that meets a need, among the first ten (or k, if that is more).
        server: Cases in which the first k tools hit the server of a tool that meets a need.
        loaded_tokens: Estimated tokens of the first k tools' definitions.
        misses: The cases with an unmet need, in the order of the cases.
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
    """Scores of search strategies over the same cases.

    Args:
        scores: The score of each strategy, in the order given.
        k: Number of tools of each search that counted.
        cases: How many cases there were.
        tools: How many tools were searched.
        definition_tokens: Estimated tokens of all their definitions.
        manifest_tokens: Estimated tokens of their manifest.
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
        kind: The kind of problem.
        tool: Which tool.
        text: The problem, in words.
        others: Other tools involved.
    """

    kind: FindingKind
    tool: ToolName
    text: str
    others: tuple[ToolName, ...] = ()


@dataclass(frozen=True, repr=False)
class Lint(DisplayableList[LintFinding]):
    """The problems in a catalog, sorted by kind, then in catalog order.

    Args:
        findings: The problems.
        tools: How many tools were checked.
    """

    findings: tuple[LintFinding, ...]
    tools: int

    @property
    def _items(self) -> tuple[LintFinding, ...]:
        return self.findings

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
