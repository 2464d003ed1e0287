"""Views of the help of the commands and of the doctor's findings."""

from __future__ import annotations

from itertools import groupby

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.view import Block, Cell, DisplayLimits, Name, Section, Status, Table, Text, View, columns
from casual_mcp_nb.types.diagnosis import Check, CheckStatus, Diagnosis
from casual_mcp_nb.types.help import Help, HelpRow

_VERDICTS: dict[CheckStatus, Status] = {
    "ok": Status("✓ ok", "good"),
    "warn": Status("! warning", "quiet"),
    "fail": Status("✗ fails", "bad"),
}


def help_view(text: Help, limits: DisplayLimits) -> View:
    """Return the commands of each group."""
    return View("help", text.title, tuple(Section(title, (_commands(rows),)) for title, rows in text.groups))


def _commands(rows: tuple[HelpRow, ...]) -> Table:
    cells: list[tuple[Cell, ...]] = [(Name(row.usage), row.summary, Name(row.example) if row.example else "") for row in rows]
    return Table(columns("Command", "What it does", "Example"), tuple(cells))


def diagnosis_view(diagnosis: Diagnosis, limits: DisplayLimits) -> View:
    """Return the findings, part by part, with what to do about them."""
    bad = sum(finding.verdict == "fail" for finding in diagnosis)
    doubtful = sum(finding.verdict == "warn" for finding in diagnosis)
    mark = Status("✗ problems found", "bad") if bad else Status("✓ everything needed works", "good")
    blocks: list[Block] = [
        Section(part, (_findings(list(findings), limits),))
        for part, findings in groupby(diagnosis, lambda finding: finding.part)
    ]
    note = f"{words.count(len(diagnosis), 'check')}, {words.count(bad, 'failure')}, {words.count(doubtful, 'warning')}"
    return View("diagnosis", "Doctor", tuple(blocks) or (Text("No checks were made."),), mark=mark, note=note)


def _findings(findings: list[Check], limits: DisplayLimits) -> Table:
    rows = tuple(
        (Name(finding.name), _VERDICTS[finding.verdict], finding.found, finding.advice) for finding in findings[: limits.rows]
    )
    return Table(columns("Check", "Result", "Details", "What to do"), rows, len(findings) - len(rows))
