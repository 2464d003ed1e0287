"""A view as plain text, for terminals and for readers that show nothing else."""

from __future__ import annotations

from casual_mcp_nb.display.view import Block, ImageBlock, KeyValues, Line, Section, Table, TextBlock, View, cell_text, heading


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
