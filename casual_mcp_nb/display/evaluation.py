"""Views of how well tools are found, and of a catalog's defects."""

from __future__ import annotations

from collections.abc import Iterable

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Name,
    Section,
    Table,
    TextBlock,
    View,
    columns,
)
from casual_mcp_nb.types.evaluation import Evaluation, Lint, LintFinding, Miss, StrategyScore
from casual_mcp_nb.types.tool import ToolName

_SCORES = (
    "Strategy",
    "Any need met",
    "Needs met",
    "All needs met",
    "MRR",
    "Right server",
    "Tokens loaded #",
    "Misses #",
)


def evaluation_view(evaluation: Evaluation, limits: DisplayLimits) -> View:
    """Show a row of figures for each strategy, and its misses with the reason for each."""
    scores = evaluation.scores[: limits.rows]
    facts = (
        ("Cases", words.count(evaluation.cases, "case")),
        ("Searched", words.count(evaluation.tools, "tool")),
        ("Results counted", f"top {evaluation.k:,} of each search"),
        ("All definitions", words.tokens(evaluation.definition_tokens, "estimated")),
        ("Manifest", words.tokens(evaluation.manifest_tokens, "estimated")),
    )
    table = Table(columns(*_SCORES), tuple(map(_score_row, scores)), len(evaluation.scores) - len(scores))
    each = max(2, limits.rows // max(1, len(scores)))
    misses = [_misses(score, each) for score in scores if score.misses]
    return View("evaluation", "Discovery evaluation", (KeyValues(facts), table, *misses))


def _score_row(score: StrategyScore) -> tuple[Cell, ...]:
    shares = (score.recall_any, score.recall, score.recall_all, score.mrr, score.server)
    bars = tuple(Bar(f"{share:.2f}", share, narrow=True) for share in shares)
    return (Name(score.name), *bars, words.about(round(score.loaded_tokens), "estimated"), words.number(len(score.misses)))


def _misses(score: StrategyScore, limit: int) -> Section:
    rows = tuple(_miss_row(miss) for miss in score.misses[:limit])
    table = Table(columns("Query", "Wanted", "Found", "Why"), rows, len(score.misses) - len(rows))
    return Section(f"Misses of {score.name}", (table,), note=words.count(len(score.misses), "case"), fold="closed")


def _miss_row(miss: Miss) -> tuple[Cell, ...]:
    wanted = "; ".join(" or ".join(map(str, sorted(need))) for need in miss.unmet)
    return (miss.case.query, wanted, _names(miss.found) or "nothing", miss.reason)


def lint_view(lint: Lint, limits: DisplayLimits) -> View:
    """Show the findings by kind, folded."""
    note = f"{words.count(len(lint), 'finding')} in {words.count(lint.tools, 'tool')}"
    kinds = lint.by_kind()
    if not kinds:
        return View("lint", "Catalog lint", (TextBlock("No findings."),), note=note)
    each = max(2, limits.rows // len(kinds))
    blocks: list[Block] = [_findings(kind, findings, each) for kind, findings in kinds.items()]
    return View("lint", "Catalog lint", tuple(blocks), note=note)


def _findings(kind: str, findings: tuple[LintFinding, ...], limit: int) -> Section:
    rows = tuple((Name(str(finding.tool)), finding.text) for finding in findings[:limit])
    table = Table(columns("Tool", "Finding"), rows, len(findings) - len(rows))
    return Section(kind.capitalize(), (table,), note=words.count(len(findings), "finding"), fold="closed")


def _names(names: Iterable[ToolName]) -> str:
    return ", ".join(map(str, names))
