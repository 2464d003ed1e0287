"""Views for servers, tools, call records, resources and prompts."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from casual_mcp_nb.base.config import ExcludeSpec
from casual_mcp_nb.base.content import ContentPart, media_type_of
from casual_mcp_nb.base.elsewhere import Affected, Effect
from casual_mcp_nb.base.mcp import (
    Account,
    Accounts,
    Completions,
    Messages,
    PromptMessages,
    Prompts,
    Resource,
    ResourceContents,
    Resources,
    ServerLog,
    ServerPrompt,
    Skill,
    SkillContents,
    Skills,
    Subscription,
    Subscriptions,
    is_json,
)
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
from casual_mcp_nb.base.tokens import SEARCHING_TURNS, Budget
from casual_mcp_nb.base.tool import Permission, ToolSpec
from casual_mcp_nb.conversation.audit import Audit, AuditRecord, DirectCall, DirectCalls
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN
from casual_mcp_nb.conversation.view_calls import (
    ImageBudget,
    call_view,
    content_block,
    outcome_of,
    status_of,
    structured_blocks,
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
from casual_mcp_nb.display.words import SUMMARY, first, prompt_code, read_code
from casual_mcp_nb.doors import in_words_of

STATES: dict[ServerState, Status] = {
    "ready": Status("✓ ready", "good"),
    "unlisted": Status("! tools not listed", "bad"),
    "starting": Status("… starting", "busy"),
    "failed": Status("✗ failed", "bad"),
    "closed": Status("○ closed", "quiet"),
}
_COLUMNS: Mapping[str, Callable[[ServerStatus, str], Cell]] = {
    "Server": lambda status, _: Name(status.name),
    "State": lambda status, _: STATES[status.state],
    "Mode": lambda _, mode: mode,
    "Tools #": lambda status, _: words.number(status.tools if _listed(status) else None),
    "Tokens #": lambda status, _: words.about(
        status.tokens if _listed(status) else None, "estimated"
    ),
    "Transport": lambda status, _: status.transport,
    "Startup time #": lambda status, _: words.seconds(status.seconds),
}


def server_table(servers: Servers, limits: DisplayLimits) -> Table:
    """Build a table with one row per server."""
    visible = list(servers.items())[: limits.rows]
    rows = tuple(
        tuple(cell(status, servers.modes.get(name, "loaded")) for cell in _COLUMNS.values())
        for name, status in visible
    )
    return Table(columns(*_COLUMNS), rows, len(servers) - len(rows))


def failures(servers: Servers, limits: DisplayLimits) -> tuple[Section, ...]:
    """Show why servers failed, with their last lines on stderr, folded."""
    failed = [status for status in servers.values() if status.error or status.state == "failed"]
    visible = max(1, limits.rows // 5)
    sections = [
        failure(status.name, status.state, status.error, status.stderr_tail)
        for status in failed[:visible]
    ]
    if len(failed) > visible:
        sections.append(Section(f"{len(failed) - visible:,} more with an error", ()))
    return tuple(sections)


def failure(server: str, state: ServerState, error: str | None, stderr: str | None) -> Section:
    """Show why one server failed. A long error, and the last lines on stderr, are folded."""
    error = error or "The server gave no reason."
    blocks = [TextBlock(error)] if len(error) > 100 or "\n" in error else []
    blocks += [TextBlock(stderr, label="End of stderr", code=True)] if stderr else []
    return Section(
        server, tuple(blocks), mark=STATES[state], note=error, fold="closed" if blocks else None
    )


def servers_view(servers: Servers, limits: DisplayLimits) -> View:
    """Show all servers with their state, mode and tokens."""
    if not servers:
        return View("servers", "Servers", (TextBlock("None."),))
    tools = sum(status.tools for status in servers.values())
    price = words.tokens(sum(status.tokens for status in servers.values()), "estimated")
    listed = [words.count(tools, "tool"), price] if any(map(_listed, servers.values())) else []
    note = ", ".join([words.count(len(servers), "server"), *listed, *unlisted_words(servers)])
    return View(
        "servers", "Servers", (server_table(servers, limits), *failures(servers, limits)), note=note
    )


def unlisted_words(servers: Servers) -> list[str]:
    """Say how many servers have not listed their tools, or may still do so, unless all have."""
    missing = sum(not _listed(status) and status.state != "failed" for status in servers.values())
    return [f"{words.count(missing, 'server')} without a list of tools yet"] if missing else []


def server_view(status: ServerStatus, limits: DisplayLimits) -> View:
    """Show one server as a card."""
    price = words.tokens(status.tokens, "estimated")
    facts: list[tuple[str, Cell]] = [
        *([("Tools", f"{words.count(status.tools, 'tool')}, {price}")] if _listed(status) else []),
        *([("Transport", status.transport)] if status.transport else []),
        *([("Address", Name(status.address))] if status.address else []),
        *([("Version", status.version)] if status.version else []),
        *([("Capabilities", Tags(status.capabilities))] if status.capabilities else []),
        *([("Extensions", Tags(status.extensions))] if status.extensions else []),
        *([("Protocol", protocol_words(status))] if status.protocol_version else []),
        *([("Tool list", _freshness(status))] if status.list_seconds is not None else []),
        *([("Deprecated since 2026-07-28", Tags(status.deprecated))] if status.deprecated else []),
        *([("Note", " ".join(status.notes))] if status.notes else []),
        *([("Startup time", words.seconds(status.seconds))] if status.seconds is not None else []),
    ]
    if status.apps:
        facts.append(("Apps", first(", ".join(status.apps), 300)))
    reserved = {"For its own app only": status.app_only, "Runs only as a task": status.task_only}
    facts += [
        (title, f"{first(', '.join(names), 300)} (not offered to the model)")
        for title, names in reserved.items()
        if names
    ]
    if status.left_out:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in status.left_out.items())
        facts.append(("Cannot be used", first(reasons, 300)))
    if status.ignored:
        fields = "; ".join(f"{place}: {reason}" for place, reason in status.ignored.items())
        facts.append(("Not valid, so not used", first(fields, 300)))
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if status.affected:
        note = words.count(len(status.affected), "finding")
        table = affected_table(status.affected, limits)
        blocks.append(
            Section("At providers and in other hosts", (table,), note=note, fold="closed")
        )
    if status.error or status.stderr_tail:
        blocks.append(
            Section(
                "Error" if status.error else "Messages",
                _trouble(status),
                fold="open" if status.error else "closed",
            )
        )
    if status.instructions:
        blocks.append(Section("Instructions", (TextBlock(status.instructions),), fold="closed"))
    return View("server", status.name, tuple(blocks), mark=STATES[status.state])


_EFFECTS: Mapping[Effect, str] = {
    "left out": "leaves them out",
    "changed": "gets another schema",
    "cut": "reads a part of their description",
}


def affected_table(found: Sequence[Affected], limits: DisplayLimits) -> Table:
    """Show which providers and hosts take tools only in part, or not at all."""
    rows = tuple(
        (
            each.where,
            _EFFECTS[each.effect],
            words.number(len(each.tools)),
            first(", ".join(each.tools), 200),
            first(each.reason, 300),
        )
        for each in found[: limits.rows]
    )
    return Table(
        columns("Provider or host", "Effect", "Tools #", "Which", "Why"),
        rows,
        len(found) - len(rows),
    )


def protocol_words(status: ServerStatus) -> str:
    """Describe the version of the protocol, and how it was agreed on."""
    way = {
        "discover": "agreed by server/discover",
        "handshake": "agreed by the initialize handshake",
    }.get(status.agreed)
    return ", ".join(filter(None, (status.protocol_version, way)))


def _freshness(status: ServerStatus) -> str:
    shared = ", also for other users" if status.list_scope == "public" else ""
    return f"used for {words.seconds(status.list_seconds)}, as the server asks{shared}"


def _listed(status: ServerStatus) -> bool:
    # A server that never answered has not said that it has no tools.
    return status.state in ("ready", "closed") or status.tools > 0


def _trouble(status: ServerStatus) -> tuple[Block, ...]:
    failed = status.error or status.state == "failed"
    reason: tuple[Block, ...] = (
        (TextBlock(status.error or "The server gave no reason."),) if failed else ()
    )
    return (
        (*reason, TextBlock(status.stderr_tail, label="End of stderr", code=True))
        if status.stderr_tail
        else reason
    )


_HEADERS = 12
_TOOL_COLUMNS = columns("Tool", "Mode", "Behaviour", "Tokens #", "Description")


def tools_view(tools: Tools, limits: DisplayLimits) -> View:
    """Show each server's tools with their cost."""
    groups = tools.catalog.by_server
    unconnected = _unconnected(tools.unconnected)
    if not groups:
        return View("tools", "Tools", unconnected or (TextBlock("None."),))
    each = max(2, limits.rows // len(groups))
    fold: Fold = "open" if len(tools) <= limits.rows else "closed"
    visible = list(itertools.islice(groups.items(), limits.rows))
    blocks = [_server_section(tools, name, group, each, fold) for name, group in visible]
    if len(groups) > len(visible):
        blocks.append(Section(f"{words.count(len(groups) - len(visible), 'server')} more", ()))
    price = words.tokens(_price(tools), "estimated")
    note = f"{words.count(len(tools), 'tool')} of {words.count(len(groups), 'server')}, {price}"
    return View("tools", "Tools", (*unconnected, *blocks), note=note)


def _unconnected(servers: Sequence[str]) -> tuple[TextBlock, ...]:
    return (TextBlock(not_connected(servers)),) if servers else ()


def _server_section(
    tools: Tools, server: str, group: Sequence[ToolSpec], limit: int, fold: Fold
) -> Section:
    rows = tuple(
        (
            Name(tool.name),
            tool.restriction
            or ("excluded by config" if tool.tool_name in tools.excluded else tools.mode(tool)),
            behaviour(tool),
            "" if tool.restriction else words.about(tool.tokens, "estimated"),
            first(tool.description, SUMMARY),
        )
        for tool in group[:limit]
    )
    note = f"{words.count(len(group), 'tool')}, {words.tokens(_price(group), 'estimated')}"
    return Section(
        server, (Table(_TOOL_COLUMNS, rows, len(group) - len(rows)),), note=note, fold=fold
    )


def _price(tools: Iterable[ToolSpec]) -> int:
    return sum(tool.tokens for tool in tools if tool.restriction is None)


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
        Section("Parameters", (table if rows else TextBlock("None."),)),
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
        return View(
            "manifest",
            "Manifest",
            unconnected or (TextBlock("Nothing is deferred, so there is no manifest."),),
        )
    finder = (
        (("search_tools itself", words.tokens(manifest.finder_tokens, "estimated")),)
        if manifest.finder_tokens
        else ()
    )
    price = (
        ("Manifest", words.tokens(manifest.tokens, "estimated")),
        *finder,
        ("Full definitions", words.tokens(manifest.undeferred_tokens, "estimated")),
    )
    text = TextBlock(manifest.text, code=True, limit=limits.document)
    blocks: tuple[Block, ...] = (
        *unconnected,
        KeyValues(price),
        Section("As the model reads it", (text,)),
    )
    return View("manifest", "Manifest", blocks, note=words.count(manifest.tools, "deferred tool"))


def tool_sets_view(tool_sets: ToolSets, limits: DisplayLimits) -> View:
    """Show the toolsets, the one in use, and the tools that each includes."""
    mark = Status("✗ does not fit", "bad") if tool_sets.problem else Status("● in use", "busy")
    rows: list[tuple[Cell, ...]] = [
        (
            Name(name),
            mark if name == tool_sets.selected else "",
            "" if tool_sets.unconnected else words.number(tool_sets.sizes.get(name)),
            tool_set.description,
            rule_words(tool_set.servers),
        )
        for name, tool_set in itertools.islice(tool_sets.items(), limits.rows)
    ]
    table = Table(
        columns("Toolset", "State", "Tools #", "Description", "Includes"),
        tuple(rows),
        len(tool_sets) - len(rows),
    )
    blocks: list[Block] = [
        *_unconnected(tool_sets.unconnected),
        table if rows else TextBlock("None."),
    ]
    if tool_sets.problem:
        blocks.insert(
            0,
            TextBlock(
                f"The selected toolset cannot be applied, so no turn can start. {tool_sets.problem}"
            ),
        )
    in_use = (
        "none"
        if tool_sets.problem
        else "all tools"
        if tool_sets.selected is None
        else tool_sets.selected
    )
    return View("toolsets", "Toolsets", tuple(blocks), note=f"in use: {in_use}")


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
    sections = tuple(
        Section(
            f"{'→' if message.direction == 'sent' else '←'} {message.method or 'message'}",
            (TextBlock(message.text, code=True),),
            note=" ".join(filter(None, [message.tool, clock(message.at)])),
            fold="closed",
        )
        for message in visible
    )
    note = f"→ sent, ← received, the last {len(visible):,}" if visible else ""
    return View(
        "messages", f"Messages of {messages.server}", sections or (TextBlock("None."),), note=note
    )


def direct_calls_view(calls: DirectCalls, limits: DisplayLimits) -> View:
    """Show the calls that the person made, the newest first."""
    rows = tuple(
        (
            call.id,
            clock(call.at),
            Name(str(call.call.tool)),
            "the app" if call.caller == "app" else "you",
            pretty(call.call.arguments, indent=None),
            status_of(call.call),
            words.seconds(call.call.seconds),
        )
        for call in calls.calls[: limits.rows]
    )
    table = Table(
        columns("Call", "At", "Tool", "By", "Arguments", "Status", "Time #"),
        rows,
        len(calls) - len(rows),
    )
    note = words.count(len(calls), "call")
    return View("direct-calls", "Your calls", (table if rows else TextBlock("None."),), note=note)


def direct_call_view(call: DirectCall, limits: DisplayLimits) -> View:
    """Show one call with its result."""
    return call_view(call.call, limits)


def audit_view(audit: Audit, limits: DisplayLimits) -> View:
    """Show a session's calls, the newest first."""
    visible = audit.records[::-1][: limits.rows]
    rows = tuple(
        (
            clock(record.at),
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
    return View("audit", "Calls so far", (table if rows else TextBlock("None."),), note=note)


def audit_record_view(record: AuditRecord, limits: DisplayLimits) -> View:
    """Show one call."""
    return audit_view(Audit((record,)), limits)


def tool_of(record: AuditRecord) -> str:
    """Format a call's tool as people write it."""
    return record.tool.tool if record.tool.server in (SYNTHETIC, UNKNOWN) else str(record.tool)


def caller_of(record: AuditRecord) -> str:
    """Describe who made a call."""
    return {"person": "you", "app": "the app"}.get(record.caller, record.caller)


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


def budget_view(budget: Budget, limits: DisplayLimits) -> View:
    """Show the cost of turns now, and if every tool were loaded: the typical case, and the
    worst.
    """
    return View("budget", "Budget", budget_blocks(budget), note="tokens in, estimated")


def budget_blocks(budget: Budget) -> tuple[Block, ...]:
    """Show the same without a heading."""
    now, undeferred, searches = budget.now, budget.undeferred, budget.saved is not None
    rows = [
        ("Tool definitions", now.definitions, undeferred.definitions),
        (
            "First request: system prompt and tool definitions",
            now.first_request,
            undeferred.first_request,
        ),
        *(
            [("Servers' instructions in it", budget.instructions, budget.instructions)]
            if budget.instructions
            else []
        ),
        (
            "A turn with one search and one call" if searches else "A turn with one call",
            now.turn,
            undeferred.turn,
        ),
        (
            f"Ten turns, {SEARCHING_TURNS} of them with a search" if searches else "Ten turns",
            now.ten_turns,
            undeferred.ten_turns,
        ),
        (
            "New in these; a provider's cache can hold the rest",
            now.ten_turns_new,
            undeferred.ten_turns_new,
        ),
    ]
    if searches:
        rows.append(
            (
                "At worst: each of the ten searches for other tools",
                now.ten_turns_worst,
                undeferred.ten_turns_worst,
            )
        )
    cells = tuple(
        (label, *(f"≈ {cost:,}" for cost in costs), words.difference(*costs))
        for label, *costs in rows
    )
    titles = ("Cost", "Now #", "Every tool loaded #", *(["Difference #"] if searches else []))
    table = Table(columns(*titles), tuple(row[: len(titles)] for row in cells))
    more = searches and now.ten_turns > undeferred.ten_turns
    return (table, *((TextBlock(in_words_of(_COSTS_MORE)),) if more else ()))


def clock(at: float) -> str:
    """Format a time in seconds since 1970 as the time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


_SUMMARY = 80
_RESOURCE_COLUMNS = columns("Resource", "Type", "Size #", "Description")
_PROMPT_COLUMNS = columns("Prompt", "Arguments", "Description")
_SUBSCRIPTION_COLUMNS = columns("Resource", "Server", "Changes #", "Last change", "State")


def resources_view(resources: Resources, limits: DisplayLimits) -> View:
    """Show each server's resources. Templates are marked, with their parameters."""
    templates = sum(resource.is_template for resource in resources)
    counts = [
        words.count(len(resources) - templates, "resource"),
        *([words.count(templates, "template")] if templates else []),
    ]
    sections = _sections(
        resources.by_server, limits, lambda group, rows: _resource_table(group[:rows], len(group))
    )
    return _listing("resources", "Resources", resources, sections, ", ".join(counts))


def prompts_view(prompts: Prompts, limits: DisplayLimits) -> View:
    """Show each server's prompts, with their arguments."""

    def table(group: Sequence[ServerPrompt], rows: int) -> Table:
        cells = tuple(
            (
                Name(prompt.name),
                ", ".join(
                    argument.name if argument.required else f"[{argument.name}]"
                    for argument in prompt.arguments
                ),
                first(prompt.description or prompt.title, _SUMMARY),
            )
            for prompt in group[:rows]
        )
        return Table(_PROMPT_COLUMNS, cells, len(group) - len(cells))

    sections = _sections(prompts.by_server, limits, table)
    return _listing("prompts", "Prompts", prompts, sections, words.count(len(prompts), "prompt"))


def skills_view(skills: Skills, limits: DisplayLimits) -> View:
    """Show each server's skills, with the tokens that reading one takes."""

    def table(group: Sequence[Skill], rows: int) -> Table:
        cells = tuple(
            (
                Name(skill.name),
                "" if skill.tokens is None else f"≈ {skill.tokens:,}",
                f"{len(skill.files):,}" if skill.files else "",
                first(skill.description, _SUMMARY),
            )
            for skill in group[:rows]
        )
        return Table(
            columns("Skill", "Tokens #", "Files #", "What it is for"),
            cells,
            len(group) - len(cells),
        )

    sections = _sections(skills.by_server, limits, table)
    return _listing("skills", "Skills", skills, sections, words.count(len(skills), "skill"))


def skill_view(skill: Skill, limits: DisplayLimits) -> View:
    """Show one skill as a card, with its files."""
    tokens = "" if skill.tokens is None else f"≈ {skill.tokens:,}"
    facts: list[tuple[str, Cell]] = [
        ("Server", skill.server),
        ("URI", Name(skill.uri)),
        ("Tokens", tokens),
    ]
    facts += [("License", skill.license), ("Needs", skill.compatibility)]
    cells = tuple(
        (Name(file.path), words.size(file.size), Name(file.digest[7:19]))
        for file in skill.files[: limits.rows]
    )
    files = Table(columns("File", "Size #", "SHA-256"), cells, len(skill.files) - len(cells))
    code = f'session.resources.skills.read("{skill.server}:{skill.name}")'
    blocks: list[Block] = [
        TextBlock(skill.description),
        KeyValues(tuple((name, value) for name, value in facts if value)),
    ]
    blocks.append(
        files
        if cells
        else TextBlock("It is generated when it is read, so there is no digest to check.")
    )
    return View("skill", skill.name, (*blocks, TextBlock(code, label="Read it", code=True)))


def skill_contents_view(contents: SkillContents, limits: DisplayLimits) -> View:
    """Show a file of a skill, and whether its digest was checked."""
    checked = "digest checked" if contents.checked else "no digest to check"
    if contents.changed:
        checked = "changed by the server since it was first listed, with its digest"
    size = (
        words.tokens(contents.tokens, "estimated")
        if contents.data is None
        else words.size(contents.size)
    )
    note = ", ".join([f"from {contents.server}", size, checked])
    text = contents.text if contents.data is None else f"{words.size(contents.size)} of binary data"
    others = (
        (KeyValues((("Other files", words.listed(contents.others, limits.rows)),)),)
        if contents.others
        else ()
    )
    blocks = (TextBlock(text, code=True, limit=limits.document), *others)
    return View("skill-contents", f"{contents.name}: {contents.path}", blocks, note=note)


def resource_view(resource: Resource, limits: DisplayLimits) -> View:
    """Show one resource as a card."""
    facts: list[tuple[str, Cell]] = [
        ("Server", resource.server),
        ("Template" if resource.is_template else "URI", Name(resource.uri)),
    ]
    if resource.parameters:
        facts.append(("Parameters", ", ".join(resource.parameters)))
    facts += [("Type", resource.mime_type)] if resource.mime_type else []
    facts += [("Size", words.size(resource.size))] if resource.size is not None else []
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if resource.description:
        blocks.insert(0, TextBlock(resource.description))
    blocks.append(
        TextBlock(
            read_code(resource.uri, resource.server, resource.parameters or ()),
            label="Read it",
            code=True,
        )
    )
    return View("resource", resource.title or resource.name, tuple(blocks))


def prompt_view(prompt: ServerPrompt, limits: DisplayLimits) -> View:
    """Show one prompt as a card."""
    rows = tuple(
        (Name(argument.name), "required" if argument.required else "optional", argument.description)
        for argument in prompt.arguments
    )
    table = Table(columns("Argument", "", "Description"), rows)
    blocks: list[Block] = [TextBlock(prompt.description)] if prompt.description else []
    blocks.append(table if rows else TextBlock("No arguments."))
    code = prompt_code(prompt.server, prompt.name, [argument.name for argument in prompt.arguments])
    blocks.append(TextBlock(code, label="Get it", code=True))
    return View(
        "server-prompt",
        prompt.title or prompt.name,
        tuple(blocks),
        note=f"prompt of {prompt.server}",
    )


def contents_view(contents: ResourceContents, limits: DisplayLimits) -> View:
    """Show a resource's contents by type: text, JSON, a picture, or only type and size for other
    bytes.
    """
    images = ImageBudget(limits.images)
    blocks = [
        block
        for part in contents.parts
        for block in _part_blocks(part, contents.server, limits, images)
    ]
    size = words.tokens(contents.tokens, "estimated") if contents.text else ""
    note = ", ".join(filter(None, [f"from {contents.server}", size]))
    return View("contents", contents.uri, tuple(blocks) or (TextBlock("It is empty."),), note=note)


def prompt_messages_view(messages: PromptMessages, limits: DisplayLimits) -> View:
    """Show a prompt's messages, each with its role."""
    images = ImageBudget(limits.images)
    sections = tuple(
        Section(message.role, tuple(_part_blocks(message.content, messages.server, limits, images)))
        for message in messages.messages
    )
    note = ", ".join([f"from {messages.server}", words.tokens(messages.tokens, "estimated")])
    return View(
        "prompt-messages", messages.name, sections or (TextBlock("It has no messages."),), note=note
    )


def completions_view(completions: Completions, limits: DisplayLimits) -> View:
    """Show a server's suggestions for an argument."""
    note = words.count(completions.total, "suggestion") if completions.total is not None else ""
    text = "\n".join(completions.values[: limits.rows])
    more = len(completions) > limits.rows or completions.more
    blocks = [
        TextBlock(text, code=True) if text else TextBlock("None."),
        *([TextBlock("There are more.")] if more else []),
    ]
    return View("completions", "Suggestions", tuple(blocks), note=note)


def subscriptions_view(subscriptions: Subscriptions, limits: DisplayLimits) -> View:
    """Show the resources whose changes servers report."""
    rows = tuple(map(_subscription_row, subscriptions.subscriptions[: limits.rows]))
    table = Table(_SUBSCRIPTION_COLUMNS, rows, len(subscriptions) - len(rows))
    return View("subscriptions", "Subscriptions", (table,) if rows else _none())


def subscription_view(subscription: Subscription, limits: DisplayLimits) -> View:
    """Show one subscription."""
    return View(
        "subscriptions",
        "Subscription",
        (Table(_SUBSCRIPTION_COLUMNS, (_subscription_row(subscription),)),),
    )


def _subscription_row(subscription: Subscription) -> tuple[Cell, ...]:
    last = clock(subscription.last) if subscription.last is not None else ""
    state = (
        Status(f"✗ {subscription.problem}", "bad")
        if subscription.problem
        else Status("✓ followed", "good")
    )
    return (
        Name(subscription.uri),
        subscription.server,
        words.number(subscription.updates),
        last,
        state,
    )


def _sections(
    groups: Mapping[str, Sequence[Any]], limits: DisplayLimits, table: Callable[[Any, int], Table]
) -> list[Block]:
    each = max(2, limits.rows // max(1, len(groups)))
    fold: Fold = "open" if sum(map(len, groups.values())) <= limits.rows else "closed"
    visible = list(groups.items())[: limits.rows]
    blocks: list[Block] = [
        Section(server, (table(group, each),), note=f"{len(group):,}", fold=fold)
        for server, group in visible
    ]
    if len(groups) > len(visible):
        blocks.append(Section(f"{words.count(len(groups) - len(visible), 'server')} more", ()))
    return blocks


def _resource_table(group: Sequence[Resource], count: int) -> Table:
    rows = tuple(
        (
            Name(resource.uri),
            " ".join(
                filter(None, ["template" if resource.is_template else "", resource.mime_type or ""])
            ),
            words.size(resource.size) if resource.size is not None else "",
            first(resource.description or resource.title or resource.name, _SUMMARY),
        )
        for resource in group
    )
    return Table(_RESOURCE_COLUMNS, rows, count - len(rows))


def _listing(
    kind: str, title: str, offers: Resources | Prompts | Skills, sections: list[Block], note: str
) -> View:
    problems = [Line(Status(f"✗ {problem}", "bad")) for problem in offers.problems.values()]
    return View(kind, title, (*sections, *problems) or _none(offers), note=note)


def _none(offers: Resources | Prompts | Skills | None = None) -> tuple[Block, ...]:
    return (TextBlock("None." if offers is None else offers.not_listed or "None."),)


def _part_blocks(
    part: ContentPart, server: str, limits: DisplayLimits, images: ImageBudget
) -> list[Block]:
    if part.data is not None:
        media_type = media_type_of(part.data)
        kind = "image" if media_type else part.kind
        return [content_block(kind, media_type or part.mime_type or "", part.data, server, images)]
    if part.kind not in ("text", "resource", "unknown"):
        return [TextBlock(part.text if not part.uri else f"{part.text}: {part.uri}")]
    if is_json(part.mime_type):
        try:
            value = json.loads(part.text)
        except (ValueError, RecursionError):
            pass
        else:
            return [
                *structured_blocks(value),
                TextBlock(pretty(value), code=True, limit=limits.document),
            ]
    prose = (part.mime_type or "").partition(";")[0] == "text/markdown"
    return [TextBlock(part.text, code=not prose, prose=prose, limit=limits.document)]


def accounts_view(accounts: Accounts, limits: DisplayLimits) -> View:
    """Show the sign-ins that are remembered, never their tokens."""
    rows = [
        (Name(each.server), each.address, each.issuer, " ".join(each.scopes), _expiry(each))
        for each in accounts
    ]
    heads = columns("Server", "Address", "Signed in at", "Scopes", "Expires")
    table = Table(heads, tuple(rows[: limits.rows]), max(0, len(rows) - limits.rows))
    blocks: tuple[Block, ...] = (
        (table,) if rows else (TextBlock("No sign-in is remembered on this computer."),)
    )
    return View("accounts", "Accounts", blocks, note=words.count(len(rows), "sign-in"))


def account_view(account: Account, limits: DisplayLimits) -> View:
    """Show one sign-in."""
    facts = (
        ("Address", account.address),
        ("Signed in at", account.issuer),
        ("Scopes", " ".join(account.scopes)),
    )
    shown_facts = tuple(
        (label, value) for label, value in (*facts, ("Expires", _expiry(account))) if value
    )
    return View("account", account.server, (KeyValues(shown_facts),))


def _expiry(account: Account) -> str:
    if account.expires is None:
        return ""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(account.expires))
    return f"{when}, renewed automatically" if account.renewable else when
