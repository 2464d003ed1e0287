"""The terms of a text that are compared."""

from __future__ import annotations

import pytest
from kit.growth import PART, assert_growth

from casual_mcp_nb.discovery import _vocabulary
from casual_mcp_nb.discovery.text import (
    MAX_CLAUSES,
    clauses,
    emphasis,
    readable,
    stem,
    synonyms,
    terms,
    topics,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getForecastDays", ["forecast", "day"]),
        ("PDFReader", ["pdf", "read"]),
        ("list-open_tickets.v2", ["list", "open", "ticket", "v", "2"]),
        ("URLs and APIs", ["url", "api"]),
        ("sha256sum", ["sha", "256", "sum"]),
        ("Menü MENÜ menu", ["menu", "menu", "menu"]),
        ("\uff46\uff55\uff4c\uff4c \ufb01rst", ["full", "first"]),
        ("Straße STRASSE", ["strass", "strass"]),
        ("please show me the word", ["word"]),
        ("\x00\x1b[31mred\x07", ["31", "mred"]),
        ("lone \ud800 surrogate\udfff", ["lon", "surrog"]),
        ("🌦️ --- ...", []),
        ("", []),
    ],
)
def test_words_are_cut_at_case_digits_and_signs_folded_and_stemmed(
    text: str, expected: list[str]
) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("天气预报", ["天气", "气预", "预报"]),
        ("東京 tokyo", ["東京", "tokyo"]),
        ("ガス", ["ガス"]),
        ("날씨를", ["날씨", "씨를"]),
        ("الطقس اليوم", ["الطقس", "اليوم"]),
        ("погода Осло", ["погода", "осло"]),
    ],
)
def test_scripts_without_spaces_become_pairs_and_others_words(
    text: str, expected: list[str]
) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    "words",
    [
        "translate translates translating translated translation translations translator",
        "create creates creating created creation",
        "search searches searching searched",
        "query queries",
        "delete deleting deleted deletion",
        "recommend recommends recommended recommendation recommendations",
        "calculate calculating calculator calculation",
        "run runs running",
    ],
)
def test_the_forms_of_a_word_are_one_term(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("news", "new"),
        ("station", "state"),
        ("directory", "director"),
        ("general", "generate"),
        ("status", "state"),
    ],
)
def test_different_words_stay_different_terms(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "save it at /home/ana/report.md, then mail ana@example.org",
            "save it at file md, then mail email",
        ),
        ("see https://github.com/x/y?z.", "see url github."),
        ("see www.example.org", "see url example"),
        ("shorten report.pdf", "shorten report file pdf"),
        ("open C:\\Users\\ana\\x.csv!", "open file csv!"),
        ("list ~/music/old", "list path"),
        ("on 2026-11-20.", "on date."),
        (
            "e.g. and/or 1.5 a@b @ / .... done.Then http://",
            "e.g. and/or 1.5 a@b @ / .... done.Then url",
        ),
        ("two\nlines /a/b.txt\nthree", "two\nlines file txt\nthree"),
    ],
)
def test_a_value_in_a_query_is_replaced_by_its_kind(query: str, expected: str) -> None:
    assert readable(query) == expected


@pytest.mark.parametrize(
    ("query", "words", "others"),
    [
        ("What is 19 times 23?", "multiply", "time"),
        ("12 x 9", "multiply", "x"),
        ("2*3", "multiply", ""),
        ("48 / 6", "divide", ""),
        ("90 divided by 4", "divide", ""),
        ("(3 + 4)", "add", ""),
        ("8 - 3", "subtract", ""),
        ("2^10", "power", ""),
        ("2 TO THE POWER OF 10", "power", ""),
        ("15% of 260", "percent", ""),
        ("17 % 5", "modulo", ""),
    ],
)
def test_an_operator_between_numbers_is_a_word(query: str, words: str, others: str) -> None:
    read = terms(readable(query))
    assert {stem(words), stem("calculate")} <= set(read)
    assert others not in read


@pytest.mark.parametrize(
    "query",
    [
        "what does it do",
        "what is it",
        "show me the way",
        "unto do",
        "somehow bigger",
        "2-3 days",
        "24/7",
        "1920x1080",
        "three times a day",
        "C++ 11",
        "call +49 170",
        "a - b",
        "5% off",
    ],
)
def test_what_only_looks_like_one_stays(query: str) -> None:
    assert readable(query) == query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What files do I have here?", "fil list"),
        ("which tables are there", "tabl list"),
        ("SHOW ME all my notes", "not list"),
        ("get rid of it", "delet"),
        ("how hot is it", "temperatur"),
        ("remember to water the plants", "add remind water plant"),
        ("remember a fact about Ana", "rememb stor add fact"),
        ("Keep in mind that Ana likes tea", "rememb stor add"),
        ("make a pie chart", "creat pie chart"),
        ("please make me some slides", "creat slid"),
        ("making charts", "creat chart"),
        ("write a paragraph in a word document", "add writ paragraph"),
        ("put the picture into my report", "add pictur report"),
    ],
)
def test_everyday_phrases_read_as_the_words_of_tools(query: str, expected: str) -> None:
    read = terms(readable(query))
    assert set(expected.split()) <= {
        *read,
        *(other for term in read for other in synonyms().get(term, ())),
    }


@pytest.mark.defect("M18")
@pytest.mark.parametrize(
    "query", ["make sure of it", "make it", "write a file", "remember to call", "what makes it"]
)
def test_other_uses_of_these_verbs_are_not_creation(query: str) -> None:
    assert "create" not in readable(query)
    assert "write add" not in readable(query)


@pytest.mark.defect("M18")
def test_no_word_is_both_without_meaning_and_a_synonym() -> None:
    stop = set(_vocabulary.STOP_WORDS.split())
    assert not stop & set(_vocabulary.SYNONYMS.split())


def test_a_request_is_cut_into_its_parts() -> None:
    request = "Find the weather in Oslo, then mail it to Eve and draw a chart. 画图\u3002发邮件"
    assert clauses(request) == [
        "Find the weather in Oslo",
        "mail it to Eve",
        "draw a chart",
        "画图",
        "发邮件",
    ]


def test_the_number_of_parts_is_limited() -> None:
    assert len(clauses("one more part, " * 1_000)) == MAX_CLAUSES


@pytest.mark.parametrize("written", ["GitHub", "github", "searchGitHubIssues", "the GitHub."])
def test_a_name_with_a_capital_inside_is_one_word(written: str) -> None:
    assert "github" in terms(written)


def test_fillers_count_less() -> None:
    assert emphasis(stem("latest")) < emphasis("weather") == 1


@pytest.mark.parametrize(
    ("table", "one", "other"), [(synonyms(), "email", "mail"), (topics(), "laptop", "product")]
)
def test_related_words_match_each_other_both_ways(
    table: dict[str, tuple[str, ...]], one: str, other: str
) -> None:
    assert stem(one) in table[stem(other)]
    assert all(term in table[other] for term, others in table.items() for other in others)
    assert all(term not in others for term, others in table.items())


@pytest.mark.defect("F20")
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "unit", ["/", ".", "@", "a", "A", "aB", "-", "\\", "://", "天", "é", " a.b@", "s"]
)
def test_long_hostile_text_is_read_in_time_that_grows_with_its_length(unit: str) -> None:
    def read(length: int) -> None:
        text = unit * (length // len(unit))
        clauses(readable(text))
        terms(text)

    assert_growth(lambda: read(200_000 // PART), lambda: read(200_000))
