"""Rank tools for a need, by the search index and by how many of the request's values they use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.discovery.text import emphasis, synonyms, terms
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.needs import Need
from casual_mcp_nb.types.search import Explanation
from casual_mcp_nb.types.tool import ToolSpec

FITS, SURE, CERTAIN = 0.55, 0.7, 0.9
_MAX_CANDIDATES = 12
_SYNONYM = 0.7
"""Weight of a word that matches only by an expansion."""
_CHANGING = """
clear copy create delete drop edit execute insert kill move overwrite random remove rename replace run send set update write
"""
_SAYS_LITTLE = ("parameter name", "details")


class Candidate(NamedTuple):
    """A tool that may meet a need."""

    tool: ToolSpec
    filling: Filling
    confidence: float
    """From 0 to 1: how much of the need the tool's words and parameters cover."""
    rank: float


def candidates_for(need: Need, index: ToolSearchIndex, used: Mapping[ToolSpec, Mapping[str, Any]]) -> list[Candidate]:
    """Rank the loaded tools for a need, best first; for one that follows, `used` is the last used tool with its arguments."""
    hits = index.search(need.query, _MAX_CANDIDATES)
    candidates = {hit.tool: _candidate(need, hit.tool, hit.explain(), hit.score / hits[0].score) for hit in hits}
    for tool, arguments in used.items() if need.follows else ():
        again = _again(need, tool, arguments, index)
        candidates |= {tool: again} if again else {}
    return sorted(candidates.values(), key=lambda one: (-one.rank, len(one.filling.missing), one.tool.wire_name))


def _candidate(need: Need, tool: ToolSpec, explanation: Explanation, share: float) -> Candidate:
    filling = Filling(need.text, need.mentions, parameters_of(tool.input_schema))
    # How well the tool matches each term of the request, by itself or by a synonym; not as a choice besides the chosen one.
    matched = [part for part in explanation.shares if not filling.chosen or part.field not in _SAYS_LITTLE]
    worth = {part.query_term or part.term: _SYNONYM for part in matched}
    worth |= {part.term: 1.0 for part in matched if not part.query_term}
    for name, (start, end) in list(filling.loose.items()):
        # `Sort the lines` says what the tool does, not which lines.
        inside = [word for word in need.words if start <= word.start and word.end <= end]
        holds_a_value = any(start <= mention.start and mention.end <= end for mention in need.mentions)
        if filling.missing or (not holds_a_value and all(worth.keys() >= set(word.terms) for word in inside)):
            filling.drop(name)
    if "exact name" in worth:
        return Candidate(tool, filling, 1.0, 3.0)
    covered = _coverage(need, filling, explanation, worth)
    used = [filling.covers(one.start, one.end) for one in need.mentions]
    taken = sum(used) / len(used) if used else None
    named = any(part.field == "name" and part.frequency for part in explanation.shares)
    if (filling.loose and (covered is None or not named)) or _changes_unasked(need, tool):
        confidence = 0.0
    elif covered is None:
        confidence = 0.9 if taken == 1 else 0.0
    else:
        confidence = 0.0 if covered < 0.34 else covered if taken is None else 0.6 * covered + 0.4 * taken
    return Candidate(tool, filling, confidence, confidence + 0.3 * share + 0.02 * min(filling.typed, 5))


def _again(need: Need, tool: ToolSpec, arguments: Mapping[str, Any], index: ToolSearchIndex) -> Candidate | None:
    """Propose the last used tool if it can use all new values: it is implied, even if no word names it."""
    filling = Filling(need.text, need.mentions, parameters_of(tool.input_schema), arguments)
    missing = set(index.explain(need.query, tool).missing)
    strange = [word for word in need.words if not filling.covers(word.start, word.end) and missing.issuperset(word.terms)]
    all_taken = need.mentions and all(filling.covers(one.start, one.end) for one in need.mentions)
    return Candidate(tool, filling, 0.95, 2.0) if all_taken and not strange and filling.typed else None


def _changes_unasked(need: Need, tool: ToolSpec) -> bool:
    """Check whether the name begins with a verb for changing something, or for chance, that the request lacks."""
    verb = next(iter(terms(tool.name)), "")
    requested = need.terms.union(terms(" ".join(need.implied)))
    return verb in terms(_CHANGING) and requested.isdisjoint({verb, *synonyms().get(verb, ())})


def _coverage(need: Need, filling: Filling, explanation: Explanation, worth: Mapping[str, float]) -> float | None:
    """Compute the share of the need's words that the tool matches; None if all of them became arguments."""
    words = [word for word in need.words if not filling.covers(word.start, word.end, loosely=True)]
    word_terms = {term for word in words for term in word.terms}
    wanted = word_terms.union(terms(" ".join(need.implied)))
    if not wanted:
        return None
    # Parameter names and choices alone, such as `order`, say nothing about the tool's purpose.
    telling = wanted if filling.chosen else word_terms
    if not any((part.query_term or part.term) in telling and part.field not in _SAYS_LITTLE for part in explanation.shares):
        return 0.0
    orders = words and words[0].start == 0 and not need.implied
    if orders and not any(term in worth or emphasis(term) < 1 for term in words[0].terms):
        # `Reverse the text` is an order for a tool that reverses, not for any that takes a text.
        return 0.0
    return sum(emphasis(term) * worth.get(term, 0.0) for term in wanted) / sum(map(emphasis, wanted))
