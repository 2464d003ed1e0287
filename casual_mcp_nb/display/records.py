"""Views of recordings: a server's log and messages, and the calls that the person made. And of the budget of turns."""

from __future__ import annotations

import time

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import call_view, outcome_of, status_of
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.view import DisplayLimits, Name, Section, Table, TextBlock, View, columns
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.types.audit import Audit, AuditRecord
from casual_mcp_nb.types.budget import Budget
from casual_mcp_nb.types.direct_call import DirectCall, DirectCalls
from casual_mcp_nb.types.event import SYNTHETIC, UNKNOWN
from casual_mcp_nb.types.permission import Permission
from casual_mcp_nb.types.server_records import Messages, ServerLog

_DIGITS = 8
"""How many digits of a hash tell definitions apart."""


def log_view(log: ServerLog, limits: DisplayLimits) -> View:
    """Show the end of a server's log, the newest line last."""
    lines = [f"{_clock(line.at)} {line.level:7} {line.text}" for line in log.lines[-limits.rows * 4 :]]
    before = log.dropped + len(log) - len(lines)
    note = words.count(len(log) + log.dropped, "line")
    if before:
        note = f"{note}, the last {len(lines):,} of them"
    text = "\n".join(lines) or "It has written nothing."
    # The end is what matters, and a text is cut at its end.
    return View(
        "log", f"Log of {log.server}", (TextBlock(text[-limits.document :], code=True, limit=limits.document),), note=note
    )


def messages_view(messages: Messages, limits: DisplayLimits) -> View:
    """Show the last messages to and from a server, folded, the newest last."""
    visible = messages.messages[-limits.rows :]
    sections = tuple(
        Section(
            f"{'→' if message.direction == 'sent' else '←'} {message.method or 'message'}",
            (TextBlock(message.text, code=True),),
            note=" ".join(filter(None, [message.tool, _clock(message.at)])),
            fold="closed",
        )
        for message in visible
    )
    note = f"→ sent, ← received; the last {len(visible):,}" if visible else ""
    return View("messages", f"Messages of {messages.server}", sections or (TextBlock("None."),), note=note)


def direct_calls_view(calls: DirectCalls, limits: DisplayLimits) -> View:
    """Show the calls that the person made, the newest first."""
    rows = tuple(
        (
            call.id,
            _clock(call.at),
            Name(str(call.call.tool)),
            pretty(call.call.arguments, indent=None),
            status_of(call.call),
            words.seconds(call.call.seconds),
        )
        for call in calls.calls[: limits.rows]
    )
    table = Table(columns("Call", "At", "Tool", "Arguments", "Status", "Time #"), rows, len(calls) - len(rows))
    note = words.count(len(calls), "call")
    return View("direct-calls", "Your calls", (table if rows else TextBlock("None."),), note=note)


def direct_call_view(call: DirectCall, limits: DisplayLimits) -> View:
    """Show one of these calls with its result."""
    return call_view(call.call, limits)


def audit_view(audit: Audit, limits: DisplayLimits) -> View:
    """Show the calls of a session, the newest first."""
    visible = audit.records[::-1][: limits.rows]
    rows = tuple(
        (
            _clock(record.at),
            Name(tool_of(record)),
            caller_of(record),
            decided(record.permission),
            outcome_of(record.status),
            words.seconds(record.seconds) if record.seconds is not None else "",
            f"{record.arguments_size:,}",
            f"{record.result_size:,}",
            Name(record.permission.definition[:_DIGITS] if record.permission else ""),
        )
        for record in visible
    )
    titles = ("At", "Tool", "Called by", "Decided by", "Outcome", "Time #", "Arguments #", "Result #", "Definition")
    table = Table(columns(*titles), rows, len(audit) + audit.dropped - len(rows))
    note = words.count(len(audit) + audit.dropped, "call")
    if rows:
        note += ", newest first; lengths in characters"
    return View("audit", "Calls so far", (table if rows else TextBlock("None."),), note=note)


def audit_record_view(record: AuditRecord, limits: DisplayLimits) -> View:
    """Show one of these calls."""
    return audit_view(Audit((record,)), limits)


def tool_of(record: AuditRecord) -> str:
    """Format the tool of a call as people write it."""
    return record.tool.tool if record.tool.server in (SYNTHETIC, UNKNOWN) else str(record.tool)


def caller_of(record: AuditRecord) -> str:
    """Describe who made a call."""
    return "you" if record.caller == "person" else record.caller


def decided(permission: Permission | None) -> str:
    """Describe who decided about a call."""
    if permission is None:
        return ""
    if not permission.allowed:
        by = "you" if permission.by == "person" else "no one"
        return f"{by}: {words.quoted(permission.reason)}" if permission.reason else by
    match permission.by:
        case "policy":
            return f"policy: {permission.policy}"
        case "person":
            return {"tool": "you, for this tool", "server": "you, for this server"}.get(permission.scope, "you, once")
        case "remembered":
            return f"your earlier answer for this {permission.scope}"
        case "nobody":
            return "no one to ask"
        case "direct":
            return "you"
        case _:
            return permission.by


_COSTS_MORE = (
    "In a long conversation that keeps needing other tools, deferring costs more than it saves: each search is one more "
    "request, and what it found stays loaded. Load what most turns need: %mcp load SERVER. Or start over: %mcp new."
)


def budget_view(budget: Budget, limits: DisplayLimits) -> View:
    """Show the cost of turns now, and if every tool were loaded."""
    now, undeferred = budget.now, budget.undeferred
    rows = (
        ("First request, without a template's system prompt", *_pair(now.first_request, undeferred.first_request)),
        *([("Servers' instructions in it", *_pair(budget.instructions, budget.instructions))] if budget.instructions else []),
        ("A turn with one call", *_pair(now.turn, undeferred.turn)),
        (
            "Ten such turns, each searching for other tools" if budget.saved is not None else "Ten such turns",
            *_pair(now.ten_turns, undeferred.ten_turns),
        ),
    )
    more = now.ten_turns > undeferred.ten_turns
    note = "tokens in, estimated for a typical turn: the deferred tools are searched once a turn"
    table = Table(columns("", "Now #", "If every tool were loaded #"), rows)
    return View("budget", "Budget", (table, *((TextBlock(in_words_of(_COSTS_MORE)),) if more else ())), note=note)


def _pair(now: int, undeferred: int) -> tuple[str, str]:
    return f"≈ {now:,}", f"≈ {undeferred:,}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
