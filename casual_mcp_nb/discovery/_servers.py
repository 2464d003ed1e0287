"""Score servers by the words that their tools share: evidence for each tool beyond its own text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from casual_mcp_nb.discovery._bm25 import Floats, Ints
from casual_mcp_nb.discovery._lookup import Entries, Lookup, TermCache, added

SERVER = 0.4
"""What a server's match adds to its tools, as a fraction of their own score."""
K1 = 3.0
"""How quickly further matching tools of a server stop adding to its score."""
B = 0.75
"""How much the number of a server's tools matters."""


class ServerRanker:
    """Scores servers for a request: BM25 over servers, with the number of tools that mention a term as its frequency.

    A server is ranked by the document frequencies of its tools, as in CORI: Callan, Lu and Croft, Searching Distributed
    Collections with Inference Networks (SIGIR 1995).

    Args:
        lookup: Find the tools for a term.
        server_of: The number of each tool's server.
        count: How many servers there are.
    """

    def __init__(self, lookup: Lookup, server_of: Ints, count: int) -> None:
        self._lookup = lookup
        self._server_of = server_of
        self._count = count
        sizes = np.bincount(server_of, minlength=count)
        self._norms: Floats = 1 - B + B * sizes / sizes.mean()
        self._memory = TermCache()

    def evidence(self, weights: Mapping[str, float]) -> Floats:
        """Compute the contribution of each tool's server, as a fraction of the tool's own score.

        Args:
            weights: The terms of the request.
        """
        fit = added(((self._memory.of(term, self._entries), weight) for term, weight in weights.items()), self._count)
        best = float(fit.max())
        part: Floats = (fit * (SERVER / best) if best > 0 else fit)[self._server_of]
        return part

    def _entries(self, term: str) -> Entries:
        """Find the servers whose tools mention a term, each with its score."""
        tools, values = self._lookup.entries(term)
        spoken = np.bincount(self._server_of[tools], values, minlength=self._count)
        servers = np.flatnonzero(spoken)
        rarity = self._lookup.idf.get(term, 1.0)
        frequency = spoken[servers] / rarity / self._norms[servers]
        return servers, rarity * frequency * (K1 + 1) / (frequency + K1)
