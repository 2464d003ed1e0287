"""Split a request into needs, in the words of tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.mentions import Mention, find_mentions

MAX_NEEDS = 6
_VERBS = (
    "add|append|calculate|call|check|compare|compute|convert|copy|count|create|delete|describe|divide|draw|echo|evaluate|explain|"
    "extract|fetch|find|format|generate|get|give|join|list|look|make|move|multiply|open|parse|query|read|remove|rename|replace|run|"
    "save|search|send|show|solve|sort|split|subtract|sum|summarise|summarize|tell|translate|use|write"
)
_QUESTIONS = "what|what's|which|who|whose|when|where|why|how|is|are|does|do|can|could|will|would|please"
_AND = r"\s*(?:(?:and|then|also|now|next|finally|please)[\s,]+)*"
_OPENS = re.compile(rf"{_AND}(?:{_VERBS}|{_QUESTIONS})\b", re.I)
OPENS_WITH_VERB = re.compile(rf"{_AND}(?:{_VERBS})\b", re.I)
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|\n+")
_JOINT = re.compile(rf",?\s{{1,9}}(?:and\s+then|and\s+also|and|then)\s+(?=(?:{_VERBS}|{_QUESTIONS})\b)", re.I)
_FOLLOWS = re.compile(r"\s*(?:and|what about|how about|now|also|then|same)\b", re.I)

_QUOTED = r"(?:\"[^\"]{1,2000}\"|'[^'\n]{1,2000}')"
_MULTIPLE = r"(?:a multiple of|divisible by|divided by)"
_OF_COMPUTER = (
    r"(?:\s(?:cores?|is|are|do|does|have|has|there|free|available|used|left|in|on|this|the|my|i|we|it|computer|machine)\b){0,8}"
)
_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (
            r"\b(?:largest|biggest|greatest|highest) (?:common )?(?:number|integer|divisor|factor) (?:that|which) (?:evenly )?"
            r"divides(?: both)?\b",
            "gcd of",
        ),
        (rf"\b(?:smallest|least|lowest) number (?:(?:that|which) (?:is|can be) )?{_MULTIPLE}(?: both)?\b", "lcm of"),
        (
            r"\b(?:how many|number of) days (?:are (?:there |left )?)?(?:until|till|to)\b",
            "difference in days, start=today, end",
        ),
        (rf"\breplace ({_QUOTED}) (?:with|by) ({_QUOTED}) in ({_QUOTED})", r"find_replace find=\1, replace=\2, text=\3"),
        (r"\bfor the (?:word|words|phrase|text|string)\s+", "for "),
        (r"\bwhere (?:is|does|do) (?:the (?:word|text) )?(\w+) (?:appear|mentioned|occur|used)\b", r"search files for \1"),
        (
            r"\b(?:which|what) week (?:number )?(?:of the year )?is (?:it|this)\b(?: today| now)?",
            "week number of a date, text=today",
        ),
        (r"\b(?:which|what) week (?:number )?(?:of the year )?is (\w[\w-]*)", r"week number of a date, text=\1"),
        (r"\bhow (?:big|large) is\b", "what is the size of"),
        (rf"\bhow much (?:free |main )?(?:memory|ram)\b{_OF_COMPUTER}", "show memory info"),
        (rf"\bhow many (?:cpus?|cores|processors?)\b{_OF_COMPUTER}", "show cpu info"),
        (r"\bhow (?:\w+) (?:is|are)(?= \d)", "how much is"),
    )
)
_TERM = r"(?:\d{1,9}(?:\.\d{1,9})?)?"
_QUADRATIC = re.compile(
    rf"(?<![\w.])(-?{_TERM})\s*\*?\s*x\s*(?:\^|\*\*)\s*2(?:\s*([+-])\s*({_TERM})\s*\*?\s*x)?(?:\s*([+-])\s*(\d{{1,9}}(?:\.\d{{1,9}})?))?"
    r"\s*=\s*0(?![\w.])",
    re.IGNORECASE,
)
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
    """One thing that the person wants.

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
        """The words that can identify a tool, without those of values."""
        spans = [(mention.start, mention.end) for mention in self.mentions]
        words = content_words(self.text)
        return [word for word in words if not any(start < word.end and word.start < end for start, end in spans)]

    @property
    def follows(self) -> bool:
        """Whether it continues the previous request."""
        return _FOLLOWS.match(self.text) is not None or not self.words

    @property
    def is_talk(self) -> bool:
        """Whether it requests nothing: a greeting, thanks."""
        return not self.words and not self.mentions

    @property
    def implied(self) -> list[str]:
        """Words that a question implies: `how many` means count, `which files` means list."""
        return [word for word, pattern in _IMPLIED.items() if pattern.search(self.text)] if self.words else []

    @cached_property
    def query(self) -> str:
        """The search query: the words, and the kind of tool that its values suggest."""
        words = [word.text for word in self.words]
        return " ".join(dict.fromkeys([*self.implied, *self._hints(), *words])) or self.text.strip()[:200]

    def _hints(self) -> list[str]:
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
        return " ".join(hint for hint, wanted in hints.items() if wanted).split()


def needs_of(text: str) -> list[Need]:
    """Split a request into its needs.

    It is split at sentences, and at `and` or `then` before a verb or a question, but not inside a value. A sentence that
    requests nothing belongs to the need before it, or at the beginning, after it.

    Args:
        text: The request.

    Returns:
        At most `MAX_NEEDS`, in order, with phrases such as `the largest number that divides` translated to tools' terms.
    """
    for pattern, instead in _PHRASES:
        text = pattern.sub(instead, text)
    text = _QUADRATIC.sub(_coefficients, text)
    held = [(mention.start, mention.end) for mention in find_mentions(text)]
    cuts = {0} | {
        match.end()
        for pattern in (_SENTENCE, _JOINT)
        for match in pattern.finditer(text)
        if not any(start < match.end() and match.start() < end for start, end in held)
    }
    pieces = [text[start:end] for start, end in pairwise([*sorted(cuts), len(text)])]
    needs = [Need(_trimmed(piece)) for piece in _joined(pieces)]
    return [one for need in needs for one in _each_quantity(need)][:MAX_NEEDS]


def _coefficients(match: re.Match[str]) -> str:
    first = {"": "1", "-": "-1"}.get(match[1], match[1])
    second = f"{_sign(match[2])}{match[3] or '1'}" if match[2] else "0"
    third = f"{_sign(match[4])}{match[5]}" if match[4] else "0"
    return f"the quadratic equation with a={first}, b={second}, c={third}"


def _sign(text: str) -> str:
    return "-" if text == "-" else ""


def _each_quantity(need: Need) -> list[Need]:
    """Split `5 miles and 3 km to feet` into two conversions."""
    quantities = [mention for mention in need.mentions if mention.kind == "quantity"]
    units = [mention for mention in need.mentions if mention.kind == "unit"]
    between = [need.text[one.end : other.start].strip() for one, other in pairwise(quantities)]
    if len(units) != 1 or not between or not all(re.fullmatch(r",|,?\s*and", text) for text in between):
        return [need]
    before, after = need.text[: quantities[0].start], need.text[quantities[-1].end :]
    return [Need(f"{before}{need.text[one.start : one.end]}{after}") for one in quantities]


def _joined(pieces: list[str]) -> list[str]:
    joined: list[str] = []
    for piece in filter(str.strip, pieces):
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
