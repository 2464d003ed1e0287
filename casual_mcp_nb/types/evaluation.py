"""How well tools are found, and what is wrong with a catalog: what the evaluation comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.search import Explanation
from casual_mcp_nb.types.tool import ToolName

FindingKind = Literal["same text", "no description", "parameter without description", "long description", "name"]


@dataclass(frozen=True)
class Case:
    """A question with what should be found.

    Args:
        query: What is looked for.
        needs: What it takes to answer it: for each need, the tools that meet it.
    """

    query: str
    needs: tuple[frozenset[ToolName], ...]


@dataclass(frozen=True)
class Miss:
    """A case with a need that no tool of the first k meets.

    Args:
        case: The case.
        unmet: The needs that are not met.
        found: The first k tools, best first.
        explanation: Why the nearest tool for the first such need is not among them; None where the strategy cannot say.
        known: Whether the catalog has a tool for that need at all.
    """

    case: Case
    unmet: tuple[frozenset[ToolName], ...]
    found: tuple[ToolName, ...]
    explanation: Explanation | None = None
    known: bool = True

    @property
    def reason(self) -> str:
        """Why, in a sentence; empty where the strategy cannot say."""
        if not self.known:
            return "The catalog has no tool for it."
        if self.explanation is None:
            return ""
        missing = ", ".join(self.explanation.missing)
        return f"{self.explanation.verdict} It lacks: {missing}." if missing else self.explanation.verdict


@dataclass(frozen=True)
class StrategyScore:
    """How well one strategy finds tools. All figures but the misses are means over the cases, 0 to 1 where not said otherwise.

    Args:
        name: Its name.
        recall_any: Cases with at least one need met by the first k tools.
        recall_all: Cases with all needs met.
        recall: Share of the needs that are met.
        mrr: One divided by the rank of the first tool that meets a need, among the first ten (or k, if that is more).
        server: Cases in which the first k tools hit the server of a tool that meets a need.
        loaded_tokens: What the first k tools' definitions cost, in estimated tokens.
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
    """How well strategies find the tools that cases ask for.

    Args:
        scores: A score for each strategy, in the order given.
        k: How many tools of each search counted.
        cases: How many cases there were.
        tools: How many tools were searched.
        definition_tokens: What offering all of them would cost, in estimated tokens.
        manifest_tokens: What their manifest costs.
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
        return f"<Evaluation: {', '.join(self)} over {self.cases} cases>"

    def rows(self) -> list[dict[str, Any]]:
        """Return a plain table: a row for each strategy, for a DataFrame or a CSV file."""
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
    """Something about a tool that makes it harder to find or dearer than it need be.

    Args:
        kind: What sort of thing.
        tool: Which tool.
        text: What was found, in words.
        others: Tools that it has to do with.
    """

    kind: FindingKind
    tool: ToolName
    text: str
    others: tuple[ToolName, ...] = ()


@dataclass(frozen=True, repr=False)
class Lint(DisplayableList[LintFinding]):
    """What was found in a catalog, sorted by kind, then in the catalog's order.

    Args:
        findings: What was found.
        tools: How many tools were looked at.
    """

    findings: tuple[LintFinding, ...]
    tools: int

    @property
    def _items(self) -> tuple[LintFinding, ...]:
        return self.findings

    def __repr__(self) -> str:
        return f"<Lint: {len(self)} findings in {self.tools} tools>"

    def by_kind(self) -> dict[FindingKind, tuple[LintFinding, ...]]:
        """Return the findings of each kind that there is."""
        kinds = dict.fromkeys(finding.kind for finding in self.findings)
        return {kind: tuple(finding for finding in self.findings if finding.kind == kind) for kind in kinds}

    def rows(self) -> list[dict[str, str]]:
        """Return a plain table: a row for each finding, for a DataFrame or a CSV file."""
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
