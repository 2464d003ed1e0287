"""Views for servers and their tools, for the records of calls, and for what turns cost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.base.elsewhere import Affected, Effect, SeenByHosts
from casual_mcp_nb.base.iterables import labelled
from casual_mcp_nb.base.schema import header_parameters
from casual_mcp_nb.base.status import (
    Manifest,
    Servers,
    ServerState,
    ServerStatus,
    Tools,
    ToolSets,
    not_connected,
)
from casual_mcp_nb.base.tokens import SEARCHING_TURNS, Budget, total_tokens
from casual_mcp_nb.base.tool import Permission, ToolSpec, for_models
from casual_mcp_nb.base.wire import Message, Messages, ServerLog
from casual_mcp_nb.conversation.audit import Audit, AuditRecord
from casual_mcp_nb.conversation.direct_calls import DirectCall, DirectCalls
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN
from casual_mcp_nb.conversation.view_calls import (
    call_view,
    outcome_of,
    status_of,
)
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    DisplayLimits,
    Fold,
    KeyValues,
    Line,
    Name,
    Section,
    Status,
    Table,
    Tags,
    TextBlock,
    View,
    columns,
    parameters,
    pretty,
)
from casual_mcp_nb.display.words import SUMMARY, first
from casual_mcp_nb.doors import in_words_of

STATES: dict[ServerState, Status] = {
    "ready": Status("✓ ready", "good"),
    "unlisted": Status("! tools not listed", "bad"),
    "starting": Status("… starting", "busy"),
    "failed": Status("✗ failed", "bad"),
    "closed": Status("○ closed", "quiet"),
}
_SERVER_COLUMNS = columns(
    "Server", "State", "Mode", "Tools #", "Tokens #", "Transport", "Startup time #"
)


def server_table(servers: Servers, limits: DisplayLimits) -> Table:
    """Build a table with one row per server."""
    visible = list(servers.items())[: limits.rows]
    rows = tuple(_server_row(status, servers.modes.get(name, "loaded")) for name, status in visible)
    return Table(_SERVER_COLUMNS, rows, len(servers) - len(rows))


def _server_row(status: ServerStatus, mode: str) -> tuple[Cell, ...]:
    tools, tokens = None, None
    if _listed(status):
        tools, tokens = status.tools, status.tokens
    return (
        Name(status.name),
        STATES[status.state],
        mode,
        words.number(tools),
        words.about(tokens, "estimated"),
        status.transport,
        words.seconds(status.seconds),
    )


def failures(servers: Servers, limits: DisplayLimits) -> tuple[Block, ...]:
    """Show why servers failed, with their last lines on stderr, folded, and who helps."""
    failed = [status for status in servers.values() if status.error or status.state == "failed"]
    visible = max(1, limits.rows // 5)
    blocks: list[Block] = []
    for status in failed[:visible]:
        blocks.append(failure(status.name, status.state, status.error, status.stderr_tail, limits))
    if len(failed) > visible:
        blocks.append(Section(f"{len(failed) - visible:,} more with an error", ()))
    if failed:
        blocks.append(Line(None, (in_words_of("To look for the cause: %mcp doctor"),)))
    return tuple(blocks)


def failure(
    server: str, state: ServerState, error: str | None, stderr: str | None, limits: DisplayLimits
) -> Section:
    """Show why one server failed. Folded are an error that is cut in the title, and the last lines
    on stderr that it does not quote.
    """
    error = error or "The server gave no reason."
    blocks = []
    if len(error) > limits.cell or "\n" in error:
        blocks.append(TextBlock(error))
    if stderr and words.one_line(stderr) not in words.one_line(error):
        blocks.append(TextBlock(stderr, label="End of stderr", code=True))
    return Section(
        server, tuple(blocks), mark=STATES[state], note=error, fold="closed" if blocks else None
    )


def servers_view(servers: Servers, limits: DisplayLimits) -> View:
    """Show all servers with their state, mode and tokens."""
    if not servers:
        return View("servers", "Servers", (TextBlock("None."),))
    notes = [words.count(len(servers), "server")]
    if any(map(_listed, servers.values())):
        tools = sum(status.tools for status in servers.values())
        tokens = total_tokens(servers.values())
        notes += [words.count(tools, "tool"), words.tokens(tokens, "estimated")]
    notes += unlisted_words(servers)
    blocks: tuple[Block, ...] = (server_table(servers, limits), *failures(servers, limits))
    return View("servers", "Servers", blocks, note=", ".join(notes))


def unlisted_words(servers: Servers) -> list[str]:
    """Say how many servers have not listed their tools, or may still do so, unless all have."""
    missing = 0
    for status in servers.values():
        if status.state != "failed" and not _listed(status):
            missing += 1
    if not missing:
        return []
    return [f"{words.count(missing, 'server')} without a list of tools yet"]


def server_view(status: ServerStatus, limits: DisplayLimits) -> View:
    """Show one server as a card."""
    blocks: list[Block] = [_server_facts(status)]
    if status.affected:
        note = words.count(len(status.affected), "finding")
        table = affected_table(status.affected, limits)
        blocks.append(
            Section("At providers and in other hosts", (table,), note=note, fold="closed")
        )
    if status.error:
        blocks.append(Section("Error", _trouble(status), fold="open"))
    elif status.stderr_tail:
        blocks.append(Section("Messages", _trouble(status), fold="closed"))
    if status.instructions:
        blocks.append(Section("Instructions", (TextBlock(status.instructions),), fold="closed"))
    return View("server", status.name, tuple(blocks), mark=STATES[status.state])


def _server_facts(status: ServerStatus) -> KeyValues:
    tools = freshness = startup = ""
    if _listed(status):
        price = words.tokens(status.tokens, "estimated")
        tools = f"{words.count(status.tools, 'tool')}, {price}"
    if status.list_seconds is not None:
        freshness = _freshness(status)
    if status.seconds is not None:
        startup = words.seconds(status.seconds)
    return known_facts(
        ("Tools", tools),
        ("Transport", status.transport or ""),
        ("Address", Name(status.address)),
        ("Version", status.version or ""),
        ("Capabilities", Tags(status.capabilities)),
        ("Extensions", Tags(status.extensions)),
        ("Protocol", protocol_words(status)),
        ("Tool list", freshness),
        ("Deprecated since 2026-07-28", Tags(status.deprecated)),
        ("Note", " ".join(status.notes)),
        ("Startup time", startup),
        ("Apps", first(", ".join(status.apps), 300)),
        ("For its own app only", _not_offered(status.app_only)),
        ("Runs only as a task", _not_offered(status.task_only)),
        ("Cannot be used", _with_reasons(status.left_out)),
        ("Not valid, so not used", _with_reasons(status.ignored)),
    )


def known_facts(*facts: tuple[str, Cell]) -> KeyValues:
    """Show facts, without those that are empty."""
    return KeyValues(tuple(fact for fact in facts if fact[1] not in _EMPTY))


_EMPTY: tuple[Cell, ...] = ("", Name(""), Tags(()))


def _not_offered(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"{first(', '.join(names), 300)} (not offered to the model)"


def _with_reasons(found: Mapping[str, str]) -> str:
    return first("; ".join(labelled(found.items())), 300)


_EFFECTS: Mapping[Effect, str] = {
    "left out": "leaves them out",
    "changed": "gets another schema",
    "cut": "reads a part of their description",
    "renamed": "reads another name",
}
_CUT_INSTRUCTIONS = "reads a part of the instructions"


def affected_table(found: Sequence[Affected], limits: DisplayLimits) -> Table:
    """Show which providers and hosts take tools only in part, or not at all."""
    heads = columns("Provider or host", "Effect", "Tools #", "Which", "Why")
    return Table.of(heads, found, _affected_row, limits.rows)


def _affected_row(affected: Affected) -> tuple[Cell, ...]:
    tools = affected.tools
    return (
        affected.where,
        _EFFECTS[affected.effect] if tools else _CUT_INSTRUCTIONS,
        words.number(len(tools)),
        first(", ".join(tools), 200),
        first(affected.reason, 300),
    )


def hosts_view(seen: SeenByHosts, limits: DisplayLimits) -> View:
    """Show what each host and provider makes of a server, what it changes, and the sources."""
    rows: list[tuple[Cell, ...]] = []
    sources: list[str] = []
    found: list[Affected] = []
    for host in seen:
        changes = words.number(len(host.affected)) if host.affected else "takes it as it is"
        models = ", ".join(host.models)
        rows.append((host.where, words.number(host.tools), changes, models, host.checked))
        found += host.affected
        sources += [f"{host.where}: {source}" for source in host.sources]
    titles = ("Host or provider", "Tools as they are #", "Findings", "Its models", "Checked")
    blocks: list[Block] = [Table(columns(*titles), tuple(rows))]
    if found:
        table = affected_table(found, limits)
        blocks.append(Section("Findings", (table,), note=words.count(len(found), "finding")))
    read = TextBlock("\n".join(sources), limit=limits.document)
    blocks.append(Section("Sources", (read,), fold="closed"))
    return View("hosts", f"How hosts see {seen.server}", tuple(blocks))


def protocol_words(status: ServerStatus) -> str:
    """Describe the version of the protocol, and how it was agreed on."""
    if not status.protocol_version:
        return ""
    way = {
        "discover": "agreed by server/discover",
        "handshake": "agreed by the initialize handshake",
    }.get(status.agreed)
    return ", ".join(filter(None, (status.protocol_version, way)))


def _freshness(status: ServerStatus) -> str:
    shared = ""
    if status.list_scope == "public":
        shared = ", also for other users"
    return f"used for {words.seconds(status.list_seconds)}, as the server asks{shared}"


def _listed(status: ServerStatus) -> bool:
    # A server that never answered has not said that it has no tools.
    return status.state in ("ready", "closed") or status.tools > 0


def _trouble(status: ServerStatus) -> tuple[Block, ...]:
    blocks = []
    if status.error or status.state == "failed":
        blocks.append(TextBlock(status.error or "The server gave no reason."))
    if status.stderr_tail:
        blocks.append(TextBlock(status.stderr_tail, label="End of stderr", code=True))
    return tuple(blocks)


_HEADERS = 12
_TOOL_COLUMNS = columns("Tool", "Mode", "Behaviour", "Tokens #", "Description")


def tools_view(tools: Tools, limits: DisplayLimits) -> View:
    """Show each server's tools with their cost."""
    groups = tools.catalog.by_server
    missing = _missing(tools)
    if not groups:
        return View("tools", "Tools", missing or (TextBlock("None."),))
    each = max(2, limits.rows // len(groups))
    fold: Fold = "open" if len(tools) <= limits.rows else "closed"
    visible = list(itertools.islice(groups.items(), limits.rows))
    blocks = [_server_section(tools, name, group, each, fold) for name, group in visible]
    if len(groups) > len(visible):
        blocks.append(Section(f"{words.count(len(groups) - len(visible), 'server')} more", ()))
    price = words.tokens(total_tokens(for_models(tools)), "estimated")
    note = f"{words.count(len(tools), 'tool')} of {words.count(len(groups), 'server')}, {price}"
    return View("tools", "Tools", (*missing, *blocks), note=note)


def _missing(tools: Tools) -> tuple[TextBlock, ...]:
    """Say which servers' tools are unknown, and why."""
    why = tools.catalog.why_incomplete()
    if why:
        return (*_unconnected(tools.unconnected), TextBlock(why))
    return _unconnected(tools.unconnected)


def _unconnected(servers: Sequence[str]) -> tuple[TextBlock, ...]:
    if servers:
        return (TextBlock(not_connected(servers)),)
    return ()


def _server_section(
    tools: Tools, server: str, group: Sequence[ToolSpec], limit: int, fold: Fold
) -> Section:
    rows = tuple(_tool_row(tools, tool) for tool in group[:limit])
    price = words.tokens(total_tokens(for_models(group)), "estimated")
    note = f"{words.count(len(group), 'tool')}, {price}"
    table = Table(_TOOL_COLUMNS, rows, len(group) - len(rows))
    return Section(server, (table,), note=note, fold=fold)


def _tool_row(tools: Tools, tool: ToolSpec) -> tuple[Cell, ...]:
    mode: str = tools.mode(tool)
    price = words.about(tool.tokens, "estimated")
    if tool.tool_name in tools.excluded:
        mode = "excluded by config"
    if tool.restriction:
        mode, price = tool.restriction, ""
    return (Name(tool.name), mode, behaviour(tool), price, first(tool.description, SUMMARY))


def behaviour(tool: ToolSpec) -> Tags:
    """Describe the tool's behaviour as the server claims it."""
    return Tags(tool.annotations.badges if tool.annotations else ())


def tool_view(tool: ToolSpec, limits: DisplayLimits) -> View:
    """Show one tool."""
    rows = parameters(tool.input_schema)
    facts: list[tuple[str, Cell]] = [("Name for the model", Name(tool.wire_name))]
    if tool.title:
        facts.append(("Title", tool.title))
    if tool.restriction is not None:
        facts.append(("For the model", f"never offered: {tool.restriction}"))
    if tool.app:
        facts.append(("App", Name(tool.app)))
    if behaviour(tool).words:
        facts.append(("Behaviour", behaviour(tool)))
    facts.append(("Tokens", words.tokens(tool.tokens, "estimated")))
    if headers := header_words(tool):
        facts.append(("In HTTP headers too", headers))
    table = Table(columns("Parameter", "Type", "Required", "Description"), rows)
    blocks: list[Block] = [
        KeyValues(tuple(facts)),
        Section("Description", (TextBlock(tool.description or "None."),)),
        Section("Parameters", (or_none(table),)),
        Section("Schema", (TextBlock(pretty(tool.input_schema), code=True),), fold="closed"),
    ]
    if tool.output_schema is not None:
        blocks.append(
            Section(
                "Result schema", (TextBlock(pretty(tool.output_schema), code=True),), fold="closed"
            )
        )
    return View("tool", str(tool.tool_name), tuple(blocks))


def header_words(tool: ToolSpec) -> str:
    """List the parameters whose values are repeated in HTTP headers, or return an empty text."""
    return words.listed(
        [f"{name} as {header}" for name, header in header_parameters(tool.input_schema).items()],
        _HEADERS,
    )


def manifest_view(manifest: Manifest, limits: DisplayLimits) -> View:
    """Show the manifest exactly as the model reads it, and its cost beside that of the full
    definitions.
    """
    unconnected = _unconnected(manifest.unconnected)
    if not manifest.text:
        none = TextBlock("Nothing is deferred, so there is no manifest.")
        return View("manifest", "Manifest", unconnected or (none,))
    finder = ""
    if manifest.finder_tokens:
        finder = words.tokens(manifest.finder_tokens, "estimated")
    price = known_facts(
        ("Manifest", words.tokens(manifest.tokens, "estimated")),
        ("search_tools itself", finder),
        ("Full definitions", words.tokens(manifest.undeferred_tokens, "estimated")),
    )
    text = TextBlock(manifest.text, code=True, limit=limits.document)
    blocks: tuple[Block, ...] = (
        *unconnected,
        price,
        Section("As the model reads it", (text,)),
    )
    return View("manifest", "Manifest", blocks, note=words.count(manifest.tools, "deferred tool"))


def tool_sets_view(tool_sets: ToolSets, limits: DisplayLimits) -> View:
    """Show the toolsets, the one in use, and the tools that each includes."""
    visible = list(itertools.islice(tool_sets.items(), limits.rows))
    rows = tuple(_tool_set_row(tool_sets, name, tool_set) for name, tool_set in visible)
    table = Table(
        columns("Toolset", "State", "Tools #", "Description", "Includes"),
        rows,
        len(tool_sets) - len(rows),
    )
    blocks: list[Block] = [*_unconnected(tool_sets.unconnected), or_none(table)]
    in_use = tool_sets.selected or "all tools"
    if tool_sets.problem:
        in_use = "none"
        blocks.insert(
            0,
            TextBlock(
                f"The selected toolset cannot be applied, so no turn can start. {tool_sets.problem}"
            ),
        )
    return View("toolsets", "Toolsets", tuple(blocks), note=f"in use: {in_use}")


def _tool_set_row(tool_sets: ToolSets, name: str, tool_set: ToolSetConfig) -> tuple[Cell, ...]:
    state: Cell = ""
    if name == tool_sets.selected:
        state = Status("● in use", "busy")
        if tool_sets.problem:
            state = Status("✗ does not fit", "bad")
    size = ""
    if not tool_sets.unconnected:
        size = words.number(tool_sets.sizes.get(name))
    return (Name(name), state, size, tool_set.description, rule_words(tool_set.servers))


def or_none(table: Table) -> Block:
    """Show a table, or that there is nothing to show."""
    if table.rows:
        return table
    return TextBlock("None.")


def rule_words(servers: Mapping[str, Any]) -> str:
    """Describe the tools that a toolset includes, such as `math: all; files: all but write_file;
    time: now`.
    """
    return "; ".join(f"{server}: {_rule(rule)}" for server, rule in servers.items()) or "nothing"


def _rule(rule: object) -> str:
    match rule:
        case True:
            return "all"
        case ExcludeSpec(exclude=names):
            return f"all but {', '.join(names)}"
        case tuple() | list():
            return ", ".join(rule) or "none"
        case _:
            return "none"


_DIGITS = 8
"""How many hash digits tell definitions apart."""


def log_view(log: ServerLog, limits: DisplayLimits) -> View:
    """Show a server's last log lines, the newest last."""
    lines = [
        f"{clock(line.at)} {line.level:7} {line.text}" for line in log.lines[-limits.rows * 4 :]
    ]
    before = log.dropped + len(log) - len(lines)
    note = words.count(len(log) + log.dropped, "line")
    if before:
        note = f"{note}, the last {len(lines):,} of them"
    text = "\n".join(lines) or "It has written nothing."
    # The last lines matter, and a text is cut at its end.
    return View(
        "log",
        f"Log: {log.server}",
        (TextBlock(text[-limits.document :], code=True, limit=limits.document),),
        note=note,
    )


def messages_view(messages: Messages, limits: DisplayLimits) -> View:
    """Show the last messages to and from a server, folded, the newest last."""
    visible = messages.messages[-limits.rows :]
    sections = tuple(map(_message_section, visible))
    note = ""
    if sections:
        note = f"→ sent, ← received, the last {len(visible):,}"
    return View(
        "messages", f"Messages of {messages.server}", sections or (TextBlock("None."),), note=note
    )


def _message_section(message: Message) -> Section:
    arrow = {"sent": "→", "received": "←"}[message.direction]
    return Section(
        f"{arrow} {message.method or 'message'}",
        (TextBlock(message.text, code=True),),
        note=" ".join(filter(None, [message.tool, clock(message.at)])),
        fold="closed",
    )


def direct_calls_view(calls: DirectCalls, limits: DisplayLimits) -> View:
    """Show the calls that the person made, the newest first."""
    heads = columns("Call", "At", "Tool", "By", "Arguments", "Status", "Time #")
    table = Table.of(heads, calls.calls, _direct_call_row, limits.rows)
    note = words.count(len(calls), "call")
    return View("direct-calls", "Your calls", (or_none(table),), note=note)


def _direct_call_row(call: DirectCall) -> tuple[Cell, ...]:
    by = "you"
    if call.caller == "app":
        by = "the app"
    return (
        call.id,
        clock(call.at),
        Name(str(call.call.tool)),
        by,
        pretty(call.call.arguments, indent=None),
        status_of(call.call),
        words.seconds(call.call.seconds),
    )


def direct_call_view(call: DirectCall, limits: DisplayLimits) -> View:
    """Show one call with its result."""
    return call_view(call.call, limits)


def audit_view(audit: Audit, limits: DisplayLimits) -> View:
    """Show a session's calls, the newest first."""
    visible = audit.records[::-1][: limits.rows]
    rows = tuple(map(_audit_row, visible))
    titles = (
        "At",
        "Tool",
        "Called by",
        "Decided by",
        "Outcome",
        "Time #",
        "Arguments #",
        "Result #",
        "Definition",
    )
    table = Table(columns(*titles), rows, len(audit) + audit.dropped - len(rows))
    note = words.count(len(audit) + audit.dropped, "call")
    if rows:
        note += ", newest first, with lengths in characters"
    return View("audit", "Calls so far", (or_none(table),), note=note)


def _audit_row(record: AuditRecord) -> tuple[Cell, ...]:
    seconds = definition = ""
    if record.seconds is not None:
        seconds = words.seconds(record.seconds)
    if record.permission is not None:
        definition = record.permission.definition[:_DIGITS]
    return (
        clock(record.at),
        Name(tool_of(record)),
        caller_of(record),
        decided(record.permission),
        outcome_of(record.status),
        seconds,
        f"{record.arguments_size:,}",
        f"{record.result_size:,}",
        Name(definition),
    )


def audit_record_view(record: AuditRecord, limits: DisplayLimits) -> View:
    """Show one call."""
    return audit_view(Audit((record,)), limits)


def tool_of(record: AuditRecord) -> str:
    """Format a call's tool as people write it."""
    if record.tool.server in (SYNTHETIC, UNKNOWN):
        return record.tool.tool
    return str(record.tool)


def caller_of(record: AuditRecord) -> str:
    """Describe who made a call."""
    return {"person": "you", "app": "the app"}.get(record.caller, record.caller)


def decided(permission: Permission | None) -> str:
    """Describe who decided about a call."""
    if permission is None:
        return ""
    if not permission.allowed:
        by = "no one"
        if permission.by == "person":
            by = "you"
        if permission.reason:
            by += f": {words.quoted(permission.reason)}"
        return by
    match permission.by:
        case "policy":
            return f"policy: {permission.policy}"
        case "person":
            return {"tool": "you, for this tool", "server": "you, for this server"}.get(
                permission.scope, "you, once"
            )
        case "remembered":
            return f"your earlier answer for this {permission.scope}"
        case "nobody":
            return "no one to ask"
        case "direct":
            return "you"
        case _:
            return permission.by


_COSTS_MORE = (
    "In a long conversation that keeps needing other tools, deferring costs more than it saves,"
    " because each search is an extra request and its results stay loaded. Load the tools that most"
    " turns need: %mcp load SERVER. Or start over: %mcp new."
)


_COSTS: tuple[str, ...] = ("Cost", "Now #", "Every tool loaded #")


def budget_view(budget: Budget, limits: DisplayLimits) -> View:
    """Show the cost of turns now, and if every tool were loaded: the typical case, and the
    worst.
    """
    return View("budget", "Budget", budget_blocks(budget), note="tokens in, estimated")


def budget_blocks(budget: Budget) -> tuple[Block, ...]:
    """Show the same without a heading."""
    now, undeferred = budget.now, budget.undeferred
    searches = budget.saved is not None
    turn, ten_turns, titles = "A turn with one call", "Ten turns", _COSTS
    if searches:
        turn = "A turn with one search and one call"
        ten_turns = f"Ten turns, {SEARCHING_TURNS} of them with a search"
        titles = (*_COSTS, "Difference #")
    rows = [
        ("Tool definitions", now.definitions, undeferred.definitions),
        (
            "First request: system prompt and tool definitions",
            now.first_request,
            undeferred.first_request,
        ),
    ]
    if budget.instructions:
        rows.append(("Servers' instructions in it", budget.instructions, budget.instructions))
    rows += [
        (turn, now.turn, undeferred.turn),
        (ten_turns, now.ten_turns, undeferred.ten_turns),
        (
            "New in these; a provider's cache can hold the rest",
            now.ten_turns_new,
            undeferred.ten_turns_new,
        ),
    ]
    if searches:
        worst = "At worst: each of the ten searches for other tools"
        rows.append((worst, now.ten_turns_worst, undeferred.ten_turns_worst))
    cells = []
    for label, here, loaded in rows:
        row = (label, f"≈ {here:,}", f"≈ {loaded:,}", words.difference(here, loaded))
        cells.append(row[: len(titles)])
    blocks: list[Block] = [Table(columns(*titles), tuple(cells))]
    if searches and now.ten_turns > undeferred.ten_turns:
        blocks.append(TextBlock(in_words_of(_COSTS_MORE)))
    return tuple(blocks)


def clock(at: float) -> str:
    """Format a time in seconds since 1970 as the time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))
