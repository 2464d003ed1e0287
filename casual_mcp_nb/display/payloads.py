"""The payloads that functions of the notebook return for the person: tables, figures, and the beginning of anything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from casual_mcp_nb.display.view import Block, Column, ImageBlock, Section, Table, TextBlock
from casual_mcp_nb.types.payload import PayloadPreview


def payload_sections(title: str, previews: Sequence[PayloadPreview], spend: Callable[[int], bool]) -> tuple[Section, ...]:
    """Show the payloads of a call, as far as they can be shown.

    Args:
        title: The tool.
        previews: What is shown of them.
        spend: Returns whether an image of a size may be shown.
    """
    shown = (preview for preview in previews if preview.is_shown)
    return tuple(Section(title, (_block(preview, spend),), note=preview.what, look="payload") for preview in shown)


def payload_words(previews: Sequence[PayloadPreview]) -> str:
    """Describe the payloads of a call, and that they are in no file."""
    return f"Payload kept in the kernel: {'; '.join(preview.what for preview in previews)}"


def _block(preview: PayloadPreview, spend: Callable[[int], bool]) -> Block:
    if preview.columns:
        return Table(tuple(map(Column, preview.columns)), preview.rows, preview.more_rows)
    if preview.picture is not None:
        if spend(len(preview.picture)):
            return ImageBlock("image/png", preview.picture, preview.what)
        return TextBlock(f"picture of {len(preview.picture):,} bytes, not shown here")
    return TextBlock(preview.text, code=True)
