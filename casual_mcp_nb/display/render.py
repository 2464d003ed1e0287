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
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from casual_mcp_nb.display.view import (
    Block,
    Blocks,
    Cell,
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
    parser = _parser()
    tokens = parser.parse(text)
    _style(tokens)
    return str(parser.renderer.render(tokens, parser.options, {}))


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
            nodes.append(["br"])
        elif not token.tag:
            nodes.append(token.content)
        elif token.content:
            nodes.append([token.tag, token.content])
        else:
            nodes.append([token.tag])
    return nodes


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False})
    return parser.enable(["table", "strikethrough"]).disable(_OFF)


def _style(tokens: Sequence[Token]) -> None:
    """Set the attributes of Markdown's elements, and write some of them in our own way."""
    for token in tokens:
        match token.type:
            case "heading_open":
                # Headings in a cell's output would show in the notebook's table of contents.
                token.type, token.content = "html_block", '<div style="margin:6px 0"><strong>'
            case "heading_close":
                token.type, token.content = "html_block", "</strong></div>\n"
            case "softbreak":
                # The lines of an answer stay apart, as of a table that a tool gave as text.
                token.type, token.content = "html_inline", "<br>\n"
            case "fence" | "code_block":
                token.type = "code_block"
                token.attrs = {"class": "cmn-code", "style": "white-space:pre-wrap;margin:2px 0"}
            case "code_inline":
                token.attrSet("style", _BARE)
            case "th_open":
                token.attrSet("scope", "col")
        _style(token.children or ())


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
    environment.filters["kind"] = _kind
    environment.filters["python_lines"] = python_lines
    environment.filters["prose"] = _prose
    # Our own file, without any foreign text.
    environment.globals["style"], environment.globals["bare"] = Markup(style()), _BARE
    return environment


def _kind(part: Block | Cell) -> str:
    return type(part).__name__


def _prose(text: str) -> Markup:
    # The prose renderer escapes everything that it returns.
    return Markup(prose_html(text))


@cache
def style() -> str:
    """Load the style sheet for all displays."""
    lines = (_FOLDER / "style.css").read_text(encoding="utf-8").splitlines()
    stripped = [line.strip() for line in lines]
    return "\n".join(filter(None, stripped))


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

    Its headings are bold lines, which do not show in a notebook's table of contents. Folding
    sections are `details` elements, which GitHub and notebooks fold too. Foreign text in them is
    escaped.
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
    fence = _marks_around(text, 3)
    return f"{fence}{language}\n{text}\n{fence}"


def _marks_around(text: str, least: int) -> str:
    """Write more backticks than there are in a row in a text, so that it cannot end what they
    begin.
    """
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


_ITEM = re.compile(r"^[ \t]*(\d*)(?=[-+.)])", re.MULTILINE)
_BLOCKS = frozenset({"p", _HEADING, "pre", "blockquote", "ul", "ol", "table", "hr"})


def prose_markdown(text: str) -> str:
    """Write Markdown again, with the structure that `prose_html` draws, and everything else
    escaped: HTML, images, links and formulas stay the text that they are.
    """
    return _prose_blocks(prose_tree(text))


def _prose_blocks(nodes: Sequence[Any], between: str = "\n\n") -> str:
    parts: list[str] = []
    inline: list[Any] = []
    for node in (*nodes, None):
        is_block = isinstance(node, list) and node[0] in _BLOCKS
        if node is not None and not is_block:
            inline.append(node)
            continue
        if inline:
            parts.append(_prose_line(inline))
            inline = []
        if is_block:
            parts.append(_prose_block(node))
    return between.join(parts)


def _prose_block(node: Any) -> str:
    tag, *inside = node
    match tag:
        case "pre":
            return fenced(inside[0].removesuffix("\n"))
        case "blockquote":
            return textwrap.indent(_prose_blocks(inside), "> ", _every_line)
        case "ul" | "ol":
            return _prose_list(inside, numbered=tag == "ol")
        case "table":
            return _prose_table(inside)
        case "hr":
            # Three hyphens could make a heading of the line before them.
            return "***"
    line = _prose_line(inside)
    if tag == _HEADING and line:
        return f"**{line}**"
    return line


def _prose_list(items: Sequence[Any], numbered: bool) -> str:
    between = "\n\n" if any(map(_has_paragraph, items)) else "\n"
    lines: list[str] = []
    for number, (_, *item) in enumerate(items, 1):
        mark = f"{number}. " if numbered else "- "
        body = textwrap.indent(_prose_blocks(item, between), " " * len(mark))
        lines.append(f"{mark}{body.lstrip(' ')}")
    return between.join(lines)


def _prose_table(parts: Sequence[Any]) -> str:
    """Write a table, whose parts are its head and its body."""
    lines: list[str] = []
    for _, *rows in parts:
        for _, *cells in rows:
            texts = [_prose_line(cell[1:], by=" ") for cell in cells]
            lines.append(_bars(texts))
            if len(lines) == 1:
                lines.append(_bars(["---"] * len(texts)))
    return "\n".join(lines)


def _bars(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _has_paragraph(item: Any) -> bool:
    """Check for a paragraph, which only items of a loose list have."""
    return any(isinstance(part, list) and part[0] == "p" for part in item)


def _every_line(_: str) -> bool:
    return True


def _prose_line(nodes: Sequence[Any], by: str = "  \n") -> str:
    """Write text with emphasis and code. `by` stands for the end of a line in it."""
    text = ""
    for node in nodes:
        part = _prose_part(node, by)
        if text.endswith("`") and part.startswith("`"):
            # Two code spans without a space would be read as one, or as none.
            text += " "
        text += part
    # What begins a line must not begin a list.
    return _ITEM.sub(r"\1\\", text)


def _prose_part(node: Any, by: str) -> str:
    if isinstance(node, str):
        return escape(node)
    tag, *inside = node
    if tag == "br":
        return by
    if tag == "code":
        return _code_span("".join(inside))
    mark = _EMPHASIS.get(tag, "")
    return f"{mark}{_prose_line(inside, by)}{mark}"


_EMPHASIS = {"strong": "**", "em": "*", "s": "~~"}


def _code_span(text: str) -> str:
    # A bar would end a table's cell.
    if "|" in text or not text.strip():
        return escape(text)
    marks = _marks_around(text, 1)
    space = " " if "`" in text else ""
    return f"{marks}{space}{text}{space}{marks}"


def _markdown_blocks(blocks: Blocks) -> list[str]:
    parts = []
    for block in blocks:
        parts += _markdown_block(block)
    return parts


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
    rows = []
    for row in table.rows:
        rows.append([escape(cell_text(cell)) for cell in row])
    text = "\n".join(map(_bars, (titles, rules, *rows)))
    if table.more:
        return [text, escape(table.more)]
    return [text]


def _heading(part: View | Section) -> list[str]:
    parts = list(map(escape, heading(part)))
    if not parts:
        return []
    parts[0] = f"**{parts[0]}**"
    return [" · ".join(parts)]


@dataclass(frozen=True)
class TextLayout:
    """How text is laid out in lines.

    Args:
        width: The longest line, or None if lines may be of any length. Only a word that is longer
            than a whole line is not kept within it.
        folded: Whether sections that a page shows folded are only named.
    """

    width: int | None = None
    folded: bool = False

    def less(self, columns: int) -> TextLayout:
        """Make the layout beside an indentation or a column."""
        if self.width is None:
            return self
        return replace(self, width=max(_LEAST_WIDTH, self.width - columns))

    def wrapped(self, text: str, indentation: str = "") -> list[str]:
        """Break a line between words where it is too long. Lines after the first are indented."""
        if self.width is None or len(text) <= self.width:
            return [text]
        # A line that begins with spaces is code or a list: what follows stays below it.
        begins = text[: min(len(text) - len(text.lstrip()), self.width // 2)]
        lines = textwrap.wrap(
            text,
            self.width,
            subsequent_indent=begins + indentation,
            drop_whitespace=True,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return lines or [""]


_LEAST_WIDTH = 20
_GAP = "  "


def to_text(view: View, layout: TextLayout = TextLayout()) -> str:
    """Convert a view to lines of text.

    Text blocks have a bar before each line, so that they cannot imitate the display.
    """
    return "\n".join(_titled(view, view.blocks, layout))


def _titled(part: View | Section, blocks: Blocks, layout: TextLayout) -> list[str]:
    """Put a part's title above its lines, which are indented then."""
    title = " · ".join(heading(part))
    if not title:
        return _blocks(blocks, layout)
    lines = _blocks(blocks, layout.less(2))
    return [*layout.wrapped(title, _GAP), *(f"  {line}".rstrip() for line in lines)]


def _words(line: Line) -> tuple[str, ...]:
    if line.mark is None:
        return line.words
    return (line.mark.text, *line.words)


def _blocks(blocks: Blocks, layout: TextLayout) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        lines += _block(block, layout)
    return lines


def _block(block: Block, layout: TextLayout) -> list[str]:
    match block:
        case Table():
            return _table(block, layout)
        case KeyValues():
            return _key_values([(label, cell_text(cell)) for label, cell in block.rows], layout)
        case TextBlock():
            return _text_block(block, layout)
        case Line():
            return layout.wrapped(" · ".join(_words(block)), _GAP)
        case ImageBlock():
            return layout.wrapped(f"[{block.note}]")
        case Section():
            is_named_only = block.brief or (layout.folded and block.fold == "closed")
            return _titled(block, () if is_named_only else block.blocks, layout)


def _text_block(block: TextBlock, layout: TextLayout) -> list[str]:
    lines = [f"{block.label}:"] if block.label else []
    beside = layout.less(2)
    for line in block.text.split("\n"):
        lines += [f"│ {part}" for part in beside.wrapped(line)]
    return lines


def _key_values(rows: Sequence[tuple[str, str]], layout: TextLayout) -> list[str]:
    width = max((len(label) for label, _ in rows), default=0)
    beside = layout.less(width + len(_GAP))
    lines: list[str] = []
    for label, text in rows:
        first, *others = beside.wrapped(text)
        lines.append(f"{label.ljust(width)}{_GAP}{first}")
        lines += [" " * (width + len(_GAP)) + other for other in others]
    return lines


def _table(table: Table, layout: TextLayout) -> list[str]:
    titles = [column.title for column in table.columns]
    rows = [list(map(cell_text, row)) for row in table.rows]
    columns = [list(column) for column in zip(titles, *rows, strict=True)]
    widths = _widths(columns, [column.numeric for column in table.columns], layout.width)
    lines: list[str] = []
    if widths is None:
        for row in rows:
            lines += layout.wrapped(row[0], _GAP)
            filled = [(title, text) for title, text in zip(titles, row, strict=True) if text]
            others = filled[1:] if row[0] else filled
            lines += [f"{_GAP}{line}" for line in _key_values(others, layout.less(2))]
    else:
        rules = ["-" * width for width in widths]
        for row in (titles, rules, *rows):
            lines += _table_row(row, widths, table)
    if table.more:
        lines += layout.wrapped(table.more)
    return lines


def _table_row(row: Sequence[str], widths: Sequence[int], table: Table) -> list[str]:
    """Lay out a row, in as many lines as its cells take."""
    cells = [TextLayout(width).wrapped(text) for text, width in zip(row, widths, strict=True)]
    lines: list[str] = []
    for parts in zip_longest(*cells, fillvalue=""):
        padded: list[str] = []
        for text, width, column in zip(parts, widths, table.columns, strict=True):
            padded.append(text.rjust(width) if column.numeric else text.ljust(width))
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _widths(
    columns: Sequence[Sequence[str]], numeric: Sequence[bool], line_width: int | None
) -> list[int] | None:
    """Share a line among columns, so that no word breaks and no number does.

    None if it is too short: each row is then written as a list.
    """
    widths = [max(map(len, column)) for column in columns]
    if line_width is None:
        return widths
    least: list[int] = []
    for (title, *texts), width, is_number in zip(columns, widths, numeric, strict=True):
        # A number stays on one line, with its unit. Its title may take several.
        parts = texts if is_number else [word for text in texts for word in text.split()]
        longest = max(map(len, (*title.split(), *parts)), default=0)
        least.append(min(width, longest if is_number else max(longest, _LEAST_COLUMN)))
    available = line_width - len(_GAP) * (len(columns) - 1)
    if sum(least) > available:
        return None
    while sum(widths) > available:
        # The widest that can be narrower gives a column.
        shrinkable = [n for n, width in enumerate(widths) if width > least[n]]
        widest = max(shrinkable, key=widths.__getitem__)
        widths[widest] -= 1
    return widths


_LEAST_COLUMN = 12
"""The narrowest that a column of text becomes, unless all of its texts are shorter."""
