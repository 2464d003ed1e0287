"""Rank tools for a need, by the search index and by how many of the request's values they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.discovery.text import emphasis, synonyms, terms
from casual_mcp_nb.offline.arguments import Filling, fill
from casual_mcp_nb.offline.expressions import operation
from casual_mcp_nb.offline.mentions import Mention
from casual_mcp_nb.offline.needs import Need
from casual_mcp_nb.offline.parameters import parameters_of
from casual_mcp_nb.types.search import Explanation
from casual_mcp_nb.types.tool import ToolSpec

FITS, SURE, CERTAIN = 0.55, 0.7, 0.9
_MAX_CANDIDATES = 12
_SYNONYM = 0.7
"""Weight of a word that matches only by an expansion."""
_CHANGING = frozenset(
    terms(
        "clear copy create delete drop edit execute insert kill move overwrite random remove rename replace run send set "
        "update write"
    )
)
_SAYS_LITTLE = ("parameter name", "details")


@dataclass(frozen=True)
class Candidate:
    """A candidate tool.

    Args:
        tool: The tool.
        filling: Its arguments.
        confidence: From 0 to 1: how much of the need the tool's words and parameters cover.
        rank: The sort key of candidates.
    """

    tool: ToolSpec
    filling: Filling = field(repr=False)
    confidence: float
    rank: float

    @property
    def complete(self) -> bool:
        """Whether a call can be made."""
        return not self.filling.missing

    @property
    def fits(self) -> bool:
        """Whether it is good enough."""
        return self.confidence >= FITS


def candidates_for(need: Need, index: ToolSearchIndex, used: Mapping[ToolSpec, Mapping[str, Any]]) -> list[Candidate]:
    """Return the tools for a need, best first.

    Args:
        need: The need.
        index: The tools that are loaded.
        used: The last used tool of the conversation with its arguments, for a need that continues from there.
    """
    hits = {hit.tool: hit for hit in index.search(need.query, _MAX_CANDIDATES)}
    top = max((hit.score for hit in hits.values()), default=1.0)
    candidates = [_candidate(need, tool, hit.explain(), hit.score / top) for tool, hit in hits.items()]
    for tool, arguments in used.items() if need.follows else ():
        again = _again(need, tool, arguments, index)
        candidates = [again, *(one for one in candidates if one.tool != tool)] if again else candidates
    return sorted(candidates, key=lambda one: (-one.rank, len(one.filling.missing), one.tool.wire_name))


def _candidate(need: Need, tool: ToolSpec, explanation: Explanation, share: float) -> Candidate:
    mentions = [value for mention in need.mentions for value in _for_tool(mention, tool)]
    filling = fill(need.text, mentions, parameters_of(tool.input_schema))
    matched = {part.asked or part.term for part in explanation.shares}
    for name, (start, end) in list(filling.loose.items()):
        # `Sort the lines` says what the tool does, not which lines.
        inside = [word for word in need.words if start <= word.start and word.end <= end]
        holds_a_value = any(start <= mention.start and mention.end <= end for mention in need.mentions)
        if filling.missing or (not holds_a_value and all(matched.issuperset(word.terms) for word in inside)):
            filling.drop(name)
    if any(part.term == "exact name" for part in explanation.shares):
        return Candidate(tool, filling, 1.0, 3.0)
    covered = _coverage(need, filling, explanation)
    taken = sum(filling.covers(one.start, one.end) for one in mentions) / len(mentions) if mentions else None
    confidence = _confidence(covered, taken)
    named = any(part.field == "name" and part.frequency for part in explanation.shares)
    if (filling.loose and (covered is None or not named)) or _changes_unasked(need, tool):
        confidence = 0.0
    return Candidate(tool, filling, confidence, confidence + 0.3 * share + 0.02 * min(filling.typed, 5))


def _again(need: Need, tool: ToolSpec, arguments: Mapping[str, Any], index: ToolSearchIndex) -> Candidate | None:
    """Return the last used tool if it can use all new values: it is implied, even if no word names it."""
    filling = fill(need.text, need.mentions, parameters_of(tool.input_schema), arguments)
    missing = set(index.explain(need.query, tool).missing)
    strange = [word for word in need.words if not filling.covers(word.start, word.end) and missing.issuperset(word.terms)]
    all_taken = need.mentions and all(filling.covers(one.start, one.end) for one in need.mentions)
    return Candidate(tool, filling, 0.95, 2.0) if all_taken and not strange and filling.typed else None


def _changes_unasked(need: Need, tool: ToolSpec) -> bool:
    """Return whether the name begins with a verb for changing something, or for chance, that the request lacks."""
    verb = next(iter(terms(tool.name)), "")
    request_terms = {term for word in need.words for term in word.terms} | {
        term for word in need.implied for term in terms(word)
    }
    return verb in _CHANGING and request_terms.isdisjoint({verb, *synonyms().get(verb, ())})


def _for_tool(mention: Mention, tool: ToolSpec) -> Sequence[Mention]:
    """Return the mention in a form for this tool: `5 + 7` as two numbers for a tool that adds."""
    parts = operation(mention.value) if mention.kind == "expression" else None
    if parts is None or terms(parts[0])[0] not in terms(tool.name):
        return [mention]
    return [
        replace(mention, kind="number", value=parts[1], end=mention.start + 1),
        replace(mention, kind="number", value=parts[2], start=mention.end - 1),
    ]


def _confidence(covered: float | None, taken: float | None) -> float:
    if covered is None:
        return 0.9 if taken == 1 else 0.0
    if covered < 0.34:
        return 0.0
    return covered if taken is None else 0.6 * covered + 0.4 * taken


def _coverage(need: Need, filling: Filling, explanation: Explanation) -> float | None:
    """Return the share of the need's words that the tool matches; None if all of them became arguments."""
    worth: dict[str, float] = {}
    for part in explanation.shares:
        query_term = part.asked or part.term
        worth[query_term] = max(worth.get(query_term, 0.0), _SYNONYM if part.asked else 1.0)
    words = [word for word in need.words if not filling.covers(word.start, word.end, loosely=True)]
    wanted = {term for word in words for term in word.terms}
    if not wanted:
        return None
    # Parameter names alone, such as `order`, say nothing about the tool's purpose.
    if not any((part.asked or part.term) in wanted and part.field not in _SAYS_LITTLE for part in explanation.shares):
        return 0.0
    first = words[0]
    if first.start == 0 and not need.implied and not any(term in worth or emphasis(term) < 1 for term in first.terms):
        # `Reverse the text` is an order for a tool that reverses, not for any that takes a text.
        return 0.0
    wanted.update(term for word in need.implied for term in terms(word))
    return sum(emphasis(term) * worth.get(term, 0.0) for term in wanted) / sum(map(emphasis, wanted))
