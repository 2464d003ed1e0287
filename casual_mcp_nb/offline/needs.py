"""Split a request into needs, in the words of tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.mentions import Mention, find_mentions
from casual_mcp_nb.offline.wording import reword

MAX_NEEDS = 6
_VERBS = (
    "add|append|calculate|call|check|compare|compute|convert|copy|count|create|delete|describe|divide|draw|echo|evaluate|explain|"
    "extract|fetch|find|format|generate|get|give|join|list|look|make|move|multiply|open|parse|query|read|remove|rename|replace|run|"
    "save|search|send|show|solve|sort|split|subtract|sum|summarise|summarize|tell|translate|use|write"
)
_QUESTIONS = "what|what's|which|who|whose|when|where|why|how|is|are|does|do|can|could|will|would|please"
_AND = r"\s*(?:(?:and|then|also|now|next|finally|please)[\s,]+)*"
_FOLLOWS = re.compile(r"\s*(?:and|what about|how about|now|also|then|same)\b", re.I)
_ASKS = re.compile(rf"{_AND}(?:{_VERBS}|{_QUESTIONS})\b|{_FOLLOWS.pattern}", re.I)
OPENS_WITH_VERB = re.compile(rf"{_AND}(?:{_VERBS})\b", re.I)
_JOINT = r",?\s{1,9}(?:and\s+then|and\s+also|and|then)"
_CUT = re.compile(rf"(?<=[.?!;])\s+|\n+|{_JOINT}\s+(?=(?:{_VERBS}|{_QUESTIONS})\b)", re.I)
_TRAILING = re.compile(rf"{_JOINT}$", re.I)
_IMPLIED = {
    "count": re.compile(r"\bhow many\b", re.I),
    "list": re.compile(r"\b(?:which|what)\s+(?:\w+\s+)?\w{3,}(?<!s)s\b", re.I),
    "current": re.compile(r"^(?!.*\b(?:when|noon|midnight)\b)\D*\bwhat(?:'s| is)?(?: the)? (?:time|date)\b\D*$", re.I),
    "write": re.compile(r"\b(?:create|make)\s+(?:a|an|the)\s+(?:new |text )*file\b", re.I),
}
_WORD = re.compile(r"[^\W\d_]\w*(?:['\u2019][a-z]+)?")
# Words that say nothing about a tool, in addition to the search's stop words.
_EMPTY = {"does", "each", "exactly", "hey", "made", "much", "now", "one", "say", "says", "still", "thanks", "value"}


@dataclass(frozen=True)
class Word:
    """A meaningful word of a request, with its terms and its position."""

    text: str
    terms: tuple[str, ...]
    start: int
    end: int


def content_words(text: str) -> list[Word]:
    """Return the meaningful words of a text, in order."""
    words = [Word(match[0].casefold(), tuple(terms(match[0])), match.start(), match.end()) for match in _WORD.finditer(text)]
    return [word for word in words if word.terms and word.text not in _EMPTY]


@dataclass(frozen=True)
class Need:
    """One thing that the person wants, in their words."""

    text: str

    @cached_property
    def mentions(self) -> list[Mention]:
        """The values in it."""
        return find_mentions(self.text)

    @cached_property
    def words(self) -> list[Word]:
        """The words that can identify a tool, without those of values."""
        words = content_words(self.text)
        return [word for word in words if not any(one.start < word.end and word.start < one.end for one in self.mentions)]

    @cached_property
    def implied(self) -> list[str]:
        """Words that a question implies: `how many` means count, `which files` means list."""
        return [word for word, pattern in _IMPLIED.items() if pattern.search(self.text)] if self.words else []

    @cached_property
    def terms(self) -> set[str]:
        """The terms of its words."""
        return {term for word in self.words for term in word.terms}

    @property
    def follows(self) -> bool:
        """Whether it continues the previous request."""
        return _FOLLOWS.match(self.text) is not None or not self.words

    @property
    def is_talk(self) -> bool:
        """Whether it requests nothing: a greeting, thanks."""
        return not self.words and not self.mentions

    @cached_property
    def query(self) -> str:
        """The search query: the words, and the kind of tool that its values suggest."""
        kinds = [mention.kind for mention in self.mentions]
        hints = {
            "calculate expression": "expression" in kinds,
            "convert units": "unit" in kinds,
            "convert time zone": "zone" in kinds and ("time" in kinds or kinds.count("zone") > 1),
            "query sql": "sql" in kinds,
            "add duration": "date" in kinds and "quantity" in kinds,
            "date": "date" in kinds,
            "file": "path" in kinds or "glob" in kinds,
            "read": "path" in kinds and not self.words,
            "numbers": kinds.count("number") > 2,
        }
        hinted = " ".join(hint for hint, wanted in hints.items() if wanted).split()
        words = [word.text for word in self.words]
        return " ".join(dict.fromkeys([*self.implied, *hinted, *words])) or self.text.strip()[:200]


def needs_of(text: str) -> list[Need]:
    """Split a request into its needs, in order and at most `MAX_NEEDS`.

    It is reworded, then split at sentences, and at `and` or `then` before a verb or a question, but not inside a value. A
    sentence that requests nothing belongs to the need before it, or at the beginning, after it.
    """
    text = reword(text)
    mentions = find_mentions(text)
    cuts = (match.end() for match in _CUT.finditer(text))
    cuts = (cut for cut in cuts if not any(one.start < cut < one.end for one in mentions))
    pieces: list[str] = []
    for start, end in pairwise([0, *cuts, len(text)]):
        piece = text[start:end]
        if pieces and (not _ASKS.match(piece) or (len(pieces) == 1 and not _ASKS.match(pieces[0]))):
            pieces[-1] += piece
        elif piece.strip():
            pieces.append(piece)
    needs = [Need(_TRAILING.sub("", piece.strip())) for piece in pieces]
    return [one for need in needs for one in _each_quantity(need)][:MAX_NEEDS]


def _each_quantity(need: Need) -> list[Need]:
    """Split `5 miles and 3 km to feet` into two conversions."""
    quantities = [mention for mention in need.mentions if mention.kind == "quantity"]
    units = [mention for mention in need.mentions if mention.kind == "unit"]
    between = [need.text[one.end : other.start].strip() for one, other in pairwise(quantities)]
    if len(units) != 1 or not between or not all(re.fullmatch(r",|,?\s*and", text) for text in between):
        return [need]
    before, after = need.text[: quantities[0].start], need.text[quantities[-1].end :]
    return [Need(f"{before}{need.text[one.start : one.end]}{after}") for one in quantities]
