"""Rank documents by score: best first, ties by position, near-duplicates of a better document further down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from casual_mcp_nb.discovery._bm25 import DESCRIPTION, NAME, FieldedBM25, Floats, Ints

COPY = 0.7
"""Factor applied to the score of each near-duplicate."""
SAME = 0.4
"""Jaccard similarity of the descriptions from which two tools of the same name count as duplicates."""
_MAX_KINDS = 8
"""How many distinct tools of the same name are compared."""


class Ranker:
    """Ranks the documents of a corpus.

    Args:
        bm25: The corpus, documents in the order in which equal scores are ranked.

    Attributes:
        copies: For each document that duplicates others, the first of them.
    """

    def __init__(self, bm25: FieldedBM25) -> None:
        self.copies = _copies(bm25)

    def same(self, document: int, other: int) -> bool:
        """Check whether two documents are duplicates."""
        return document == other or self.copies.get(document, document) == self.copies.get(other, other)

    def ranked(self, scores: Floats, count: int, called: Collection[int] = ()) -> list[tuple[int, float]]:
        """Rank the best documents with their final scores, best first.

        Args:
            scores: The score of each document; documents with 0 are left out.
            count: The maximum number of documents.
            called: Documents that the query mentions by name: they are never demoted.
        """
        hits = int(np.count_nonzero(scores > 0))
        taken = min(hits, 4 * count + 16)
        while taken:
            best = _top(scores, taken)
            final = self._without_copies(best, scores, called)
            # a document that was skipped cannot rank before the last one requested
            if taken == hits or (len(final) >= count and final[count - 1][1] > scores[best[-1]]):
                return final[:count]
            taken = min(hits, 8 * taken)
        return []

    def _without_copies(self, best: Ints, scores: Floats, called: Collection[int]) -> list[tuple[int, float]]:
        seen: Counter[int] = Counter()
        final = []
        for document, score in zip(best.tolist(), scores[best].tolist(), strict=True):
            kind = self.copies.get(document)
            if kind is not None:
                score *= 1.0 if document in called else COPY ** seen[kind]
                seen[kind] += 1
            final.append((document, score))
        return sorted(final, key=lambda pair: (-pair[1], pair[0])) if seen else final


def _top(scores: Floats, count: int) -> Ints:
    """Find the indices of the best scores, best first; ties in index order."""
    if count < len(scores):
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        places = np.flatnonzero(scores >= least)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:count]


def _copies(bm25: FieldedBM25) -> dict[int, int]:
    """Map each document that duplicates others to the first of them."""
    by_name: dict[bytes, list[int]] = {}
    for document in range(bm25.corpus_size):
        by_name.setdefault(bm25.text_terms(document, NAME).tobytes(), []).append(document)
    copies: dict[int, int] = {}
    for documents in by_name.values():
        if len(documents) > 1:
            descriptions = {document: frozenset(bm25.text_terms(document, DESCRIPTION).tolist()) for document in documents}
            copies.update(_kinds(descriptions))
    return copies


def _kinds(descriptions: Mapping[int, frozenset[int]]) -> dict[int, int]:
    kinds: list[int] = []
    originals = {}
    for document, description in descriptions.items():
        kind = next((other for other in kinds if _same(description, descriptions[other])), None)
        if kind is not None:
            originals[document] = originals[kind] = kind
        elif len(kinds) < _MAX_KINDS:
            kinds.append(document)
    return originals


def _same(one: frozenset[int], other: frozenset[int]) -> bool:
    common = len(one & other)
    return common >= SAME * (len(one) + len(other) - common)
