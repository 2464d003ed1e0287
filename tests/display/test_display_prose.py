"""The Markdown of an answer: its structure is drawn, and nothing in it can load, hide or lead
anywhere.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.growth import PART, assert_growth

from casual_mcp_nb.display.render import prose_html

BARE = "padding:0;background-color:transparent"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        (
            "**b** and *e* and `c`",
            f'<p><strong>b</strong> and <em>e</em> and <code style="{BARE}">c</code></p>',
        ),
        ("# Title", '<div style="margin:6px 0"><strong>Title</strong></div>'),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("3. a", '<ol start="3">\n<li>a</li>\n</ol>'),
        ("a\\\nb", "<p>a<br>\nb</p>"),
        # A table that a tool gave as text does not run together.
        ("title  sold\n0 Dune 12\n1 Emma 9", "<p>title  sold<br>\n0 Dune 12<br>\n1 Emma 9</p>"),
        (
            "```py onload=x\n1 < 2\n```",
            (
                '<pre class="cmn-code" style="white-space:pre-wrap;margin:2px 0"><code>1 &lt;'
                " 2\n</code></pre>"
            ),
        ),
    ],
)
def test_structure_is_drawn(text: str, html: str) -> None:
    assert prose_html(text).strip() == html


def test_a_table_has_header_cells_with_scope(parse: Any) -> None:
    html = prose_html("| a | b |\n|---|--:|\n| 1 | 2 |")
    assert '<th scope="col">a</th>' in html
    parse(html)


@pytest.mark.fault(86)
@pytest.mark.parametrize(
    "text",
    [
        "[click](https://evil.example)",
        "[click](javascript:alert(1))",
        "![x](https://evil.example/a.png)",
        "<https://evil.example>",
        "https://evil.example",
        "[click][r]\n[r]: https://evil.example",
        "<b>bold</b>",
        "<script>alert(1)</script>",
        "<!-- a -->",
        "<div\nonclick=alert(1)>",
        "&#x202e;",
        "&lt;b&gt;",
    ],
)
def test_html_links_images_and_entities_stay_the_text_that_they_are(text: str, parse: Any) -> None:
    parsed = parse(prose_html(text))
    assert set(parsed.tags) <= {"p", "br"}
    assert parsed.text.strip() == text


@pytest.mark.defect("F20")
@pytest.mark.parametrize(
    "piece", ["*", "[", "`", "> ", "- ", "_a", "(", "~~a", "|a", "\\", "1. ", "    "]
)
@pytest.mark.timeout(30)
def test_text_made_to_be_slow_is_drawn_in_time_that_grows_with_its_length(piece: str) -> None:
    assert_growth(lambda: prose_html(piece * (8_000 // PART)), lambda: prose_html(piece * 8_000))
