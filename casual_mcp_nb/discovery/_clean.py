"""Clean text from servers and models so that it can be embedded in our own."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """Reduce `text` to one line of at most `limit` characters: whitespace collapsed, other invisible characters removed."""
    text = text[: limit * 8]
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
