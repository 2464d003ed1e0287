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
from itertools import chain
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
            if token.hidden:
                nodes += inside
            else:
                tag = _HEADING if token.type == "heading_open" else token.tag
                nodes.append([tag, *inside])
        elif token.type == "inline":
            nodes += _tree(iter(token.children or ()))
        elif token.type in ("fence", "code_block"):
            nodes.append(["pre", token.content])
        elif token.type == "softbreak":
            nodes.append("\n")
        elif not token.tag:
            nodes.append(token.content)
        elif token.content:
            nodes.append([token.tag, token.content])
        else:
            nodes.append([token.tag])
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
        if first:
            lines[-1].append((kind, first))
        for line in others:
            lines.append([(kind, line)] if line else [])

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
    environment.filters["prose"] = _prose
    # Our own file, without any foreign text.
    environment.globals["style"], environment.globals["bare"] = Markup(style()), _BARE
    return environment


def _prose(text: str) -> Markup:
    return Markup(prose_html(text))


@cache
def style() -> str:
    """Load the style sheet for all displays."""
    lines = (_FOLDER / "style.css").read_text(encoding="utf-8").splitlines()
    return "\n".join(filter(None, map(str.strip, lines)))


def to_html(view: View, styled: bool = True) -> str:
    """Convert a view to one `<div>`, with its style sheet unless the page has it already."""
    return _environment().get_template("view.html.j2").render(view=view, styled=styled)


def to_page(view: View, title: str) -> str:
    """Convert a view to a whole HTML document that allows neither scripts nor network access."""
    # What `to_html` returns was escaped as it was made.
    body = Markup(to_html(view))
    return _environment().get_template("page.html.j2").render(title=title, body=body)


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
    if match.lastgroup == "mark":
        return f"\\{text}"
    return f"&#{ord(text)};"


def fenced(text: str, language: str = "text") -> str:
    """Fence a text as a code block that nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _markdown_blocks(blocks: tuple[Block, ...]) -> list[str]:
    return list(chain.from_iterable(map(_markdown_block, blocks)))


def _markdown_block(block: Block) -> list[str]:
    match block:
        case Table():
            return _markdown_table(block)
        case KeyValues():
            rows = [f"- {escape(label)}: {escape(cell_text(cell))}" for label, cell in block.rows]
            return ["\n".join(rows)]
        case TextBlock():
            body = fenced(block.text, block.language or "text")
            if block.label:
                return [f"{escape(block.label)}:", body]
            return [body]
        case Line():
            return [" · ".join(map(escape, _words(block)))]
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
    is_open = " open" if section.fold == "open" else ""
    return [f"<details{is_open}><summary>{summary}</summary>", *body, "</details>"]


def _escaped_html(text: str) -> str:
    # A summary is HTML, in which Markdown is not read, but formulas are.
    return _FORMULA.sub(r"<code>\g<0></code>", html.escape(text))


def _markdown_table(table: Table) -> list[str]:
    titles = [escape(column.title) for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [[escape(cell_text(cell)) for cell in row] for row in table.rows]
    text = "\n".join(f"| {' | '.join(row)} |" for row in (titles, rules, *rows))
    if table.more:
        return [text, escape(table.more)]
    return [text]


def _heading(part: View | Section) -> list[str]:
    parts = heading(part)
    if not parts:
        return []
    return [" · ".join([f"**{escape(parts[0])}**", *map(escape, parts[1:])])]


def to_text(view: View) -> str:
    """Convert a view to lines of text.

    Text blocks have a bar before each line, so that they cannot imitate the display.
    """
    return "\n".join(_titled(" · ".join(heading(view)), _blocks(view.blocks)))


def _titled(title: str, lines: list[str]) -> list[str]:
    """Put a title above lines, which are indented then."""
    if not title:
        return lines
    return [title, *(f"  {line}".rstrip() for line in lines)]


def _words(line: Line) -> tuple[str, ...]:
    if line.mark is None:
        return line.words
    return (line.mark.text, *line.words)


def _blocks(blocks: tuple[Block, ...]) -> list[str]:
    return list(chain.from_iterable(map(_block, blocks)))


def _block(block: Block) -> list[str]:
    match block:
        case Table():
            return _table(block)
        case KeyValues():
            width = max((len(label) for label, _ in block.rows), default=0)
            return [f"{label.ljust(width)}  {cell_text(cell)}" for label, cell in block.rows]
        case TextBlock():
            lines = [f"│ {line}" for line in block.text.split("\n")]
            if block.label:
                lines.insert(0, f"{block.label}:")
            return lines
        case Line():
            return [" · ".join(_words(block))]
        case ImageBlock():
            return [f"[{block.note}]"]
        case Section():
            lines = [] if block.brief else _blocks(block.blocks)
            return _titled(" · ".join(heading(block)), lines)


def _table(table: Table) -> list[str]:
    titles = [column.title for column in table.columns]
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines: list[str] = []
    for row in (titles, ["-" * width for width in widths], *rows):
        cells: list[str] = []
        for text, width, column in zip(row, widths, table.columns, strict=True):
            cells.append(text.rjust(width) if column.numeric else text.ljust(width))
        lines.append("  ".join(cells).rstrip())
    if table.more:
        lines.append(table.more)
    return lines
