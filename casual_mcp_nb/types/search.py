"""What a search for tools comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.tool import ToolSpec


@dataclass(frozen=True)
class TermScore:
    """What one part of a score adds to it; most parts are terms of the query.

    Args:
        term: The term as it is indexed; of other parts, what they are: `words of the name`, `clause "…"`, `exact name`,
            `what its server is about`, `meaning`, `says the same as a better hit` (which takes away).
        field: Where it was found: `name`, `server`, `description`, `parameter name` or `details`.
        frequency: How often it stands there.
        idf: How rare it is over all tools; 0 for parts that are no terms.
        share: What it adds to the score.
        length_norm: The field's length beside the mean, as BM25 counts it: above 1, the field is long and the term counts less.
        asked: The term of the query that this one stands in for, where it is another one (a synonym).
    """

    term: str
    field: str
    frequency: int
    idf: float
    share: float
    length_norm: float = 1.0
    asked: str = ""


@dataclass(frozen=True)
class Explanation(Displayable):
    """Why a tool has its place in a search: the shares of all parts add up to the score.

    Args:
        tool: Which tool.
        query: What was looked for.
        score: Its score.
        rank: Its place, from 1; None where it was not found.
        cut: How many were asked for: what stands behind was left out.
        shares: What each part adds.
        missing: Terms of the query that the tool does not have.
        server: The server that the search was limited to, if any.
        skipped: Why the search did not look at it, where that is so.
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

    @property
    def verdict(self) -> str:
        """The place in one sentence: found, behind the cut, or why not found."""
        if self.skipped:
            return self.skipped
        if self.server is not None and self.tool.server != self.server:
            return f"Not found: the search was limited to server {shown(self.server)}."
        if self.rank is None:
            return "Not found: it has none of the query's terms."
        if self.rank > self.cut:
            return f"Place {self.rank}, behind the cut at {self.cut}."
        return f"Place {self.rank} of the {self.cut} asked for."


@dataclass(frozen=True)
class SearchHit:
    """A tool that a search found.

    Args:
        tool: Which tool.
        score: Its score; higher is better.
        rank: Its place, from 1.
        explain: Computes why, when called.
    """

    tool: ToolSpec
    score: float
    rank: int
    explain: Callable[[], Explanation] = field(repr=False, compare=False)


@dataclass(frozen=True)
class SearchResults(DisplayableList[SearchHit]):
    """What `session.search` found, best first.

    Args:
        query: What was looked for.
        hits: The tools.
        cut: How many were asked for.
        searched: How many tools were looked through.
        why_not: Explains the place of any tool by name, also of one that was not found.
    """

    query: str
    hits: tuple[SearchHit, ...]
    cut: int
    searched: int
    why_not: Callable[[str], Explanation] = field(repr=False, compare=False)

    @property
    def _items(self) -> tuple[SearchHit, ...]:
        return self.hits
