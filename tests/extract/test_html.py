"""HTML pages and mails as text."""

from __future__ import annotations

import pytest

from casual_mcp_nb.extract import html_to_text
from casual_mcp_nb.extract.html import MAX_CHARACTERS

SIZE = 200_000


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<p>Read <a href="https://a.org/x?y=1&amp;z=2">the <b>page</b></a>.</p>', "Read the page (https://a.org/x?y=1&z=2)."),
        ('<a href="https://a.org">https://a.org</a>', "https://a.org"),
        ('<a href="mailto:ada@a.org">ada@a.org</a> <a href="mailto:b@a.org">Ben</a>', "ada@a.org Ben (mailto:b@a.org)"),
        ('<a href="javascript:alert(1)">a</a> <a href="#top">b</a> <a href="/c">c</a> <a>d</a>', "a b c d"),
        (
            '<a href="https://a.org"><img src="x" alt="Logo"></a><a href="https://b.org"></a>',
            "Logo (https://a.org)https://b.org",
        ),
        ("<table><tr><th>Item<th>Price<tr><td><p>Pen<br>blue</p><td>3<tr><td>x<td></table>", "Item\tPrice\nPen blue\t3\nx"),
        ("<table><tr><td><table><tr><td><p>Hello</p><p>World</p></table></table>", "Hello\n\nWorld"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul><ol><li>x<li>y</ol>", "* a\n  + b\n* c\n1. x\n2. y"),
        ("<pre>  a\n    b</pre>", "  a\n    b"),
        ("<p>&amp;lt; &lt;b&gt; &euro;</p>", "&lt; <b> €"),
        ("<p>a</p><script>b</script><style>c</style><noscript>d</noscript><svg><text>e</text></svg><!-- f --><p>g", "a\n\ng"),
        ('<p>a<i hidden>b</i><i style="DISPLAY : none">c</i><i style="font-size:0px">d</i><i style="opacity:0.5">e</i>', "ae"),
        ("<title>a</title><p>b", "b"),
        ('<?xml version="1.0" encoding="utf-8"?><p>ö', "ö"),
        ("a\x00b\ud800", "ab"),
        ("", ""),
        (" <!-- a --> ", ""),
        ("no tags & no end <", "no tags & no end <"),
    ],
)
def test_a_page_is_read_as_a_person_sees_it(html: str, text: str) -> None:
    assert html_to_text(html) == text


def test_addresses_can_be_left_out_and_the_text_be_cut() -> None:
    page = '<p><a href="https://a.org">the page</a></p>'

    assert html_to_text(page, links=False) == "the page"
    assert html_to_text(page, max_characters=9) == "the pag\n…"


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * (SIZE // 5),
        "<p style='margin-top:1000000em;padding-left:999999em'>x",
        "<ul>" * 90 + "<li>a" * (SIZE // 5),
        "<table><tr><td>" + "x" * (SIZE // 2) + "<tr><td>a" * (SIZE // 20),
        "<table><tr><td>" * 30 + "<p>line" * (SIZE // 10),
        "<p>" + "<b>a</b>" * (SIZE // 8),
        "<a href='http://a'>" * (SIZE // 20),
        "&" * SIZE,
        "<" * SIZE,
    ],
)
@pytest.mark.timeout(30)
def test_a_hostile_page_is_read_within_limits(html: str) -> None:
    assert len(html_to_text(html)) < 2 * SIZE


def test_a_page_beyond_the_limits_is_cut_and_says_so() -> None:
    assert html_to_text("<p>a" * 30_000).endswith("\n…")
    assert html_to_text("a " * MAX_CHARACTERS).endswith("…")
    assert not html_to_text("<p>a" * 100).endswith("…")
