"""Views that show search results and explain a rank, in words. The formula is one click away."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from casual_mcp_nb.base.search import (
    PAST_QUESTION,
    Explanation,
    SearchResults,
    TermScore,
    ordinal,
)
from casual_mcp_nb.conversation.view_requests import saving_row
from casual_mcp_nb.conversation.view_usage import tool_usage_view
from casual_mcp_nb.discovery.conversation_audit import ConversationAudit
from casual_mcp_nb.display import words
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
    fraction,
)
from casual_mcp_nb.display.words import SUMMARY, first

_EXPLAINED = 10
_WORDS = 5
_FIELDS = {
    "parameter name": "parameter names",
    "details": "parameter descriptions",
    "server": "server name",
}
_PARTS = {
    "words of the name": (
        "Words together in the name",
        "how much of the tool's name the search has",
    ),
    "the server's topic": (
        "Match with the server's topic",
        "how well all tools of this server fit the search",
    ),
    "exact name": ("Exact tool name", "the search names this tool"),
    "meaning": ("Similar meaning", "the embedding model finds the texts alike"),
    PAST_QUESTION: ("Past question", "the tool was called after a question like this one"),
    "same description as a better hit": (
        "Repeats a better match",
        "another tool has the same description, so this one ranks lower",
    ),
}
"""The score's parts that are not search words, with their meanings."""
_CLAUSE = ("Part of the request", "the tool fits this part of the request best")
_FORMULA = (
    "BM25F. A word adds its rarity (idf: high where few tools have it) times how often it is in the"
    " tool. Each field has a weight, the name the highest, and a long field counts less (length:"
    " above 1). A related word counts less than the word itself."
)


def search_view(results: SearchResults, limits: DisplayLimits) -> View:
    """Show the ranked tools with the words that matched. A short list explains each rank."""
    note = words.quoted(results.query)
    if not results.hits:
        text = (
            "No tool matches. Search compares words, so use the language of the tool descriptions."
        )
        if results.note:
            text = f"{text} {results.note}"
        return View("search", "Search", (TextBlock(text),), note=note)
    best = max(hit.score for hit in results.hits)
    short = len(results) <= min(_EXPLAINED, limits.rows)
    rows: list[tuple[Cell, ...]] = []
    folds: list[Section] = []
    for hit in results.hits[: limits.rows]:
        row: list[Cell] = [
            Name(str(hit.tool.tool_name)),
            Bar(words.score(hit.score), fraction(hit.score, best)),
            first(hit.tool.description, SUMMARY),
        ]
        if short:
            reason = hit.explain()
            row.insert(2, _matched(reason))
            title = f"Why {reason.tool.tool_name} is {ordinal(reason.rank or 0)}"
            folds.append(Section(title, _reasons(reason), fold="closed", brief=True))
        rows.append(tuple(row))
    titles = ("Tool", "Match", "Why", "Description") if short else ("Tool", "Match", "Description")
    table = Table(columns(*titles), tuple(rows), len(results) - len(rows))
    blocks: list[Block] = [TextBlock(_count(results)), table]
    if folds:
        blocks.append(Section("Why this order", tuple(folds), fold="closed", brief=True))
    return View("search", "Search", tuple(blocks), note=note)


def explanation_view(explanation: Explanation, limits: DisplayLimits) -> View:
    """Show why a tool has its rank, or why it has none."""
    about = KeyValues(
        (("Search", words.quoted(explanation.query)), ("Result", explanation.verdict))
    )
    note = f"score {words.score(explanation.score)}" if explanation.rank else ""
    title = f"Why {explanation.tool.tool_name}"
    return View("explanation", title, (about, *_reasons(explanation)), note=note)


def _count(results: SearchResults) -> str:
    matches = "match" if len(results) == 1 else "matches"
    text = (
        f"Showing {len(results):,} {matches} of {words.count(results.searched, 'tool')}, ranked by"
        f" {results.ranked_by}. The model gets the top {results.cut:,}."
    )
    if results.note:
        text = f"{text} {results.note}"
    return text


def _matched(explanation: Explanation) -> str:
    """List the search words that a tool has. Where it has none, the related words."""
    terms = list(chain.from_iterable(_by_word(explanation).values()))
    own = [share for share in terms if not share.query_term] or terms
    reasons = dict.fromkeys(_word(explanation, share) for share in own)
    if any(share.term == PAST_QUESTION for share in explanation.shares):
        reasons = {PAST_QUESTION: None, **reasons}
    return words.listed(reasons, _WORDS)


def _reasons(explanation: Explanation) -> tuple[Block, ...]:
    misses: tuple[Block, ...] = ()
    if explanation.missing:
        missing = ", ".join(words.quoted(explanation.word(term)) for term in explanation.missing)
        misses = (KeyValues((("Words with no match", missing),)),)
    if not explanation.shares:
        return misses
    score = explanation.score
    others = [share for share in explanation.shares if not _is_word(share)]
    rows: list[tuple[Cell, ...]] = []
    for name, shares in _by_word(explanation).items():
        part = _part(sum(share.share for share in shares), score)
        rows.append((name, f"in {', '.join(_fields(shares))}", part))
    rows += [(*_other_part(share), _part(share.share, score)) for share in others]
    rows.append(("Score", "", words.score(score)))
    return (
        Table(columns("Search word", "Matched in", "Adds"), tuple(rows)),
        *misses,
        _formula(explanation),
    )


def _by_word(explanation: Explanation) -> dict[str, list[TermScore]]:
    """Group the score's parts by the whole search word, the largest contribution first."""
    groups: dict[str, list[TermScore]] = {}
    for share in explanation.shares:
        if _is_word(share):
            groups.setdefault(_word(explanation, share), []).append(share)
    return dict(sorted(groups.items(), key=lambda group: -sum(share.share for share in group[1])))


def _is_word(share: TermScore) -> bool:
    return bool(share.idf) and share.term not in _PARTS


def _word(explanation: Explanation, share: TermScore) -> str:
    word = words.quoted(explanation.word(share.term))
    if share.query_term:
        word = f"{word} (related to {words.quoted(explanation.word(share.query_term))})"
    return word


def _fields(shares: Iterable[TermScore]) -> list[str]:
    return list(dict.fromkeys(_FIELDS.get(share.field, share.field) for share in shares))


def _other_part(share: TermScore) -> tuple[str, str]:
    title, meaning = _PARTS.get(share.term, _CLAUSE)
    if share.term == "meaning" and share.field != "embedding":
        meaning = f"nearest words: {share.field}"
    if share.term == PAST_QUESTION:
        meaning = share.field
        if share.frequency > 1:
            meaning += f", and after {words.count(share.frequency - 1, 'other')} like this one"
    if title == _CLAUSE[0]:
        title = f"{title}: {share.term.removeprefix('clause ')}"
    return title, meaning


def _part(share: float, score: float) -> Bar:
    part = fraction(share, score)
    text = words.score(share)
    if part is not None:
        text = f"{text} ({words.percent(part)})"
    return Bar(text, part)


def _formula(explanation: Explanation) -> Section:
    rows = tuple(_formula_row(explanation, share) for share in explanation.shares)
    titles = columns(
        "Word", "Index term", "Field", "Times #", "Rarity (idf) #", "Length #", "Adds #"
    )
    return Section("Formula", (TextBlock(_FORMULA), Table(titles, rows)), fold="closed", brief=True)


def _formula_row(explanation: Explanation, share: TermScore) -> tuple[Cell, ...]:
    adds = f"{share.share:.2f}"
    if not _is_word(share):
        return (_other_part(share)[0], "", share.field, "", "", "", adds)
    field = _FIELDS.get(share.field, share.field)
    figures = (words.number(share.frequency), f"{share.idf:.2f}", f"{share.length_norm:.2f}")
    return (_word(explanation, share), Name(share.term), field, *figures, adds)


_UNKNOWN_DEFINITIONS = (
    "What deferring would have saved is unknown: no request has its tool definitions. Files of Claude"
    " Code and Codex never have them."
)


def conversation_audit_view(audit: ConversationAudit, limits: DisplayLimits) -> View:
    """Compare a conversation's requests with the same ones with every tool deferred."""
    sent, deferred = audit.sent, audit.deferred
    blocks: list[Block] = []
    if sent.requests:
        rows: list[tuple[Cell, ...]] = [
            ("Requests", words.number(sent.requests), words.number(deferred.requests))
        ]
        for label, before, after in (
            ("Tool definitions", sent.definitions, deferred.definitions),
            ("All input", sent.total, deferred.total),
            ("Of it from the cache", sent.cached, deferred.cached),
            ("Cached tokens counted as a tenth", sent.weighted, deferred.weighted),
        ):
            rows.append((label, words.about(before, audit.origin), words.about(after, "estimated")))
        blocks.append(Table(columns("", "As it was #", "Every tool deferred #"), tuple(rows)))
        blocks.append(KeyValues(saving_row(deferred.weighted, sent.weighted)))
    elif not audit.deferring:
        blocks.append(TextBlock(_UNKNOWN_DEFINITIONS))
    if audit.deferring:
        left_out = words.count(audit.deferring, "request")
        blocks.append(TextBlock(f"Not compared, because they deferred tools already: {left_out}."))
    usage = tool_usage_view(audit.usage, limits)
    blocks.append(Section(usage.title, usage.blocks, note=usage.note))
    note = f"{words.count(audit.requests, 'request')}, {sent.requests:,} compared"
    return View("conversation-audit", "What deferring would have saved", tuple(blocks), note=note)
