"""The view of the cost of an MCP host's config."""

from __future__ import annotations

from collections.abc import Sequence

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.servers import STATES
from casual_mcp_nb.display.session import turn_section
from casual_mcp_nb.display.tokens import saving_row
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Name,
    Section,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
)
from casual_mcp_nb.types.host_audit import HostAudit, ServerTokens


def host_audit_view(audit: HostAudit, limits: DisplayLimits) -> View:
    """Show the cost of each server and each tool, and the saving by deferring."""
    tools = sum(len(server.tools) for server in audit)
    blocks: list[Block] = [TextBlock("None.")] if not audit.servers else []
    if tools:
        blocks.append(KeyValues(_price(audit)))
    blocks += [_servers(audit, limits)] if audit.servers else []
    blocks += turn_section(audit.budget)
    blocks += [_trouble(server) for server in audit.failed[: limits.rows]]
    each = max(2, limits.rows // max(len(audit.servers), 1))
    blocks += [_tools(server, audit.tokens, each) for server in audit.servers[: limits.rows] if server.tools]
    if audit.notes:
        blocks.append(Section("Notes", (TextBlock("\n".join(audit.notes[: limits.rows])),)))
    note = f"{words.count(len(audit), 'server')}, {words.count(tools, 'tool')}, {words.tokens(audit.tokens, 'estimated')}"
    return View("host-audit", f"Cost of {audit.source}", tuple(blocks), note=note)


def _price(audit: HostAudit) -> tuple[tuple[str, Cell], ...]:
    instructions = sum(server.instructions for server in audit)
    return (
        ("Sent with every request", words.tokens(audit.tokens, "estimated")),
        ("If every tool were deferred", words.tokens(audit.deferred_tokens, "estimated")),
        *saving_row(audit.deferred_tokens, audit.tokens),
        *((("Instructions of servers", words.tokens(instructions, "estimated")),) if instructions else ()),
    )


def _servers(audit: HostAudit, limits: DisplayLimits) -> Table:
    shown: Sequence[ServerTokens] = audit.servers[: limits.rows]
    rows = tuple(
        (
            Name(server.server),
            STATES[server.state],
            words.number(None if server.error else len(server.tools)),
            "" if server.error else Bar(words.about(server.tokens, "estimated"), fraction(server.tokens, audit.tokens)),
            "" if server.error or not audit.tokens else words.percent(server.tokens / audit.tokens),
        )
        for server in shown
    )
    return Table(columns("Server", "State", "Tools #", "Tokens", "Share #"), rows, len(audit) - len(rows))


def _trouble(server: ServerTokens) -> Section:
    return Section(server.server, (), mark=STATES[server.state], note=server.error or "")


def _tools(server: ServerTokens, total: int, limit: int) -> Section:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (Name(each.tool.tool), Bar(words.about(each.tokens, "estimated"), fraction(each.tokens, total)))
        for each in server.tools[:limit]
    )
    left_out = (TextBlock("\n".join(f"{name}: {why}" for name, why in server.left_out.items()), label="Cannot be used"),)
    note = f"{words.count(len(server.tools), 'tool')}, {words.tokens(server.tokens, 'estimated')}"
    table = Table(columns("Tool", "Tokens"), rows, len(server.tools) - len(rows))
    return Section(server.server, (table, *(left_out if server.left_out else ())), note=note, fold="closed")
