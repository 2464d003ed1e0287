"""Views of servers: one as a card, several as a table."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.text import first
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Name,
    Section,
    Status,
    Table,
    Tags,
    TextBlock,
    View,
    columns,
)
from casual_mcp_nb.types.session import Servers, ServerState, ServerStatus

STATES: dict[ServerState, Status] = {
    "ready": Status("✓ ready", "good"),
    "unlisted": Status("! tools not listed", "bad"),
    "starting": Status("… starting", "busy"),
    "failed": Status("✗ failed", "bad"),
    "closed": Status("○ closed", "quiet"),
}
_COLUMNS = columns("Server", "State", "Mode", "Tools #", "Tokens #", "Transport", "Startup time #")


def server_table(servers: Servers, limits: DisplayLimits) -> Table:
    """Build a table with a row for each server."""
    visible = list(servers.items())[: limits.rows]
    rows = tuple(_row(status, servers.modes.get(name, "loaded")) for name, status in visible)
    return Table(_COLUMNS, rows, len(servers) - len(rows))


def failures(servers: Servers, limits: DisplayLimits) -> tuple[Section, ...]:
    """Show why servers failed, with the end of their stderr, folded."""
    failed = [status for status in servers.values() if status.error or status.state == "failed"]
    visible = max(1, limits.rows // 5)
    sections = [
        Section(
            status.name,
            () if _is_short(status) else _trouble(status),
            mark=STATES[status.state],
            note=status.error or "",
            fold=None if _is_short(status) else "closed",
        )
        for status in failed[:visible]
    ]
    if len(failed) > visible:
        sections.append(Section(f"{len(failed) - visible:,} more with an error", ()))
    return tuple(sections)


def servers_view(servers: Servers, limits: DisplayLimits) -> View:
    """Show all servers with their state, mode and tokens."""
    if not servers:
        return View("servers", "Servers", (TextBlock("None."),))
    tools = sum(status.tools for status in servers.values())
    price = words.tokens(sum(status.tokens for status in servers.values()), "estimated")
    note = f"{words.count(len(servers), 'server')}, {words.count(tools, 'tool')}, {price}"
    return View("servers", "Servers", (server_table(servers, limits), *failures(servers, limits)), note=note)


def server_view(status: ServerStatus, limits: DisplayLimits) -> View:
    """Show one server as a card."""
    facts: list[tuple[str, Cell]] = [
        *([("Tools", _offer(status))] if _listed(status) else []),
        *([("Transport", status.transport)] if status.transport else []),
        *([("Address", Name(status.address))] if status.address else []),
        *([("Version", status.version)] if status.version else []),
        *([("Capabilities", Tags(status.capabilities))] if status.capabilities else []),
        *([("Extensions", Tags(status.extensions))] if status.extensions else []),
        *([("Protocol", status.protocol_version)] if status.protocol_version else []),
        *([("Note", " ".join(status.notes))] if status.notes else []),
        *([("Startup time", words.seconds(status.seconds))] if status.seconds is not None else []),
    ]
    reserved = {"For its own app only": status.app_only, "Runs only as a task": status.task_only}
    facts += [
        (title, f"{first(', '.join(names), 300)} (not offered to the model)") for title, names in reserved.items() if names
    ]
    if status.left_out:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in status.left_out.items())
        facts.append(("Cannot be used", first(reasons, 300)))
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if status.error or status.stderr_tail:
        blocks.append(
            Section("Error" if status.error else "Messages", _trouble(status), fold="open" if status.error else "closed")
        )
    if status.instructions:
        blocks.append(Section("Instructions", (TextBlock(status.instructions),), fold="closed"))
    return View("server", status.name, tuple(blocks), mark=STATES[status.state])


def _row(status: ServerStatus, mode: str) -> tuple[Cell, ...]:
    return (
        Name(status.name),
        STATES[status.state],
        mode,
        words.number(status.tools if _listed(status) else None),
        words.about(status.tokens if _listed(status) else None, "estimated"),
        status.transport,
        words.seconds(status.seconds),
    )


def _offer(status: ServerStatus) -> str:
    return f"{words.count(status.tools, 'tool')}, {words.tokens(status.tokens, 'estimated')}"


def _listed(status: ServerStatus) -> bool:
    # A server that never answered has not said that it has no tools.
    return status.state in ("ready", "closed") or status.tools > 0


def _is_short(status: ServerStatus) -> bool:
    """Check whether the line of a failed server has every known detail, so that there is nothing to unfold."""
    return bool(status.error) and not status.stderr_tail and len(status.error or "") <= 100 and "\n" not in (status.error or "")


def _trouble(status: ServerStatus) -> tuple[Block, ...]:
    failed = status.error or status.state == "failed"
    reason: tuple[Block, ...] = (TextBlock(status.error or "The server gave no reason."),) if failed else ()
    return (*reason, TextBlock(status.stderr_tail, label="End of stderr", code=True)) if status.stderr_tail else reason
