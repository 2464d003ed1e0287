"""Views of a search and of the reasons for a rank."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.text import first
from casual_mcp_nb.display.tools import SUMMARY
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Name,
    Section,
    Table,
    Text,
    View,
    columns,
    fraction,
)
from casual_mcp_nb.types.search import Explanation, SearchHit, SearchResults, TermScore

_EXPLAINED = 10


def search_view(results: SearchResults, limits: DisplayLimits) -> View:
    """Return the ranked tools with their scores; a short list explains each rank."""
    facts = KeyValues((("Query", results.query), ("Found", _found(results))))
    if not results.hits:
        return View(
            "search",
            "Search",
            (facts, Text("No tool matches. Words are compared as they are: ask in the language of the descriptions.")),
        )
    best = max(hit.score for hit in results.hits)
    rows = tuple(_hit_row(hit, best) for hit in results.hits[: limits.rows])
    table = Table(columns("Tool", "Rank #", "Score", "Server", "Description"), rows, len(results) - len(rows))
    blocks: list[Block] = [facts, table]
    if len(results) <= min(_EXPLAINED, limits.rows):
        blocks += [_why(hit, limits) for hit in results.hits]
    return View("search", "Search", tuple(blocks))


def explanation_view(explanation: Explanation, limits: DisplayLimits) -> View:
    """Return why a tool has its rank: the share of each term, and the terms without a match."""
    about = (("Query", explanation.query), ("Rank", _rank(explanation)), ("Verdict", explanation.verdict))
    return View(
        "explanation",
        f"Why {explanation.tool.wire_name}",
        (KeyValues(about), *_shares(explanation)),
        note=f"score {words.score(explanation.score)}",
    )


def _found(results: SearchResults) -> str:
    return f"{words.count(len(results), 'tool')} of {results.searched:,}; at most {results.cut:,} asked for"


def _hit_row(hit: SearchHit, best: float) -> tuple[Cell, ...]:
    return (
        Name(hit.tool.wire_name),
        words.number(hit.rank),
        Bar(words.score(hit.score), fraction(hit.score, best)),
        hit.tool.server,
        first(hit.tool.description, SUMMARY),
    )


def _why(hit: SearchHit, limits: DisplayLimits) -> Section:
    explanation = hit.explain()
    return Section(f"Why {hit.tool.wire_name}", _shares(explanation), note=_rank(explanation), fold="closed")


def _rank(explanation: Explanation) -> str:
    if explanation.rank is None:
        return "not found"
    rank = f"rank {explanation.rank:,}"
    return rank if explanation.rank <= explanation.cut else f"{rank}, left out: only {explanation.cut:,} were asked for"


def _shares(explanation: Explanation) -> tuple[Block, ...]:
    missing = KeyValues((("Terms that it does not have", ", ".join(explanation.missing) or "none"),))
    if not explanation.shares:
        return (Text("No term of the query stands in this tool."), missing)
    rows = [_share_row(share, explanation.score) for share in explanation.shares]
    total: tuple[Cell, ...] = ("Sum = score", "", "", "", "", words.score(explanation.score))
    table = Table(columns("Term", "Field", "Frequency #", "idf #", "Length norm #", "Share of the score"), (*rows, total))
    return (table, missing)


def _share_row(share: TermScore, score: float) -> tuple[Cell, ...]:
    part = fraction(share.share, score)
    text = words.score(share.share) if part is None else f"{words.score(share.share)} ({words.percent(part)})"
    term = f"{share.term} (for {share.asked})" if share.asked else share.term
    of_terms = (
        (words.number(share.frequency), words.score(share.idf), words.score(share.length_norm)) if share.idf else ("", "", "")
    )
    return (Name(term), share.field, *of_terms, Bar(text, part))
