"""Texts that somebody reads are cut behind a whole word, wherever they are shown."""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.cutting import cut_at_word
from casual_mcp_nb.discovery.text import one_line
from casual_mcp_nb.display.words import first

WORDS = "Convert length, mass, volume, speed, area, data, energy and pressure, each in its units."


@pytest.mark.parametrize("limit", range(10, len(WORDS) + 3))
def test_a_cut_ends_behind_a_whole_word(limit: int) -> None:
    whole = [word.strip(",") for word in WORDS.split()]
    for shown in (cut_at_word(WORDS, limit), first(WORDS, limit), one_line(WORDS, limit)):
        kept = shown.rstrip("….") if shown != WORDS else WORDS
        assert WORDS.startswith(kept)
        assert [word.strip(",") for word in kept.split()] == whole[: len(kept.split())]
        assert len(shown) <= limit + 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * 50, 30),
        ("see " + "a" * 50, 30),
        ("単位を変換する" * 10, 30),
        ("a" * 29 + " b", 29),
        ("short", 5),
    ],
    ids=["a word", "a long word", "no spaces", "its end", "all"],
)
def test_what_has_no_word_near_the_end_is_cut_there(text: str, kept: int) -> None:
    assert cut_at_word(text, 30) == text[:kept]
