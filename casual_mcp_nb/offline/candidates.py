"""Rank the tools that may meet a need, and decide which of them may be called for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import emphasis, readable, stem, synonyms, terms
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.needs import Need, Word

FITS, SURE, CERTAIN = 0.55, 0.7, 0.9
OWN = 0.52
LIKE = 0.34
"""How much of a need a tool's words must cover for the tool to be called or named."""
_MAX_CANDIDATES = 12
_SYNONYM = 0.7
"""Weight for a word that matches only through an expansion."""
_FILLER = 0.4
_ASKING = frozenset(terms("display find get give list live look print show tell"))
_SAYS_LITTLE = 0.3
_READING = """
analyze browse calculate check compare compute convert count describe display draw explain fetch find get give inspect is list
look lookup print query read report retrieve return say search show sum tell view
"""
"""Verbs with which the name or the description of a tool that changes nothing begins."""
_CHANGING = """
add book buy cancel clear copy create delete drop edit execute insert kill move order overwrite pay post remove rename replace
return run save send set update write
"""
_VERB = re.compile(r"[Aa]dd up|[A-Z]?[a-z]+|[A-Z]+")
_QUESTION = re.compile(
    r"\W*(?:what|which|who|whose|when|where|why|how|any|is|are|was|were|do|does|did|has|have|had"
    r"|should|(?:can|could|may|must) (?!you\b))\b",
    re.I,
)


class Candidate(NamedTuple):
    """A tool that may meet a need."""

    tool: ToolSpec
    filling: Filling
    confidence: float
    """From 0 to 1: how much of the need the tool's words and parameters cover, or 0 where a call
    would be a guess.
    """
    rank: float
    likeness: float = 1.0
    """From 0 to 1: how much of the need the tool's words cover."""


def candidates_for(
    need: Need, index: ToolSearchIndex, used: Mapping[ToolSpec, Mapping[str, Any]]
) -> list[Candidate]:
    """Rank the loaded tools for a need, best first.

    For a follow-up, `used` is the last used tool with its arguments: it is implied, even if no word
    names it, where it can use all new values.
    """
    candidates: dict[ToolSpec, Candidate] = {}
    hits = index.search(need.query, _MAX_CANDIDATES)
    for hit in hits:
        share = hit.score / hits[0].score
        candidates[hit.tool] = candidate_for(need, hit.tool, hit.explain(), share)
    for tool, arguments in used.items() if need.follows else ():
        filling = Filling(need.text, need.mentions, parameters_of(tool.input_schema), arguments)
        missing = set(index.explain(need.query, tool).missing)
        strange = any(missing.issuperset(word.terms) for word in _left(need, filling))
        all_taken = need.mentions and all(_taken(need, filling))
        if all_taken and filling.typed and not strange and _is_asked_for(need, tool):
            candidates[tool] = Candidate(tool, filling, 0.95, 2.0)

    def order(one: Candidate) -> tuple[float, int, str]:
        return -one.rank, len(one.filling.missing), one.tool.wire_name

    return sorted(candidates.values(), key=order)


def candidate_for(
    need: Need, tool: ToolSpec, explanation: Explanation, share: float = 1.0
) -> Candidate:
    """Compute how well a tool meets a need. `share` is its score relative to the best tool's."""
    own_terms = set(terms(f"{tool.name} {tool.description}"))
    parameters = parameters_of(tool.input_schema)
    filling = Filling(need.text, need.mentions, parameters, own_terms=own_terms)
    worth: dict[str, float] = {}
    for part in explanation.shares:
        value = _SYNONYM if part.query_term else 1.0
        if part.field in ("parameter name", "details"):
            # Parameters and choices, such as `order`, say little about the purpose, and nothing
            # where one was chosen.
            if filling.chosen:
                continue
            value = _SAYS_LITTLE
        term = part.query_term or part.term
        worth[term] = max(worth.get(term, 0.0), value)
    for term in terms(" ".join(filling.arguments).replace("_", " ")):
        if term in worth or term not in own_terms:
            worth[term] = 1.0
    if "exact name" in worth:
        return Candidate(tool, filling, 1.0, 3.0)
    covered = _coverage(need, filling, worth)
    taken = _taken(need, filling)
    confidence = likeness = covered or 0.0
    if covered is None:
        confidence = CERTAIN if taken and all(taken) else 0.0
    elif covered >= LIKE and taken:
        confidence = 0.6 * covered + 0.4 * sum(taken) / len(taken)
    if filling.guessed and worth.keys().isdisjoint(terms(tool.name)):
        confidence = likeness = 0.0
    elif (covered is not None and covered < LIKE) or not _is_asked_for(need, tool):
        confidence = 0.0
    elif not all(taken) or _ignores_a_name(need, filling, worth):
        # It would answer another question: one without this value.
        confidence = min(confidence, FITS - 0.05)
    rank = confidence + 0.3 * share + 0.02 * min(filling.typed, 5)
    return Candidate(tool, filling, confidence, rank, likeness)


def _left(need: Need, filling: Filling) -> list[Word]:
    return [one for one in need.words if not filling.covers(one.start, one.end)]


def _taken(need: Need, filling: Filling) -> list[bool]:
    # An amount's unit goes with its number; another is hardly ever a value.
    values = [one for one in need.mentions if one.kind != "unit"]
    return [filling.covers(one.start, one.end) for one in values]


def _ignores_a_name(need: Need, filling: Filling, worth: Mapping[str, float]) -> bool:
    """Check whether a proper name in the request is neither a value nor a word of the tool."""
    for word in _left(need, filling):
        written = need.text[word.start : word.end]
        if word.start > 0 and written.istitle() and worth.keys().isdisjoint(word.terms):
            return True
    return False


def _is_asked_for(need: Need, tool: ToolSpec) -> bool:
    """Check whether the request may mean a call of this tool.

    A tool that writes, or says neither by its annotations nor by its first verb that it only reads,
    is called by an order that has this verb; one that draws at random, by that word.
    """
    said = terms(readable(need.text))
    if "random" in terms(tool.name):
        return "random" in said
    reading = {"add up", *map(stem, _READING.split())}
    changing = set(map(stem, _CHANGING.split()))
    name, about = (_VERB.search(text) for text in (tool.name, tool.description))
    verbs = [stem(verb[0].casefold()) for verb in (name, about) if verb]
    read_only = tool.annotations.read_only if tool.annotations else None
    writes = read_only is False or (read_only is None and not changing.isdisjoint(verbs[:1]))
    if read_only or (not writes and not reading.isdisjoint(verbs)):
        return True
    first = [term for term in said if emphasis(term) == 1][:1]
    meant = {other for verb in verbs for other in (verb, *synonyms().get(verb, ()))}
    return not _QUESTION.match(need.text) and not meant.isdisjoint([*first, *need.implied])


def _coverage(need: Need, filling: Filling, worth: Mapping[str, float]) -> float | None:
    """Compute the share of the need's words that the tool matches, or None if all became
    arguments.
    """
    words = _left(need, filling)
    implied = set(terms(" ".join(need.implied)))
    wanted = {term for word in words for term in word.terms} | implied
    if not wanted:
        return None
    # A verb that asks for anything says as little as a filler word, but a question such as `which`
    # asks for a list.
    weights = {term: _FILLER if term in _ASKING - implied else emphasis(term) for term in wanted}
    first = words[0].terms if words and words[0].start == 0 and not need.implied else ()
    if first and not any(term in worth or weights[term] < 1 for term in first):
        # `Reverse the text` is an order for a tool that reverses, not for any that takes a text.
        return 0.0
    own = sum(weights[term] * worth.get(term, 0.0) for term in weights if term not in implied)
    own += len(filling.chosen)
    owned = sum(weights[term] for term in weights if term not in implied) + len(filling.chosen)
    if owned and own / owned < OWN:
        return 0.0
    matched = sum(weight * worth.get(term, 0.0) for term, weight in weights.items())
    return matched / sum(weights.values())


def nearest_to(need: Need, candidates: list[Candidate], index: ToolSearchIndex) -> Candidate | None:
    """Find the tool to name if none fits: its words cover most of the need, or its name has one
    of them.
    """
    like = [one for one in candidates if one.likeness >= LIKE]
    if like:
        return max(like, key=lambda one: one.likeness)
    wanted = set(terms(need.text)) - _ASKING
    for hit in index.search(need.text, 3):
        if wanted.intersection(terms(f"{hit.tool.name} {hit.tool.description}")):
            return candidate_for(need, hit.tool, hit.explain())
    return None
