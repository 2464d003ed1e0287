"""Look up terms and their expansions (synonyms, related words, look-alikes) in a corpus."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import takewhile

import numpy as np

from casual_mcp_nb.discovery._bm25 import FieldedBM25, Floats, Ints
from casual_mcp_nb.discovery.text import synonyms, topics

RELATED = 0.45
"""Weight of a synonym, or of a look-alike for a word that no tool contains."""
SAME_TOPIC = 0.3
"""Weight of a word of the same topic."""
LIKE = 0.6
"""Fraction of two words that must be a common prefix for them to count as look-alikes."""
_MAX_REMEMBERED = 4_000_000

Entries = tuple[Ints, Floats]
"""Numbers, in order, each with a value."""
_NO_NUMBERS, _NO_VALUES = np.zeros(0, np.intp), np.zeros(0)


def added(weighted: Iterable[tuple[Entries, float]], size: int) -> Floats:
    """Add up the weighted values of each number, in one pass: a long query has many entries."""
    entries = list(weighted)
    numbers = np.concatenate([_NO_NUMBERS, *(numbers for (numbers, _), _ in entries)])
    values = np.concatenate([_NO_VALUES, *(values if weight == 1 else weight * values for (_, values), weight in entries)])
    totals: Floats = np.bincount(numbers, values, minlength=size).astype(np.float64, copy=False)
    return totals


class TermCache:
    """Cache of lookups by term, cleared when it grows too large.

    Args:
        limit: Maximum number of entries; each term counts as one more.
    """

    def __init__(self, limit: int = _MAX_REMEMBERED) -> None:
        self._limit = limit
        self._cache: dict[str, Entries] = {}
        self._size = 0

    def of(self, term: str, find: Callable[[str], Entries]) -> Entries:
        """Look up the value for a term, and cache it."""
        cached = self._cache.get(term)
        if cached is None:
            cached = find(term)
            self._size += len(cached[0]) + 1
            if self._size > self._limit:
                self._cache.clear()
                self._size = len(cached[0]) + 1
            self._cache[term] = cached
        return cached


class Lookup:
    """Finds the documents for a term, with a cache.

    Args:
        bm25: The corpus.
    """

    def __init__(self, bm25: FieldedBM25) -> None:
        self._bm25 = bm25
        self.idf: Mapping[str, float] = bm25.idf
        self._memory = TermCache()

    def sum(self, weights: Mapping[str, float]) -> Floats:
        """Add up the score of each document for weighted terms."""
        return added(((self.entries(term), weight) for term, weight in weights.items()), self._bm25.corpus_size)

    def entries(self, term: str) -> Entries:
        """Find the documents that contain a term or one of its expansions, each with the best value among them."""
        return self._memory.of(term, self._looked_up)

    def best(self, query_term: str, document: int) -> tuple[str, float]:
        """Find the indexed term by which a document best matches a term, and its value."""
        best, worth = query_term, 0.0
        for term, weight in self.expansions(query_term):
            value = weight * self._bm25.postings.value(self._bm25.vocabulary[term], document)
            if value > worth:
                best, worth = term, value
        return best, worth

    def expansions(self, term: str) -> list[tuple[str, float]]:
        """List the indexed terms to look up for a query term, each with its weight; the term itself comes first."""
        idf = self.idf
        others = dict.fromkeys((other for other in topics().get(term, ()) if other in idf), SAME_TOPIC)
        others.update((other, RELATED) for other in synonyms().get(term, ()) if other in idf)
        if term not in idf:
            return list((others | dict.fromkeys(self._alike(term), RELATED)).items())
        own = idf[term]
        return [(term, 1.0), *((other, weight * min(1.0, own / idf[other])) for other, weight in others.items())]

    def _looked_up(self, term: str) -> Entries:
        standing = [(self._bm25.vocabulary[other], weight) for other, weight in self.expansions(term)]
        if len(standing) == 1 and standing[0][1] == 1:
            return self._bm25.postings.of(standing[0][0])
        best = np.zeros(self._bm25.corpus_size)
        for other, weight in standing:
            documents, values = self._bm25.postings.of(other)
            best[documents] = np.maximum(best[documents], weight * values)
        documents = np.flatnonzero(best)
        return documents, best[documents]

    def _alike(self, term: str) -> list[str]:
        """Find terms with the same prefix as one that no tool contains: other forms of the word, or its correct spelling."""
        if len(term) < 5 or not term.isascii() or not term.isalpha():
            return []
        beginning = term[: max(4, math.ceil(len(term) * LIKE))]
        places = range(bisect_left(self._sorted, beginning), len(self._sorted))
        others = takewhile(lambda other: other.startswith(beginning), map(self._sorted.__getitem__, places))
        return [other for other in others if len(beginning) >= LIKE * len(other)]

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._bm25.idf)
