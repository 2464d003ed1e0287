"""A search index as plain values, with which a page without Python computes the same scores.

`widgets/frontend/src/search` does the arithmetic once more; all constants and words are in here.
"""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.discovery import _lookup, _ranker, _scorer, _servers, text
from casual_mcp_nb.discovery._bm25 import K1, FieldedBM25
from casual_mcp_nb.discovery._exact import ExactNames
from casual_mcp_nb.discovery._fields import FIELDS
from casual_mcp_nb.discovery._ranker import Ranker
from casual_mcp_nb.types.tool import ToolSpec


def portable(tools: list[ToolSpec], bm25: FieldedBM25, ranker: Ranker, names: ExactNames) -> dict[str, Any]:
    """Convert an index to plain values.

    Args:
        tools: Its tools, in the order in which equal scores are ranked.
        bm25: Its corpus.
        ranker: Its ranker.
        names: The names in it.

    Returns:
        `tools`: name, server and wire name of each; `vocabulary`: the terms; `texts`: for each tool and field the numbers of
        its terms; `copies`: for each near-duplicate the first of its kind; `plain`: the names that are ordinary words;
        `synonyms` and `topics`: for each term the numbers of those in the vocabulary; `words` and `constants`.
    """
    vocabulary = bm25.vocabulary
    return {
        "tools": [[tool.name, tool.server, tool.wire_name] for tool in tools],
        "vocabulary": list(vocabulary),
        "texts": [
            [bm25.text_terms(document, field).tolist() for field in range(len(FIELDS))] for document in range(len(tools))
        ],
        "copies": sorted(ranker.copies.items()),
        "plain": sorted(names.plain),
        "synonyms": _numbered(text.synonyms(), vocabulary),
        "topics": _numbered(text.topics(), vocabulary),
        "words": text.word_lists(),
        "constants": {
            "fields": [[field.weight, field.b] for field in FIELDS],
            "k1": K1,
            "related": _lookup.RELATED,
            "same_topic": _lookup.SAME_TOPIC,
            "like": _lookup.LIKE,
            "name_covered": _scorer.NAME_COVERED,
            "clause": _scorer.CLAUSE,
            "clause_power": _scorer.CLAUSE_POWER,
            "server": _servers.SERVER,
            "server_k1": _servers.K1,
            "server_b": _servers.B,
            "copy": _ranker.COPY,
            "weak": text.WEAK,
            "number": text.NUMBER,
            "max_query": text.MAX_QUERY,
            "max_clauses": text.MAX_CLAUSES,
        },
    }


def _numbered(related: dict[str, tuple[str, ...]], vocabulary: Any) -> dict[str, list[int]]:
    """Number the related terms that the vocabulary has, for each term that has any."""
    numbers = {term: [vocabulary[other] for other in others if other in vocabulary] for term, others in related.items()}
    return {term: others for term, others in numbers.items() if others}
