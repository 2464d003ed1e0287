"""Results from measuring searches and from linting, and what all results can be exported to."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from casual_mcp_nb.base.displayable import Displayable, DisplayableList, count, display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tool import ToolName
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
        return (
            f"{self.explanation.verdict} It lacks: {missing}."
            if missing
            else self.explanation.verdict
        )


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
        return {
            kind: tuple(finding for finding in self.findings if finding.kind == kind)
            for kind in kinds
        }

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


class Exportable(Displayable, ABC):
    """A displayable value with rows that can be written to a file. Subclasses set `_kind`."""

    _kind: ClassVar[str]

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per run, for a DataFrame or a CSV file."""

    @abstractmethod
    def _about(self) -> dict[str, Any]:
        """Collect what a JSON file has beside the rows."""

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write it to a file.

        Args:
            path: The file. Its extension decides the format: `.html` (one page, without scripts or
                network access), `.csv` (a row per run), or `.json` (the same rows).
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
            raise UsageError(
                f"{self._kind} cannot be saved as {shown(path.suffix or path.name)}.", hint=hint
            )
        write_text(path, write(), overwrite=overwrite, hint="To replace it: overwrite=True.")
        return path

    def _page(self) -> str:
        return display().page(self, f"{self._kind} with casual_mcp_nb")

    def _json(self) -> str:
        return (
            json.dumps({**self._about(), "runs": self.rows()}, ensure_ascii=False, indent=2) + "\n"
        )

    def _csv(self) -> str:
        text, rows = io.StringIO(), self.rows()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _as_text(value) for name, value in row.items()} for row in rows)
        return text.getvalue()


def _as_text(value: Any) -> Any:
    """Escape a value for a CSV cell, so that a spreadsheet sees no formula in a model's words."""
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )


@dataclass(frozen=True)
class Experiments(Displayable):
    """A session's results.

    Args:
        results: The last results, or None.
    """

    results: Displayable | None = None
