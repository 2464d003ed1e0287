"""What is well is one folded line; tables below each other share their columns; a chip is never
empty.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from casual_mcp_nb.base.status import Check, Diagnosis, Servers, ServerStatus, SessionStatus
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.config.trust import Trust, TrustEntry, TrustState
from casual_mcp_nb.conversation.audit import Audit, AuditRecord
from casual_mcp_nb.conversation.event import SYNTHETIC
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.view_calls import call_spans
from casual_mcp_nb.display.view import Block, DisplayLimits, Name, Section, Table, View
from casual_mcp_nb.magics.help import help_of
from casual_mcp_nb.views import mimebundle, view_of


def view(value: Any) -> View:
    return view_of(value, DisplayLimits())


def tables(blocks: tuple[Block, ...], folded: bool = True) -> list[Table]:
    """All tables, or only those that are seen before anything is unfolded."""
    inner = [
        block
        for block in blocks
        if isinstance(block, Section) and (folded or block.fold != "closed")
    ]
    own = [block for block in blocks if isinstance(block, Table)]
    return own + [table for section in inner for table in tables(section.blocks, folded)]


def test_checks_that_passed_are_one_folded_line_and_the_others_a_table() -> None:
    passed = [
        Check(part, f"check {number}", "ok", "found")
        for part in ("Packages", "Servers")
        for number in range(9)
    ]
    problem = Check("Servers", "far", "fail", "it ended", "install it")
    shown = view(Diagnosis((*passed, problem)))
    (seen,) = tables(shown.blocks, folded=False)
    assert [row[1] for row in seen.rows] == [Name("far")]
    well = [block for block in shown.blocks if isinstance(block, Section)]
    assert [(section.fold, len(tables(section.blocks)[0].rows)) for section in well] == [
        ("closed", 18)
    ]
    assert tables(view(Diagnosis(tuple(passed))).blocks, folded=False) == []
    (one_grid,) = tables(well[0].blocks)
    assert [row[0] for row in one_grid.rows].count("Packages") == 9


def test_only_what_is_to_be_accepted_is_open() -> None:
    states: dict[str, TrustState] = {"a": "harmless", "b": "new", "c": "trusted"}
    entries = [TrustEntry("server", name, (), state) for name, state in states.items()]
    blocks = [
        block for block in view(Trust("", tuple(entries))).blocks if isinstance(block, Section)
    ]
    assert [(block.fold, len(block.blocks)) for block in blocks] == [(None, 1), ("closed", 2)]
    assert blocks[0].title == "server b"
    everything_well = view(Trust("", (entries[0],))).blocks
    assert [block.fold for block in everything_well if isinstance(block, Section)] == ["closed"]


def test_the_help_shows_a_few_commands_and_the_topics_and_folds_everything_in_one_grid() -> None:
    short = tables(view(help_of()).blocks, folded=False)
    assert len(short) == len(tables(view(help_of()).blocks)) == 2
    shown = view(help_of("--all"))
    assert len(tables(shown.blocks, folded=False)) == 1
    assert len(tables(shown.blocks)) > 5
    grids = {tuple(column.share for column in table.columns) for table in tables(shown.blocks)}
    assert len(grids) == 1
    assert sum(grids.pop()) == 100
    cells = [
        cell if isinstance(cell, str) else cell.text
        for table in tables(shown.blocks)
        for row in table.rows
        for cell in row
    ]
    assert not [cell for cell in cells if "`" in cell or re.search(r"[a-z]__[a-z]", cell)]


def test_a_session_begins_with_what_is_sent_and_folds_its_tables(make: Any) -> None:
    status: SessionStatus = make("session")
    well = Servers({"far": ServerStatus("far", "ready", tools=3)}, {"far": "deferred"})
    assert tables(view(dataclasses.replace(status, servers=well)).blocks, folded=False) == []
    bad = Servers({"far": ServerStatus("far", "failed", "It ended.")}, {"far": "deferred"})
    text = [
        block
        for block in view(dataclasses.replace(status, servers=bad)).blocks
        if isinstance(block, Section)
    ]
    assert text[0].title == "far"


def test_stats_show_totals_and_fold_what_has_a_row_for_each_step_or_tool(make: Any) -> None:
    seen = tables(view(make("turn stats")).blocks, folded=False)
    assert [table.columns[0].title for table in seen] == ["Part"]


@pytest.mark.parametrize("kind", ["stats", "turn", "help", "models", "clients"])
def test_a_name_that_is_empty_draws_no_chip(make: Any, kind: str) -> None:
    assert not re.search(r"<code[^>]*>\s*</code>", mimebundle(make(kind))["text/html"])
    built_in = AuditRecord(0.0, ToolName(SYNTHETIC, "search_tools"), "model", None, "ok", 0.1, 2, 9)
    assert not re.search(r"<code[^>]*>\s*</code>", mimebundle(Audit((built_in,)))["text/html"])


def test_the_line_of_a_call_has_all_of_its_arguments(make: Any) -> None:
    call: ToolCall = make("call")
    arguments = {
        "time": "14:30",
        "from_timezone": "Europe/Oslo",
        "to_timezone": "Asia/Tokyo",
        "day": "2026-11-23",
        "exact": True,
    }
    line = " ".join(
        span.text
        for span in call_spans(dataclasses.replace(call, arguments=arguments, search=None))
    )
    for name, value in arguments.items():
        assert name in line
        assert str(value).lower() in line.lower()
