"""Words as the planner compares them: stems, synonyms, and the words that say nothing about a tool."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][a-z]+)?")
_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]+")


def words_of(text: str) -> tuple[str, ...]:
    """The words of a list that is written as a text."""
    return tuple(text.split())


_STOP = frozenset(
    words_of(
        """a about again all also am an and any are as at be been between but by can could did do does each exactly for from
        get give had has have hello here hey hi how i i'd i'm if in into is it it's its itself just know let let's like made
        many may me much my need now of ok okay on one or our out per please s say says shall should show so some still tell
        than thank thanks that the their them then there these they this those to us use using value via want was we were what
        what's whats when where which who whom whose why will with would you your"""
    )
)
_SYNONYMS = (
    "mean average",
    "sum add total plus",
    "subtract minus difference",
    "multiply times product",
    "delete remove erase",
    "directory folder",
    "calculate compute evaluate",
    "count number many",
    "find search look",
    "read open",
    "create make write",
    "convert translate",
    "computer system machine",
    "text string",
    "free available",
    "schema column structure",
    "ip network",
)


@dataclass(frozen=True)
class Word:
    """A word of a request that can say something about a tool, and where it stands."""

    text: str
    stem: str
    start: int
    end: int


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """The word without its commonest endings."""
    word = word.casefold()
    for ending, least, instead in (("ies", 4, "y"), ("sses", 4, "ss"), ("ing", 5, ""), ("ed", 4, "")):
        if word.endswith(ending) and len(word) > least:
            word = _single(word[: -len(ending)]) + instead
            break
    else:
        if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
            word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _single(word: str) -> str:
    """`runn`, which `running` leaves, as `run`."""
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] in "bdgmnprt" else word


def _groups() -> dict[str, frozenset[str]]:
    same: dict[str, frozenset[str]] = {}
    for line in _SYNONYMS:
        group = frozenset(map(stem, line.split()))
        for member in group:
            same[member] = same.get(member, frozenset()) | group
    return same


_SAME = _groups()


def alike(stemmed: str) -> frozenset[str]:
    """The stem and those that mean nearly the same."""
    return _SAME.get(stemmed, frozenset()) | {stemmed}


def content_words(text: str) -> list[Word]:
    """The words of a text that can say something about a tool, in order."""
    found = [Word(match[0].casefold(), stem(match[0]), match.start(), match.end()) for match in WORD.finditer(text)]
    return [word for word in found if word.text not in _STOP]


def is_stop(word: str) -> bool:
    """Whether a word says nothing about a tool."""
    return word.casefold() in _STOP


@lru_cache(maxsize=4096)
def name_stems(name: str) -> tuple[str, ...]:
    """The stems in a name such as `search_files` or `searchFiles`."""
    return tuple(stem(part) for part in _NAME_PART.findall(name))
