"""How well searches find tools: a score for each strategy, with its misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.base.displayable import Displayable, count
from casual_mcp_nb.base.iterables import by_name
from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.experiments.cases import ToolUseCase


@dataclass(frozen=True)
class Miss:
    """A case with a need that the first k tools do not meet.

    Args:
        case: The case.
        unmet: The needs that are not met.
        found: The first k tools, best first.
        explanation: Why the closest tool for the first such need is not among them, or None if the
            strategy cannot tell.
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
        if missing:
            return f"{self.explanation.verdict} It lacks: {missing}."
        return self.explanation.verdict


@dataclass(frozen=True)
class StrategyScore:
    """How well one strategy finds tools.

    Figures are means over the cases, from 0 to 1 unless noted.

    Args:
        name: Its name.
        recall_any: Cases with at least one need met by the first k tools.
        recall_all: Cases with all needs met.
        recall: Share of needs met.
        mrr: One divided by the rank of the first tool that meets a need, among the first ten (or k,
            if that is more).
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
        return by_name(self.scores)[name]

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
