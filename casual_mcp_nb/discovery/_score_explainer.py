"""Explain the score of one tool. Computed on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from casual_mcp_nb.discovery._fields import FIELDS, texts
from casual_mcp_nb.discovery._scorer import CLAUSE, CLAUSE_POWER, NAME_COVERED, Clause, Scored, Scorer
from casual_mcp_nb.discovery.text import readable, spelled, terms
from casual_mcp_nb.types.search import TermScore
from casual_mcp_nb.types.tool import ToolSpec

_SHOWN = 60


class ScoreExplainer:
    """The breakdown of one tool's score.

    Args:
        scorer: The scorer of the corpus.
        scored: Its result for the query.
        document: The tool's index in the corpus.
        tool: The tool.
    """

    def __init__(self, scorer: Scorer, scored: Scored, document: int, tool: ToolSpec) -> None:
        self._scorer = scorer
        self._bm25 = scorer.bm25
        self._scored = scored
        self._document = document
        self._texts = texts(tool)
        self._counts = [Counter(terms(text)) for text in self._texts]

    def all(self) -> tuple[TermScore, ...]:
        """List every part that is not zero; they add up to the score before duplicates are demoted."""
        parts = [*self._terms(), *self._name(), *self._clause()]
        parts += [*self._server(sum(part.share for part in parts)), *self._meaning(), *self._called()]
        return tuple(part for part in parts if part.share)

    def missing(self) -> tuple[str, ...]:
        """List the terms of the query that the tool does not match, even by a synonym."""
        return tuple(term for term in self._scored.weights if not self._scorer.lookup.best(term, self._document)[1])

    def spelling(self, query: str) -> dict[str, str]:
        """Map each term to its whole word: the query's, or the tool's where only the tool has the term."""
        return spelled(" ".join(self._texts)) | spelled(readable(query))

    def _terms(self) -> Iterator[TermScore]:
        for query_term, weight in self._scored.weights.items():
            term, worth = self._scorer.lookup.best(query_term, self._document)
            if worth:
                yield from self._by_field(query_term, term, weight * worth)

    def _by_field(self, query_term: str, term: str, worth: float) -> Iterator[TermScore]:
        rows = []
        for field, counts, average in zip(FIELDS, self._counts, self._bm25.average, strict=True):
            if counts[term]:
                norm = float(1 - field.b + field.b * counts.total() / average)
                rows.append((field, counts[term], norm, field.weight * counts[term] / norm))
        total = sum(row[3] for row in rows)
        idf = self._bm25.idf[term]
        for field, count, norm, part in rows:
            yield TermScore(term, field.name, count, idf, worth * part / total, norm, query_term if query_term != term else "")

    def _name(self) -> Iterator[TermScore]:
        bm25 = self._bm25
        words = [term for term in self._scored.weights if term in self._counts[0]]
        covered = sum(bm25.idf[term] for term in words)
        if covered:
            share = NAME_COVERED * covered * covered / float(bm25.name_idf[self._document])
            yield TermScore("words of the name", "name", len(words), covered, share)

    def _server(self, own: float) -> Iterator[TermScore]:
        if self._scored.servers is not None:
            yield TermScore("what its server is about", "server", 1, 0.0, own * float(self._scored.servers[self._document]))

    def _clause(self) -> Iterator[TermScore]:
        fits = [(self._worth(clause.weights) / clause.best, clause) for clause in self._scored.clauses]
        if fits:
            fit, clause = max(fits, key=lambda pair: pair[0])
            share = CLAUSE * self._scored.best * fit**CLAUSE_POWER
            yield TermScore(_quoted(clause), "part of the request", 1, 0.0, share)

    def _worth(self, weights: Mapping[str, float]) -> float:
        return sum(weight * self._scorer.lookup.best(term, self._document)[1] for term, weight in weights.items())

    def _meaning(self) -> Iterator[TermScore]:
        if self._scored.meaning is not None:
            yield TermScore("meaning", "embedding", 1, 0.0, float(self._scored.meaning[self._document]))

    def _called(self) -> Iterator[TermScore]:
        if self._document in self._scored.called:
            yield TermScore("exact name", "name", 1, 0.0, self._scored.bonus)


def _quoted(clause: Clause) -> str:
    text = clause.text if len(clause.text) <= _SHOWN else f"{clause.text[:_SHOWN]}…"
    return f'clause "{text}"'
