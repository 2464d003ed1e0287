"""Split a request into needs, worded as tools would, with the values that it mentions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from casual_mcp_nb.discovery.text import readable
from casual_mcp_nb.offline.mentions import Mention, find_mentions, overlap
from casual_mcp_nb.offline.phrases import reword

MAX_NEEDS = 6
_VERBS = (
    "add|append|calculate|call|cancel|check|compare|compute|convert|copy|count|create|delete|describe|divide|draw|echo|evaluate|explain|"
    "extract|fetch|find|format|generate|get|give|join|list|look|make|move|multiply|open|parse|query|read|remove|rename|replace|run|"
    "save|search|send|show|solve|sort|split|stop|subtract|sum|summarise|summarize|tell|translate|use|write"
)
_QUESTIONS = (
    "what|what's|which|who|whose|when|where|why|how|is|are|does|do|can|could|will|would|please"
)
_AND = r"\s*(?:(?:and|then|also|now|next|finally|please)[\s,]+)*"
_FOLLOWS = re.compile(r"\s*(?:and|what about|how about|now|also|then|same)\b", re.I)
_ASKS = re.compile(rf"{_AND}(?:{_VERBS}|{_QUESTIONS})\b|{_FOLLOWS.pattern}", re.I)
_JOINT = r",?\s{1,9}(?:and\s+then|and\s+also|and|then)"
_CUT = re.compile(rf"(?<=[.?!;])\s+|\n+|{_JOINT}\s+(?=(?:{_VERBS}|{_QUESTIONS})\b)", re.I)
_TRAILING = re.compile(rf"{_JOINT}$", re.I)
_IMPLIED = {
    "count": re.compile(r"\bhow many\b", re.I),
    "list": re.compile(
        r"\b(?:which|what|show(?: me| all| my| the)*)\s+(?:(?!\w+est\b)\w+\s+)?\w{3,}(?<!s)s\b",
        re.I,
    ),
    "current": re.compile(
        r"^(?!.*\b(?:when|noon|midnight)\b)\D*\bwhat(?:'s| is)?(?: the| today's| the current)?"
        r" (?:time|date)\b\D*$",
        re.I,
    ),
}
_CLOSED = ("quoted", "json", "sql", "expression")
"""Kinds of mention that are one value, so that no single word in them is another."""
_PROPER = r"[A-Z](?:[\w-]|\u2019(?!s\b))*"
_PLAIN = {
    "name": re.compile(rf"(?<=\w[ ,])(?!I\b){_PROPER}(?:\s{_PROPER})*(?:, [A-Z]{{2}}\b)?"),
    "word": re.compile(r"\w[\w.:@/-]{0,99}(?<![.:])(?:['\u2019][a-z]+)?"),
}
"""Values that nothing but their place shows to be one."""
# Words that say nothing about a tool, in addition to the search's stop words.
_EMPTY_WORDS = (
    "contents does each enough every exactly hey kind left made much now one say says sort still"
    " thanks value"
)
_EMPTY = frozenset(_EMPTY_WORDS.split())
_TAKES_BACK = {"forget", "later", "maybe", "mind", "never", "nevermind"}
"""Words of which a message only takes back a request: `never mind`."""


_REMARK = re.compile(
    r"[^\w?]*(?!.*\?)(?:i(?! (?:want|need|would like|have to|must|am looking)\b)|i['\u2019]m(?!"
    r" looking)|i['\u2019]ve|you(?:['\u2019]re)?"
    r"|we|(?:it|that)(?:['\u2019]s)?|this|my \w+ (?:is|was)|what"
    r" an?|good|great|nice|lovely|happy|welcome|sorry|congratulations"
    r"|see you|have an?|let['\u2019]s)(?!['\u2019]d)\b",
    re.I | re.S,
)
_HINTS = {
    "expression": "calculate expression",
    "sql": "query sql",
    "date": "date",
    "path": "file",
    "glob": "file",
    "unit unit": "convert units",
    "time zone": "convert time zone",
    "zone zone": "convert time zone",
}
"""Words for a search that the kinds of the values suggest, in alphabetical order."""


class Need:
    """One thing that the person wants: the values in it, and the words that can identify a tool.

    It is worded as tools would, or, if it is `spelled`, with its calculation in words, for tools
    that do one operation each.

    Attributes:
        said: The person's own words.
        text: The same, reworded.
        mentions: The values in it.
        readings: All that can be a value: the mentions, and names and words that are no part of a
            longer value, such as a quotation.
        words: The words that can identify a tool.
        is_talk: Whether it requests nothing: a greeting, thanks, a remark as `I had a long day`.
        asks: Whether it is said to us, rather than a value.
        follows: Whether it continues the previous request.
        query: The search query: the words, what the question implies (`how many` means count), and
            the type of tool that the values suggest.
    """

    def __init__(self, said: str, spelled: bool = False) -> None:
        self.said = said
        self.text = readable(said).replace("calculate", "") if spelled else reword(said)
        self.mentions = find_mentions(self.text)
        self.readings = list(self.mentions)
        self.words: list[Mention] = []
        for kind, pattern in _PLAIN.items():
            for match in pattern.finditer(self.text):
                self._read(Mention(kind, match[0], *match.span()))
        words = {word.value.casefold() for word in self.words}
        says_something = self.mentions or words - _TAKES_BACK
        self.is_talk = not says_something or _REMARK.match(said) is not None
        self.asks = self.is_talk or "?" in said or _ASKS.match(said) is not None
        self.follows = _FOLLOWS.match(said) is not None or not self.words
        self.query = " ".join(dict.fromkeys(self._hints())) or said[:200]

    def _read(self, one: Mention) -> None:
        around = [other for other in self.mentions if overlap(one, other)]
        if not any(other.kind in _CLOSED for other in around):
            self.readings.append(one)
        says = one.kind == "word" and one.terms and one.value.casefold() not in _EMPTY
        if says and not around:
            self.words.append(one)

    def _hints(self) -> Iterator[str]:
        for implied, pattern in _IMPLIED.items():
            if self.words and pattern.search(self.text):
                yield implied
        kinds = " ".join(sorted(one.kind for one in self.mentions))
        for kind, hint in _HINTS.items():
            if kind in kinds:
                yield from hint.split()
        for word in self.words:
            yield word.value.casefold()


def needs_of(text: str) -> list[Need]:
    """Split a request into its needs, in order and at most `MAX_NEEDS`.

    It is split at sentences, and at `and` or `then` before a verb or a question, but not inside a
    value. A sentence that requests nothing belongs to the need before it, or at the beginning,
    after it.
    """
    mentions = find_mentions(text)
    cuts = [0]
    for match in _CUT.finditer(text):
        if not any(one.start < match.end() < one.end for one in mentions):
            cuts.append(match.end())
    pieces: list[str] = []
    for start, end in pairwise([*cuts, len(text)]):
        piece = text[start:end]
        if pieces and not (_ASKS.match(piece) and _ASKS.match(pieces[-1])):
            pieces[-1] += piece
        elif piece.strip():
            pieces.append(piece)
    return [Need(_TRAILING.sub("", piece.strip())) for piece in pieces[:MAX_NEEDS]]
