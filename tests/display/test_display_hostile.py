"""Any text of a server or a model stays text in every form of every display."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from casual_mcp_nb.display.render import escape
from casual_mcp_nb.display.words import clean, cut, first, one_line
from casual_mcp_nb.views import mimebundle, page

HOSTILE = {
    "script": "<script>document.body.dataset.pwned = 1</script>",
    "handler": "\"><img src=x onerror='document.body.dataset.pwned = 1'>",
    "frame and form": (
        "<iframe src=https://evil.example></iframe><form action=/><svg onload=alert(1)>"
    ),
    "template": "{{ 7*7 }}{% raw %}{{ config }}",
    "end of ours": "</pre></td></details></div></style><!-- ",
    "entities": "&lt;b&gt; &#x202e; &amp;",
    "terminal": "\x1b[2J\x1b]8;;https://evil.example\x07click\x1b]8;;\x07\x9b1m\x7f",
    "hidden": "a\u202eb\u2066c\u200bd\ufeffe\x00f\xadg\U000e0041h\u2028i",
    "surrogate": "half \ud83d only",
    "line ends": "one\r\ntwo\rthree\n\n\nfour",
    "fence": "```\n# gone\n````\n~~~",
    "links": (
        "[x](javascript:alert(1)) ![y](https://evil.example/a.png) https://evil.example www.e.ex"
        " <https://e.ex> a@b.cd"
    ),
    "markdown": "# big\n- a\n1. b\n> c\n**d** _e_ ~~f~~ [g]: h\n***\n===",
    "table": "| a | b \\| c |\n| --- | --- |\n`|`",
    "formula": "$\\alpha$ \\(x\\) $$y$$ \\begin{z} \\`$`",
    "console markup": "[/x] [link=https://evil.example]y[/link] [bold red]",
}
ACTIVE_TOKENS = (
    "link",
    "image",
    "html",
    "heading",
    "hr",
    "em_",
    "blockquote",
    "code_block",
    "ordered",
    "s_open",
    "lheading",
)
FORMATS_WITH_A_GLYPH = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}


@pytest.fixture(params=list(HOSTILE))
def hostile(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Adds hostile text to every text of a noun."""
    text = HOSTILE[request.param]
    return lambda said: f"{said} {text}"


def drawn(value: Any) -> dict[str, str]:
    bundle = mimebundle(value)
    assert 'class="cmn cmn-bare' not in bundle["text/html"], "it was shown as its repr"
    return bundle


def all_tokens(tokens: list[Token]) -> list[Token]:
    return [token for outer in tokens for token in (outer, *all_tokens(outer.children or []))]


@pytest.mark.fault(86)
@pytest.mark.fault(89)
def test_hostile_text_makes_no_element_and_no_attribute(
    make: Any, parse: Any, kind: str, hostile: Any
) -> None:
    parsed = parse(drawn(make(kind, hostile))["text/html"])
    assert "script" not in parsed.tags


@pytest.mark.fault(86)
def test_hostile_text_adds_no_element_to_a_page(make: Any, parse: Any, hostile: Any) -> None:
    parse(page(make("turn", hostile), HOSTILE["script"]).removeprefix("<!DOCTYPE html>"))


@pytest.mark.fault(86)
def test_hostile_text_is_not_markup_in_markdown(make: Any, kind: str, hostile: Any) -> None:
    markdown = drawn(make(kind, hostile))["text/markdown"]
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = all_tokens(parser.parse(markdown))
    # What folds is HTML of ours.
    for token in (token for token in tokens if token.type == "html_block"):
        seen = Elements()
        seen.feed(token.content)
        assert seen.elements <= {"details", "summary", "strong", "code"}
        assert seen.attributes <= {"open"}
        assert not re.search(r"[$\\]", seen.text)
    kinds = {token.type for token in tokens} - {"html_block"}
    assert not [kind for kind in kinds if kind.startswith(ACTIVE_TOKENS)]


class Elements(HTMLParser):
    """The elements and attributes of some HTML, and its text outside code."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if not str(self.get_starttag_text()).startswith("<code"):
            self.text += data

    def handle_comment(self, data: str) -> None:
        self.elements.add("comment")

    def handle_decl(self, decl: str) -> None:
        self.elements.add("declaration")


@pytest.mark.fault(86)
@pytest.mark.parametrize(
    "text",
    [
        "https://e.ex",
        "HTTP://e.ex",
        "www.e.ex",
        "ftp://e.ex",
        "mailto:a@e.ex",
        "a@e.ex",
        "xmpp:a@e.ex",
    ],
)
def test_an_address_is_not_linked_by_readers_that_link_bare_addresses(text: str) -> None:
    assert not re.search(r"://|www\.|@|mailto:|xmpp:", escape(text), re.IGNORECASE)


@pytest.mark.parametrize("text", ["$x$", "\\(x\\)", "a\\$b", "$$", "`$`"])
def test_a_formula_stays_text_in_markdown(text: str) -> None:
    parser = MarkdownIt("commonmark")
    outside = "".join(
        token.content for token in all_tokens(parser.parse(escape(text))) if token.type == "text"
    )
    assert not re.search(r"[$\\]", outside)


def test_markdown_shows_the_text_as_it_is() -> None:
    for text in map(one_line, HOSTILE.values()):
        tokens = all_tokens(MarkdownIt("commonmark").parse(f"x {escape(text)} y"))
        shown = "".join(
            token.content
            for token in tokens
            if token.type in ("text", "code_inline", "text_special")
        )
        assert shown == f"x {text} y"


@pytest.mark.fault(88)
def test_characters_that_act_or_hide_are_visible_in_every_form(
    make: Any, kind: str, hostile: Any
) -> None:
    for form in drawn(make(kind, hostile)).values():
        form.encode()
        left = {
            char for char in form if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        } - {"\n", "\t"}
        assert not left


@pytest.mark.fault(88)
def test_every_character_that_acts_or_hides_has_a_mark() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if (
            unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
            and char not in "\n\t"
            and code not in FORMATS_WITH_A_GLYPH
        ):
            assert clean(f"a{char}b") != f"a{char}b", hex(code)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "␛[31mred"),
        ("\x00\x7f", "␀␡"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\ud800", "⟨U+D800⟩"),
        ("naïve 😀 日本 \ufffd", "naïve 😀 日本 \ufffd"),
    ],
)
def test_clean_marks_hidden_characters_and_keeps_all_others(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(shown) == shown


def test_a_cut_text_states_its_full_size() -> None:
    assert cut("a" * 1_234_567, 3) == "aaa… 1,234,567 characters in all"
    assert cut("a\nb\nc\n", 100, lines=2).startswith("a\nb… 6 ")
    assert cut("abc", 3) == "abc"


def test_a_summary_is_one_line_of_at_most_its_length() -> None:
    assert first("a\n  b", 80) == "a b"
    assert first("x" * 81, 80) == "x" * 80 + "…"


@pytest.mark.fault(88)
def test_a_text_of_several_lines_cannot_pass_for_the_display_in_plain_text(make: Any) -> None:
    plain = drawn(make("manifest", lambda said: f"{said}\nSaved  99% less"))["text/plain"]
    assert [line for line in plain.splitlines() if "99% less" in line] == ["    │ Saved  99% less"]


@pytest.mark.fault(86)
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_runs_nothing_of_hostile_text(make: Any, tmp_path: Path) -> None:
    every = " ".join(encodable for encodable in HOSTILE.values() if encodable.isprintable())
    bodies = [
        drawn(make(kind, lambda said: f"{said} {every}"))["text/html"]
        for kind in ("turn", "tools", "session", "search")
    ]
    document = tmp_path / "hostile.html"
    document.write_text(
        f"<!DOCTYPE html><meta charset='utf-8'><body>{''.join(bodies)}</body>", encoding="utf-8"
    )
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--dump-dom",
    ]
    result = subprocess.run(
        [*command, f"--user-data-dir={tmp_path / 'profile'}", document.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "mathjax_ignore" in result.stdout
    assert "data-pwned" not in result.stdout
