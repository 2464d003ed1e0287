"""Rank the tools that may meet a need, and decide which of them may be called for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import emphasis, readable, stem, synonyms, terms
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.mentions import Mention
from casual_mcp_nb.offline.needs import Need

FITS, SURE = 0.55, 0.7
LIKE = 0.2
"""How much of a request a tool must cover to be named."""
_MAX_CANDIDATES = 12
_SYNONYM = 0.7
"""Weight for a word that matches only through an expansion."""
_FILLER = 0.4
_ASKING = frozenset(terms("display find get give list live look print show tell"))
_READING = """
analyze browse calculate check compare compute convert count describe display draw explain fetch find get give inspect is list
look lookup print query read report retrieve return say search show sum tell view
"""
"""Verbs with which the name or the description of a tool that changes nothing begins."""
_CHANGING = """
add book buy cancel clear copy create delete drop edit execute insert kill move order overwrite pay post remove rename replace
return run save send set update write
"""
_TURNS = re.compile(
    r"\b(?:not|except|excluding|without|other than|besides|\w{2,}est|(?:most|least)(?=\W*$))\b|n't\b",
    re.I,
)
_VERB = re.compile(r"[Aa]dd up|[A-Z]?[a-z]+|[A-Z]+")
_READS = {"add up", *map(stem, _READING.split())}
_CHANGES = set(map(stem, _CHANGING.split()))
_POLITE = re.compile(r"\W*(?:(?:please|can|could|would|will|you|now|then|also|and)\b\W*)*", re.I)
_QUESTION = re.compile(
    r"\W*(?:what|which|who|whose|when|where|why|how|any|is|are|was|were|do|does|did|has|have|had"
    r"|should|(?:can|could|may|must) (?!you\b))\b",
    re.I,
)


class Candidate(NamedTuple):
    """A tool that may meet a need."""

    tool: ToolSpec
    filling: Filling
    likeness: float
    """From 0 to 1: how much of the need the tool's words and its arguments cover."""
    confidence: float
    """The likeness, or 0 where a call would be a guess, or would answer another question."""
    may_be_meant: bool = True
    """Whether the request may mean a call of this tool: an order, or it only reads."""
    share: float = 1.0
    """Its score in the search, relative to the best tool's."""


def candidates_for(
    need: Need, index: ToolSearchIndex, last: tuple[ToolSpec, Mapping[str, Any]] | None = None
) -> list[Candidate]:
    """Rank the loaded tools for a need, best first.

    A follow-up that gives only other values of the last call repeats that.
    """
    hits = index.search(need.query, _MAX_CANDIDATES)
    found: list[Candidate] = []
    for hit in hits:
        one = candidate_for(need, hit.tool, hit.explain())
        found.append(one._replace(share=hit.score / hits[0].score))
    # `Who reserved the boat?` is about what `reserve` did, and no answer is what another tool tells.
    barred = max((one.likeness for one in found if not one.may_be_meant), default=0.0)
    candidates = [one for one in found if one.likeness >= barred]
    candidates.sort(key=_rank, reverse=True)
    if last is not None and need.mentions and need.follows:
        tool, arguments = last
        again = candidate_for(need, tool, index.explain(need.query, tool), arguments)
        if again.filling.typed and again.confidence >= FITS:
            candidates.insert(0, again)
    return candidates


def _rank(one: Candidate) -> float:
    # Of two that are about as good, the one is better that can be called, or that takes more.
    rank = one.confidence + 0.3 * one.share + 0.02 * one.filling.typed
    return rank - 0.1 * bool(one.filling.missing)


def candidate_for(
    need: Need,
    tool: ToolSpec,
    explanation: Explanation,
    known: Mapping[str, Any] | None = None,
) -> Candidate:
    """Compute how well a tool meets a need, with the `known` arguments of an earlier call."""
    filling = Filling(need, parameters_of(tool.input_schema), known)
    worth = _worth(explanation, filling)
    if "exact name" in worth:
        return Candidate(tool, filling, 1.0, 2.0)
    likeness = _coverage(need, filling, worth)
    if filling.guess and not _is_likely_text(filling.guess, tool, worth):
        likeness = 0.0
    may_be_meant = _may_be_meant(need, tool)
    # Otherwise, it would answer another question.
    answers = may_be_meant and not _leaves_out(need, filling, worth)
    return Candidate(tool, filling, likeness, likeness if answers else 0.0, may_be_meant)


def _worth(explanation: Explanation, filling: Filling) -> dict[str, float]:
    """Compute how much each term of a request says for a tool."""
    worth: dict[str, float] = {}
    for part in explanation.shares:
        # Parameters and choices, such as `order`, say little about the purpose.
        if part.field not in ("parameter name", "details"):
            term = part.query_term or part.term
            worth[term] = max(worth.get(term, 0.0), _SYNONYM if part.query_term else 1.0)
    # The name of a parameter that has a value belongs to that value.
    return worth | dict.fromkeys(terms(" ".join(filling.arguments)), 1.0)


def _is_likely_text(guess: str, tool: ToolSpec, worth: Mapping[str, float]) -> bool:
    """Check whether plain words may be meant as a text for a tool, which its name must say, rather
    than tell what it does: `Sort the lines`.
    """
    is_named = not worth.keys().isdisjoint(terms(tool.name))
    return is_named and not worth.keys() >= set(terms(guess))


def _leaves_out(need: Need, filling: Filling, worth: Mapping[str, float]) -> bool:
    """Check whether a call would answer only a part of the request, or its opposite.

    A value may be no argument; or a proper name, or a word that turns or compares (`not in the
    office`, `the cheapest`), neither an argument nor a word of the tool.
    """
    if not all(map(filling.covers, need.values)):
        return True
    special = [Mention("word", match[0], *match.span()) for match in _TURNS.finditer(need.text)]
    for word in filling.left:
        if filling.is_choice(word):
            return True
        if word.start > 0 and word.value.istitle():
            special.append(word)
    for word in special:
        if not filling.covers(word) and worth.keys().isdisjoint(word.terms):
            return True
    return False


def _may_be_meant(need: Need, tool: ToolSpec) -> bool:
    """Check whether the request may mean a call of this tool.

    A tool that writes, or says neither by its annotations nor by its first verb that it only reads,
    is called by an order that begins with this verb.
    """
    verbs: list[str] = []
    for text in (tool.name, tool.description):
        verbs += [stem(verb.casefold()) for verb in _VERB.findall(text)[:1]]
    reads = tool.annotations.read_only if tool.annotations else None
    if reads is None:
        reads = _CHANGES.isdisjoint(verbs[:1]) and not _READS.isdisjoint(verbs)
    if reads:
        return True
    if _QUESTION.match(need.text):
        return False
    said = terms(readable(need.text))[:1]
    return any(not {verb, *synonyms().get(verb, ())}.isdisjoint(said) for verb in verbs)


def _coverage(need: Need, filling: Filling, worth: Mapping[str, float]) -> float:
    """Compute the share of the need's words that the tool's words and choices cover; all, if they
    all became arguments.
    """
    matched = total = float(len(filling.chosen))
    for word in filling.left:
        begins = _POLITE.fullmatch(need.text[: word.start]) is not None
        for term in word.terms:
            # A verb that asks for anything says as little as a filler word.
            weight = _FILLER if term in _ASKING else emphasis(term)
            total += weight
            matched += weight * worth.get(term, 0.0)
            # `Reverse the text` is an order for a tool that reverses, not for any that takes a
            # text.
            begins = begins and weight == 1 and term not in worth
        if begins:
            return 0.0
    return matched / total if total else 1.0


def nearest_to(need: Need, candidates: list[Candidate]) -> Candidate | None:
    """Find the tool to name if none fits: the one that covers most of the need, if that is enough.

    For a question, that is none that writes.
    """
    asks = _QUESTION.match(need.text) is not None
    named = [one for one in candidates if one.likeness >= LIKE and (one.may_be_meant or not asks)]
    return max(named, key=attrgetter("likeness"), default=None)
