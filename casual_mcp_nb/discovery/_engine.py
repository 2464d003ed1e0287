"""An index's ranking engine. Imported only to build an index, because it needs numpy."""

from __future__ import annotations

import copy
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

import numpy as np

from casual_mcp_nb.base.search import PAST_QUESTION, Explanation, TermScore
from casual_mcp_nb.base.tool import ToolSpec, servers_of
from casual_mcp_nb.conversation.past_questions import PastQuestion
from casual_mcp_nb.discovery._embeddings import EmbeddingScorer, Nearest, Vectors
from casual_mcp_nb.discovery._past_questions import PastScorer
from casual_mcp_nb.discovery._ranking import (
    CLAUSE,
    CLAUSE_POWER,
    DESCRIPTION,
    NAME,
    NAME_COVERED,
    Clause,
    FieldedBM25,
    Floats,
    Ints,
    Scored,
    Scorer,
)
from casual_mcp_nb.discovery.text import (
    FIELDS,
    MAX_QUERY,
    embedded_text,
    readable,
    spelled,
    terms,
    texts,
)

_MAX_WORDS = 6
_MAX_CHUNKS = 500


class ExactNames:
    """Finds tool names in queries: the bare name, the wire name and `server:tool`, ignoring case.

    A bare name that is an ordinary word (`search`, `time`) counts only in quotes or as the whole
    query: in a sentence it is usually just that word.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._places: dict[str, list[int]] = {}
        self._plain: set[str] = set()
        self._longest = 1
        self._starts: set[str] = set()
        for index, tool in enumerate(tools):
            name = tool.name.strip().casefold()
            if name.isalpha() and (tool.name.islower() or tool.name.istitle()):
                self._plain.add(name)
            elif " " in name:
                words = name.split()
                self._longest = max(self._longest, min(_MAX_WORDS, len(words)))
                self._starts.update((words[0], _bare(words[0])))
            for form in {name, tool.wire_name.casefold(), f"{tool.server}:{tool.name}".casefold()}:
                self._places.setdefault(form, []).append(index)

    def called(self, query: str) -> list[int]:
        """Find the tools that a query mentions by name, as indices in order."""
        whole = query.strip().casefold()
        indices = set(self._places.get(whole, ())) | set(self._places.get(_bare(whole), ()))
        for piece in self._pieces(whole):
            indices.update(self._places.get(piece, ()))
        return sorted(indices)

    def _pieces(self, query: str) -> Iterator[str]:
        chunks = query.split(maxsplit=_MAX_CHUNKS)[:_MAX_CHUNKS]
        for start, chunk in enumerate(chunks):
            bare = _bare(chunk)
            yield from self._forms(chunk, bare)
            if chunk in self._starts or bare in self._starts:
                for end in range(start + 2, min(start + self._longest, len(chunks)) + 1):
                    phrase = " ".join(chunks[start:end])
                    yield from self._forms(phrase, _bare(phrase))

    def _forms(self, chunk: str, bare: str) -> Iterator[str]:
        if chunk not in self._plain:
            yield chunk
        if bare != chunk and (bare not in self._plain or _is_quoted(chunk, bare)):
            yield bare


def _bare(text: str) -> str:
    start, end = 0, len(text)
    while start < end and not (text[start].isalnum() or text[start] == "_"):
        start += 1
    while start < end and not (text[end - 1].isalnum() or text[end - 1] == "_"):
        end -= 1
    return text[start:end]


def _is_quoted(chunk: str, bare: str) -> bool:
    before, _, after = chunk.partition(bare)
    return _is_quote(before[-1:]) and _is_quote(after[:1])


def _is_quote(sign: str) -> bool:
    return sign != "" and (sign in "\"'`" or unicodedata.category(sign) in ("Pi", "Pf"))


COPY = 0.7
"""Score factor for each near-duplicate."""
DEPRECATED = 0.5
"""Score factor for a tool that its server calls deprecated, so that its successor ranks before it.
"""
_CALLED_DEPRECATED = re.compile(r"(?i:\A\W*deprecated\b)|[.!?;\n(\[]\W*DEPRECATED\b|\(Deprecated\)")
SAME = 0.4
"""Two tools with the same name count as duplicates if their descriptions have at least this Jaccard
similarity.
"""
_STATED = 400
"""How many characters of a description are compared for that."""
_MAX_KINDS = 8
"""Maximum number of distinct tools with the same name to compare."""


class Ranker:
    """Ranks a corpus's documents."""

    def __init__(self, bm25: FieldedBM25, deprecated: Collection[int]) -> None:
        self.copies = _copies(bm25)
        self.deprecated = deprecated

    def same(self, document: int, other: int) -> bool:
        """Check whether two documents are duplicates."""
        return self.copies.get(document, document) == self.copies.get(other, other)

    def ranked(
        self, scores: Floats, count: int, called: Collection[int] = ()
    ) -> list[tuple[int, float]]:
        """Rank the best documents with their final scores, best first.

        Omits those with a score of 0. Never demotes documents that the query mentions by name
        (`called`).
        """
        hits = int(np.count_nonzero(scores > 0))
        taken = min(hits, 4 * count + 16)
        while taken:
            # Find the indices of the best scores, best first; ties in index order.
            if taken < len(scores):
                least = np.partition(scores, len(scores) - taken)[len(scores) - taken]
                places = np.flatnonzero(scores >= least)
            else:
                places = np.arange(len(scores))
            best = places[np.argsort(-scores[places], kind="stable")][:taken]
            final = self._demoted(best, scores, called)
            # A document that was skipped cannot rank before the last one requested.
            if taken == hits or (len(final) >= count and final[count - 1][1] > scores[best[-1]]):
                return final[:count]
            taken = min(hits, 8 * taken)
        return []

    def _demoted(
        self, best: Ints, scores: Floats, called: Collection[int]
    ) -> list[tuple[int, float]]:
        seen: Counter[int] = Counter()
        final = []
        for document, score in zip(best.tolist(), scores[best].tolist(), strict=True):
            kind = self.copies.get(document)
            if document in self.deprecated and document not in called:
                score *= DEPRECATED
            if kind is not None:
                if document not in called:
                    score *= COPY ** seen[kind]
                seen[kind] += 1
            final.append((document, score))
        if seen or self.deprecated:
            final.sort(key=_best_first)
        return final


def _best_first(ranked: tuple[int, float]) -> tuple[float, int]:
    document, score = ranked
    return -score, document


def _is_deprecated(tool: ToolSpec) -> bool:
    title = tool.title or ""
    return any(_CALLED_DEPRECATED.search(text[:_STATED]) for text in (tool.description, title))


def _copies(bm25: FieldedBM25) -> dict[int, int]:
    """Map each document that duplicates others to the first of them."""
    by_name: dict[bytes, list[int]] = {}
    for document in range(bm25.corpus_size):
        by_name.setdefault(bm25.text_terms(document, NAME).tobytes(), []).append(document)
    copies: dict[int, int] = {}
    for documents in by_name.values():
        if len(documents) > 1:
            descriptions = {}
            for document in documents:
                descriptions[document] = frozenset(bm25.text_terms(document, DESCRIPTION).tolist())
            copies.update(_kinds(descriptions))
    return copies


def _kinds(descriptions: Mapping[int, frozenset[int]]) -> dict[int, int]:
    """Map each of some documents with the same name that has duplicates to the first of them."""
    distinct: list[int] = []
    originals = {}
    for document, description in descriptions.items():
        for other in distinct:
            if _are_alike(description, descriptions[other]):
                originals[document] = originals[other] = other
                break
        else:
            if len(distinct) < _MAX_KINDS:
                distinct.append(document)
    return originals


def _are_alike(one: frozenset[int], other: frozenset[int]) -> bool:
    common = len(one & other)
    return common >= SAME * (len(one) + len(other) - common)


_SHOWN = 60


class ScoreExplainer:
    """The breakdown of one tool's score."""

    def __init__(
        self,
        scorer: Scorer,
        scored: Scored,
        document: int,
        tool: ToolSpec,
        nearest_words: Callable[[ToolSpec], str],
        past: PastScorer | None,
    ) -> None:
        self._scorer = scorer
        self._tool = tool
        self._nearest_words = nearest_words
        self._past = past
        self._bm25 = scorer.bm25
        self._scored = scored
        self._document = document
        self._texts = texts(tool)
        self._counts = [Counter(terms(text)) for text in self._texts]

    def all(self) -> tuple[TermScore, ...]:
        """List every part that is not zero.

        They add up to the score before any demotion of duplicates and deprecated tools.
        """
        parts = [*self._terms(), *self._name(), *self._clause()]
        parts += self._server(sum(part.share for part in parts))
        parts += [*self._meaning(), *self._past_question(), *self._called()]
        return tuple(part for part in parts if part.share)

    def missing(self) -> tuple[str, ...]:
        """List the query terms that the tool does not match, even by a synonym."""
        best = self._scorer.lookup.best
        return tuple(term for term in self._scored.weights if not best(term, self._document)[1])

    def spelling(self, query: str) -> dict[str, str]:
        """Map each term to its whole word: the query's, or the tool's where only the tool has the
        term.
        """
        return spelled(" ".join(self._texts)) | spelled(readable(query))

    def _terms(self) -> Iterator[TermScore]:
        for query_term, weight in self._scored.weights.items():
            term, worth = self._scorer.lookup.best(query_term, self._document)
            if worth:
                yield from self._by_field(query_term, term, weight * worth)

    def _by_field(self, query_term: str, term: str, worth: float) -> Iterator[TermScore]:
        rows = []
        total = 0.0
        for field, counts, average in zip(FIELDS, self._counts, self._bm25.average, strict=True):
            if counts[term]:
                norm = float(1 - field.b + field.b * counts.total() / average)
                part = field.weight * counts[term] / norm
                rows.append((field, counts[term], norm, part))
                total += part
        idf = self._bm25.idf[term]
        # A word of the query itself needs no other term that it stands for.
        spoken = query_term if query_term != term else ""
        for field, count, norm, part in rows:
            yield TermScore(term, field.name, count, idf, worth * part / total, norm, spoken)

    def _name(self) -> Iterator[TermScore]:
        bm25 = self._bm25
        words = [term for term in self._scored.weights if term in self._counts[0]]
        covered = sum(bm25.idf[term] for term in words)
        if covered:
            share = NAME_COVERED * covered * covered / float(bm25.name_idf[self._document])
            yield TermScore("words of the name", "name", len(words), covered, share)

    def _server(self, own: float) -> Iterator[TermScore]:
        if self._scored.servers is not None:
            share = own * float(self._scored.servers[self._document])
            yield TermScore("the server's topic", "server", 1, 0.0, share)

    def _clause(self) -> Iterator[TermScore]:
        clauses = self._scored.clauses
        if clauses:
            best = max(clauses, key=self._fit)
            share = CLAUSE * self._scored.best * self._fit(best) ** CLAUSE_POWER
            yield TermScore(_clause_words(best), "part of the request", 1, 0.0, share)

    def _fit(self, clause: Clause) -> float:
        """Compute how well the tool matches a clause, where the best one has 1."""
        worth = 0.0
        for term, weight in clause.weights.items():
            worth += weight * self._scorer.lookup.best(term, self._document)[1]
        return worth / clause.best

    def _meaning(self) -> Iterator[TermScore]:
        if self._scored.meaning is None:
            return
        share = float(self._scored.meaning[self._document])
        if share:
            words = self._nearest_words(self._tool) or "embedding"
            yield TermScore("meaning", words, 1, 0.0, share)

    def _past_question(self) -> Iterator[TermScore]:
        if self._past is None or self._scored.past is None:
            return
        share = float(self._scored.past[self._document])
        if share:
            nearest, count = self._past.nearest(self._scored.weights, self._document)
            yield TermScore(PAST_QUESTION, nearest.occasion, count, 0.0, share)

    def _called(self) -> Iterator[TermScore]:
        if self._document in self._scored.called:
            yield TermScore("exact name", "name", 1, 0.0, self._scored.bonus)


def _clause_words(clause: Clause) -> str:
    text = clause.text
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}…"
    return f'clause "{text}"'


class Engine:
    """Ranks an index's tools and explains their scores.

    Tools are documents, ordered by wire name.
    """

    def __init__(
        self, tools: Sequence[ToolSpec], vectors: Callable[[list[str]], Vectors] | None
    ) -> None:
        self._tools = sorted(tools, key=attrgetter("wire_name", "server", "name"))
        self._places = {tool.tool_name: index for index, tool in enumerate(self._tools)}
        corpus = list(map(texts, self._tools))
        bm25 = FieldedBM25(corpus)
        deprecated = {number for number, tool in enumerate(self._tools) if _is_deprecated(tool)}
        self._ranking = Ranker(bm25, deprecated)
        self._names = ExactNames(self._tools)
        self.meaning: EmbeddingScorer | None = None
        if vectors:
            lines = list(map(embedded_text, self._tools))
            self.meaning = EmbeddingScorer(vectors(lines))
        servers = sorted(servers_of(tools))
        self._servers = {server: number for number, server in enumerate(servers)}
        self._server_of = np.array([self._servers[tool.server] for tool in self._tools])
        self._scorer = Scorer(bm25, self._server_of)
        self._last: tuple[tuple[str, str | None], Nearest | None, Scored] | None = None
        self._past: PastScorer | None = None

    def learned(self, questions: Iterable[PastQuestion]) -> Engine:
        """Copy the engine, with past questions that count too. Those about other definitions of the
        tools do not.
        """
        known = []
        for question in questions:
            document = self._places.get(question.tool)
            if document is not None and self._tools[document].digest == question.definition:
                known.append((question, document))
        other = copy.copy(self)
        other._past = PastScorer(known, len(self._tools)) if known else None
        other._last = None
        return other

    def has_learned(self, query: str) -> bool:
        """Check whether past questions count in a search for a query."""
        if self._past is None:
            return False
        past = self._score(query, None).past
        return past is not None and bool(past.any())

    def has(self, name: object) -> bool:
        """Check whether a tool with that name is in the index."""
        return name in self._places

    def called(self, query: str) -> list[ToolSpec]:
        """Find the tools that a query mentions by name."""
        return [self._tools[document] for document in self._names.called(query[:MAX_QUERY])]

    def known_share(self, query: str) -> float:
        """Compute the share of a query's words that occur in the tools, from 0 to 1.

        Returns 1 for a query without words.
        """
        query_terms = set(terms(readable(query)))
        if not query_terms:
            return 1.0
        known = query_terms & self._scorer.bm25.vocabulary.keys()
        return len(known) / len(query_terms)

    def ranked(
        self, query: str, server: str | None, count: int, only: str | None = None
    ) -> list[tuple[ToolSpec, float]]:
        """Rank the best tools with their scores, best first."""
        scored = self._score(query, server)
        scores = scored.scores
        if only is not None and only != server:
            scores = scores * self._of(only)
        ranked = self._ranking.ranked(scores, count, scored.called)
        return [(self._tools[document], score) for document, score in ranked]

    def explain(self, query: str, tool: ToolSpec, cut: int, server: str | None) -> Explanation:
        """Explain a tool's score. Takes the same arguments as `ToolSearchIndex.explain`."""
        document = self._places[tool.tool_name]
        scored = self._score(query, server)
        parts = ScoreExplainer(
            self._scorer,
            scored,
            document,
            self._tools[document],
            partial(self._nearest, query),
            self._past,
        )
        rank: int | None = None
        score = 0.0
        shares: tuple[TermScore, ...] = ()
        if scored.scores[document]:
            ranked = self._ranking.ranked(scored.scores, len(self._tools), scored.called)
            rank = 1 + [other for other, _ in ranked].index(document)
            score = ranked[rank - 1][1]
            shares = (*parts.all(), *self._demotions(scored, document, ranked, score))
        return Explanation(
            tool,
            query,
            score,
            rank,
            cut,
            shares,
            parts.missing(),
            server,
            spelling=parts.spelling(query),
        )

    def _demotions(
        self, scored: Scored, document: int, ranked: Sequence[tuple[int, float]], score: float
    ) -> Iterator[TermScore]:
        """Yield what a document loses because it is deprecated, or like a better one."""
        raw = float(scored.scores[document])
        if document in self._ranking.deprecated and document not in scored.called:
            lost = raw * (DEPRECATED - 1)
            yield TermScore("its server calls it deprecated", "description", 1, 0.0, lost)
            raw *= DEPRECATED
        if score == raw:
            return
        for other, _ in ranked:
            if self._ranking.same(other, document):
                like = f"like {self._tools[other].tool_name}"
                yield TermScore("same description as a better hit", like, 1, 0.0, score - raw)
                return

    def _nearest(self, query: str, tool: ToolSpec) -> str:
        """Pair a query's words with the nearest ones of a tool, or empty if unknown."""
        if self.meaning is None:
            return ""
        return self.meaning.nearest_words(query[:MAX_QUERY], tool)

    def nearest(self, query: str) -> dict[str, float]:
        """Find the tools nearest in meaning to a query, by wire name.

        Empty where only words count.
        """
        nearest = self.meaning.nearest(query[:MAX_QUERY]) if self.meaning else None
        if nearest is None:
            return {}
        documents, values = nearest
        named = {}
        for document, value in zip(documents.tolist(), values.tolist(), strict=True):
            if value:
                named[self._tools[document].wire_name] = value
        return named

    def recall(self, query: str, nearest: Mapping[str, float]) -> None:
        """Use these tools as the nearest ones in meaning to a query. If empty, only words count."""
        self.meaning = self.meaning or EmbeddingScorer(None)
        documents, values = [], []
        for document, tool in enumerate(self._tools):
            if tool.wire_name in nearest:
                documents.append(document)
                values.append(nearest[tool.wire_name])
        places, nearness = np.array(documents, dtype=np.intp), np.array(values, dtype=np.float64)
        self.meaning.keep(query[:MAX_QUERY], (places, nearness))

    def _score(self, query: str, server: str | None) -> Scored:
        """Score all tools.

        Caches the last result: a search asks for hits, then for other tools near the query.
        """
        nearest = self.meaning.nearest(query[:MAX_QUERY]) if self.meaning else None
        last = self._last
        if last is None or last[0] != (query, server) or last[1] is not nearest:
            scored = self._scored(query[:MAX_QUERY], server, nearest)
            self._last = last = ((query, server), nearest, scored)
        return last[2]

    def _scored(self, query: str, server: str | None, nearest: Nearest | None) -> Scored:
        meaning = None
        if nearest is not None and nearest[1].any():
            meaning = np.zeros(len(self._tools))
            meaning[nearest[0]] = nearest[1]
        allowed = None if server is None else self._of(server)
        past = self._past.scores if self._past is not None else None
        return self._scorer.score(query, allowed, self._names.called(query), meaning, past)

    def _of(self, server: str) -> Floats:
        allowed: Floats = np.where(self._server_of == self._servers.get(server, -1), 1.0, 0.0)
        return allowed
