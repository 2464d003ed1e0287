"""HTML pages and mails as text."""

from __future__ import annotations

import pytest

from casual_mcp_nb.bundled._documents import MAX_CHARACTERS, html_to_text

SIZE = 200_000


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (
            '<p>Read <a href="https://a.org/x?y=1&amp;z=2">the <b>page</b></a>.</p>',
            "Read the page (https://a.org/x?y=1&z=2).",
        ),
        ('<a href="https://a.org">https://a.org</a>', "https://a.org"),
        (
            '<a href="mailto:ada@a.org">ada@a.org</a> <a href="mailto:b@a.org">Ben</a>',
            "ada@a.org Ben (mailto:b@a.org)",
        ),
        (
            '<a href="javascript:alert(1)">a</a> <a href="#top">b</a> <a href="/c">c</a> <a>d</a>',
            "a b c d",
        ),
        (
            '<a href="https://a.org"><img src="x" alt="Logo"></a><a href="https://b.org"></a>',
            "Logo (https://a.org)https://b.org",
        ),
        (
            "<table><tr><th>Item<th>Price<tr><td><p>Pen<br>blue</p><td>3<tr><td>x<td></table>",
            "Item\tPrice\nPen blue\t3\nx",
        ),
        (
            "<table><tr><td><table><tr><td><p>Hello</p><p>World</p></table></table>",
            "Hello\n\nWorld",
        ),
        ("<ul><li>a<ul><li>b</ul><li>c</ul><ol><li>x<li>y</ol>", "* a\n  + b\n* c\n1. x\n2. y"),
        ("<pre>  a\n    b</pre>", "  a\n    b"),
        ("<p>&amp;lt; &lt;b&gt; &euro;</p>", "&lt; <b> €"),
        (
            (
                "<p>a</p><script>b</script><style>c</style><noscript>d</noscript><svg><text>e</text></svg><!--"
                " f --><p>g"
            ),
            "a\n\ng",
        ),
        (
            (
                '<p>a<i hidden>b</i><i style="DISPLAY : none">c</i><i style="font-size:0px">d</i><i'
                ' style="opacity:0.5">e</i>'
            ),
            "ae",
        ),
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


def read_between(form: str, text: str) -> list[str]:
    """The words that are read of a text in a piece of HTML, between two paragraphs."""
    piece = form.replace("{}", text).replace("{{", "{").replace("}}", "}")
    first, *words, last = html_to_text(f"<p>before</p>{piece}<p>after</p>").split()
    assert (first, last) == ("before", "after")
    return words


HIDDEN = {
    "white on white": '<p style="color:#fff">{}</p>',
    "nearly white": '<p style="color: rgb(250, 250, 250)">{}</p>',
    "white by its old name": '<font color="white">{}</font>',
    "white in a white cell of a dark table": (
        '<table bgcolor="#000"><tr><td bgcolor="#ffffff" style="color:white">{}</table>'
    ),
    "black on black": '<div style="background-color:black;color:#000000"><b>{}</b></div>',
    "color of the ground around it": (
        '<div style="background:#336699 none"><i><span style="color:#336699">{}</span></i></div>'
    ),
    "transparent": '<p style="color:transparent">{}</p>',
    "without any color": '<p style="color:rgba(0, 0, 0, 0)">{}</p>',
    "white by a class": "<style>.x, .y {{ color: #FFF !important }}</style><p class='a y'>{}</p>",
    "left of the screen": '<div style="position:absolute; left:-9999px">{}</div>',
    "above the screen": '<div style="position:fixed; top:-2000px">{}</div>',
    "moved away": '<div style="transform:translateX(-9999px)">{}</div>',
    "indented away": '<h1 style="text-indent:-9999px">{}</h1>',
    "margin away": '<p style="margin-left:-5000px">{}</p>',
    "scaled to nothing": '<p style="transform: scale(0)">{}</p>',
    "height of 0": '<div style="height:0;overflow:hidden">{}</div>',
    "height of at most 0": '<div style="max-height:0px;mso-hide:all">{}</div>',
    "width of 0": '<div style="width:0;overflow:hidden">{}</div>',
    "clipped": '<span style="position:absolute;clip:rect(0 0 0 0)">{}</span>',
    "clipped by a path": '<span style="clip-path:inset(50%)">{}</span>',
    "class that is not displayed": (
        "<style>/* a */ .preheader {{ display: none }}</style><div class=preheader>{}</div>"
    ),
    "id that is not displayed": "<style>#pre{{visibility:hidden}}</style><div id=pre>{}</div>",
    "size 0 around it": '<div style="font-size:0">{}<b style="font-size:2em">{}</b></div>',
    "link in white": '<a href="https://evil.example/{}" style="color:#fff">{}</a>',
    "transparent box": '<div style="opacity:0.0">{}</div>',
}


@pytest.mark.defect("H5")
@pytest.mark.parametrize("how", HIDDEN)
def test_text_that_nobody_sees_is_left_out(how: str) -> None:
    assert read_between(HIDDEN[how], "secret") == []


SEEN = {
    "white on a dark ground": '<td bgcolor="#222222"><p style="color:#fff">{}</p>',
    "white on a dark class": (
        "<style>.dark{background:#000}</style><div class=dark><p style='color:#fff'>{}</p></div>"
    ),
    "white on an image": '<div style="background:url(x.png);color:#fff">{}</div>',
    "white on a gradient": (
        '<div style="background-image:linear-gradient(#000, #fff)"><b'
        ' style="color:#fff">{}</b></div>'
    ),
    "white where a rule may say more": (
        "<style>.a .hero{background:#000}</style><div class=hero style='color:#fff'>{}</div>"
    ),
    "white where another file may": (
        '<link rel="stylesheet" href="x.css"><p style="color:#fff">{}</p>'
    ),
    "a link in white surroundings": '<div style="color:#fff"><a href="#x">{}</a></div>',
    "text of a size in a cell without": (
        '<td style="font-size:0px"><div style="font-size:13px">{}</div></td>'
    ),
    "what is visible in what is not": (
        '<div style="visibility:hidden"><b style="visibility:visible">{}</b></div>'
    ),
    "a line of height 0": '<p style="line-height:0">{}</p>',
    "a little to the left": (
        '<p style="position:relative;left:-5px;margin-left:-20px;text-indent:-10px">{}</p>'
    ),
    "not in print": (
        "<style>@media print {{ .x {{ display: none }} }} .y {}</style><p class=x>{}</p>"
    ),
    "half transparent": '<p style="opacity:0.5;color:rgba(0,0,0,.5)">{}</p>',
    "grey": '<p style="color:#999">{}</p>',
    "text on a gradient": '<h1 style="color:transparent;background-clip:text">{}</h1>',
    "height of half a line": '<p style="height:0.5em;min-height:0">{}</p>',
}


@pytest.mark.defect("H5")
@pytest.mark.parametrize("how", SEEN)
def test_text_that_is_seen_stays(how: str) -> None:
    assert read_between(SEEN[how], "seen") == ["seen"]


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
        "<a style='font-size:0' href='http://a'>" * (SIZE // 40),
        "<style>" + "/*" * (SIZE // 2),
        "<style>" + "@{" * (SIZE // 2),
        "<style>" + ".a{color:red}" * (SIZE // 13) + "</style>" + "<p class='a b c'>x" * 5_000,
        "<p class='" + "a " * (SIZE // 2) + "' style='" + "color:#fff;" * (SIZE // 11) + "'>x",
        "&" * SIZE,
        "<" * SIZE,
    ],
)
@pytest.mark.timeout(30)
def test_a_hostile_page_is_read_within_limits(html: str) -> None:
    assert len(html_to_text(html)) < 2 * SIZE


def test_a_page_beyond_the_limits_is_cut_with_a_note() -> None:
    assert html_to_text("<p>a" * 30_000).endswith("\n…")
    assert html_to_text("a " * MAX_CHARACTERS).endswith("…")
    assert not html_to_text("<p>a" * 100).endswith("…")
