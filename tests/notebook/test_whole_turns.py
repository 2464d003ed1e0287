"""A turn's headline tells of the whole turn, and not of its first request alone."""

from __future__ import annotations

import pytest
from kit.setups import OFFLINE

from casual_mcp_nb import Session

CONFIG = {
    **OFFLINE,
    "servers": {"units": {"bundled": "units", "transport": "in-process", "defer_loading": True}},
    "tool_discovery": {"enabled": True},
}


@pytest.mark.defect("C5")
def test_the_headline_compares_all_requests_of_a_turn_also_where_deferring_loses() -> None:
    with Session.from_config(CONFIG) as session:
        turn = session.chat("How many kilometres are 26.2 miles?", echo="none")
    stats = turn.stats
    assert turn.searches
    assert stats.sent_tokens > stats.undeferred_tokens
    text = turn._repr_mimebundle_()["text/plain"]
    figures = next(line for line in text.splitlines() if "every tool loaded" in line)
    assert f"{stats.sent_tokens:,}" in figures
    assert "more than" in figures
    assert "less" not in figures
