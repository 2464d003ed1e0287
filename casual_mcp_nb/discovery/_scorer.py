"""Score every tool for a query: the arithmetic of the ranking.

A score is a sum of parts that an explanation can name: the terms of the query, how much of the tool's name the query contains,
the part of the request that the tool matches best, the topic of the tool's server, a name that the query mentions, and the
meaning if there is an embedding.

The constants here and the field weights were tuned only on the dev cases of the benchmark's data sets; nearby values do about
as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from casual_mcp_nb.discovery._bm25 import FieldedBM25, Floats, Ints, query_weight
from casual_mcp_nb.discovery._lookup import Lookup
from casual_mcp_nb.discovery._servers import ServerRanker
from casual_mcp_nb.discovery.text import clauses, emphasis, joined, readable, terms

NAME_COVERED = 0.4
"""Weight of the idf of the name's words in the query, multiplied by their share of the whole name's idf."""
CLAUSE = 0.25
"""What a part of the request adds to the tool that matches it best, as a fraction of the best score."""
CLAUSE_POWER = 8
"""How fast that falls off for tools that match the part less well; a power of two."""
MEANING = 0.6
"""What the tool closest in meaning gets, as a fraction of the best score."""


@dataclass(frozen=True)
class Clause:
    """A part of the request: its text, its terms, and their best score."""

    text: str
    weights: Mapping[str, float]
    best: float


@dataclass
class Scored:
    """The scores of a query for each document.

    Args:
        scores: The scores; 0 for a document that does not match.
        weights: The terms of the query.
        best: The best score from terms and names.
        clauses: The parts of the request, if there are several.
        servers: What each document's server adds, as a fraction of the above.
        called: Documents that the query mentions by name.
        bonus: What a mentioned name adds.
        meaning: What the embedding adds, if there is one.
    """

    scores: Floats
    weights: Mapping[str, float]
    best: float = 0.0
    clauses: Sequence[Clause] = ()
    servers: Floats | None = field(default=None, repr=False)
    called: Collection[int] = ()
    bonus: float = 0.0
    meaning: Floats | None = field(default=None, repr=False)


class Scorer:
    """Scores queries against a corpus.

    Args:
        bm25: The corpus, documents in the order in which equal scores are ranked.
        server_of: The number of each document's server.
    """

    def __init__(self, bm25: FieldedBM25, server_of: Ints) -> None:
        self.bm25 = bm25
        self.lookup = Lookup(bm25)
        servers = len(np.unique(server_of))
        self._servers = ServerRanker(self.lookup, server_of, servers) if servers > 1 else None

    def score(
        self, query: str, allowed: Floats | None = None, called: Sequence[int] = (), meaning: Floats | None = None
    ) -> Scored:
        """Score all documents.

        Args:
            query: The request.
            allowed: 1 for each document that may be returned and 0 for the others; None for all.
            called: Documents that the query mentions by name.
            meaning: How close each document is in meaning, from 0 to 1.
        """
        text = readable(query)
        weights = self._weights(text)
        scores = self.lookup.sum(weights) + self._names(weights)
        if allowed is not None:
            scores *= allowed
        scored = Scored(scores, weights, best=float(scores.max()))
        parts = clauses(text)
        if len(parts) > 1 and scored.best > 0:
            self._add_clauses(scored, parts, allowed)
        if self._servers is not None and scored.best > 0:
            scored.servers = self._servers.evidence(weights)
            scored.scores = scored.scores * (1 + scored.servers)
        if meaning is not None:
            scored.meaning = meaning * (MEANING * scored.best or 1.0) * (1.0 if allowed is None else allowed)
            scored.scores = scored.scores + scored.meaning
        scored.called = {document for document in called if allowed is None or allowed[document]}
        if scored.called:
            scored.bonus = 1.0 + float(scored.scores.max())
            scored.scores[list(scored.called)] += scored.bonus
        return scored

    def _add_clauses(self, scored: Scored, parts: Sequence[str], allowed: Floats | None) -> None:
        fit = np.zeros_like(scored.scores)
        clauses = []
        for weights, part in {tuple(sorted(self._weights(part).items())): part for part in parts}.items():
            scores = self.lookup.sum(dict(weights))
            if allowed is not None:
                scores *= allowed
            clause = Clause(part, dict(weights), float(scores.max()))
            if clause.best > 0:
                clauses.append(clause)
                np.maximum(fit, scores / clause.best, out=fit)
        scored.clauses = clauses
        scored.scores = scored.scores + CLAUSE * scored.best * _power(fit)

    def _weights(self, text: str) -> dict[str, float]:
        """Weight the terms of a text."""
        weights = {term: emphasis(term) * query_weight(count) for term, count in Counter(terms(text)).items()}
        return dict.fromkeys((term for term in joined(text) if term in self.bm25.vocabulary), 1.0) | weights

    def _names(self, weights: Mapping[str, float]) -> Floats:
        covered = np.zeros(self.bm25.corpus_size)
        for term in weights:
            if (number := self.bm25.vocabulary.get(term)) is not None:
                documents, values = self.bm25.in_name.of(number)
                covered[documents] += values
        return NAME_COVERED * covered * covered / self._name_idf

    @cached_property
    def _name_idf(self) -> Floats:
        return np.where(self.bm25.name_idf > 0, self.bm25.name_idf, 1.0)


def _power(fit: Floats) -> Floats:
    for _ in range(CLAUSE_POWER.bit_length() - 1):
        fit = fit * fit
    return fit
