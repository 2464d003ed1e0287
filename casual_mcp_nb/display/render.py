"""A view as HTML, as plain text, and as Markdown in which no foreign text can be markup, a link or
a formula.

HTML has no script, no address and no id, and is readable without its style sheet. In an answer, a
model's Markdown cannot reach beyond the answer. Paragraphs, lists, tables, code and emphasis are
drawn. HTML, images, links and entities stay the text that they are, so that an answer can neither
load nor hide anything, and a link's address is always read before it is followed.
"""

from __future__ import annotations

import base64
import html
import keyword
import re
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from casual_mcp_nb.display.view import (
    Block,
    ImageBlock,
    KeyValues,
    Line,
    Section,
    Table,
    TextBlock,
    View,
    cell_text,
    heading,
)

_HEADING = "h4"
# Hosts set code as chips: without our style sheet, a column of names would look like buttons.
_BARE = "padding:0;background-color:transparent"
_OFF = ("html_block", "html_inline", "image", "link", "autolink", "entity", "reference")


def prose_html(text: str) -> str:
    """Convert Markdown to HTML. Everything in it is escaped.

    The only tags are those of Markdown's own structure.
    """
    return str(_parser().render(text))


def prose_tree(text: str) -> list[Any]:
    """Parse Markdown into a tree for a page that makes its own elements: texts, and lists of a tag
    and its children.
    """
    return _tree(iter(_parser().parse(text)))


def _tree(tokens: Iterator[Token]) -> list[Any]:
    nodes: list[Any] = []
    for token in tokens:
        if token.nesting < 0:
            break
        if token.nesting > 0:
            inside = _tree(tokens)
            # A paragraph in a tight list is only its text.
            nodes += (
                inside
                if token.hidden
                else [[_HEADING if token.type == "heading_open" else token.tag, *inside]]
            )
        elif token.type == "inline":
            nodes += _tree(iter(token.children or ()))
        elif token.type in ("fence", "code_block"):
            nodes.append(["pre", token.content])
        elif token.type == "softbreak":
            nodes.append("\n")
        else:
            nodes.append(
                [token.tag, *([token.content] if token.content else [])]
                if token.tag
                else token.content
            )
    return nodes


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False}, renderer_cls=_Renderer)
    return parser.enable(["table", "strikethrough"]).disable(_OFF)


class _Renderer(RendererHTML):
    """Draws headings as bold lines, since headings in a cell's output would show in the notebook's
    table of contents.
    """

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        return '<div style="margin:6px 0"><strong>'

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        return "</strong></div>\n"

    def fence(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        return self.code_block(tokens, idx, options, env)

    def code_block(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        tokens[idx].attrs = {"class": "cmn-code", "style": "white-space:pre-wrap;margin:2px 0"}
        return str(super().code_block(tokens, idx, options, env))

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        tokens[idx].attrSet("style", _BARE)
        return str(super().code_inline(tokens, idx, options, env))

    def th_open(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        tokens[idx].attrSet("scope", "col")
        return str(self.renderToken(tokens, idx, options, env))


_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<string>[rbfuRBFU]{0,2}(?:\"\"\"[\s\S]*?(?:\"\"\"|\Z)|\'\'\'[\s\S]*?(?:\'\'\'|\Z)"
    r"|\"(?:\\[\s\S]|[^\"\\\n])*\"?|'(?:\\[\s\S]|[^'\\\n])*'?))"
    rf"|(?P<keyword>\b(?:{'|'.join(keyword.kwlist)})\b)"
    r"|(?P<number>\b\d[\w.]*)"
    r"|(?:[^\W\d]\w*)"
)


def python_lines(text: str) -> list[list[tuple[str, str]]]:
    """Split a Python program into lines, each in pieces with their kinds: a comment, string,
    keyword or number, or nothing.
    """
    lines: list[list[tuple[str, str]]] = [[]]

    def add(kind: str, piece: str) -> None:
        first, *others = piece.split("\n")
        lines[-1] += [(kind, first)] if first else []
        lines.extend([(kind, line)] if line else [] for line in others)

    end = 0
    for match in _PYTHON.finditer(text):
        if match.lastgroup is not None:
            add("", text[end : match.start()])
            add(match.lastgroup, match.group())
            end = match.end()
    add("", text[end:])
    return lines


IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_FOLDER = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = _data_uri
    environment.filters["python_lines"] = python_lines
    # The prose renderer escapes everything that it returns.
    environment.filters["prose"] = lambda text: Markup(prose_html(text))
    # Our own file, without any foreign text.
    environment.globals["style"], environment.globals["bare"] = Markup(style()), _BARE
    return environment


@cache
def style() -> str:
    """Load the style sheet for all displays."""
    return "\n".join(
        line.strip()
        for line in (_FOLDER / "style.css").read_text(encoding="utf-8").splitlines()
        if line.strip()
    )


def to_html(view: View, styled: bool = True) -> str:
    """Convert a view to one `<div>`, with its style sheet unless the page has it already."""
    return _environment().get_template("view.html.j2").render(view=view, styled=styled)


def to_page(view: View, title: str) -> str:
    """Convert a view to a whole HTML document that allows neither scripts nor network access."""
    # What `to_html` returns was escaped as it was made.
    return (
        _environment().get_template("page.html.j2").render(title=title, body=Markup(to_html(view)))
    )


def _data_uri(image: ImageBlock) -> str:
    return f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode('ascii')}"


# Jupyter typesets formulas also where a dollar or a backslash is escaped, but never inside code.
_ACTIVE = re.compile(
    r"(?P<formula>[\\$]+)"
    r"|(?P<mark>[*_\[\]#~!{}^=])"
    r"|(?P<entity>[&<>`|@]|:(?=/)|(?<=www)\.|(?<=mailto):|(?<=xmpp):)",
    re.IGNORECASE,
)


_FORMULA = re.compile(r"[\\$]+")


def to_markdown(view: View) -> str:
    """Convert a view to Markdown.

    Its headings are bold lines, which do not show in a notebook's table of contents.

    Folding sections are `details` elements, which GitHub and notebooks fold too. Foreign text in
    them is escaped.
    """
    return "\n\n".join([*_heading(view), *_markdown_blocks(view.blocks)])


def escape(text: str) -> str:
    """Escape a line of text so that Markdown shows it as it is."""
    return _ACTIVE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    text = match.group()
    if match.lastgroup == "formula":
        return f"`{text}`"
    return f"\\{text}" if match.lastgroup == "mark" else f"&#{ord(text)};"


def fenced(text: str, language: str = "text") -> str:
    """Fence a text as a code block that nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _markdown_blocks(blocks: tuple[Block, ...]) -> list[str]:
    return [text for block in blocks for text in _markdown_block(block)]


def _markdown_block(block: Block) -> list[str]:
    match block:
        case Table():
            return _markdown_table(block)
        case KeyValues():
            return [
                "\n".join(
                    f"- {escape(label)}: {escape(cell_text(cell))}" for label, cell in block.rows
                )
            ]
        case TextBlock():
            body = fenced(block.text, block.language or "text")
            return [f"{escape(block.label)}:", body] if block.label else [body]
        case Line():
            return [
                " · ".join(map(escape, [*([block.mark.text] if block.mark else []), *block.words]))
            ]
        case ImageBlock():
            return [escape(f"[{block.note}]")]
        case Section():
            return _section(block)


def _section(section: Section) -> list[str]:
    body = [] if section.brief else _markdown_blocks(section.blocks)
    if section.fold is None or not body or not section.title:
        return [*_heading(section), *body]
    title, *details = map(_escaped_html, heading(section))
    summary = " · ".join([f"<strong>{title}</strong>", *details])
    return [
        f"<details{' open' * (section.fold == 'open')}><summary>{summary}</summary>",
        *body,
        "</details>",
    ]


def _escaped_html(text: str) -> str:
    # A summary is HTML, in which Markdown is not read, but formulas are.
    return _FORMULA.sub(r"<code>\g<0></code>", html.escape(text))


def _markdown_table(table: Table) -> list[str]:
    rows = [
        [escape(column.title) for column in table.columns],
        ["---:" if column.numeric else "---" for column in table.columns],
        *([escape(cell_text(cell)) for cell in row] for row in table.rows),
    ]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return [text, escape(table.more)] if table.more else [text]


def _heading(part: View | Section) -> list[str]:
    title, *details = heading(part) or ("",)
    return [" · ".join([f"**{escape(title)}**", *map(escape, details)])] if title else []


def to_text(view: View) -> str:
    """Convert a view to lines of text.

    Text blocks have a bar before each line, so that they cannot imitate the display.
    """
    lines, titles = _blocks(view.blocks), " · ".join(heading(view))
    return "\n".join([titles, *_indented(lines)] if titles else lines)


def _blocks(blocks: tuple[Block, ...]) -> list[str]:
    return [line for block in blocks for line in _block(block)]


def _block(block: Block) -> list[str]:
    match block:
        case Table():
            return _table(block)
        case KeyValues():
            width = max((len(label) for label, _ in block.rows), default=0)
            return [f"{label.ljust(width)}  {cell_text(cell)}" for label, cell in block.rows]
        case TextBlock():
            lines = [f"│ {line}" for line in block.text.split("\n")]
            return [f"{block.label}:", *lines] if block.label else lines
        case Line():
            return [" · ".join([*([block.mark.text] if block.mark else []), *block.words])]
        case ImageBlock():
            return [f"[{block.note}]"]
        case Section():
            lines, titles = [] if block.brief else _blocks(block.blocks), " · ".join(heading(block))
            return [titles, *_indented(lines)] if titles else lines


def _table(table: Table) -> list[str]:
    titles = [column.title for column in table.columns]
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    lines = [
        "  ".join(
            text.rjust(width) if column.numeric else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ).rstrip()
        for row in [titles, ["-" * width for width in widths], *rows]
    ]
    return [*lines, table.more] if table.more else lines


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]
