"""Split text into the terms for comparing queries and tools.

Splits words at case changes, digits and punctuation, Unicode-folds them (NFKC, accents removed,
casefold) and stems them. Drops stop words. Scripts without spaces become character bigrams.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from casual_mcp_nb.base.cutting import cut_at_word
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery import _vocabulary


def one_line(text: str, limit: int) -> str:
    """Reduce `text` to one line with at most `limit` characters: whitespace collapsed, other
    invisible characters removed.
    """
    text = text[: limit * 8]
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    if len(line) <= limit:
        return line
    return f"{cut_at_word(line, limit - 3)}..."


MAX_QUERY = 8_000
"""Maximum query length: far more than any request needs, and small enough to keep a pasted document
harmless.
"""

MAX_CLAUSES = 20

_STOP_WORDS = frozenset(_vocabulary.STOP_WORDS.split())
_COMPOUNDS = "|".join(sorted(_vocabulary.COMPOUNDS.split(), key=len, reverse=True))
_WORD = re.compile(rf"{_COMPOUNDS}|[A-Z]{{2,}}s(?![A-Za-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[^\W\d_]+|\d+")
_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese and Korean: scripts without spaces, or with endings
that stick to words.
"""
_VOICED = "\u3099\u309a"
"""The marks that distinguish Japanese syllables. They are not accents."""

_SUFFIXES = {
    "ational": 5, "ization": 4, "isation": 4, "ibility": 4, "ability": 4, "ation": 4, "ator": 5, "ance": 5,
    "ence": 5, "ment": 4, "ness": 4, "able": 4, "ible": 4, "ate": 5, "ial": 5, "ion": 5, "ize": 4, "ise": 5,
    "ful": 4, "at": 5, "ly": 4, "or": 5, "er": 4,
}  # fmt: skip
"""Suffixes to strip, longest first, each with the stem's minimum length."""
_ENDS = tuple(_SUFFIXES)
WEAK = 0.4
"""Weight for filler words in a request."""
_IRREGULAR = {"news": "news", "apis": "api"}


def terms(text: str) -> list[str]:
    """Split a text into its terms, folded and stemmed words without stop words, in order, with
    repetitions.

    Control characters and lone surrogates separate words.
    """
    return [term for chunk in text.split() for term in chunk_terms(chunk)]


def chunk_terms(chunk: str) -> tuple[str, ...]:
    """Split text without spaces into terms. Caches short pieces, because they recur."""
    if len(chunk) > 64:
        return _cut(chunk)
    return _remembered(chunk)


def _cut(chunk: str) -> tuple[str, ...]:
    # Most pieces are a single word already.
    words = [chunk]
    if not (chunk.isascii() and chunk.isalpha() and chunk.islower()):
        words = _words(chunk)
    return tuple([stem(word) for word in words if word not in _STOP_WORDS])


_remembered = lru_cache(maxsize=65_536)(_cut)


def _words(chunk: str) -> list[str]:
    """Split text without spaces into words, folded, and into pairs of characters where a script has
    no words.
    """
    if chunk.isascii():
        return [word.lower() for word in _WORD.findall(chunk)]
    words: list[str] = []
    for letters in _LETTERS.findall(_folded(chunk)):
        for part in _CASE.split(letters):
            word = part.casefold()
            if _UNSPACED.search(word):
                words += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
            else:
                words.append(word)
    return words


def _folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    letters: list[str] = []
    for letter in decomposed:
        if letter in _VOICED or not unicodedata.category(letter).startswith("M"):
            letters.append(letter)
    return unicodedata.normalize("NFC", "".join(letters))


@lru_cache(maxsize=32_768)
def stem(word: str) -> str:
    """Stem an English word (`translating`, `translations`, `translator` → `transl`).

    Follows Porter, An Algorithm for Suffix Stripping (1980), with fewer suffixes and without his
    syllable measure. About ten times faster than the Snowball stemmer, and just as good at finding
    tools.
    """
    if len(word) < 4 or not word.isascii():
        return word
    word = _singular(word)
    if word.endswith("ing") and len(word) > 5:
        word = _single_end(word[:-3])
    elif word.endswith("ed") and len(word) > 4 and word[-3] != "e":
        word = _single_end(word[:-2])
    if word.endswith(_ENDS):
        word = _without_suffix(word)
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    if len(word) > 3 and word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "i"
    return word


def _without_suffix(word: str) -> str:
    for suffix, left in _SUFFIXES.items():
        if word.endswith(suffix) and len(word) - len(suffix) >= left:
            return word[: -len(suffix)]
    return word


def _singular(word: str) -> str:
    if not word.endswith("s") or word in _IRREGULAR:
        return _IRREGULAR.get(word, word)
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word[-2] in "sui":
        return word
    return word[:-1]


def _single_end(word: str) -> str:
    is_double = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if is_double else word


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Look up the synonyms for each term that has any, in alphabetical order."""
    return _related(_vocabulary.SYNONYMS.splitlines())


@cache
def topics() -> dict[str, tuple[str, ...]]:
    """Look up the terms on the same topics for each term that has any, in alphabetical order."""
    return _related(_vocabulary.TOPICS.split(";"))


def _related(groups: Iterable[str]) -> dict[str, tuple[str, ...]]:
    related: dict[str, set[str]] = {}
    for words in groups:
        group = set(map(stem, words.split()))
        for term in group:
            related.setdefault(term, set()).update(group - {term})
    return {term: tuple(sorted(others)) for term, others in related.items() if others}


@cache
def _weak_terms() -> frozenset[str]:
    return frozenset(map(stem, _vocabulary.WEAK_WORDS.split()))


def emphasis(term: str) -> float:
    """Compute a term's weight in a request, from 0 to 1: filler words count less."""
    return WEAK if term in _weak_terms() else 1.0


def spelled(text: str) -> dict[str, str]:
    """Map each term in a text to its original word, in the text's order."""
    spelling: dict[str, str] = {}
    for chunk in text.split():
        for word in _words(chunk):
            for term in chunk_terms(word):
                spelling.setdefault(term, word)
    return spelling


_EXTENSIONS = frozenset(_vocabulary.EXTENSIONS.split())
_EDGES = ".,;:!?()[]{}<>\"'`"
_CHUNK = re.compile(r"\S+")
_SIGN = re.compile(r"[./\\@-]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_NOT_A_HOST = frozenset({"www", "com", "org", "net", "http", "https", "html"})


_BETWEEN_SPACES = re.compile(r"[a-z -]+|[-/\u2212]")


def _operators() -> dict[str, str]:
    """Map each operator to the words that stand for it in a query."""
    operators = {}
    for line in _vocabulary.OPERATORS.strip().split("\n"):
        word, signs = line.split(": ")
        for sign in signs.split():
            operators[sign.replace("_", " ")] = f" {word} calculate "
    return operators


def _operator_pattern(operators: Iterable[str]) -> str:
    """Build the pattern for an operator between two numbers: a word, a dash and a slash are one
    only between spaces.
    """
    spaced, others = [], []
    for sign in sorted(operators, key=len, reverse=True):
        if _BETWEEN_SPACES.fullmatch(sign):
            spaced.append(re.escape(sign))
        else:
            others.append(re.escape(sign))
    return rf"(?<=[0-9)])(?: ?({'|'.join(others)}) ?| ({'|'.join(spaced)}) )(?=[(-]?[0-9])"


_OPERATORS = _operators()
_OPERATOR = re.compile(_operator_pattern(_OPERATORS), re.ASCII | re.IGNORECASE)
_PHRASES = [line.split(": ", 1) for line in _vocabulary.PHRASES.strip().split("\n")]
_ANY_PHRASE = "|".join(f"({pattern})" for _, pattern in _PHRASES)
_PHRASE = re.compile(rf"(?<![a-z0-9])(?:{_ANY_PHRASE})(?![a-z0-9])", re.ASCII | re.IGNORECASE)


def readable(query: str) -> str:
    """Rewrite a query in words that tools use: literal values, operators between numbers, and
    everyday phrases.

    Tools mention kinds (`file`, `url`, `email`), requests contain instances: `/home/ana/report.pdf`
    reads `file pdf`, `https://github.com/x/y` reads `url github`, `ana@example.org` reads `email`,
    `2026-11-20` reads `date`. `19 times 23` reads `19 multiply calculate 23`, and `get rid of`
    reads `delete`.
    """
    text = _CHUNK.sub(_literal, query[:MAX_QUERY])
    return _PHRASE.sub(_phrase, _OPERATOR.sub(_operation, text))


def _operation(match: re.Match[str]) -> str:
    return _OPERATORS[match[match.lastindex or 0].lower()]


def _phrase(match: re.Match[str]) -> str:
    return _PHRASES[(match.lastindex or 0) - 1][0]


def _literal(match: re.Match[str]) -> str:
    chunk = match.group()
    if _SIGN.search(chunk) is None:
        return chunk
    core = chunk.strip(_EDGES)
    kind = _kind(core)
    if not kind:
        return chunk
    return chunk.replace(core, kind)


def _kind(value: str) -> str:
    scheme, separator, address = value.partition("://")
    if separator or value.startswith("www."):
        host = re.split(r"[/?#:]", address or scheme, maxsplit=1)[0]
        names = [part for part in host.split(".") if part not in _NOT_A_HOST]
        return " ".join(["url", *names])
    name, at, domain = value.partition("@")
    if at and name and "." in domain:
        return "email"
    if _DATE.fullmatch(value):
        return "date"
    *folders, last = re.split(r"[\\/]", value)
    stem_, dot, extension = last.rpartition(".")
    if dot and stem_ and extension.lower() in _EXTENSIONS:
        return f"file {extension}" if folders else f"{stem_} file {extension}"
    if len(folders) > 1 and (value[0] in "/\\~" or value[1:2] == ":"):
        return "path"
    return ""


_BREAK = re.compile(
    r"[.,;:!?\n()\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]+|\b(?:and|then)\b", re.IGNORECASE
)


def clauses(query: str) -> list[str]:
    """Split a request at punctuation, "and" and "then", into at most `MAX_CLAUSES` parts."""
    parts = [part.strip() for part in _BREAK.split(query, maxsplit=4 * MAX_CLAUSES)]
    return list(filter(None, parts))[:MAX_CLAUSES]


class IndexField(NamedTuple):
    """An index field: its display name, its weight, and its length normalisation (BM25's b)."""

    name: str
    weight: float
    b: float = 0.75


FIELDS = (
    IndexField("name", 3.0, b=0.65),
    IndexField("server", 1.0, b=0.0),
    IndexField("description", 1.0, b=0.6),
    IndexField("parameter name", 0.5),
    IndexField("details", 0.4, b=0.6),
)

_MAX_NAME = 200
_BETWEEN = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.-]+")
_BEGINNING = 500
"""How many characters in a description count as its purpose. Anything after them is detail."""
_MAX_DESCRIPTION = 1_500
_MAX_PARAMETERS = 100
_MAX_PARAMETER_DESCRIPTION = 200
_MAX_PARAMETER_TEXT = 2_000
_MAX_CHOICES = 20
_MAX_DEPTH = 4


def texts(tool: ToolSpec) -> tuple[str, ...]:
    """Collect the tool's text for each of `FIELDS`.

    The details are the parameters' descriptions and choices (`enum`), and everything after the
    beginning of the tool's own description.
    """
    names, descriptions, length = [], [], 0
    for name, schema in _parameters(SchemaReader(tool.input_schema)):
        names.append(name[:_MAX_NAME])
        if length < _MAX_PARAMETER_TEXT:
            descriptions.append(_described(schema))
            length += len(descriptions[-1])
        if len(names) == _MAX_PARAMETERS:
            break
    details = " ".join([*descriptions, tool.description[_BEGINNING:_MAX_DESCRIPTION]])
    return tool.name[:_MAX_NAME], tool.server[:_MAX_NAME], _purpose(tool), " ".join(names), details


def embedded_text(tool: ToolSpec) -> str:
    """Build the text to embed for a tool: its name in words and its description's beginning."""
    return f"{_BETWEEN.sub(' ', tool.name[:_MAX_NAME])}: {_purpose(tool)}"


def _purpose(tool: ToolSpec) -> str:
    parts = (
        tool.description[:_BEGINNING],
        (tool.title or "")[:_MAX_NAME],
        " ".join(tool.tags)[:_MAX_NAME],
    )
    return " ".join(filter(None, parts))


def words_found(query: str, tools: Iterable[ToolSpec]) -> Iterator[tuple[str, ...]]:
    """Yield for each tool the query words that it has in any form, in the query's order."""
    query_words = spelled(readable(query))
    for tool in tools:
        own = set(terms(" ".join(texts(tool))))
        yield tuple(word for term, word in query_words.items() if term in own)


def _described(part: SchemaReader) -> str:
    description = part.description[:_MAX_PARAMETER_DESCRIPTION]
    if not part.choices:
        return description
    words = [description]
    for choice in part.choices[:_MAX_CHOICES]:
        if isinstance(choice, str):
            words.append(choice[:_MAX_NAME])
    return " ".join(words)


def _parameters(schema: SchemaReader, depth: int = 0) -> Iterator[tuple[str, SchemaReader]]:
    """Yield the names and schemas of the parameters, nested ones after their parent."""
    if depth > _MAX_DEPTH:
        return
    for name, inner in schema.properties.items():
        yield name, inner
        if not inner.is_leaf:
            yield from _parameters(inner, depth + 1)
    if schema.items is not None:
        yield from _parameters(schema.items, depth + 1)
