"""What a query is worth to every tool: the arithmetic of the ranking.

A score is a sum of parts, each of which an explanation can name: the terms of the query, how much of the tool's name the
query has, the part of the request that the tool fits best, a name that the query calls, and the meaning where an embedding is
given.

The constants here and the weights of the fields were tuned on the dev cases of the benchmark's data sets only; each lies in a
range that does about as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

import numpy as np

from casual_mcp_nb.discovery._bm25 import FieldedBM25, Floats, Ints, query_weight
from casual_mcp_nb.discovery.text import clauses, readable, synonyms, terms

RELATED = 0.45
"""What a synonym counts, or for a word that no tool has, a word that begins like it."""
_LIKE = 0.6
"""How much of two words must be their common beginning, so that one stands for the other."""
NAME_COVERED = 0.4
"""What the idf of the name's words in the query counts, times the part of the whole name's idf that they are."""
CLAUSE = 0.25
"""What a part of the request adds to the tool that fits it best, as a part of the best score."""
CLAUSE_POWER = 8
"""How fast that falls for tools that fit the part less well; a power of two."""
_MAX_REMEMBERED = 4_000_000


@dataclass(frozen=True)
class Clause:
    """A part of the request: its text, its terms, and the best score that they come to."""

    text: str
    weights: Mapping[str, float]
    best: float


@dataclass
class Scored:
    """What a query is worth to each document.

    Args:
        scores: The scores; 0 for a document that is no hit.
        weights: The terms of the query.
        best: The best score that terms and names come to.
        clauses: The parts of the request, where there are several.
        called: Documents that the query calls by name.
        bonus: What a name that is called adds.
        meaning: What the embedding adds, where there is one.
    """

    scores: Floats
    weights: Mapping[str, float]
    best: float = 0.0
    clauses: Sequence[Clause] = ()
    called: Collection[int] = ()
    bonus: float = 0.0
    meaning: Floats | None = field(default=None, repr=False)


class Scorer:
    """Scores queries against a corpus.

    Args:
        bm25: The corpus, documents in the order in which equal scores are ranked.
    """

    def __init__(self, bm25: FieldedBM25) -> None:
        self.bm25 = bm25
        self._remembered: dict[str, tuple[Ints, Floats]] = {}
        self._entries = 0

    def score(
        self, query: str, allowed: Floats | None = None, called: Sequence[int] = (), meaning: Floats | None = None
    ) -> Scored:
        """The scores of all documents.

        Args:
            query: The request.
            allowed: 1 for each document that may be found and 0 for the others; None for all.
            called: Documents that the query calls by name.
            meaning: How near each document is in meaning, from 0 to 1.
        """
        text = readable(query)
        weights = _weights(text)
        scores = self._sum(weights) + self._names(weights)
        if allowed is not None:
            scores *= allowed
        found = Scored(scores, weights, best=float(scores.max()))
        parts = clauses(text)
        if len(parts) > 1 and found.best > 0:
            self._add_clauses(found, parts, allowed)
        if meaning is not None:
            found.meaning = meaning * (found.best or 1.0) * (1.0 if allowed is None else allowed)
            found.scores = found.scores + found.meaning
        found.called = {document for document in called if allowed is None or allowed[document]}
        if found.called:
            found.bonus = 1.0 + float(found.scores.max())
            found.scores[list(found.called)] += found.bonus
        return found

    def _add_clauses(self, found: Scored, parts: Sequence[str], allowed: Floats | None) -> None:
        fit = np.zeros_like(found.scores)
        kept = []
        for weights, part in {tuple(sorted(_weights(part).items())): part for part in parts}.items():
            scores = self._sum(dict(weights))
            if allowed is not None:
                scores *= allowed
            clause = Clause(part, dict(weights), float(scores.max()))
            if clause.best > 0:
                kept.append(clause)
                np.maximum(fit, scores / clause.best, out=fit)
        found.clauses = kept
        found.scores = found.scores + CLAUSE * found.best * _power(fit)

    def _sum(self, weights: Mapping[str, float]) -> Floats:
        scores = np.zeros(self.bm25.corpus_size)
        for term, weight in weights.items():
            documents, values = self._entries_of(term)
            scores[documents] += values if weight == 1 else weight * values
        return scores

    def _names(self, weights: Mapping[str, float]) -> Floats:
        covered = np.zeros(self.bm25.corpus_size)
        for term in weights:
            if (known := self.bm25.vocabulary.get(term)) is not None:
                documents, values = self.bm25.in_name.of(known)
                covered[documents] += values
        return NAME_COVERED * covered * covered / self._name_idf

    @cached_property
    def _name_idf(self) -> Floats:
        return np.where(self.bm25.name_idf > 0, self.bm25.name_idf, 1.0)

    def _entries_of(self, term: str) -> tuple[Ints, Floats]:
        """The documents that have a term or one that stands for it, each with the best that any of them is worth."""
        known = self._remembered.get(term)
        if known is None:
            known = self._looked_up(term)
            self._entries += len(known[0])
            if self._entries > _MAX_REMEMBERED:
                self._remembered.clear()
                self._entries = len(known[0])
            self._remembered[term] = known
        return known

    def _looked_up(self, term: str) -> tuple[Ints, Floats]:
        standing = self.stand_ins(term)
        if len(standing) == 1 and standing[0][1] == 1:
            return self.bm25.postings.of(self.bm25.vocabulary[standing[0][0]])
        best = np.zeros(self.bm25.corpus_size)
        for other, weight in standing:
            documents, values = self.bm25.postings.of(self.bm25.vocabulary[other])
            best[documents] = np.maximum(best[documents], weight * values)
        documents = np.flatnonzero(best)
        return documents, best[documents]

    def stand_ins(self, term: str) -> list[tuple[str, float]]:
        """The indexed terms that a term of the query is looked up by, each with its weight; itself first."""
        idf = self.bm25.idf
        others = [other for other in synonyms().get(term, ()) if other in idf]
        if term not in idf:
            return [(other, RELATED) for other in sorted({*others, *self._alike(term)})]
        return [(term, 1.0), *((other, RELATED * min(1.0, idf[term] / idf[other])) for other in others)]

    def _alike(self, term: str) -> list[str]:
        """Terms that begin like one that no tool has: other forms of the word, or the word as it should be spelled."""
        if len(term) < 5 or not term.isascii() or not term.isalpha():
            return []
        beginning = term[: max(4, math.ceil(len(term) * _LIKE))]
        places = range(bisect_left(self._sorted, beginning), len(self._sorted))
        others = takewhile(lambda other: other.startswith(beginning), map(self._sorted.__getitem__, places))
        return [other for other in others if len(beginning) >= _LIKE * len(other)]

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.bm25.vocabulary)


def _weights(text: str) -> dict[str, float]:
    return {term: query_weight(count) for term, count in Counter(terms(text)).items()}


def _power(fit: Floats) -> Floats:
    for _ in range(CLAUSE_POWER.bit_length() - 1):
        fit = fit * fit
    return fit
