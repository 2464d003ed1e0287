"""BM25 over fields, on the base of rank-bm25 and with numpy postings instead of its loop over all documents.

Imported only where an index is built: it brings numpy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25

from casual_mcp_nb.discovery._fields import FIELDS
from casual_mcp_nb.discovery.text import chunk_terms

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

K1 = 1.8
"""How soon a term's repetition stops counting."""

NAME, DESCRIPTION = 0, 2


class Postings:
    """For each term the documents that have it, in order, each with a value.

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
        """Documents and values of a term."""
        entries = slice(self.starts[term], self.starts[term + 1])
        return self.documents[entries], self.values[entries]

    def value(self, term: int, document: int) -> float:
        """The value of a term in one document; 0 where it is not there."""
        documents, values = self.of(term)
        at = int(np.searchsorted(documents, document))
        return float(values[at]) if at < len(documents) and documents[at] == document else 0.0


def _numbers() -> defaultdict[str, int]:
    """Numbers for strings, from 0 in the order in which they are first looked up."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


class FieldedBM25(BM25):  # type: ignore[misc]
    """BM25F: weights and length norms by field, one saturation over all fields, idf above zero for any corpus.

    Args:
        corpus: For each document its text in each of `FIELDS`. At least one document.
    """

    vocabulary: Mapping[str, int]
    postings: Postings
    """What each term adds to the score of a document that has it."""
    in_name: Postings
    """The idf of each term in the documents that have it in their name."""
    name_idf: Floats
    """Sum of the idf of the terms of each document's name."""
    average: Floats
    """Mean number of terms of each field."""

    def _initialize(self, corpus: Sequence[Sequence[str]]) -> dict[str, int]:
        self._read(corpus)
        documents, fields, terms, counts = self._counted()
        weight = np.array([field.weight for field in FIELDS])[fields]
        frequency = weight * counts / self._norms(documents, fields)
        self._entry_terms, self._entry_documents, self._entry_frequency = _summed(terms, documents, frequency)
        named = fields == NAME
        self._named = terms[named], documents[named]
        df = np.bincount(self._entry_terms, minlength=len(self.vocabulary))
        return dict(zip(self.vocabulary, df.tolist(), strict=True))

    def _read(self, corpus: Sequence[Sequence[str]]) -> None:
        """All terms of all texts as numbers in one array. A piece of text that comes again is cut into terms only once."""
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
        self._lengths = np.diff(self._ends).reshape(len(corpus), len(FIELDS)).astype(np.float64)
        self.corpus_size = len(corpus)
        self.doc_len = self._lengths.sum(axis=1).tolist()
        self.avgdl = float(self._lengths.sum()) / len(corpus)
        self.average = np.maximum(self._lengths.mean(axis=0), 1e-9)

    def text_terms(self, document: int, field: int) -> Ints:
        """The terms of one text, as numbers, in order."""
        text = document * len(FIELDS) + field
        return self._flat[self._ends[text] : self._ends[text + 1]]

    def _counted(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Each term of each field of each document once, with how often it is there; in the order of terms, then documents."""
        cell = np.repeat(np.arange(self._lengths.size), self._lengths.astype(np.intp).ravel())
        keys = np.sort(self._flat * self._lengths.size + cell)
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys)).astype(np.float64)
        terms, cells = np.divmod(keys[first], self._lengths.size)
        documents, fields = np.divmod(cells, len(FIELDS))
        return documents, fields, terms, counts

    def _norms(self, documents: Ints, fields: Ints) -> Floats:
        b = np.array([field.b for field in FIELDS])
        norms: Floats = (1 - b + b * self._lengths / self.average)[documents, fields]
        return norms

    def _calc_idf(self, nd: dict[str, int]) -> None:
        n = self.corpus_size
        df = np.fromiter(nd.values(), dtype=np.float64)
        weights: Floats = np.log(1 + (n - df + 0.5) / (df + 0.5))
        self.idf = dict(zip(nd, weights.tolist(), strict=True))
        frequency = self._entry_frequency
        values = weights[self._entry_terms] * frequency * (K1 + 1) / (frequency + K1)
        self.postings = Postings(self._entry_terms, self._entry_documents, values, len(df))
        terms, documents = self._named
        self.in_name = Postings(terms, documents, weights[terms], len(df))
        self.name_idf = np.bincount(documents, weights[terms], minlength=n).astype(np.float64)
        del self._lengths, self._entry_terms, self._entry_documents, self._entry_frequency, self._named

    def get_scores(self, query: Sequence[str]) -> Floats:
        """The scores of all documents for a list of terms."""
        scores = np.zeros(self.corpus_size)
        for term in query:
            if (known := self.vocabulary.get(term)) is not None:
                documents, values = self.postings.of(known)
                scores[documents] += values
        return scores

    def get_batch_scores(self, query: Sequence[str], doc_ids: Sequence[int]) -> list[float]:
        """The scores of some documents for a list of terms."""
        return [float(score) for score in self.get_scores(query)[list(doc_ids)]]


def _expanded(terms: Ints, counts: Ints, pieces: Ints) -> tuple[Ints, Ints]:
    """The terms of a row of pieces, and how many each piece has.

    Args:
        terms: The terms of all different pieces, one piece after the other.
        counts: How many of them each different piece has.
        pieces: The row, as numbers of different pieces.
    """
    lengths = counts[pieces]
    shift = (np.cumsum(counts) - counts)[pieces] - (np.cumsum(lengths) - lengths)
    return terms[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths


def _summed(terms: Ints, documents: Ints, values: Floats) -> tuple[Ints, Ints, Floats]:
    """One entry for each term and document, with the sum of the values of its fields; entries come sorted."""
    new = (np.diff(terms, prepend=-1) != 0) | (np.diff(documents, prepend=-1) != 0)
    first = np.flatnonzero(new)
    total: Any = np.add.reduceat(values, first) if len(first) else values
    return terms[first], documents[first], total


def query_weight(count: int) -> float:
    """How much a term counts that stands in the query so many times."""
    return 1 + math.log(count)
