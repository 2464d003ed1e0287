"""BM25 over weighted fields: rank-bm25's `BM25Plus` with postings instead of its loop over all documents.

BM25F: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), 3.6. `BM25Plus` is BM25+ of Lv and
Zhai, Lower-Bounding Term Frequency Normalization (2011); with its delta at 0, as here, it is BM25 with log((N + 1) / n) as idf.

Imported only where an index is built, because it needs numpy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

from casual_mcp_nb.discovery._fields import FIELDS, IndexField
from casual_mcp_nb.discovery.text import chunk_terms

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

K1 = 1.8
"""BM25's k1: how quickly repetitions of a term stop adding to the score."""

NAME, DESCRIPTION = 0, 2


class Postings:
    """For each term, the documents that contain it, in order, each with a value.

    Args:
        term_of: The term of each entry, sorted.
        documents: The document of each entry, sorted within a term.
        values: The value of each entry.
        terms: How many terms there are.
    """

    def __init__(self, term_of: Ints, documents: Ints, values: Floats, terms: int) -> None:
        self.starts: list[int] = np.searchsorted(term_of, np.arange(terms + 1)).tolist()
        self.documents = documents
        self.values = values

    def of(self, term: int) -> tuple[Ints, Floats]:
        """Look up the documents and values of a term."""
        entries = slice(self.starts[term], self.starts[term + 1])
        return self.documents[entries], self.values[entries]

    def value(self, term: int, document: int) -> float:
        """Look up the value of a term in one document, 0 where it does not occur."""
        documents, values = self.of(term)
        at = int(np.searchsorted(documents, document))
        return float(values[at]) if at < len(documents) and documents[at] == document else 0.0


def _numbers() -> defaultdict[str, int]:
    """Create a dictionary that numbers strings from 0 in order of first lookup."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


class FieldedBM25(BM25Plus):  # type: ignore[misc]
    """A corpus of documents whose fields each have a weight and a length norm, and share one saturation (BM25F).

    The constructor, the use of document frequencies and the idf are rank-bm25's; with one field of weight 1, `get_scores`
    returns what its `BM25Plus` returns. Term counts per document are not stored, so `get_batch_scores` is not supported.

    Args:
        corpus: For each document, its text in each field. At least one document.
        fields: The fields.
    """

    vocabulary: Mapping[str, int]
    postings: Postings
    """What each term adds to the score of a document that contains it."""
    in_name: Postings
    """The idf of each term for the documents that have it in their name."""
    name_idf: Floats
    """For each document, the total idf of the terms of its name."""
    average: Floats
    """Mean number of terms of each field."""

    def __init__(self, corpus: Sequence[Sequence[str]], fields: Sequence[IndexField] = FIELDS) -> None:
        self._fields = fields
        super().__init__(corpus, k1=K1, b=0.0, delta=0.0)

    def _initialize(self, corpus: Sequence[Sequence[str]]) -> dict[str, int]:
        """Count the terms of all documents together; return how many documents contain each term."""
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
        """Convert all terms of all texts to numbers in one array. Repeated pieces of text are split only once."""
        pieces, vocabulary = _numbers(), _numbers()
        piece_of: list[int] = []
        seen = [0]
        for text in chain.from_iterable(corpus):
            piece_of.extend(map(pieces.__getitem__, text.split()))
            seen.append(len(piece_of))
        terms = [chunk_terms(piece) for piece in pieces]
        self._flat, counts = _expanded(
            np.fromiter(map(vocabulary.__getitem__, chain.from_iterable(terms)), dtype=np.intp),
            np.fromiter(map(len, terms), dtype=np.intp, count=len(terms)),
            np.array(piece_of, dtype=np.intp),
        )
        vocabulary.default_factory = None
        self.vocabulary = vocabulary
        self._ends = np.concatenate(([0], np.cumsum(counts)))[seen]
        self._lengths = np.diff(self._ends).reshape(len(corpus), len(self._fields)).astype(np.float64)
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
        self.postings = Postings(terms, documents, idf[terms] * frequency * (self.k1 + 1) / (self.k1 + frequency), len(idf))
        terms, documents = self._named
        self.in_name = Postings(terms, documents, idf[terms], len(idf))
        self.name_idf = np.bincount(documents, idf[terms], minlength=self.corpus_size).astype(np.float64)
        del self._lengths, self._entries, self._named

    def get_scores(self, query: Sequence[str]) -> Floats:
        """Compute the scores of all documents for a list of terms."""
        scores = np.zeros(self.corpus_size)
        for term in query:
            if (number := self.vocabulary.get(term)) is not None:
                documents, values = self.postings.of(number)
                scores[documents] += values
        return scores


def _expanded(terms: Ints, counts: Ints, pieces: Ints) -> tuple[Ints, Ints]:
    """Split a sequence of pieces into terms, and count the terms of each piece.

    Args:
        terms: The terms of all distinct pieces, concatenated.
        counts: The number of terms of each distinct piece.
        pieces: The sequence, as indices of distinct pieces.
    """
    lengths = counts[pieces]
    shift = (np.cumsum(counts) - counts)[pieces] - (np.cumsum(lengths) - lengths)
    return terms[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths


def _summed(terms: Ints, documents: Ints, values: Floats) -> tuple[Ints, Ints, Floats]:
    """Sum over the fields of each (term, document). The entries are sorted."""
    new = (np.diff(terms, prepend=-1) != 0) | (np.diff(documents, prepend=-1) != 0)
    first = np.flatnonzero(new)
    total: Any = np.add.reduceat(values, first) if len(first) else values
    return terms[first], documents[first], total


def query_weight(count: int) -> float:
    """Compute the weight of a term that occurs in the query so many times."""
    return 1 + math.log(count)
