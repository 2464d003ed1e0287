"""Search results, and their explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.errors import shown

RankedBy = Literal[
    "words",
    "words and meaning",
    "words and past questions",
    "words, meaning and past questions",
]
"""What a search ranks by."""
PAST_QUESTION = "a past question"
"""The label of a score's part that past questions add."""


@dataclass(frozen=True)
class TermScore:
    """One part's contribution to a score. Most parts are query terms.

    Args:
        term: The indexed term. For other parts, a label: `words of the name`, `clause "…"`, `exact
            name`, `the server's topic`, `meaning`, `a past question`, `same description as a better
            hit` (which is negative).
        field: Where it was found: `name`, `server`, `description`, `parameter name` or `details`.
            For `meaning`, the nearest words where static vectors tell them. For `a past question`,
            which one it was, and when.
        idf: How rare it is over all tools, or 0 for parts that are not terms.
        share: Its contribution to the score.
        length_norm: Field length relative to the mean, as in BM25: above 1, the field is long and
            the term counts less.
        query_term: The query's term, if this one is a synonym of it.
    """

    term: str
    field: str
    frequency: int
    idf: float
    share: float
    length_norm: float = 1.0
    query_term: str = ""


@dataclass(frozen=True)
class Explanation(Displayable):
    """Explains a tool's rank in a search. Shares add up to the score.

    `cut` is how many results are returned at most, and `missing` has the query terms that the tool
    does not contain. `spelling` has each term's whole word, as written in the query or the tool.
    """

    tool: ToolSpec
    query: str
    score: float
    rank: int | None
    cut: int
    shares: tuple[TermScore, ...]
    missing: tuple[str, ...]
    server: str | None = None
    skipped: str = ""
    spelling: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def word(self, term: str) -> str:
        """Complete a term to its whole word."""
        return self.spelling.get(term, term)

    @property
    def verdict(self) -> str:
        """The rank in one sentence: returned to the model or not, or why there is no match."""
        if self.skipped:
            return self.skipped
        if self.server is not None and self.tool.server != self.server:
            return f"Not searched: the search was limited to server {shown(self.server)}."
        if self.rank is None:
            return "No match: it contains none of the search words."
        if self.rank > self.cut:
            return f"Ranked {ordinal(self.rank)}: not returned (limit {self.cut})."
        return f"Ranked {ordinal(self.rank)}: returned to the model."


def ordinal(number: int) -> str:
    """Format a rank in words: `1st`, `2nd`, `13th`."""
    ending = "th"
    if number % 100 not in (11, 12, 13):
        ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


@dataclass(frozen=True, eq=False)
class SearchHit:
    """A tool returned by a search. As a sequence it is the server and the tool, which it equals.

    Args:
        score: Its score. Higher is better.
        rank: Its rank, from 1.
        explain: Computes why, when called.
    """

    tool: ToolSpec
    score: float
    rank: int
    explain: Callable[[], Explanation] = field(repr=False, compare=False)

    @property
    def pair(self) -> tuple[str, ToolSpec]:
        """The server and the tool, as casual-mcp's search returns them."""
        return self.tool.server, self.tool

    def __iter__(self) -> Iterator[str | ToolSpec]:
        return iter(self.pair)

    def __len__(self) -> int:
        return len(self.pair)

    def __getitem__(self, index: int) -> str | ToolSpec:
        return self.pair[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SearchHit):
            return (*self.pair, self.score, self.rank) == (*other.pair, other.score, other.rank)
        return self.pair == other

    def __hash__(self) -> int:
        return hash(self.pair)


@dataclass(frozen=True)
class SearchResults(DisplayableList[SearchHit], items="hits"):
    """Results from `session.search`, best first.

    Args:
        hits: The tools found.
        cut: How many results are returned at most.
        searched: How many tools were searched.
        why_not: Explains any tool's rank, even if it was not found.
        ranked_by: Whether meaning and past questions counted, or only words.
        note: Why only words counted, although the session is set to meaning.
    """

    query: str
    hits: tuple[SearchHit, ...]
    cut: int
    searched: int
    why_not: Callable[[str], Explanation] = field(repr=False, compare=False)
    ranked_by: RankedBy = "words"
    note: str = ""
