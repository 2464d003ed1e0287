"""Text of servers and models, made harmless to look at: hidden characters become marks, long texts are cut and say so."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SPACES = re.compile(r"[ \t\n]+")
_PICTURE_OF_DELETE = "␡"


def clean(text: str) -> str:
    """Replace each character that acts on a terminal or hides by a visible mark.

    These are controls, escapes, bidirectional and zero-width characters, and lone surrogates. Tabs and line ends stay; the
    result can always be encoded.
    """
    return _HIDDEN.sub(_mark, text.replace("\r\n", "\n"))


def _mark(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return _PICTURE_OF_DELETE if code == 0x7F else f"⟨U+{code:04X}⟩"


def one_line(text: str) -> str:
    """Clean a text, and make each run of spaces and line ends one space."""
    return _SPACES.sub(" ", clean(text)).strip()


def cut(text: str, limit: int, lines: int | None = None) -> str:
    """Cut a text to its first `limit` characters and first `lines` lines; a cut is stated with the full size."""
    short = text[:limit]
    if lines is not None and short.count("\n") >= lines:
        short = "\n".join(short.split("\n", lines)[:lines])
    return text if len(short) == len(text) else f"{short.rstrip()}… {len(text):,} characters in all"


def first(text: str, limit: int) -> str:
    """Cut a text to `limit` characters on one line, for a cell whose whole text is shown elsewhere."""
    short = one_line(text[: 4 * limit])
    return short if len(short) <= limit and len(text) <= 4 * limit else f"{short[:limit].rstrip()}…"
