"""Split text into the terms for comparing queries and tools, and tell its language.

Splits words at case changes, digits and punctuation, Unicode-folds them (NFKC, accents removed,
casefold) and stems them. Drops stop words. Scripts without spaces become character bigrams.

Tells the languages in texts by their script, their letters and their most common words. Good enough
to see that a query is in another language than the descriptions. This never refuses or ranks a
text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery import _vocabulary


def one_line(text: str, limit: int) -> str:
    """Reduce `text` to one line with at most `limit` characters: whitespace collapsed, other
    invisible characters removed.
    """
    text = text[: limit * 8]
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


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
    return _remembered(chunk) if len(chunk) <= 64 else _cut(chunk)


def _cut(chunk: str) -> tuple[str, ...]:
    if chunk.isascii():
        words = (
            [chunk]
            if chunk.isalpha() and chunk.islower()
            else [word.lower() for word in _WORD.findall(chunk)]
        )
        return tuple([stem(word) for word in words if word not in _STOP_WORDS])
    words = _folded_words(chunk)
    return tuple(
        chain.from_iterable(
            _pairs(word) if _UNSPACED.search(word) else _term(word) for word in words
        )
    )


_remembered = lru_cache(maxsize=65_536)(_cut)


def _pairs(word: str) -> list[str]:
    return [word[i : i + 2] for i in range(max(1, len(word) - 1))]


def _term(word: str) -> list[str]:
    return [] if word in _STOP_WORDS else [stem(word)]


def _folded_words(chunk: str) -> list[str]:
    """Split text that is not ASCII into words, folded."""
    parts = chain.from_iterable(map(_CASE.split, _LETTERS.findall(_folded(chunk))))
    return [part.casefold() for part in parts]


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
    return word if word[-2] in "sui" else word[:-1]


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
        group = {stem(word) for word in words.split()}
        for term in group:
            related.setdefault(term, set()).update(group - {term})
    return {term: tuple(sorted(others)) for term, others in related.items() if others}


@cache
def _weak_terms() -> frozenset[str]:
    return frozenset(stem(word) for word in _vocabulary.WEAK_WORDS.split())


def emphasis(term: str) -> float:
    """Compute a term's weight in a request, from 0 to 1: filler words count less."""
    return WEAK if term in _weak_terms() else 1.0


def spelled(text: str) -> dict[str, str]:
    """Map each term in a text to its original word, in the text's order."""
    words = [word for chunk in text.split() for word in _words(chunk)]
    spelling = {term: word for word in reversed(words) for term in chunk_terms(word)}
    return dict(reversed(spelling.items()))


def _words(chunk: str) -> list[str]:
    if chunk.isascii():
        return [word.lower() for word in _WORD.findall(chunk)]
    parts: list[str] = []
    for word in _folded_words(chunk):
        parts += _pairs(word) if _UNSPACED.search(word) else [word]
    return parts


_EXTENSIONS = frozenset(_vocabulary.EXTENSIONS.split())
_EDGES = ".,;:!?()[]{}<>\"'`"
_CHUNK = re.compile(r"\S+")
_SIGN = re.compile(r"[./\\@-]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_NOT_A_HOST = frozenset({"www", "com", "org", "net", "http", "https", "html"})


_OPERATORS = {
    sign.replace("_", " "): f" {word} calculate "
    for word, _, signs in (line.partition(": ") for line in _vocabulary.OPERATORS.split("\n"))
    for sign in signs.split()
}
_BETWEEN_SPACES = re.compile(r"[a-z -]+|[-/\u2212]")
_PHRASES = [line.partition(": ")[::2] for line in _vocabulary.PHRASES.strip().split("\n")]


def _operator_pattern() -> str:
    """Build the pattern for an operator between two numbers: a word, a dash and a slash are one
    only between spaces.
    """
    signs = sorted(_OPERATORS, key=len, reverse=True)
    spaced = "|".join(re.escape(sign) for sign in signs if _BETWEEN_SPACES.fullmatch(sign))
    others = "|".join(re.escape(sign) for sign in signs if not _BETWEEN_SPACES.fullmatch(sign))
    return rf"(?<=[0-9)])(?: ?({others}) ?| ({spaced}) )(?=[(-]?[0-9])"


_OPERATOR = re.compile(_operator_pattern(), re.ASCII | re.IGNORECASE)
_PHRASE = re.compile(
    rf"(?<![a-z0-9])(?:{'|'.join(f'({pattern})' for _, pattern in _PHRASES)})(?![a-z0-9])",
    re.ASCII | re.IGNORECASE,
)


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
    return chunk.replace(core, kind) if kind else chunk


def _kind(value: str) -> str:
    scheme, separator, address = value.partition("://")
    if separator or value.startswith("www."):
        host = re.split(r"[/?#:]", address or scheme, maxsplit=1)[0]
        return " ".join(["url", *(part for part in host.split(".") if part not in _NOT_A_HOST)])
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
    parts = (part.strip() for part in _BREAK.split(query, maxsplit=4 * MAX_CLAUSES))
    return [part for part in parts if part][:MAX_CLAUSES]


_READ = 400
_LETTER = 2
"""The weight of a letter that only one language has, where a common word counts 1."""
_LETTERS_A_WORD = 3
"""How many letters in a script count as much as one common word."""
_SHARE = 0.2
"""A language counts as one of a collection's if at least this share of the texts is in it."""

_SCRIPTS = {
    "Japanese": "\u3040-\u30ff",
    "Korean": "\uac00-\ud7af\u1100-\u11ff",
    "Chinese": "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003134f",
    "Ukrainian": "\u0456\u0457\u0454\u0491",
    "Russian": "\u0400-\u04ff",
    "Greek": "\u0370-\u03ff",
    "Hebrew": "\u0590-\u05ff",
    "Persian": "\u067e\u0686\u0698\u06af",
    "Arabic": "\u0600-\u06ff",
    "Hindi": "\u0900-\u097f",
    "Bengali": "\u0980-\u09ff",
    "Tamil": "\u0b80-\u0bff",
    "Thai": "\u0e00-\u0e7f",
}
_SCRIPT = {language: re.compile(f"[{letters}]") for language, letters in _SCRIPTS.items()}

_LETTERS_OF = {
    "German": "ß", "Spanish": "ñ¿¡", "Portuguese": "ãõ", "Polish": "ąęłśźż", "Turkish": "ğış", "Czech": "ěřů",
    "Vietnamese": "đơưạảấầậếềệ", "Romanian": "ășț", "Hungarian": "őű", "Swedish": "å", "Danish": "ø", "French": "œ",
}  # fmt: skip

_COMMON_WORDS = """
    English: a about all an and any are as at be by can do does find for from get give has have how
        i if in into is it its list me my new not of on or please show that the their them this to
        use used using was what when where which with you your;
    German: alle als am an auf aus bei bitte das dass dem den der des die ein eine einem einen einer
        es für gib haben ich im in ist kann man mein meine mich mir mit nach nicht oder sich sind
        suche um und uns vom von was welche wenn wer wie wir wird wo zeig zeige zu zum zur über;
    French: au aux avec ce cette comment dans de des du elle en est et il je la le les leur ma mes
        moi mon ne nous ou où par pas pour quand que quel quelle qui quoi sa se ses son sont sur
        trouver tu un une vous à;
    Spanish: al busca buscar como con cuál cuándo cuánto cómo dame de del dónde el en es esta este
        hay la las lo los me mi mis mostrar no o para pero por que quiero qué se ser si sin sobre
        son su sus todas todos un una y;
    Portuguese: ao aos as buscar com como da das de do dos e em essa este eu me meu minha mostrar na
        nas no nos não o onde os ou para pela pelo por qual quando que quero se ser seu sobre sua
        são um uma você à;
    Italian: al alla che chi ci come con cosa da dal dalla dei del della delle di dove e gli ho i il
        in io la le lo mi mia mio nel nella non per perché più quale quando questo sono su sul trova
        un una uno è;
    Dutch: aan alle als bij dat de deze die dit een en er geef het hoe ik in is kan maar me met mij
        mijn naar niet of om onder ook op over te tot uit van voor waar wanneer wat welke wie wordt
        zijn zoek;
    Polish: co czy dla do gdzie i ile jak jaka jakie jest kiedy lub mi mnie mój na nie o od oraz po
        pod pokaż przez się są ta to w z za znajdź że;
    Turkish: bana bir bu da de en gibi göster hangi ile için kaç ne nerede olan var ve veya zaman;
    Swedish: alla att av den det där en ett finns från för hur i jag kan med mig min mitt när och om
        på som till vad var visa är;
    Danish: af alle at den der det en er et find for fra hvad hvor hvordan i jeg kan med mig min når
        og om på som til vis;
    Czech: a co do jak jaký je jsou kde kdy mi můj na najdi nebo o od po pro se ukaž v ve z za že;
    Indonesian: ada adalah apa bagaimana berapa cari dan dari dengan di ini itu ke mana pada saya
        semua tampilkan untuk yang;
    Vietnamese: bao cho các có của giờ hãy khi không là làm mấy một nhiêu như nào này thế trong tìm
        tôi từ và về với ở;
    Romanian: a ale am care ce cu cum de din este eu la mea meu mi nu o pe pentru pot sau se un unde
        și;
    Hungarian: a az egy hogy hogyan hol ki meg mi mikor milyen nem vagy van és;
    Finnish: ei ja joka jos kaikki kuinka kuka kun mikä milloin minun minä missä mitä näytä on ovat
        se tai
"""
_COMMON = {
    language.strip(): frozenset(words.split())
    for language, words in (group.split(":") for group in _COMMON_WORDS.split(";"))
}
_PLAIN_WORD = re.compile(r"[^\W\d_]+")
_DOT = "\u0307"
"""The trace of the Turkish capital İ in lower case."""


def evidence(text: str) -> dict[str, int]:
    """Count the evidence for each language in which a text can be, or empty where there is none."""
    text = unicodedata.normalize("NFC", text[:_READ].casefold().replace(_DOT, ""))
    scores: Counter[str] = Counter()
    if not text.isascii():
        scripts = ((language, len(script.findall(text))) for language, script in _SCRIPT.items())
        language, letters = next((pair for pair in scripts if pair[1]), ("", 0))
        if letters:
            scores[language] = 1 + letters // _LETTERS_A_WORD
        for language, only_its in _LETTERS_OF.items():
            if not set(only_its).isdisjoint(text):
                scores[language] += _LETTER
    words = set(_PLAIN_WORD.findall(text))
    for language, common in _COMMON.items():
        if words & common:
            scores[language] += len(words & common)
    return dict(scores)
    return dict(scores)


def languages(texts: Iterable[str]) -> tuple[str, ...]:
    """List the languages in some texts, the most frequent first: those with at least a fifth of the
    clear texts.
    """
    clear = Counter(language for language in map(_clear, texts) if language)
    return tuple(
        language for language, count in clear.most_common() if count >= _SHARE * clear.total()
    )


def is_foreign(text: str, expected: Iterable[str]) -> bool:
    """Check whether a text fits another language better than any expected one."""
    scores = evidence(text)
    return max(scores.values(), default=0) > max(
        (scores.get(language, 0) for language in expected), default=0
    )


def _clear(text: str) -> str:
    """Identify a text's language, or empty if several fit equally well."""
    best = Counter(evidence(text)).most_common(2)
    if not best or (len(best) > 1 and best[0][1] == best[1][1]):
        return ""
    return best[0][0]


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
    query_words = [(term, word) for term, word in spelled(readable(query)).items()]
    for tool in tools:
        own = {term for text in texts(tool) for term in terms(text)}
        yield tuple(word for term, word in query_words if term in own)


def _described(part: SchemaReader) -> str:
    description = part.description[:_MAX_PARAMETER_DESCRIPTION]
    if not part.choices:
        return description
    choices = [each for each in part.choices[:_MAX_CHOICES] if isinstance(each, str)]
    return " ".join([description, *(choice[:_MAX_NAME] for choice in choices)])


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
