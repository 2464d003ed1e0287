"""Text of servers and models made fit to stand inside text of ours."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """`text` as one line of at most `limit` characters: spaces joined, all other invisible characters left out."""
    text = text[: limit * 8]
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
