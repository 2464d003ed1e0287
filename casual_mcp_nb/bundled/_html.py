"""Extract the readable text of an HTML page.

The standard library's parser is not used: on Python 3.11 some pages of 200 KB keep it busy for minutes. This parser takes
linear time, and an unclosed construct ends the page, as it does in browsers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_RAW = frozenset({"script", "style"})
_DROPPED = frozenset({"script", "style", "template", "noscript", "svg", "head"})
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset", "figure"),
        *(
            "footer",
            "form",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "header",
            "hr",
            "li",
            "main",
            "nav",
            "ol",
            "p",
        ),
        *("pre", "section", "table", "tr", "ul"),
    )
)
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]{0,40})")
_TAG_END = re.compile(r"""(?:[^>"']++|"[^"]*+"|'[^']*+')*+>""")
_SPACES = re.compile(r"[ \t\r\f\v\xa0]+")


def html_text(page: str) -> str:
    """Return the text of an HTML page, one line for each block; list items begin with a dash.

    Scripts, styles and the head are dropped; a page that is not well-formed is read as far as it can be.
    """
    parts: list[str] = []
    dropping = ""
    for kind, value in _tokens(page):
        if kind == "text":
            parts.append("" if dropping else html.unescape(value).replace("\n", " "))
        elif dropping:
            # A head without its end tag must not swallow the page.
            ends = (kind == "end" and value == dropping) or (kind == "start" and value == "body")
            dropping = "" if ends else dropping
        elif kind == "start" and value in _DROPPED:
            dropping = value
        else:
            parts.append(_separator(kind, value))
    lines = (_SPACES.sub(" ", line).strip() for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)


def _separator(kind: str, tag: str) -> str:
    if kind == "start" and tag == "li":
        return "\n- "
    if kind == "start" and tag in ("td", "th"):
        return "  "
    return "\n" if tag in _BLOCKS else ""


def _tokens(page: str) -> Iterator[tuple[str, str]]:
    """Yield `text`, `start` and `end` tokens; the last two with the tag's name in lower case."""
    position = 0
    while position < len(page):
        opening = page.find("<", position)
        if opening != position:
            yield "text", page[position : opening if opening >= 0 else None]
        if opening < 0:
            return
        tag = _TAG.match(page, opening)
        end = _end_of_markup(page, opening, tag)
        if end is None:
            return
        if tag is not None:
            name = tag[2].lower()
            yield "end" if tag[1] else "start", name
            if name in _RAW and not tag[1]:
                end = _end_of_raw(page, end, name)
        elif end == opening + 1:
            yield "text", "<"
        position = end


def _end_of_markup(page: str, opening: int, tag: re.Match[str] | None) -> int | None:
    """Return where the markup at `<` ends; just after a `<` that is not markup; None if it is not closed."""
    if tag is not None:
        closing = _TAG_END.match(page, tag.end())
        return closing.end() if closing else None
    comment = page.startswith("<!--", opening)
    if not comment and page[opening + 1 : opening + 2] not in ("!", "?", "/"):
        return opening + 1
    end = page.find("-->" if comment else ">", opening)
    return None if end < 0 else end + (3 if comment else 1)


def _end_of_raw(page: str, start: int, name: str) -> int:
    closing = re.compile(f"</{name}", re.IGNORECASE).search(page, start)
    return closing.start() if closing else len(page)
