"""How close tools are to a query by their embeddings. Imported only to build an index, because it
needs numpy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery._ranking import MAX_NEAREST, Floats, Ints
from casual_mcp_nb.discovery.text import embedded_text, readable, spelled

logger = logging.getLogger(__name__)

_BATCH = 128


class Vectors(Protocol):
    """An index's text vectors: those of a function (`EmbeddedTexts`), or of a session's model
    (`TextVectors`), which computes them in the background.
    """

    def cosines(self, query: str) -> NDArray[Any] | None:
        """Compute how close each text is to a query, or None if unknown."""

    def word_vectors(self, words: list[str]) -> NDArray[Any] | None:
        """Compute a row for each word, or None if that would take long."""


class EmbeddedTexts:
    """Texts that a function embeds: first all texts, in batches, and then each query.

    Logs its exceptions.
    """

    def __init__(self, embed: Callable[[list[str]], Any], lines: Sequence[str]) -> None:
        self._embed = embed
        self._vectors = self._of(lines)
        self._failed: str | None = None

    def cosines(self, query: str) -> NDArray[np.float64] | None:
        """Compute how close each text is to a query, or None if the function fails."""
        if self._vectors is None or query == self._failed:
            return None
        vector = self._of([query])
        if vector is not None and vector.shape[1] != self._vectors.shape[1]:
            logger.warning(
                "The embeddings of the query and the tools differ in length; searching by words"
                " only."
            )
            vector = None
        if vector is None:
            self._failed = query
            return None
        cosines: NDArray[np.float64] = self._vectors @ vector[0]
        return cosines

    def word_vectors(self, words: list[str]) -> None:
        """Return None: the function may take long."""

    def _of(self, lines: Sequence[str]) -> NDArray[np.float64] | None:
        try:
            batches = []
            for start in range(0, len(lines), _BATCH):
                batches.append(self._batch(list(lines[start : start + _BATCH])))
            vectors = np.concatenate(batches)
        except Exception as error:
            # Whatever the user's function raises, the search by words still works.
            logger.warning(
                "The embedding failed (%s); searching by words only.", type(error).__name__
            )
            return None
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float64] = vectors / np.where(lengths > 0, lengths, 1.0)
        return unit

    def _batch(self, lines: list[str]) -> NDArray[np.float64]:
        vectors = np.asarray(self._embed(lines), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != len(lines) or not np.isfinite(vectors).all():
            raise ValueError("an embedding must return one row of finite numbers for each text")
        return vectors


Nearest = tuple[Ints, Floats]
"""The tools nearest in meaning to a query, each with its nearness from 0 to 1."""
_MAX_QUERIES = 100
_MAX_WORDS_COMPARED, _MAX_PAIRS = 50, 3
_NEAR = 0.4
"""Minimum cosine for two words to count as near."""


class EmbeddingScorer:
    """Scores how close tools are to a query by their embeddings.

    Scales the cosine so that 0 is the mean over all tools and 1 the nearest one, then squares it:
    distant tools, which every embedding still places somewhat near, add nothing. It counts only for
    the nearest tools. Without vectors, only what `keep` was given counts.
    """

    def __init__(self, vectors: Vectors | None) -> None:
        self.vectors = vectors
        self._nearest: dict[str, Nearest] = {}

    def nearest(self, query: str) -> Nearest | None:
        """Find the tools nearest to a query, each with its nearness from 0 to 1, or None if
        unknown.

        Caches the last results, so that explaining a search does not embed its query again.
        """
        if query in self._nearest:
            return self._nearest[query]
        if self.vectors is None or not query.strip():
            return None
        cosines = self.vectors.cosines(query)
        if cosines is None:
            return None
        middle, best = float(cosines.mean()), float(cosines.max())
        spread = best - middle
        near = np.clip((cosines.astype(np.float64) - middle) / max(spread, 1e-9), 0.0, 1.0) ** 2
        places = np.zeros(0, np.intp)
        if spread > 1e-9:
            places = np.argsort(-near, kind="stable")[:MAX_NEAREST]
        nearest = (places, np.round(near[places], 4))
        self.keep(query, nearest)
        return nearest

    def nearest_words(self, query: str, tool: ToolSpec) -> str:
        """Pair the query's words that a tool's text lacks with the nearest ones that it has, or
        empty if unknown.
        """
        tool_terms = spelled(embedded_text(tool))
        query_terms = spelled(readable(query)).items()
        query_words = [word for term, word in query_terms if term not in tool_terms]
        del query_words[_MAX_WORDS_COMPARED:]
        tool_words = list(tool_terms.values())[:_MAX_WORDS_COMPARED]
        if self.vectors is None or not query_words or not tool_words:
            return ""
        rows = self.vectors.word_vectors([*query_words, *tool_words])
        if rows is None:
            return ""
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        unit = rows / np.maximum(lengths, 1e-9)
        cosines = unit[: len(query_words)] @ unit[len(query_words) :].T
        pairs: list[tuple[float, str, str]] = []
        for word, row in zip(query_words, cosines, strict=True):
            if row.max() >= _NEAR:
                pairs.append((float(row.max()), word, tool_words[int(row.argmax())]))
        nearest = sorted(pairs, reverse=True)[:_MAX_PAIRS]
        return ", ".join(f"{word} ≈ {other}" for _, word, other in nearest)

    def keep(self, query: str, nearest: Nearest) -> None:
        """Store a query's nearest tools from another source."""
        while len(self._nearest) >= _MAX_QUERIES:
            self._nearest.pop(next(iter(self._nearest)))
        self._nearest[query] = nearest
