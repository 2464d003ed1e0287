"""Cut texts that somebody reads."""

from __future__ import annotations

_LONG_WORD = 20


def cut_at_word(text: str, limit: int) -> str:
    """Cut a line to at most `limit` characters, behind a whole word.

    A word that is long, or is all there is, is cut, and so are scripts without spaces.
    """
    if len(text) <= limit:
        return text
    short = text[:limit]
    if not text[limit].isspace():
        before, _, begun = short.rpartition(" ")
        if before and len(begun) <= _LONG_WORD:
            short = before
    return short.rstrip(" ,;:")
