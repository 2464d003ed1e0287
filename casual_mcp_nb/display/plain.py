"""A view as plain text, for terminals and for readers that show nothing else."""

from __future__ import annotations

from casual_mcp_nb.display.view import Block, Cell, Image, KeyValues, Section, Table, Text, View


def to_text(view: View) -> str:
    """Return a view as lines of text; blocks of text have a bar before each line, so that they cannot imitate the display."""
    heading = _heading(view.title, view)
    return "\n".join([heading, *_indented(_blocks(view.blocks))])


def _blocks(blocks: tuple[Block, ...]) -> list[str]:
    return [line for block in blocks for line in _block(block)]


def _block(block: Block) -> list[str]:
    match block:
        case Table():
            return _table(block)
        case KeyValues():
            width = max((len(label) for label, _ in block.rows), default=0)
            return [f"{label.ljust(width)}  {cell_text(cell)}" for label, cell in block.rows]
        case Text():
            lines = [f"│ {line}" for line in block.text.split("\n")]
            return [f"{block.label}:", *lines] if block.label else lines
        case Image():
            return [f"[{block.note}]"]
        case Section():
            return [_heading(block.title, block), *_indented(_blocks(block.blocks))]


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


def cell_text(cell: Cell) -> str:
    """Return the text of a cell."""
    return cell if isinstance(cell, str) else cell.text


def _heading(title: str, part: View | Section) -> str:
    return " · ".join(text for text in (title, part.mark.text if part.mark else "", part.note) if text)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]
