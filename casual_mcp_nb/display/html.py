"""A view, and the Markdown of an answer, as HTML: no script, no address, no id; readable without its style sheet.

The Markdown of a model's answer as HTML, of which a model can use nothing to reach beyond the answer. Paragraphs, lists,
tables, code and emphasis are drawn. HTML, images, links and entities stay the text that they are, so that an answer can
neither load nor hide anything, and the address of a link is always read before it is followed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from casual_mcp_nb.display.view import ImageBlock, View

_HEADING = "h4"
_OFF = ("html_block", "html_inline", "image", "link", "autolink", "entity", "reference")


def prose_html(text: str) -> str:
    """Convert Markdown to HTML. Everything in it is escaped; the only tags are those of Markdown's own structure."""
    return str(_parser().render(text))


def prose_tree(text: str) -> list[Any]:
    """Parse Markdown into a tree for a page that makes its own elements: texts, and lists of a tag and its children."""
    return _tree(iter(_parser().parse(text)))


def _tree(tokens: Iterator[Token]) -> list[Any]:
    nodes: list[Any] = []
    for token in tokens:
        if token.nesting < 0:
            break
        if token.nesting > 0:
            inside = _tree(tokens)
            # A paragraph of a tight list is only its text.
            nodes += inside if token.hidden else [[_HEADING if token.type == "heading_open" else token.tag, *inside]]
        elif token.type == "inline":
            nodes += _tree(iter(token.children or ()))
        elif token.type in ("fence", "code_block"):
            nodes.append(["pre", token.content])
        elif token.type == "softbreak":
            nodes.append("\n")
        else:
            nodes.append([token.tag, *([token.content] if token.content else [])] if token.tag else token.content)
    return nodes


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False}, renderer_cls=_Renderer)
    return parser.enable(["table", "strikethrough"]).disable(_OFF)


class _Renderer(RendererHTML):
    """Draws headings as bold lines, since headings in a cell's output would show in the notebook's table of contents."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        return '<div style="margin:6px 0"><strong>'

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        return "</strong></div>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        return self.code_block(tokens, idx, options, env)

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        tokens[idx].attrs = {"class": "cmn-code", "style": "white-space:pre-wrap;margin:2px 0"}
        return str(super().code_block(tokens, idx, options, env))

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        tokens[idx].attrSet("scope", "col")
        return str(self.renderToken(tokens, idx, options, env))


IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_FOLDER = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data_uri"] = _data_uri
    # What the renderer of prose returns was escaped as it was made.
    environment.filters["prose"] = lambda text: Markup(prose_html(text))
    # Our own file, without any text of others.
    environment.globals["style"] = Markup(style())
    return environment


@cache
def style() -> str:
    """Load the style sheet of all displays."""
    return _compact((_FOLDER / "style.css").read_text(encoding="utf-8"))


def to_html(view: View, styled: bool = True) -> str:
    """Convert a view to one `<div>`, with its style sheet unless the page has it already."""
    return _environment().get_template("view.html.j2").render(view=view, styled=styled)


def to_page(view: View, title: str) -> str:
    """Convert a view to a whole HTML document that allows neither scripts nor network access."""
    # What `to_html` returns was escaped as it was made.
    return _environment().get_template("page.html.j2").render(title=title, body=Markup(to_html(view)))


def _data_uri(image: ImageBlock) -> str:
    return f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode('ascii')}"


def _compact(css: str) -> str:
    return "\n".join(line.strip() for line in css.splitlines() if line.strip())
