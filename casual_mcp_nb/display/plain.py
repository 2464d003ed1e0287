"""A view as plain text, and as Markdown in which no foreign text can be markup, a link or a formula."""

from __future__ import annotations

import html
import re

from casual_mcp_nb.display.view import Block, ImageBlock, KeyValues, Line, Section, Table, TextBlock, View, cell_text, heading

# Jupyter typesets formulas also where a dollar or a backslash is escaped, but never inside code.
_ACTIVE = re.compile(
    r"(?P<formula>[\\$]+)"
    r"|(?P<mark>[*_\[\]#~!{}^=])"
    r"|(?P<entity>[&<>`|@]|:(?=/)|(?<=www)\.|(?<=mailto):|(?<=xmpp):)",
    re.IGNORECASE,
)


_FORMULA = re.compile(r"[\\$]+")


def to_markdown(view: View) -> str:
    """Convert a view to Markdown. Its headings are bold lines, which do not show in a notebook's table of contents.

    What folds is a `details` element, which GitHub and notebooks fold too, or nothing in it comes from elsewhere unescaped.
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


def fenced(text: str) -> str:
    """Fence a text as a code block that nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _markdown_blocks(blocks: tuple[Block, ...]) -> list[str]:
    return [text for block in blocks for text in _markdown_block(block)]


def _markdown_block(block: Block) -> list[str]:
    match block:
        case Table():
            return _markdown_table(block)
        case KeyValues():
            return ["\n".join(f"- {escape(label)}: {escape(cell_text(cell))}" for label, cell in block.rows)]
        case TextBlock():
            body = fenced(block.text)
            return [f"{escape(block.label)}:", body] if block.label else [body]
        case Line():
            return [" · ".join(map(escape, [*([block.mark.text] if block.mark else []), *block.words]))]
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
    return [f"<details{' open' * (section.fold == 'open')}><summary>{summary}</summary>", *body, "</details>"]


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
    """Convert a view to lines of text; blocks of text have a bar before each line, so that they cannot imitate the display."""
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
