"""Views for a session: status, models, selection, findings, trust, and the explorer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from casual_mcp_nb.base.config import Strategy, ToolSetConfig, option_limits
from casual_mcp_nb.base.content import media_type_of
from casual_mcp_nb.base.selection import Mode, Selection
from casual_mcp_nb.base.status import (
    Check,
    CheckStatus,
    Clients,
    ConsentStatus,
    Diagnosis,
    ExplorerSnapshot,
    Help,
    HelpRow,
    HostAudit,
    Models,
    ServerDiagnosis,
    ServerTokens,
    SessionStatus,
    StageState,
    SystemPrompt,
    ToolDiagnosis,
)
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.cassettes import CassetteOverview
from casual_mcp_nb.config.finding import FoundServers
from casual_mcp_nb.config.registry_entry import FoundServer
from casual_mcp_nb.config.trust import Trust, TrustEntry, TrustState, exact, lines_of
from casual_mcp_nb.conversation.view_calls import ImageBudget, call_section
from casual_mcp_nb.conversation.view_requests import saving_row
from casual_mcp_nb.conversation.views import PLANNER, model_words, tool_set_words
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    Column,
    DisplayLimits,
    ImageBlock,
    KeyValues,
    Line,
    Name,
    Phrase,
    Section,
    Span,
    Status,
    Table,
    TextBlock,
    Tone,
    View,
    columns,
    fraction,
    pretty,
)
from casual_mcp_nb.display.words import SUMMARY, first
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.notebook.app import App, AppMessage, AppMessages
from casual_mcp_nb.notebook.apps import Apps
from casual_mcp_nb.servers.views import (
    STATES,
    affected_table,
    budget_blocks,
    failure,
    failures,
    manifest_view,
    server_table,
    tool_sets_view,
    unlisted_words,
)
from casual_mcp_nb.servers.wire_views import tasks_view

_STRATEGIES: dict[Strategy, str] = {
    "search": "the model searches deferred tools",
    "browse": "the model browses deferred tools by category",
}
_FINDERS: dict[Strategy, str] = {"search": "search_tools", "browse": "the browse tools"}


def _discovery_state(session: SessionStatus) -> str:
    state = "off: nothing is deferred"
    if session.discovery:
        state = f"on: {_STRATEGIES[session.strategy]}"
    if session.auto is not None:
        state = f"{state} ({auto_words(session.auto)})"
    return state


def auto_words(threshold: float) -> str:
    """Describe when `auto` discovery defers."""
    return f"auto: on when tools take over {threshold:g}% of the context window"


def session_view(session: SessionStatus, limits: DisplayLimits) -> View:
    """Show in a sentence and a bar which tools are sent. Folded, servers, choices and cost."""
    servers = session.servers
    ready = sum(status.state == "ready" for status in servers.values())
    model = ("Model", model_words(session.model, session.provider))
    about = (
        ("Toolset", tool_set_words(session.tool_set)),
        ("Discovery", _discovery_state(session)),
        ("Conversation", words.count(session.turns, "turn")),
    )
    if session.closed:
        advice = TextBlock(
            in_words_of(
                "Its turns can still be read and exported. Start again with %mcp demo or %mcp"
                " connect."
            )
        )
        return View(
            "session",
            "Session",
            (KeyValues((model, *about)), advice),
            mark=Status("closed", "quiet"),
        )
    finders = offered_words(session.offered, session.deferred, session.strategy)
    tools, unlisted = session.offered + session.deferred, unlisted_words(servers)
    sent = list(unlisted)
    if tools or not unlisted:
        sent.insert(0, f"{words.count(tools, 'tool')}; sent with every request: {finders}")
    facts: list[tuple[str, Cell]] = [("Tools", "; ".join(sent)), model]
    if session.tokens:
        price = _definition_words(session.tokens, session.undeferred_tokens)
        part = fraction(session.tokens, session.undeferred_tokens) if session.deferred else None
        facts.insert(1, ("Tool definitions", Bar(price, part)))
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if not session.turns and (ready or not servers):
        hint = in_words_of("Ask with %%mcp, or look around with %mcp explore.")
        blocks.append(Line(None, (hint,)))
    blocks += [
        *failures(servers, limits),
        Section(
            "Servers",
            (server_table(servers, limits),),
            note=f"{ready} of {len(servers)} ready",
            fold="closed",
        ),
        Section("Discovery", (KeyValues(about),), note=_discovery_state(session), fold="closed"),
        *budget_section(session.budget),
    ]
    if session.notes:
        blocks.append(Section("Notes", (TextBlock("\n".join(session.notes[: limits.rows])),)))
    return View("session", "Session", tuple(blocks))


def offered_words(offered: int, deferred: int, strategy: Strategy) -> str:
    """Count the tools in the first request, including those that find deferred ones."""
    finder = f" and {_FINDERS[strategy]}" if deferred else ""
    return f"{words.count(offered, 'tool')}{finder}"


def _definition_words(now: int, undeferred: int) -> str:
    if now == undeferred:
        return words.tokens(undeferred, "estimated")
    return f"{words.about(now, 'estimated')} of {undeferred:,} tokens"


def budget_section(budget: Budget | None) -> tuple[Section, ...]:
    """Show the cost of requests and turns, and the saving by deferring, folded, or nothing if no
    tool is deferred.

    The saving is for a whole turn. For a single request it would look larger than it is, since each
    search is an extra request.
    """
    if budget is None or budget.saved is None:
        return ()
    saving = words.difference(budget.now.turn, budget.undeferred.turn)
    note = f"a turn takes {saving} than with every tool loaded" if saving else ""
    return (Section("Cost", budget_blocks(budget), note=note, fold="closed"),)


def models_view(models: Models, limits: DisplayLimits) -> View:
    """Show the models with their providers, whether a key is set, and their templates if any has
    one.
    """
    templates = any(row.template for row in models.rows)
    names = ["Name", "Provider", "Model", "Client", "Key", "Default"]
    if templates:
        names.append("Template")
    rows: list[tuple[Cell, ...]] = []
    for row in models.rows[: limits.rows]:
        model = PLANNER if row.provider == "offline" else row.model
        default = Status("● default", "busy") if row.default else ""
        cells = (Name(row.name), row.provider, model, row.client, row.key, default)
        rows.append((*cells, row.template or "") if templates else cells)
    return View(
        "models",
        "Models",
        (_table(columns(*names), rows, len(models)),),
        note=words.count(len(models), "model"),
    )


def clients_view(clients: Clients, limits: DisplayLimits) -> View:
    """Show the clients with their providers, whether a key is set, and their timeouts if they
    differ.
    """
    differ = len({row.timeout for row in clients.rows}) > 1
    names = ["Client", "Provider", "Address", "Key", "Models"]
    if differ:
        names.append("Timeout")
    rows: list[tuple[Cell, ...]] = []
    for row in clients.rows[: limits.rows]:
        address, models = row.address or "provider default", ", ".join(row.models) or "none"
        cells = (Name(row.name), row.provider, address, row.key, models)
        rows.append((*cells, f"{row.timeout:g} s") if differ else cells)
    return View(
        "clients",
        "Clients",
        (_table(columns(*names), rows, len(clients)),),
        note=words.count(len(clients), "client"),
    )


def _table(
    heads: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]], total: int
) -> Table | TextBlock:
    """Show the first rows of so many, or that there are none."""
    if not rows:
        return TextBlock("None.")
    return Table(heads, tuple(rows), total - len(rows))


def discovery_words(selection: Selection) -> str:
    """Describe whether a selection defers."""
    if selection.discovery == "auto":
        return auto_words(selection.auto_threshold)
    return "on" if selection.discovery else "off: nothing is deferred"


def _tool_set_of(selection: Selection) -> str:
    if isinstance(selection.tool_set, ToolSetConfig):
        return tool_set_words("Custom (unsaved)")
    return tool_set_words(selection.tool_set)


def selection_view(selection: Selection, limits: DisplayLimits) -> View:
    """Show the person's choices: toolset, server modes, discovery."""
    off = list(selection.tools_off)
    defers_all = "yes" if selection.defer_all else "no"
    if selection.defer_all and selection.always_loaded:
        defers_all = f"yes, except {', '.join(selection.always_loaded)}"
    facts: list[tuple[str, Cell]] = [
        ("Toolset", _tool_set_of(selection)),
        ("Discovery", discovery_words(selection)),
        ("Defer every server", defers_all),
        ("How the model finds tools", selection.strategy),
        ("Delivery of search results", selection.delivery),
        *(
            (limit.label, words.count(getattr(selection, name), limit.unit))
            for name, limit in option_limits()
        ),
        ("Tools turned off", ", ".join(off) if off else "none"),
    ]
    rows = tuple(
        (Name(name), mode) for name, mode in list(selection.servers.items())[: limits.rows]
    )
    table = Table(columns("Server", "Mode"), rows, len(selection.servers) - len(rows))
    servers: Block = table if rows else TextBlock("Each server has its mode from the config.")
    return View("selection", "Selection", (KeyValues(tuple(facts)), Section("Servers", (servers,))))


def system_prompt_view(prompt: SystemPrompt, limits: DisplayLimits) -> View:
    """Show the system prompt exactly as the model reads it, and its cost."""
    text = TextBlock(prompt.text or "Empty.", code=True, limit=limits.document)
    facts = KeyValues(
        (
            ("Template", Name(prompt.template) if prompt.template else "none"),
            ("Tokens", words.tokens(prompt.tokens, "estimated")),
        )
    )
    return View("prompt", "System prompt", (facts, Section("As the model reads it", (text,))))


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
    """Show each group's rows. Where groups are folded, the first one is open."""
    (title, rows), *others = text.groups
    sections = [Section(title, (_commands(rows),))]
    for title, rows in others:
        section = Section(title, (_commands(rows),))
        if text.folded:
            section = replace(section, note=f"{len(rows)}", fold="closed")
        sections.append(section)
    return View("help", text.title, tuple(sections))


def _commands(rows: tuple[HelpRow, ...]) -> Table:
    cells: list[tuple[Cell, ...]] = [
        (Name(row.usage), row.summary, Name(row.example) if row.example else "") for row in rows
    ]
    return Table(columns("Command", "Purpose", "Example", shares=(36, 34, 30)), tuple(cells))


def diagnosis_view(diagnosis: Diagnosis, limits: DisplayLimits) -> View:
    """Show the findings, part by part, with their remedies."""
    bad = sum(finding.verdict == "fail" for finding in diagnosis)
    doubtful = sum(finding.verdict == "warn" for finding in diagnosis)
    mark = Status("✓ all required checks passed", "good")
    if bad:
        mark = Status("✗ problems found", "bad")
    problems = [finding for finding in diagnosis if finding.verdict != "ok"]
    passed = [finding for finding in diagnosis if finding.verdict == "ok"]
    blocks: list[Block] = []
    if problems:
        blocks.append(_findings(problems, limits))
    if passed:
        title = f"✓ {words.count(len(passed), 'check')} passed"
        blocks.append(Section(title, (_findings(passed, limits),), fold="closed"))
    note = (
        f"{words.count(len(diagnosis), 'check')}, {words.count(bad, 'failure')},"
        f" {words.count(doubtful, 'warning')}"
    )
    return View(
        "diagnosis",
        "Doctor",
        tuple(blocks) or (TextBlock("No checks were made."),),
        mark=mark,
        note=note,
    )


def _findings(findings: list[Check], limits: DisplayLimits) -> Table:
    rows = tuple(
        (
            finding.part,
            Name(finding.name),
            _VERDICTS[finding.verdict],
            finding.found,
            finding.advice,
        )
        for finding in findings[: limits.rows]
    )
    return Table(
        columns("Part", "Check", "Result", "Details", "Remedy"), rows, len(findings) - len(rows)
    )


def tool_diagnosis_view(diagnosis: ToolDiagnosis, limits: DisplayLimits) -> View:
    """Show a tool's stages, with a remedy where it stops."""
    facts: list[tuple[str, Cell]] = []
    if diagnosis.wire_name:
        facts.append(("Name for the model", Name(diagnosis.wire_name)))
    if diagnosis.tokens is not None:
        facts.append(("Tokens", words.tokens(diagnosis.tokens, "estimated")))
    table = Table(
        columns("Stage", "State", "Details"),
        tuple((check.stage, _STAGES[check.state], check.found) for check in diagnosis.stages),
    )
    blocks: list[Block] = [table]
    if facts:
        blocks.insert(0, KeyValues(tuple(facts)))
    advice = diagnosis.end.advice
    if advice:
        blocks.append(TextBlock(advice, label="Remedy"))
    if diagnosis.elsewhere:
        rows = tuple(
            (each.where, each.effect, first(each.reason, 300))
            for each in diagnosis.elsewhere[: limits.rows]
        )
        table = Table(
            columns("Provider or host", "Effect", "Why"), rows, len(diagnosis.elsewhere) - len(rows)
        )
        blocks.append(Section("At providers and in other hosts", (table,)))
    return View("tool-diagnosis", str(diagnosis.tool), tuple(blocks), mark=_mark(diagnosis))


def server_diagnosis_view(diagnosis: ServerDiagnosis, limits: DisplayLimits) -> View:
    """Show at which stage each of a server's tools ends, stopped ones first."""
    listed = diagnosis.listed
    if listed.state == "stopped":
        blocks: list[Block] = [
            KeyValues((("Listed", _STAGES[listed.state]), ("Details", listed.found)))
        ]
        if listed.advice:
            blocks.append(TextBlock(listed.advice, label="Remedy"))
        return View(
            "server-diagnosis", diagnosis.server, tuple(blocks), mark=Status("✗ not listed", "bad")
        )
    tools = sorted(diagnosis, key=lambda tool: tool.stopped is None)
    rows = tuple(
        (Name(tool.tool.tool), _mark(tool), tool.end.found, tool.end.advice)
        for tool in tools[: limits.rows]
    )
    table = Table(columns("Tool", "Ends at", "Details", "Remedy"), rows, len(tools) - len(rows))
    stopped = sum(tool.stopped is not None for tool in tools)
    mark = Status("✓ none is stopped", "good")
    if stopped:
        mark = Status(f"✗ {stopped:,} stopped", "bad")
    return View(
        "server-diagnosis",
        diagnosis.server,
        (table,),
        mark=mark,
        note=words.count(len(tools), "tool"),
    )


def _mark(diagnosis: ToolDiagnosis) -> Status:
    stopped = diagnosis.stopped
    if stopped is not None:
        return Status("✗ denied" if stopped.stage == "called" else f"✗ not {stopped.stage}", "bad")
    if diagnosis.ends_at is None:
        return Status("✓ called", "good")
    return Status(f"… not {diagnosis.ends_at} yet", "busy")


_STATES: dict[TrustState, Status] = {
    "harmless": Status("✓ nothing to accept", "quiet"),
    "trusted": Status("✓ accepted", "good"),
    "new": Status("● new", "busy"),
    "changed": Status("● changed", "bad"),
}
_MAX_WHOLE = 15_000
"""How many characters are always shown whole."""


def trust_view(trust: Trust, limits: DisplayLimits) -> View:
    """Show a config's servers and clients with all that they would start."""
    if trust.required:
        text = (
            "Nothing starts until you accept it."
            f" {in_words_of('To accept it: %mcp trust --accept')}".rstrip()
        )
    else:
        text = f"It may start. {trust.why}"
    if len(trust.text) > _MAX_WHOLE:
        text += in_words_of(
            " It is long, and may be cut here. For the full text:"
            " print(session.consent.trust().text)"
        )
    pending = [entry for entry in trust.entries if entry.state in ("new", "changed")]
    well = [_trust_section(entry, limits) for entry in trust.entries if entry not in pending]
    sections = [_trust_section(entry, limits) for entry in pending]
    if well:
        kinds = Counter(entry.kind for entry in trust.entries if entry not in pending)
        note = ", ".join(words.count(number, kind) for kind, number in kinds.items())
        sections.append(Section("✓ Nothing to accept", tuple(well), note=note, fold="closed"))
    title = f"Commands of {exact(trust.source)}" if trust.source else "Commands in this config"
    return View("trust", title, (TextBlock(text), *sections))


def found_servers_view(listing: FoundServers, limits: DisplayLimits) -> View:
    """Show the servers in a catalog or registry, with the program or address of each."""
    rows = [
        (each.short_name, each.way, each.target, ", ".join(each.needs), _remarks(each))
        for each in listing.servers
    ]
    heads = columns("Server", "Way", "Command or address", "Needs", "Remarks")
    table = Table(heads, tuple(rows[: limits.rows]), max(0, len(rows) - limits.rows))
    notes = tuple(TextBlock(note) for note in listing.notes)
    note = words.count(len({each.name for each in listing.servers}), "server")
    return View("found servers", f"Found for {exact(listing.target)}", (table, *notes), note=note)


def found_server_view(server: FoundServer, limits: DisplayLimits) -> View:
    """Show one way to reach a server."""
    facts: list[tuple[str, Cell]] = [
        ("Name", server.name),
        ("Version", server.version),
        ("Description", server.description),
        ("Found at", server.source),
        ("Address" if "url" in server.entry else "Command", server.target),
        ("Needs", ", ".join(server.needs)),
        ("Remarks", _remarks(server)),
    ]
    shown_facts = tuple(fact for fact in facts if fact[1])
    return View(
        "found server",
        server.title or server.short_name,
        (KeyValues(shown_facts),),
        note=server.way,
    )


def _remarks(server: FoundServer) -> str:
    return f"Cannot be added: {server.problem}." if server.problem else " ".join(server.notes)


def trust_entry_view(entry: TrustEntry, limits: DisplayLimits) -> View:
    """Show a server or client."""
    section = _trust_section(entry, limits)
    return View("trust", exact(entry.name), section.blocks, mark=section.mark, note=section.note)


def _trust_section(entry: TrustEntry, limits: DisplayLimits) -> Section:
    note = ", ".join(entry.changed)
    text = TextBlock(lines_of(entry), code=True, limit=limits.document)
    return Section(
        f"{entry.kind} {exact(entry.name)}", (text,), mark=_STATES[entry.state], note=note
    )


def consent_view(consent: ConsentStatus, limits: DisplayLimits) -> View:
    """Show the accepted config, the policies that ask, and the tools whose definition has
    changed.
    """
    servers, calls = "may start", "ask according to their policies"
    if not consent.accepted:
        servers = "ask before they start, if you have not accepted them"
    if consent.strict:
        calls = "every call asks, unless its policy is never"
    facts: list[tuple[str, Cell]] = [
        ("Servers", servers),
        ("Calls", calls),
        ("Step mode", "on" if consent.step_mode else "off"),
        ("Calls so far", words.number(consent.calls)),
    ]
    for server, policies in consent.policies.items():
        by_tool = {"": policies} if isinstance(policies, str) else policies
        text = ", ".join(f"{tool} {policy}".strip() for tool, policy in by_tool.items())
        facts.append((f"Calls of {server}", text))
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if consent.changed:
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (Name(tool.server), Name(tool.tool)) for tool in consent.changed[: limits.rows]
        )
        blocks.append(
            Section(
                "Changed tools",
                (Table(columns("Server", "Tool"), rows, len(consent.changed) - len(rows)),),
            )
        )
    if consent.problems:
        blocks.append(Section("Problems", (TextBlock("\n".join(consent.problems[: limits.rows])),)))
    return View("consent", "Consent", tuple(blocks))


def host_audit_view(audit: HostAudit, limits: DisplayLimits) -> View:
    """Show each server's and tool's cost, and the saving by deferring."""
    tools = sum(len(server.tools) for server in audit)
    blocks: list[Block] = []
    if tools:
        instructions = sum(server.instructions for server in audit)
        price: list[tuple[str, Cell]] = [
            ("Sent with every request", words.tokens(audit.tokens, "estimated")),
            ("If every tool were deferred", words.tokens(audit.deferred_tokens, "estimated")),
            *saving_row(audit.deferred_tokens, audit.tokens),
        ]
        if instructions:
            price.append(("Server instructions", words.tokens(instructions, "estimated")))
        blocks.append(KeyValues(tuple(price)))
    blocks.append(_audited_servers(audit, limits))
    blocks += budget_section(audit.budget)
    blocks += [
        failure(each.server, each.state, each.error, each.stderr_tail)
        for each in audit.failed[: limits.rows]
    ]
    each = max(2, limits.rows // max(len(audit.servers), 1))
    blocks += [
        _tools(server, audit.tokens, each)
        for server in audit.servers[: limits.rows]
        if server.tools
    ]
    if audit.affected:
        note = words.count(len(audit.affected), "finding")
        blocks.append(
            Section(
                "At providers and in other hosts",
                (affected_table(audit.affected, limits),),
                note=note,
            )
        )
    if audit.notes:
        blocks.append(Section("Notes", (TextBlock("\n".join(audit.notes[: limits.rows])),)))
    note = (
        f"{words.count(len(audit), 'server')}, {words.count(tools, 'tool')},"
        f" {words.tokens(audit.tokens, 'estimated')}"
    )
    return View("host-audit", f"Cost of {audit.source}", tuple(blocks), note=note)


def _audited_servers(audit: HostAudit, limits: DisplayLimits) -> Table | TextBlock:
    rows: list[tuple[Cell, ...]] = []
    for server in audit.servers[: limits.rows]:
        count, share = words.number(None), ""
        tokens: Cell = ""
        if not server.error:
            count = words.number(len(server.tools))
            part = fraction(server.tokens, audit.tokens)
            tokens = Bar(words.about(server.tokens, "estimated"), part)
            if audit.tokens:
                share = words.percent(server.tokens / audit.tokens)
        rows.append((Name(server.server), STATES[server.state], count, tokens, share))
    heads = columns("Server", "State", "Tools #", "Tokens", "Share #")
    return _table(heads, rows, len(audit))


def _tools(server: ServerTokens, total: int, limit: int) -> Section:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            Name(each.tool.tool),
            Bar(words.about(each.tokens, "estimated"), fraction(each.tokens, total)),
        )
        for each in server.tools[:limit]
    )
    note = f"{words.count(len(server.tools), 'tool')}, {words.tokens(server.tokens, 'estimated')}"
    blocks: list[Block] = [Table(columns("Tool", "Tokens"), rows, len(server.tools) - len(rows))]
    if server.left_out:
        lines = "\n".join(f"{name}: {why}" for name, why in server.left_out.items())
        blocks.append(TextBlock(lines, label="Cannot be used"))
    return Section(server.server, tuple(blocks), note=note, fold="closed")


def exploration_view(exploration: ExplorerSnapshot, limits: DisplayLimits) -> View:
    """Show which tools the model sees, by server, their cost, and the manifest for the rest."""
    selection, manifest = exploration.selection, exploration.manifest
    off = list(selection.tools_off)
    facts: list[tuple[str, Cell]] = [
        (
            "Tool definitions",
            Bar(
                _definition_words(exploration.tokens, exploration.undeferred_tokens),
                fraction(exploration.tokens, exploration.undeferred_tokens),
                track=True,
            ),
        ),
        ("Toolset", _tool_set_of(selection)),
        ("Discovery", _discovery_rules(selection)),
    ]
    if off:
        facts.append(("Tools turned off", ", ".join(off[: limits.rows])))
    blocks: list[Block] = [
        KeyValues(tuple(facts)),
        *budget_section(exploration.budget),
        *_explored_servers(exploration, limits),
        *failures(exploration.servers, limits),
    ]
    if manifest.text:
        blocks.append(Section("Manifest", manifest_view(manifest, limits).blocks, fold="closed"))
    if exploration.tool_sets:
        blocks.append(
            Section("Toolsets", tool_sets_view(exploration.tool_sets, limits).blocks, fold="closed")
        )
    if exploration.tasks:
        tasks = tasks_view(exploration.tasks, limits)
        blocks.append(Section(tasks.title, tasks.blocks, note=tasks.note, fold="closed"))
    sent = offered_words(exploration.offered, manifest.tools, selection.strategy)
    note = f"{sent} loaded, {manifest.tools:,} searchable"
    return View("exploration", "The model's tools", tuple(blocks), note=note)


def _discovery_rules(selection: Selection) -> str:
    if not selection.discovery:
        return discovery_words(selection)
    how = (
        f"{discovery_words(selection)}, by {selection.strategy}, up to"
        f" {words.count(selection.max_search_results, 'result')}"
    )
    if selection.defer_all:
        how = f"{how}, every server deferred"
    return how


def _explored_servers(exploration: ExplorerSnapshot, limits: DisplayLimits) -> tuple[Section, ...]:
    """Show each server as the explorer's list does: a row with mode and price, then its tools.

    The first is unfolded.
    """
    sections: list[Section] = []
    left = 2 * limits.rows
    for name, status in list(exploration.servers.items())[: limits.rows]:
        tools = exploration.tools.catalog.by_server.get(name, ()) if exploration.tools else ()
        rows = tuple(_explored_tool(exploration, tool) for tool in tools[: min(left, limits.rows)])
        left -= len(rows)
        mode = exploration.servers.modes.get(name, "loaded")
        state = Status(mode, _MODES[mode])
        if status.state != "ready":
            state = STATES[status.state]
        price = words.about(status.tokens, "estimated")
        sections.append(
            Section(
                Phrase((Span(name), Span(words.count(status.tools, "tool"), "quiet"))),
                (
                    Table(
                        columns("Tool", "Description", "Tokens #", shares=(30, 58, 12)),
                        rows,
                        len(tools) - len(rows),
                    ),
                ),
                mark=state,
                figures=(price,) if status.tools else (),
                fold="closed" if sections else "open",
                look="step",
                brief=True,
            )
        )
    if hidden := len(exploration.servers) - len(sections):
        sections.append(Section(f"{words.count(hidden, 'server')} more", ()))
    return tuple(sections)


_MODES: Mapping[Mode, Tone] = {"loaded": "good", "deferred": "busy", "off": "quiet"}


def _explored_tool(exploration: ExplorerSnapshot, tool: ToolSpec) -> tuple[Cell, ...]:
    off = tool.restriction or (exploration.tools and exploration.tools.mode(tool) == "off")
    price = "off" if off else words.about(tool.tokens, "estimated")
    return (Name(tool.name), first(tool.description, SUMMARY), price)


def cassette_view(overview: CassetteOverview, _limits: DisplayLimits) -> View:
    """Show the cassette that is in use, or how to use one."""
    state = overview.state
    if state is None:
        hint = (
            "No cassette is in use. To record one, or replay it if it exists:"
            " session.cassettes.use(path)."
        )
        return View("cassette", "Cassette", (TextBlock(hint),))
    rows: list[tuple[str, Cell]] = [
        ("File", Name(str(state.path))),
        ("Mode", state.mode),
        ("Requests", f"{state.interactions:,}"),
    ]
    if state.doing == "replaying":
        rows.append(("Not made yet", f"{state.unplayed:,}"))
    blocks: list[Block] = [KeyValues(tuple(rows))]
    if state.problem:
        blocks.append(TextBlock(state.problem))
    return View("cassette", "Cassette", tuple(blocks), mark=Status(state.doing, "busy"))


_APP_STATES: Mapping[str, tuple[str, Tone]] = {
    "not opened": ("not opened yet", "quiet"),
    "starting": ("starting", "busy"),
    "shown": ("shown", "good"),
    "failed": ("not shown", "bad"),
    "closed": ("closed", "quiet"),
}


def app_view(app: App, limits: DisplayLimits) -> View:
    """Show an app's picture, with its call folded, or the call with its result if there is no
    picture; and why its page is not shown if it is not, with the messages so far.
    """
    facts: list[tuple[str, Cell]] = []
    if app.problem:
        facts.append(("Not shown", app.problem))
    if app.value is not None:
        facts.append(("Value", pretty(app.value, indent=None)))
    call = call_section(app.call, False, limits.text, ImageBudget(limits.images), fold=False).blocks
    blocks: list[Block] = []
    if facts:
        blocks.append(KeyValues(tuple(facts)))
    kind = media_type_of(app.picture) if app.picture is not None else None
    if app.picture is not None and kind is not None:
        label = f"A picture of the app of {words.clean(str(app.tool))}"
        blocks += [ImageBlock(kind, app.picture, label), Section("Call", call, fold="closed")]
    else:
        blocks += call
    if app.messages and app.status != "shown":
        blocks.append(Section("Messages", (_app_messages(app.messages, limits),), fold="closed"))
    return View(
        "app", str(app.tool), tuple(blocks), mark=Status(*_APP_STATES[app.status]), note="app"
    )


def _app_messages(messages: AppMessages, limits: DisplayLimits) -> Table:
    visible = messages.messages[-limits.rows :]
    rows = tuple((each.sender, Name(each.method), each.text) for each in visible)
    return Table(
        columns("From", "Message", "Contents"),
        rows,
        len(messages) - len(visible) + messages.dropped,
    )


def app_messages_view(messages: AppMessages, limits: DisplayLimits) -> View:
    """Show the messages of an app, the newest last."""
    block = _app_messages(messages, limits) if messages else TextBlock("None.")
    return View(
        "app-messages", "Messages of the app", (block,), note=words.count(len(messages), "message")
    )


def app_message_view(message: AppMessage, limits: DisplayLimits) -> View:
    """Show one of these messages."""
    return app_messages_view(AppMessages((message,)), limits)


def apps_view(apps: Apps, limits: DisplayLimits) -> View:
    """Show the apps of a session, the newest last."""
    visible = apps.apps[-limits.rows :]
    rows: list[tuple[Cell, ...]] = []
    for number, app in enumerate(visible, len(apps) - len(visible)):
        value = app.problem
        if not value and app.value is not None:
            value = pretty(app.value, indent=None)
        rows.append((str(number), Name(str(app.tool)), Status(*_APP_STATES[app.status]), value))
    table = _table(columns("Number", "Tool", "Page", "Value"), rows, len(apps))
    return View("apps", "Apps", (table,), note=words.count(len(apps), "app"))
