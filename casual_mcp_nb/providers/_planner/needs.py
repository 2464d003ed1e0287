"""What a request needs, need by need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from casual_mcp_nb.providers._planner.mentions import Mention, find_mentions
from casual_mcp_nb.providers._planner.phrases import in_terms_of_tools
from casual_mcp_nb.providers._planner.words import Word, content_words

MAX_NEEDS = 6
_VERBS = (
    "add|append|calculate|call|check|compare|compute|convert|copy|count|create|delete|describe|divide|draw|echo|evaluate|explain|"
    "extract|fetch|find|format|generate|get|give|join|list|look|make|move|multiply|open|parse|query|read|remove|rename|replace|run|"
    "save|search|send|show|solve|sort|split|subtract|sum|summarise|summarize|tell|translate|use|write"
)
_QUESTIONS = "what|what's|which|who|whose|when|where|why|how|is|are|does|do|can|could|will|would|please"
_OPENS = re.compile(rf"\s*(?:(?:and|then|also|now|next|finally)[\s,]+)*(?:{_VERBS}|{_QUESTIONS})\b", re.I)
OPENS_WITH_VERB = re.compile(rf"\s*(?:(?:and|then|also|now|next|finally|please)[\s,]+)*(?:{_VERBS})\b", re.I)
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|\n+")
_JOINT = re.compile(rf",?\s{{1,9}}(?:and\s+then|and\s+also|and|then)\s+(?=(?:{_VERBS}|{_QUESTIONS})\b)", re.I)
_FOLLOWS = re.compile(r"\s*(?:and|what about|how about|now|also|then|same)\b", re.I)
_IMPLIED = {
    "count": re.compile(r"\bhow many\b", re.I),
    "list": re.compile(r"\b(?:which|what)\s+(?:\w+\s+)?\w{3,}(?<!s)s\b", re.I),
}


@dataclass(frozen=True)
class Need:
    """One thing that the person asks for.

    Args:
        text: The person's words for it.
    """

    text: str

    @cached_property
    def mentions(self) -> list[Mention]:
        """The values in it."""
        return find_mentions(self.text)

    @cached_property
    def words(self) -> list[Word]:
        """The words that can say which tool is meant; those of values are not among them."""
        spans = [(mention.start, mention.end) for mention in self.mentions]
        return [
            word for word in content_words(self.text) if not any(start < word.end and word.start < end for start, end in spans)
        ]

    @property
    def implied(self) -> list[str]:
        """Words that a question stands for without saying them: `how many` is to count, `which files` to list."""
        return [word for word, pattern in _IMPLIED.items() if pattern.search(self.text)]

    @property
    def follows(self) -> bool:
        """Whether it goes on from what was asked before."""
        return _FOLLOWS.match(self.text) is not None or not self.words

    @property
    def is_talk(self) -> bool:
        """Whether it asks for nothing: a greeting, thanks."""
        return not self.words and not self.mentions

    @cached_property
    def query(self) -> str:
        """What to look for when a tool is missing: the words, and what kind of tool its values point to."""
        kinds = [mention.kind for mention in self.mentions]
        hints = [hint for hint, wanted in _hints(kinds) if wanted]
        words = [word.text for word in self.words]
        implied = self.implied if words else []
        return " ".join(dict.fromkeys([*implied, *" ".join(hints).split(), *words])) or self.text.strip()[:200]


def _hints(kinds: list[str]) -> list[tuple[str, bool]]:
    return [
        ("calculate expression", "expression" in kinds),
        ("convert units", "unit" in kinds),
        ("convert time zone", "zone" in kinds and ("time" in kinds or kinds.count("zone") > 1)),
        ("query sql", "sql" in kinds),
        ("date", "date" in kinds),
        ("file", "path" in kinds or "glob" in kinds),
        ("numbers", kinds.count("number") > 2),
    ]


def needs_of(text: str) -> list[Need]:
    """Split a request into what it asks for.

    Sentences are parted, and `and` or `then` before a verb or a question, but nothing inside a value. A sentence that asks for
    nothing belongs to what stands before it, or after it at the beginning.
    """
    text = in_terms_of_tools(text)
    held = [(mention.start, mention.end) for mention in find_mentions(text)]
    cuts = [0]
    for pattern in (_SENTENCE, _JOINT):
        for match in pattern.finditer(text):
            if not any(start < match.end() and match.start() < end for start, end in held):
                cuts.append(match.end())
    cuts = sorted(set(cuts))
    pieces = [text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]
    needs = [Need(_trimmed(piece)) for piece in _joined(pieces)]
    return [one for need in needs for one in _each_quantity(need)][:MAX_NEEDS]


def _each_quantity(need: Need) -> list[Need]:
    """`5 miles and 3 km to feet` as the two conversions that it asks for."""
    quantities = [mention for mention in need.mentions if mention.kind == "quantity"]
    units = [mention for mention in need.mentions if mention.kind == "unit"]
    between = [need.text[one.end : other.start].strip() for one, other in pairwise(quantities)]
    if len(units) != 1 or not between or not all(re.fullmatch(r",|,?\s*and", text) for text in between):
        return [need]
    before, after = need.text[: quantities[0].start], need.text[quantities[-1].end :]
    return [Need(f"{before}{need.text[one.start : one.end]}{after}") for one in quantities]


def _joined(pieces: list[str]) -> list[str]:
    joined: list[str] = []
    for piece in pieces:
        if not piece.strip():
            continue
        only_told = len(joined) == 1 and not _asks(joined[0])
        if joined and (only_told or not _asks(piece)):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _asks(piece: str) -> bool:
    return bool(_OPENS.match(piece) or _FOLLOWS.match(piece))


def _trimmed(piece: str) -> str:
    return re.sub(r",?\s{1,9}(?:and\s+then|and\s+also|and|then)$", "", piece.strip(), flags=re.I)
