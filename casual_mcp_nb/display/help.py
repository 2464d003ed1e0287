"""Views of the help of the commands and of the doctor's findings, on a session and on how far tools get."""

from __future__ import annotations

from itertools import groupby

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Name,
    Section,
    Status,
    Table,
    TextBlock,
    View,
    columns,
)
from casual_mcp_nb.types.diagnosis import Check, CheckStatus, Diagnosis, ServerDiagnosis, StageState, ToolDiagnosis
from casual_mcp_nb.types.help import Help, HelpRow

_VERDICTS: dict[CheckStatus, Status] = {
    "ok": Status("✓ ok", "good"),
    "warn": Status("! warning", "quiet"),
    "fail": Status("✗ fails", "bad"),
}
_STAGES: dict[StageState, Status] = {
    "ok": Status("✓ ok", "good"),
    "not needed": Status("○ not needed", "quiet"),
    "not yet": Status("… not yet", "busy"),
    "stopped": Status("✗ stopped", "bad"),
    "not reached": Status("○ not reached", "quiet"),
}


def help_view(text: Help, limits: DisplayLimits) -> View:
    """Show the commands of each group."""
    return View("help", text.title, tuple(Section(title, (_commands(rows),)) for title, rows in text.groups))


def _commands(rows: tuple[HelpRow, ...]) -> Table:
    cells: list[tuple[Cell, ...]] = [(Name(row.usage), row.summary, Name(row.example) if row.example else "") for row in rows]
    return Table(columns("Command", "What it does", "Example"), tuple(cells))


def diagnosis_view(diagnosis: Diagnosis, limits: DisplayLimits) -> View:
    """Show the findings, part by part, with their remedies."""
    bad = sum(finding.verdict == "fail" for finding in diagnosis)
    doubtful = sum(finding.verdict == "warn" for finding in diagnosis)
    mark = Status("✗ problems found", "bad") if bad else Status("✓ everything needed works", "good")
    blocks: list[Block] = [
        Section(part, (_findings(list(findings), limits),))
        for part, findings in groupby(diagnosis, lambda finding: finding.part)
    ]
    note = f"{words.count(len(diagnosis), 'check')}, {words.count(bad, 'failure')}, {words.count(doubtful, 'warning')}"
    return View("diagnosis", "Doctor", tuple(blocks) or (TextBlock("No checks were made."),), mark=mark, note=note)


def _findings(findings: list[Check], limits: DisplayLimits) -> Table:
    rows = tuple(
        (Name(finding.name), _VERDICTS[finding.verdict], finding.found, finding.advice) for finding in findings[: limits.rows]
    )
    return Table(columns("Check", "Result", "Details", "What to do"), rows, len(findings) - len(rows))


def tool_diagnosis_view(diagnosis: ToolDiagnosis, limits: DisplayLimits) -> View:
    """Show the stages of a tool, with a remedy where it stops."""
    facts: list[tuple[str, Cell]] = []
    if diagnosis.wire_name:
        facts.append(("Name for the model", Name(diagnosis.wire_name)))
    if diagnosis.tokens is not None:
        facts.append(("Tokens", words.tokens(diagnosis.tokens, "estimated")))
    table = Table(
        columns("Stage", "State", "Details"),
        tuple((check.stage, _STAGES[check.state], check.found) for check in diagnosis.stages),
    )
    blocks: list[Block] = [KeyValues(tuple(facts)), table] if facts else [table]
    advice = diagnosis.end.advice
    if advice:
        blocks.append(TextBlock(advice, label="What to do"))
    return View("tool-diagnosis", str(diagnosis.tool), tuple(blocks), mark=_mark(diagnosis))


def server_diagnosis_view(diagnosis: ServerDiagnosis, limits: DisplayLimits) -> View:
    """Show the stage at which each tool of a server ends, stopped ones first."""
    listed = diagnosis.listed
    if listed.state == "stopped":
        blocks: list[Block] = [KeyValues((("Listed", _STAGES[listed.state]), ("Details", listed.found)))]
        blocks += [TextBlock(listed.advice, label="What to do")] if listed.advice else []
        return View("server-diagnosis", diagnosis.server, tuple(blocks), mark=Status("✗ not listed", "bad"))
    tools = sorted(diagnosis, key=lambda tool: tool.stopped is None)
    rows = tuple((Name(tool.tool.tool), _mark(tool), tool.end.found, tool.end.advice) for tool in tools[: limits.rows])
    table = Table(columns("Tool", "Where it ends", "Details", "What to do"), rows, len(tools) - len(rows))
    stopped = sum(tool.stopped is not None for tool in tools)
    mark = Status(f"✗ {stopped:,} stopped", "bad") if stopped else Status("✓ none is stopped", "good")
    return View("server-diagnosis", diagnosis.server, (table,), mark=mark, note=words.count(len(tools), "tool"))


def _mark(diagnosis: ToolDiagnosis) -> Status:
    stopped = diagnosis.stopped
    if stopped is not None:
        return Status(f"✗ not {stopped.stage}", "bad") if stopped.stage != "called" else Status("✗ denied", "bad")
    return Status("✓ called", "good") if diagnosis.ends_at is None else Status(f"… not {diagnosis.ends_at} yet", "busy")
