"""What the tools of a server have in common: evidence for each of them, beside what it says itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from casual_mcp_nb.discovery._bm25 import Floats, Ints
from casual_mcp_nb.discovery._lookup import Entries, Lookup, TermCache

SERVER = 0.4
"""What the fit of a tool's server adds, as a part of the tool's own score."""
_K1 = 3.0
"""How soon it stops counting that further tools of a server speak of the same."""
_B = 0.75
"""How far the number of a server's tools counts."""


class ServerRanker:
    """How well servers fit a request: BM25 over servers, where a term counts by how many of a server's tools mention it.

    A server is ranked by the document frequencies of its tools, as in CORI: Callan, Lu and Croft, Searching Distributed
    Collections with Inference Networks (SIGIR 1995).

    Args:
        lookup: Finds the tools for a term.
        server_of: The number of each tool's server.
        count: How many servers there are.
    """

    def __init__(self, lookup: Lookup, server_of: Ints, count: int) -> None:
        self._lookup = lookup
        self._server_of = server_of
        self._count = count
        sizes = np.bincount(server_of, minlength=count)
        self._norms: Floats = 1 - _B + _B * sizes / sizes.mean()
        self._memory = TermCache()

    def evidence(self, weights: Mapping[str, float]) -> Floats:
        """Return what each tool's server adds to it, as a part of its own score.

        Args:
            weights: The terms of the request.
        """
        fit = np.zeros(self._count)
        for term, weight in weights.items():
            servers, values = self._memory.of(term, self._entries)
            fit[servers] += weight * values
        best = float(fit.max())
        part: Floats = (fit * (SERVER / best) if best > 0 else fit)[self._server_of]
        return part

    def _entries(self, term: str) -> Entries:
        """Return the servers whose tools mention a term, each with what that is worth."""
        tools, values = self._lookup.entries(term)
        spoken = np.bincount(self._server_of[tools], values, minlength=self._count)
        servers = np.flatnonzero(spoken)
        rarity = self._lookup.idf.get(term, 1.0)
        frequency = spoken[servers] / rarity / self._norms[servers]
        return servers, rarity * frequency * (_K1 + 1) / (frequency + _K1)
