"""Rank the tools that may meet a need, and decide which of them may be called for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import emphasis, readable, stem, synonyms, terms
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.mentions import Mention
from casual_mcp_nb.offline.needs import Need

FITS, SURE = 0.55, 0.7
_LIKE = 0.2
"""How much of a request a tool must cover to be named."""
_MAX_CANDIDATES = 12
_FILLER = 0.4
_ASKING = frozenset(terms("display find get give list live look print show tell"))
_READING = """
analyze browse calculate compare compute convert count describe display draw explain fetch find get give inspect is list
look lookup print query read report retrieve return say search show sum tell view
"""
"""Verbs with which the name or the description of a tool that changes nothing begins."""
_CHANGING = """
add book buy cancel clear copy create delete drop edit execute insert kill move order overwrite pay post remove rename replace
return run save send set update write
"""
_TURNS = re.compile(
    r"\b(?:not|except|excluding|without|other than|besides|\w{2,}est|(?:most|least)(?=\W*$))\b"
    r"|n't\b",
    re.I,
)
"""Words that turn a request into its opposite, or that compare."""
_VERB = re.compile(r"[Aa]dd up|[A-Z]?[a-z]+|[A-Z]+")
_READS = {"add up", *map(stem, _READING.split())}
_CHANGES = set(map(stem, _CHANGING.split()))
_POLITE = re.compile(r"\W*(?:(?:please|can|could|would|will|you|now|then|also|and)\b\W*)*", re.I)
_QUESTION = re.compile(
    r"\W*(?:what|which|who|whose|when|where|why|how|any|is|are|was|were|do|does|did|has|have|had"
    r"|should|(?:can|could|may|must) (?!you\b))\b",
    re.I,
)


class Candidate:
    """A tool that may meet a need, with the `known` arguments of an earlier call.

    Attributes:
        filling: Its arguments.
        words: The terms of the request that the tool's words and its arguments cover, and how well.
        is_meant: Whether the request may mean a call of this tool: an order, or it only reads.
        likeness: From 0 to 1: how much of the need these words cover.
        confidence: The likeness, or 0 where a call would be a guess, or would answer another
            question.
        rank: How good it is beside others.
    """

    def __init__(
        self,
        need: Need,
        tool: ToolSpec,
        explanation: Explanation,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self.tool, self._need = tool, need
        self.filling = Filling(need, parameters_of(tool.input_schema), known)
        words: dict[str, float] = {}
        # A word itself comes after its synonyms, and replaces them.
        for part in sorted(explanation.shares, key=attrgetter("query_term"), reverse=True):
            # Parameters and choices, such as `order`, say little about the purpose.
            if part.field not in ("parameter name", "details"):
                words[part.query_term or part.term] = 1 - 0.3 * bool(part.query_term)
        # The name of a parameter that has a value belongs to that value.
        self.words = words | dict.fromkeys(terms(" ".join(self.filling.arguments)), 1.0)
        self.is_meant = self._is_meant()
        self.likeness = self._likeness()
        self.confidence = 0.0
        if self.is_meant and not self._leaves_out():
            self.confidence = self.likeness
        if "exact name" in self.words:
            self.likeness, self.confidence = 1.0, 2.0
        # Of two that are about as good, the one is better that can be called, or that takes more.
        self.rank = self.confidence + 0.02 * self.filling.typed
        self.rank -= 0.1 * bool(self.filling.missing)

    def _is_meant(self) -> bool:
        """Check whether the request may mean a call of this tool.

        A tool that writes, or says neither by its annotations nor by its first verb that it only
        reads, is called by an order that begins with this verb, and by no question.
        """
        verbs: list[str] = []
        for text in (self.tool.name, self.tool.description):
            verbs += [stem(verb.casefold()) for verb in _VERB.findall(text)[:1]]
        seems_to_read = _CHANGES.isdisjoint(verbs[:1]) and not _READS.isdisjoint(verbs)
        if self.tool.read_only or (seems_to_read and not self.tool.declared_to_write):
            return True
        if _QUESTION.match(self._need.text):
            return False
        said = terms(readable(self._need.text))[:1]
        return any(not {verb, *synonyms().get(verb, ())}.isdisjoint(said) for verb in verbs)

    def _likeness(self) -> float:
        """Compute the share of the need's words that the tool's words and choices cover; all, if
        they all became arguments.
        """
        filling = self.filling
        # Plain words are a text for a tool only if the request says its name.
        if filling.guess and self.words.keys().isdisjoint(terms(self.tool.name)):
            return 0.0
        matched = total = float(len(filling.chosen))
        for word in filling.left:
            begins = _POLITE.fullmatch(self._need.text, 0, word.start)
            for term in word.terms:
                # A verb that asks for anything says as little as a filler word.
                weight = _FILLER if term in _ASKING else emphasis(term)
                total += weight
                matched += weight * self.words.get(term, 0.0)
                if begins and weight == 1 and term not in self.words:
                    # `Reverse the text` is an order for a tool that reverses, not for any that
                    # takes a text.
                    return 0.0
        return matched / total if total else 1.0

    def _leaves_out(self) -> bool:
        """Check whether a call would answer only a part of the request, or its opposite.

        A value may be no argument; or a proper name, or a word that turns or compares (`not in the
        office`, `the cheapest`), neither an argument nor a word of the tool.
        """
        filling, text = self.filling, self._need.text
        for one in self._need.mentions:
            # An amount's unit goes with its number; another is hardly ever a value.
            if one.kind != "unit" and not filling.covers(one):
                return True
        special = [Mention("word", match[0], *match.span()) for match in _TURNS.finditer(text)]
        for word in filling.left:
            if filling.is_choice(word):
                return True
            if word.start > 0 and word.value.istitle():
                special.append(word)
        for word in special:
            if not filling.covers(word) and self.words.keys().isdisjoint(word.terms):
                return True
        return False


def choose(
    need: Need, index: ToolSearchIndex, last: tuple[ToolSpec, Mapping[str, Any]] | None = None
) -> tuple[Candidate | None, Candidate | None]:
    """Choose the loaded tool that meets a need, and the nearest one, which is named if none does.

    A follow-up that gives only other values of the `last` call repeats that.
    """
    if last is not None and need.follows:
        tool, arguments = last
        again = Candidate(need, tool, index.explain(need.query, tool), arguments)
        if again.filling.typed and again.confidence >= FITS:
            return again, again
    hits = index.search(need.query, _MAX_CANDIDATES)
    found: list[Candidate] = []
    for hit in hits:
        found.append(Candidate(need, hit.tool, hit.explain()))
        found[-1].rank += 0.3 * hit.score / hits[0].score
    # `Who reserved the boat?` is about what `reserve` did, and no answer is what another tool tells.
    barred = max((one.likeness for one in found if not one.is_meant), default=0.0)
    found = [one for one in found if one.likeness >= max(barred, _LIKE)]
    fitting = [one for one in found if one.confidence >= FITS]
    if not fitting and any(one.kind == "expression" for one in need.mentions):
        return choose(Need(need.said, spelled=True), index)
    best = max(fitting, key=attrgetter("rank"), default=None)
    return best, max(found, key=attrgetter("likeness"), default=None)
