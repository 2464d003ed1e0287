"""Tell the languages in texts, by their script, their letters and their most common words.

Good enough to see that a query is in another language than the descriptions. This never refuses or
ranks a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

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


def _common_words() -> dict[str, frozenset[str]]:
    common = {}
    for group in _COMMON_WORDS.split(";"):
        language, words = group.split(":")
        common[language.strip()] = frozenset(words.split())
    return common


_COMMON = _common_words()
_PLAIN_WORD = re.compile(r"[^\W\d_]+")
_DOT = "\u0307"
"""The trace of the Turkish capital İ in lower case."""


def evidence(text: str) -> dict[str, int]:
    """Count the evidence for each language in which a text can be, or empty where there is none."""
    text = unicodedata.normalize("NFC", text[:_READ].casefold().replace(_DOT, ""))
    scores: Counter[str] = Counter()
    if not text.isascii():
        for language, script in _SCRIPT.items():
            # Japanese comes before Chinese, whose characters it has too.
            if letters := script.findall(text):
                scores[language] = 1 + len(letters) // _LETTERS_A_WORD
                break
        for language, only_its in _LETTERS_OF.items():
            if not set(only_its).isdisjoint(text):
                scores[language] += _LETTER
    words = set(_PLAIN_WORD.findall(text))
    for language, common in _COMMON.items():
        if words & common:
            scores[language] += len(words & common)
    return dict(scores)


def languages(texts: Iterable[str]) -> tuple[str, ...]:
    """List the languages in some texts, the most frequent first: those with at least a fifth of the
    clear texts.
    """
    clear: Counter[str] = Counter()
    for text in texts:
        if language := _clear(text):
            clear[language] += 1
    least = _SHARE * clear.total()
    return tuple(language for language, count in clear.most_common() if count >= least)


def is_foreign(text: str, expected: Iterable[str]) -> bool:
    """Check whether a text fits another language better than any expected one."""
    scores = evidence(text)
    fit = max((scores.get(language, 0) for language in expected), default=0)
    return max(scores.values(), default=0) > fit


def _clear(text: str) -> str:
    """Identify a text's language, or empty if several fit equally well."""
    best = Counter(evidence(text)).most_common(2)
    if not best or (len(best) > 1 and best[0][1] == best[1][1]):
        return ""
    return best[0][0]
