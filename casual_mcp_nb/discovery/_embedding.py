"""Rank tools by meaning with an embedding. Off unless the user provides one; nothing is ever downloaded."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casual_mcp_nb.discovery._bm25 import Floats
from casual_mcp_nb.discovery._fields import texts
from casual_mcp_nb.types.tool import ToolSpec

logger = logging.getLogger(__name__)

_BATCH = 128
_BETWEEN = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.-]+")


def embedded_text(tool: ToolSpec) -> str:
    """Build the text to embed for a tool: its name in words and the beginning of its description."""
    name, _, description, *_ = texts(tool)
    return f"{_BETWEEN.sub(' ', name)}: {description}"


class EmbeddingScorer:
    """Scores how close tools are to a query in an embedding space.

    The cosine is scaled so that 0 is the mean over all tools and 1 the nearest one, then squared: far tools, which every
    embedding still finds somewhat alike, add nothing.

    Args:
        embed: Return an array with one row for each text.
        tools: The tools; embedded once, in batches.
    """

    def __init__(self, embed: Callable[[list[str]], Any], tools: Sequence[ToolSpec]) -> None:
        self._embed = embed
        self._vectors = self._of([embedded_text(tool) for tool in tools])
        self._last: tuple[str, Floats | None] | None = None

    def nearness(self, query: str) -> Floats | None:
        """Compute how close each tool is, from 0 to 1; None if the embedding fails, which is logged.

        The last result is cached, so that explaining a search does not embed its query again.
        """
        last = self._last
        if last is None or last[0] != query:
            self._last = last = query, self._nearness(query)
        return last[1]

    def _nearness(self, query: str) -> Floats | None:
        vector = self._of([query]) if self._vectors is not None and query.strip() else None
        if vector is None or self._vectors is None:
            return None
        if vector.shape[1] != self._vectors.shape[1]:
            logger.warning("The embeddings of the query and the tools differ in length; searching by words only.")
            return None
        cosines = self._vectors @ vector[0]
        middle, best = float(cosines.mean()), float(cosines.max())
        if best - middle < 1e-9:
            return None
        near: Floats = np.clip((cosines - middle) / (best - middle), 0.0, 1.0) ** 2
        return near

    def _of(self, lines: Sequence[str]) -> NDArray[np.float64] | None:
        try:
            batches = [self._batch(list(lines[start : start + _BATCH])) for start in range(0, len(lines), _BATCH)]
            vectors = np.concatenate(batches)
        except Exception as error:  # whatever the user's function raises, the search by words still works
            logger.warning("The embedding failed (%s); searching by words only.", type(error).__name__)
            return None
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float64] = vectors / np.where(lengths > 0, lengths, 1.0)
        return unit

    def _batch(self, lines: list[str]) -> NDArray[np.float64]:
        vectors = np.asarray(self._embed(lines), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != len(lines) or not np.isfinite(vectors).all():
            raise ValueError("an embedding must return one row of finite numbers for each text")
        return vectors
