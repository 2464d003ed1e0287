"""Score every tool for a query: the ranking's arithmetic.

A score is a sum of parts that an explanation can name: the query's terms, the share of the tool's
name in the query, the clause in the request that the tool matches best, the server's topic, a name
that the query mentions, and the meaning if there is an embedding.

The constants here and the field weights were tuned only on the dev cases in the benchmark's data
sets. Nearby values do about as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

from casual_mcp_nb.discovery.text import (
    FIELDS,
    IndexField,
    chunk_terms,
    clauses,
    emphasis,
    readable,
    synonyms,
    terms,
    topics,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

K1 = 1.5
"""BM25's k1: how quickly a term's repetitions stop adding to the score."""

NAME, DESCRIPTION = 0, 2


class Postings:
    """For each term, the documents that contain it, in order, each with a value."""

    def __init__(self, term_of: Ints, documents: Ints, values: Floats, terms: int) -> None:
        self.starts: list[int] = np.searchsorted(term_of, np.arange(terms + 1)).tolist()
        self.documents = documents
        self.values = values

    def of(self, term: int) -> tuple[Ints, Floats]:
        """Look up a term's documents and values."""
        entries = slice(self.starts[term], self.starts[term + 1])
        return self.documents[entries], self.values[entries]

    def value(self, term: int, document: int) -> float:
        """Look up a term's value in one document, 0 where it does not occur."""
        documents, values = self.of(term)
        at = int(np.searchsorted(documents, document))
        if at == len(documents) or documents[at] != document:
            return 0.0
        return float(values[at])


def _numbers() -> defaultdict[str, int]:
    """Create a dictionary that numbers strings from 0, by first lookup."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


class FieldedBM25(BM25Plus):  # type: ignore[misc]
    """A document corpus whose fields each have a weight and a length norm, and share one saturation
    (BM25F).

    The constructor, the document frequencies and the idf are rank-bm25's. With one field and weight
    1, `get_scores` returns the same as its `BM25Plus`. It does not store term counts per document,
    so `get_batch_scores` is not supported.
    """

    vocabulary: Mapping[str, int]
    postings: Postings
    """Each term's contribution to a document that contains it."""
    in_name: Postings
    """Each term's idf, for the documents that have it in their name."""
    name_idf: Floats
    """For each document, the total idf over the terms in its name."""
    average: Floats
    """Mean term count in each field."""

    def __init__(
        self, corpus: Sequence[Sequence[str]], fields: Sequence[IndexField] = FIELDS
    ) -> None:
        self._fields = fields
        super().__init__(corpus, k1=K1, b=0.0, delta=0.0)

    def _initialize(self, corpus: Sequence[Sequence[str]]) -> dict[str, int]:
        """Count the terms in all documents together.

        Return how many documents contain each term.
        """
        self._read(corpus)
        documents, fields, terms, counts = self._counted()
        b = np.array([field.b for field in self._fields])
        norms = (1 - b + b * self._lengths / self.average)[documents, fields]
        weight = np.array([field.weight for field in self._fields])[fields]
        self._entries = _summed(terms, documents, weight * counts / norms)
        self._named = terms[fields == NAME], documents[fields == NAME]
        frequencies = np.bincount(self._entries[0], minlength=len(self.vocabulary))
        return dict(zip(self.vocabulary, frequencies.tolist(), strict=True))

    def _read(self, corpus: Sequence[Sequence[str]]) -> None:
        """Convert the terms in all texts to numbers in one array.

        Splits repeated pieces of text only once.
        """
        pieces, vocabulary = _numbers(), _numbers()
        piece_of: list[int] = []
        seen = [0]
        for text in chain.from_iterable(corpus):
            piece_of.extend(map(pieces.__getitem__, text.split()))
            seen.append(len(piece_of))
        terms = list(map(chunk_terms, pieces))
        self._flat, counts = _expanded(
            np.fromiter(map(vocabulary.__getitem__, chain.from_iterable(terms)), dtype=np.intp),
            np.fromiter(map(len, terms), dtype=np.intp, count=len(terms)),
            np.array(piece_of, dtype=np.intp),
        )
        vocabulary.default_factory = None
        self.vocabulary = vocabulary
        self._ends = np.concatenate(([0], np.cumsum(counts)))[seen]
        self._lengths = (
            np.diff(self._ends).reshape(len(corpus), len(self._fields)).astype(np.float64)
        )
        self.corpus_size = len(corpus)
        self.average = np.maximum(self._lengths.mean(axis=0), 1e-9)

    def text_terms(self, document: int, field: int) -> Ints:
        """Split one text into its terms, as numbers, in order."""
        text = document * len(self._fields) + field
        return self._flat[self._ends[text] : self._ends[text + 1]]

    def _counted(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Count each (term, field, document), ordered by term and document."""
        cell = np.repeat(np.arange(self._lengths.size), self._lengths.astype(np.intp).ravel())
        keys = np.sort(self._flat * self._lengths.size + cell)
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys)).astype(np.float64)
        terms, cells = np.divmod(keys[first], self._lengths.size)
        documents, fields = np.divmod(cells, len(self._fields))
        return documents, fields, terms, counts

    def _calc_idf(self, nd: dict[str, int]) -> None:
        """Compute each term's idf with rank-bm25, and its contribution to each document."""
        super()._calc_idf(nd)
        idf = np.fromiter(self.idf.values(), dtype=np.float64)
        terms, documents, frequency = self._entries
        self.postings = Postings(
            terms,
            documents,
            idf[terms] * frequency * (self.k1 + 1) / (self.k1 + frequency),
            len(idf),
        )
        terms, documents = self._named
        self.in_name = Postings(terms, documents, idf[terms], len(idf))
        self.name_idf = np.bincount(documents, idf[terms], minlength=self.corpus_size).astype(
            np.float64
        )
        del self._lengths, self._entries, self._named

    def get_scores(self, query: Sequence[str]) -> Floats:
        """Compute all documents' scores for some query terms."""
        scores = np.zeros(self.corpus_size)
        for term in query:
            if (number := self.vocabulary.get(term)) is not None:
                documents, values = self.postings.of(number)
                scores[documents] += values
        return scores


def _expanded(terms: Ints, counts: Ints, pieces: Ints) -> tuple[Ints, Ints]:
    """Split pieces into terms, and count each piece's terms."""
    lengths = counts[pieces]
    shift = (np.cumsum(counts) - counts)[pieces] - (np.cumsum(lengths) - lengths)
    return terms[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths


def _summed(terms: Ints, documents: Ints, values: Floats) -> tuple[Ints, Ints, Floats]:
    """Sum over the fields for each (term, document). The entries are sorted."""
    new = (np.diff(terms, prepend=-1) != 0) | (np.diff(documents, prepend=-1) != 0)
    first = np.flatnonzero(new)
    total: Any = np.add.reduceat(values, first) if len(first) else values
    return terms[first], documents[first], total


RELATED = 0.55
"""Weight for a synonym, or for a look-alike of a word that no tool contains."""
SAME_TOPIC = 0.25
"""Weight for a word with the same topic."""
LIKE = 0.6
"""Fraction of two words that must be a common prefix for them to count as look-alikes."""
_MAX_REMEMBERED = 4_000_000

Entries = tuple[Ints, Floats]
"""Numbers, in order, each with a value."""
_NO_NUMBERS, _NO_VALUES = np.zeros(0, np.intp), np.zeros(0)


def added(weighted: Iterable[tuple[Entries, float]], size: int) -> Floats:
    """Add up each number's weighted values, in one pass: a long query has many entries."""
    all_numbers, all_values = [_NO_NUMBERS], [_NO_VALUES]
    for (numbers, values), weight in weighted:
        all_numbers.append(numbers)
        all_values.append(values if weight == 1 else weight * values)
    totals: Floats = np.bincount(
        np.concatenate(all_numbers), np.concatenate(all_values), minlength=size
    ).astype(np.float64, copy=False)
    return totals


class TermCache:
    """A cache for lookups by term, cleared when it grows beyond a limit.

    Each term counts as one more entry.
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
    """Finds the documents for a term, with a cache."""

    def __init__(self, bm25: FieldedBM25) -> None:
        self._bm25 = bm25
        self.idf: Mapping[str, float] = bm25.idf
        self._memory = TermCache()

    def sum(self, weights: Mapping[str, float]) -> Floats:
        """Add up each document's score for weighted terms."""
        entries = [(self.entries(term), weight) for term, weight in weights.items()]
        return added(entries, self._bm25.corpus_size)

    def entries(self, term: str) -> Entries:
        """Find the documents that contain a term or any expansion, each with the best value among
        them.
        """
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
        """List the indexed terms to look up for a query term, each with its weight.

        The term itself comes first.
        """
        others = dict.fromkeys(topics().get(term, ()), SAME_TOPIC)
        others |= dict.fromkeys(synonyms().get(term, ()), RELATED)
        own = self.idf.get(term)
        if own is None:
            others |= dict.fromkeys(self._alike(term), RELATED)
            return [(other, weight) for other, weight in others.items() if other in self.idf]
        expansions = [(term, 1.0)]
        for other, weight in others.items():
            if other in self.idf:
                # A common term says less than the rare one that it stands for.
                expansions.append((other, weight * min(1.0, own / self.idf[other])))
        return expansions

    def _looked_up(self, term: str) -> Entries:
        expansions = self.expansions(term)
        if expansions == [(term, 1.0)]:
            return self._bm25.postings.of(self._bm25.vocabulary[term])
        best = np.zeros(self._bm25.corpus_size)
        for other, weight in expansions:
            documents, values = self._bm25.postings.of(self._bm25.vocabulary[other])
            best[documents] = np.maximum(best[documents], weight * values)
        documents = np.flatnonzero(best)
        return documents, best[documents]

    def _alike(self, term: str) -> list[str]:
        """Find terms with the same prefix as one that no tool contains: other word forms, or its
        correct spelling.
        """
        if len(term) < 5 or not term.isascii() or not term.isalpha() or emphasis(term) < 1:
            return []
        beginning = term[: max(4, math.ceil(len(term) * LIKE))]
        alike = []
        for place in range(bisect_left(self._sorted, beginning), len(self._sorted)):
            other = self._sorted[place]
            if not other.startswith(beginning):
                break
            if len(beginning) >= LIKE * len(other):
                alike.append(other)
        return alike

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._bm25.idf)


SERVER = 0.5
"""The bonus that a server's match gives its tools, as a fraction of their own score."""
SERVER_K1 = 8.0
"""How quickly a server's further matching tools stop adding to its score."""
SERVER_B = 0.75
"""How much a server's tool count matters."""


class ServerRanker:
    """Scores servers for a request: BM25 over servers, where a term's frequency is how many tools
    mention it.

    Ranks a server by its tools' document frequencies, as in CORI: Callan, Lu and Croft, Searching
    Distributed Collections with Inference Networks (SIGIR 1995).
    """

    def __init__(self, lookup: Lookup, server_of: Ints, count: int) -> None:
        self._lookup = lookup
        self._server_of = server_of
        self._count = count
        sizes = np.bincount(server_of, minlength=count)
        self._norms: Floats = 1 - SERVER_B + SERVER_B * sizes / sizes.mean()
        self._memory = TermCache()

    def evidence(self, weights: Mapping[str, float]) -> Floats:
        """Compute for each tool its server's contribution, as a fraction of the tool's own
        score.
        """
        entries = [
            (self._memory.of(term, self._entries), weight) for term, weight in weights.items()
        ]
        fit = added(entries, self._count)
        best = float(fit.max())
        if best > 0:
            fit = fit * (SERVER / best)
        part: Floats = fit[self._server_of]
        return part

    def _entries(self, term: str) -> Entries:
        """Find the servers whose tools mention a term, each with its score."""
        tools, values = self._lookup.entries(term)
        spoken = np.bincount(self._server_of[tools], values, minlength=self._count)
        servers = np.flatnonzero(spoken)
        rarity = self._lookup.idf.get(term, 1.0)
        frequency = spoken[servers] / rarity / self._norms[servers]
        return servers, rarity * frequency * (SERVER_K1 + 1) / (frequency + SERVER_K1)


NAME_COVERED = 0.6
"""Weight for the idf of the name's words in the query, multiplied by their share of the whole
name's idf.
"""
CLAUSE = 0.15
"""The bonus for the best match with a clause in the request, as a fraction of the best score."""
CLAUSE_POWER = 8
"""How fast that falls off for tools that match the clause less well. A power of two."""
MEANING = 0.3
"""The bonus for the tool closest in meaning, as a fraction of the best score."""
MAX_NEAREST = 100
"""How many tools gain by their meaning."""
PAST = 3.0
"""The bonus for a past question that is the same as the query, as a fraction of the best score,
where the words say nothing.
"""
STRONG = 4.5
"""At this strength of the words, half of that bonus is left, see `Scored.strength`."""


@dataclass(frozen=True)
class Clause:
    """A clause in the request: its text, its terms, and their best score."""

    text: str
    weights: Mapping[str, float]
    best: float


@dataclass
class Scored:
    """A query's score for each document. `best` is the best one from terms and names.

    `servers` is the bonus that each document's server gives, as a fraction of that. The query
    mentions the documents `called` by name.
    """

    scores: Floats
    weights: Mapping[str, float]
    best: float = 0.0
    clauses: Sequence[Clause] = ()
    servers: Floats | None = field(default=None, repr=False)
    called: Collection[int] = ()
    bonus: float = 0.0
    meaning: Floats | None = field(default=None, repr=False)
    past: Floats | None = field(default=None, repr=False)

    @property
    def strength(self) -> float:
        """How much the words say: the best score, relative to the query's length."""
        return self.best / math.sqrt(sum(self.weights.values()) or 1.0)


class Scorer:
    """Scores queries against a corpus, whose document order breaks ties."""

    def __init__(self, bm25: FieldedBM25, server_of: Ints) -> None:
        self.bm25 = bm25
        self.lookup = Lookup(bm25)
        servers = len(np.unique(server_of))
        self._servers = ServerRanker(self.lookup, server_of, servers) if servers > 1 else None

    def score(
        self,
        query: str,
        allowed: Floats | None = None,
        called: Sequence[int] = (),
        meaning: Floats | None = None,
        past: Callable[[Mapping[str, float]], Floats] | None = None,
    ) -> Scored:
        """Score all documents.

        `allowed` is 1 for each possible result, `called` are those that the query mentions by name,
        `meaning` is how close each is in meaning, from 0 to 1, and `past` scores them by past
        questions.
        """
        text = readable(query)
        weights = weights_of(text)
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
            scored.meaning = meaning * (MEANING * scored.best or 1.0)
            if allowed is not None:
                scored.meaning *= allowed
            scored.scores = scored.scores + scored.meaning
        if past is not None:
            bonus = PAST * (scored.best or 1.0) / (1 + (scored.strength / STRONG) ** 4)
            scored.past = past(weights) * bonus
            if allowed is not None:
                scored.past *= allowed
            scored.scores = scored.scores + scored.past
        scored.called = {document for document in called if allowed is None or allowed[document]}
        if scored.called:
            scored.bonus = 1.0 + float(scored.scores.max())
            scored.scores[list(scored.called)] += scored.bonus
        return scored

    def _add_clauses(self, scored: Scored, parts: Sequence[str], allowed: Floats | None) -> None:
        fit = np.zeros_like(scored.scores)
        clauses = []
        # The text of clauses with the same words is the last one's.
        distinct = {frozenset(weights_of(part)): part for part in parts}
        for part in distinct.values():
            weights = dict(sorted(weights_of(part).items()))
            scores = self.lookup.sum(weights)
            if allowed is not None:
                scores *= allowed
            clause = Clause(part, weights, float(scores.max()))
            if clause.best > 0:
                clauses.append(clause)
                np.maximum(fit, scores / clause.best, out=fit)
        scored.clauses = clauses
        scored.scores = scored.scores + CLAUSE * scored.best * _power(fit)

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


def weights_of(text: str) -> dict[str, float]:
    """Weight a text's terms by their emphasis."""
    return {term: emphasis(term) for term in terms(text)}


def _power(fit: Floats) -> Floats:
    for _ in range(CLAUSE_POWER.bit_length() - 1):
        fit = fit * fit
    return fit
