"""Views for a session: status, models, selection, findings, trust, and the explorer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from casual_mcp_nb.base.config import OTHER_TOOLS, Strategy, ToolSetConfig, option_limits
from casual_mcp_nb.base.content import media_type_of
from casual_mcp_nb.base.displayable import Done
from casual_mcp_nb.base.elsewhere import Elsewhere
from casual_mcp_nb.base.iterables import labelled
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
    SpendRow,
    SpendStatus,
    StageState,
    SystemPrompt,
    ToolDiagnosis,
    amount,
    not_connected,
)
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.base.tool import ToolName, ToolSpec
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
from casual_mcp_nb.notebook.usage import UsageChange
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
    """Show in a sentence and a bar which tools are sent.

    Servers, choices and cost are folded.
    """
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
        part = None
        if session.deferred:
            part = fraction(session.tokens, session.undeferred_tokens)
        facts.insert(1, ("Tool definitions", Bar(price, part)))
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if not session.turns and (ready or not servers):
        hint = in_words_of("Ask with %%mcp, or look around with %mcp explore.")
        blocks.append(Line(None, (hint,)))
    unconnected = [name for name, status in servers.items() if status.state == "closed"]
    if unconnected:
        blocks.append(Line(None, (not_connected(unconnected),)))
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
    text = words.count(offered, "tool")
    if deferred:
        text = f"{text} and {_FINDERS[strategy]}"
    return text


def _definition_words(now: int, undeferred: int) -> str:
    if now == undeferred:
        return words.tokens(undeferred, "estimated")
    return f"{words.about(now, 'estimated')} of {undeferred:,} tokens"


def budget_section(budget: Budget | None) -> tuple[Section, ...]:
    """Show the cost of requests and turns, and the saving by deferring, folded.

    Show nothing if no tool is deferred. The saving is for a whole turn. For a single request it
    would look larger than it is, since each search is an extra request.
    """
    if budget is None or budget.saved is None:
        return ()
    saving = words.difference(budget.now.turn, budget.undeferred.turn)
    note = ""
    if saving:
        note = f"a turn takes {saving} than with every tool loaded"
    return (Section("Cost", budget_blocks(budget), note=note, fold="closed"),)


def models_view(models: Models, limits: DisplayLimits) -> View:
    """Show the models: their providers, whether a key is set, and templates if any has one."""
    templates = any(row.template for row in models.rows)
    names = ["Name", "Provider", "Model", "Client", "Key", "Default"]
    if templates:
        names.append("Template")
    rows: list[tuple[Cell, ...]] = []
    for row in models.rows[: limits.rows]:
        model = row.model
        if row.provider == "offline":
            model = PLANNER
        default: Cell = ""
        if row.default:
            default = Status("● default", "busy")
        cells: list[Cell] = [Name(row.name), row.provider, model, row.client, row.key, default]
        if templates:
            cells.append(row.template or "")
        rows.append(tuple(cells))
    return View(
        "models",
        "Models",
        (_table(columns(*names), rows, len(models)),),
        note=words.count(len(models), "model"),
    )


def clients_view(clients: Clients, limits: DisplayLimits) -> View:
    """Show the clients: their providers, whether a key is set, and timeouts if they differ."""
    differ = len({row.timeout for row in clients.rows}) > 1
    names = ["Client", "Provider", "Address", "Key", "Models"]
    if differ:
        names.append("Timeout")
    rows: list[tuple[Cell, ...]] = []
    for row in clients.rows[: limits.rows]:
        address = row.address or "provider default"
        models = ", ".join(row.models) or "none"
        cells: list[Cell] = [Name(row.name), row.provider, address, row.key, models]
        if differ:
            cells.append(f"{row.timeout:g} s")
        rows.append(tuple(cells))
    return View(
        "clients",
        "Clients",
        (_table(columns(*names), rows, len(clients)),),
        note=words.count(len(clients), "client"),
    )


def _table(
    heads: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]], total: int
) -> Table | TextBlock:
    """Show rows, which are the first ones of `total`, or that there are none."""
    if not rows:
        return TextBlock("None.")
    return Table(heads, tuple(rows), total - len(rows))


def discovery_words(selection: Selection) -> str:
    """Describe whether a selection defers."""
    if selection.discovery == "auto":
        return auto_words(selection.auto_threshold)
    if selection.discovery:
        return "on"
    return "off: nothing is deferred"


def _tool_set_of(selection: Selection) -> str:
    if isinstance(selection.tool_set, ToolSetConfig):
        return tool_set_words("Custom (unsaved)")
    return tool_set_words(selection.tool_set)


def selection_view(selection: Selection, limits: DisplayLimits) -> View:
    """Show the person's choices: toolset, server modes, discovery."""
    defers_all = "no"
    if selection.defer_all:
        defers_all = "yes"
        if selection.always_loaded:
            defers_all = f"yes, except {', '.join(selection.always_loaded)}"
    facts: list[tuple[str, Cell]] = [
        ("Toolset", _tool_set_of(selection)),
        ("Discovery", discovery_words(selection)),
        ("Defer every server", defers_all),
        ("How the model finds tools", selection.strategy),
        ("Delivery of search results", selection.delivery),
    ]
    for name, limit in option_limits():
        facts.append((limit.label, words.count(getattr(selection, name), limit.unit)))
    facts.append(("Tools turned off", ", ".join(selection.tools_off) or "none"))
    servers: Block = TextBlock("Each server has its mode from the config.")
    if selection.servers:
        heads = columns("Server", "Mode")
        servers = Table.of(heads, selection.servers.items(), _mode_row, limits.rows)
    return View("selection", "Selection", (KeyValues(tuple(facts)), Section("Servers", (servers,))))


def _mode_row(entry: tuple[str, Mode]) -> tuple[Cell, ...]:
    server, mode = entry
    return (Name(server), mode)


def system_prompt_view(prompt: SystemPrompt, limits: DisplayLimits) -> View:
    """Show the system prompt exactly as the model reads it, and its cost."""
    text = TextBlock(prompt.text or "Empty.", code=True, limit=limits.document)
    template: Cell = "none"
    if prompt.template:
        template = Name(prompt.template)
    tokens = words.tokens(prompt.tokens, "estimated")
    facts = KeyValues((("Template", template), ("Tokens", tokens)))
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
    """Show each group's rows. If groups are folded, the first one stays open."""
    (title, rows), *others = text.groups
    if not others and len(rows) == 1:
        return View("help", text.title, _one_command(rows[0]), note=title)
    sections = [Section(title, (_commands(rows),))]
    for title, rows in others:
        section = Section(title, (_commands(rows),))
        if text.folded:
            section = replace(section, note=f"{len(rows)}", fold="closed")
        sections.append(section)
    return View("help", text.title, tuple(sections))


def _one_command(row: HelpRow) -> tuple[Block, ...]:
    """Show a command in texts: the cells of a table are cut."""
    blocks: list[Block] = [TextBlock(row.usage, code=True), TextBlock(row.summary)]
    if row.example:
        blocks.append(TextBlock(row.example, label="For example", code=True))
    return tuple(blocks)


def _commands(rows: tuple[HelpRow, ...]) -> Table:
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        example: Cell = ""
        if row.example:
            example = Name(row.example)
        cells.append((Name(row.usage), row.summary, example))
    return Table(columns("Command", "Purpose", "Example", shares=(36, 34, 30)), tuple(cells))


def diagnosis_view(diagnosis: Diagnosis, limits: DisplayLimits) -> View:
    """Show the findings, part by part, with their remedies."""
    counts = Counter(finding.verdict for finding in diagnosis)
    mark = Status("✓ all required checks passed", "good")
    if counts["fail"]:
        mark = Status("✗ problems found", "bad")
    problems: list[Check] = []
    passed: list[Check] = []
    for finding in diagnosis:
        if finding.verdict == "ok":
            passed.append(finding)
        else:
            problems.append(finding)
    blocks: list[Block] = []
    if problems:
        blocks.append(_findings(problems, limits))
    if passed:
        title = f"✓ {words.count(len(passed), 'check')} passed"
        blocks.append(Section(title, (_findings(passed, limits),), fold="closed"))
    note = (
        f"{words.count(len(diagnosis), 'check')}, {words.count(counts['fail'], 'failure')},"
        f" {words.count(counts['warn'], 'warning')}"
    )
    return View(
        "diagnosis",
        "Doctor",
        tuple(blocks) or (TextBlock("No checks were made."),),
        mark=mark,
        note=note,
    )


def _findings(findings: list[Check], limits: DisplayLimits) -> Table:
    heads = columns("Part", "Check", "Result", "Details", "Remedy")
    return Table.of(heads, findings, _check_row, limits.rows)


def _check_row(check: Check) -> tuple[Cell, ...]:
    return (check.part, Name(check.name), _VERDICTS[check.verdict], check.found, check.advice)


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
        heads = columns("Provider or host", "Effect", "Why")
        table = Table.of(heads, diagnosis.elsewhere, _elsewhere_row, limits.rows)
        blocks.append(Section("At providers and in other hosts", (table,)))
    return View("tool-diagnosis", str(diagnosis.tool), tuple(blocks), mark=_mark(diagnosis))


def _elsewhere_row(place: Elsewhere) -> tuple[Cell, ...]:
    return (place.where, place.effect, first(place.reason, 300))


def _diagnosis_row(diagnosis: ToolDiagnosis) -> tuple[Cell, ...]:
    end = diagnosis.end
    return (Name(diagnosis.tool.tool), _mark(diagnosis), end.found, end.advice)


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
    heads = columns("Tool", "Ends at", "Details", "Remedy")
    table = Table.of(heads, tools, _diagnosis_row, limits.rows)
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
    if stopped is not None and stopped.stage == "called":
        return Status("✗ denied", "bad")
    if stopped is not None:
        return Status(f"✗ not {stopped.stage}", "bad")
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
    sections: list[Section] = []
    accepted: list[Section] = []
    kinds: Counter[str] = Counter()
    for entry in trust.entries:
        if entry.state in ("new", "changed"):
            sections.append(_trust_section(entry, limits))
        else:
            accepted.append(_trust_section(entry, limits))
            kinds[entry.kind] += 1
    if accepted:
        note = ", ".join(words.count(number, kind) for kind, number in kinds.items())
        sections.append(Section("✓ Nothing to accept", tuple(accepted), note=note, fold="closed"))
    title = "Commands in this config"
    if trust.source:
        title = f"Commands of {exact(trust.source)}"
    return View("trust", title, (TextBlock(text), *sections))


def found_servers_view(listing: FoundServers, limits: DisplayLimits) -> View:
    """Show the servers in a catalog or registry, with the program or address of each."""
    heads = columns("Server", "Way", "Command or address", "Needs", "Remarks")
    table = Table.of(heads, listing.servers, _found_row, limits.rows)
    notes = tuple(map(TextBlock, listing.notes))
    note = words.count(len({each.name for each in listing.servers}), "server")
    return View("found servers", f"Found for {exact(listing.target)}", (table, *notes), note=note)


def _found_row(server: FoundServer) -> tuple[Cell, ...]:
    needs = ", ".join(server.needs)
    return (server.short_name, server.way, server.target, needs, _remarks(server))


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
    if server.problem:
        return f"Cannot be added: {server.problem}."
    return " ".join(server.notes)


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


def done_view(done: Done, limits: DisplayLimits) -> View:
    """Show what a command changed."""
    return View("done", done.text, ())


def consent_view(consent: ConsentStatus, limits: DisplayLimits) -> View:
    """Show whether the config is accepted, when calls ask, and which definitions have changed."""
    servers, calls = "may start", "ask by their policies: never, destructive or always"
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
    blocks: list[Block] = [KeyValues(tuple(facts))]
    if consent.effective:
        blocks += _policies(consent, limits)
    if consent.changed:
        heads = columns("Server", "Tool")
        table = Table.of(heads, consent.changed, _tool_name_row, limits.rows)
        blocks.append(Section("Changed tools", (table,)))
    if consent.problems:
        blocks.append(Section("Problems", (TextBlock("\n".join(consent.problems[: limits.rows])),)))
    return View("consent", "Consent", tuple(blocks))


_POLICIES_MEAN = {
    "never": "no call asks.",
    "always": "each call asks.",
    "destructive": "a call asks unless its tool says that it destroys nothing.",
    "default": (
        "a call asks if its tool is destructive, or is of somebody else's server and does not say"
        " whether it is."
    ),
}

_MAX_OWN = 6


def _policies(consent: ConsentStatus, limits: DisplayLimits) -> Iterator[Block]:
    """Show each server's policy and what the policies mean."""
    heads = columns("Server", "Policy", "Tools with their own")
    table = Table.of(heads, list(consent.effective.items()), _policies_row, limits.rows)
    used: set[str] = set()
    for policies in consent.effective.values():
        used.update(policies.values())
    meanings = []
    for policy, meaning in _POLICIES_MEAN.items():
        if policy in used:
            meanings.append(f"{policy}: {meaning}")
    yield table
    yield TextBlock("\n".join(meanings))


def _policies_row(item: tuple[str, Mapping[str, str]]) -> tuple[Cell, ...]:
    server, policies = item
    own = []
    for tool, policy in policies.items():
        if tool != OTHER_TOOLS:
            own.append(f"{tool} {policy}")
    return (Name(server), policies.get(OTHER_TOOLS, ""), words.listed(own, _MAX_OWN))


def _tool_name_row(tool: ToolName) -> tuple[Cell, ...]:
    return (Name(tool.server), Name(tool.tool))


_IN = {"turn": "The last turn", "conversation": "This conversation", "day": "Today"}


def spend_view(spend: SpendStatus, limits: DisplayLimits) -> View:
    """Show what was spent in each period, and its limits."""
    rows = tuple(map(_spend_row, spend))
    note = "by your prices"
    if not spend.place:
        note = "by your prices; only this session's, since it saves no conversations"
    blocks: list[Block] = [
        Table(columns("", "Cost #", "Limit #", "Tokens in and out #", "Limit #"), rows)
    ]
    for row in spend:
        if row.unpriced:
            asked = words.count(row.unpriced, "request")
            blocks.append(Line(None, (f"{_IN[row.period]}: {asked} without a price",)))
        if row.reserved:
            running = words.count(row.reserved, "request")
            blocks.append(Line(None, (f"{_IN[row.period]}: {running} still running",)))
    return View("limits", "Spend limits", tuple(blocks), note=note)


def _spend_row(row: SpendRow) -> tuple[Cell, ...]:
    return (
        _IN[row.period],
        amount("max_cost", row.cost),
        "none" if row.max_cost is None else amount("max_cost", row.max_cost),
        words.number(row.tokens),
        "none" if row.max_total_tokens is None else words.number(row.max_total_tokens),
    )


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
    for failed in audit.failed[: limits.rows]:
        blocks.append(
            failure(failed.server, failed.state, failed.error, failed.stderr_tail, limits)
        )
    rows_for_each = max(2, limits.rows // max(len(audit.servers), 1))
    for server in audit.servers[: limits.rows]:
        if server.tools:
            blocks.append(_tools(server, audit.tokens, rows_for_each))
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
    rows: list[tuple[Cell, ...]] = []
    for each in server.tools[:limit]:
        bar = Bar(words.about(each.tokens, "estimated"), fraction(each.tokens, total))
        rows.append((Name(each.tool.tool), bar))
    note = f"{words.count(len(server.tools), 'tool')}, {words.tokens(server.tokens, 'estimated')}"
    table = Table(columns("Tool", "Tokens"), tuple(rows), len(server.tools) - len(rows))
    blocks: list[Block] = [table]
    if server.left_out:
        lines = "\n".join(labelled(server.left_out.items()))
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
        tools: Sequence[ToolSpec] = ()
        if exploration.tools:
            tools = exploration.tools.catalog.by_server.get(name, ())
        visible = tools[: min(left, limits.rows)]
        rows = tuple(_explored_tool(exploration, tool) for tool in visible)
        left -= len(rows)
        mode = exploration.servers.modes.get(name, "loaded")
        state = Status(mode, _MODES[mode])
        if status.state != "ready":
            state = STATES[status.state]
        figures: tuple[str, ...] = ()
        if status.tools:
            figures = (words.about(status.tokens, "estimated"),)
        heads = columns("Tool", "Description", "Tokens #", shares=(30, 58, 12))
        sections.append(
            Section(
                Phrase((Span(name), Span(words.count(status.tools, "tool"), "quiet"))),
                (Table(heads, rows, len(tools) - len(rows)),),
                mark=state,
                figures=figures,
                fold="closed" if sections else "open",
                look="step",
                brief=True,
            )
        )
    hidden = len(exploration.servers) - len(sections)
    if hidden:
        sections.append(Section(f"{words.count(hidden, 'server')} more", ()))
    return tuple(sections)


_MODES: Mapping[Mode, Tone] = {"loaded": "good", "deferred": "busy", "off": "quiet"}


def _explored_tool(exploration: ExplorerSnapshot, tool: ToolSpec) -> tuple[Cell, ...]:
    price = words.about(tool.tokens, "estimated")
    if tool.restriction or (exploration.tools and exploration.tools.mode(tool) == "off"):
        price = "off"
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
    """Show an app's picture with its call folded, or its call with the result if it has no picture.

    If its page is not shown, show why, with the messages so far.
    """
    facts: list[tuple[str, Cell]] = []
    if app.problem:
        facts.append(("Not shown", app.problem))
    if app.value is not None:
        facts.append(("Value", pretty(app.value, indent=None)))
    call = call_section(app.call, limits.text, ImageBudget(limits.images), fold=False).blocks
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


def usage_change_view(change: UsageChange, limits: DisplayLimits) -> View:
    """Show what a turn costs now, and without the tools that were never used."""
    rows: list[tuple[Cell, ...]] = []
    for label, before, after in (
        ("First request", change.before.now.first_request, change.after.now.first_request),
        ("A turn", change.before.now.turn, change.after.now.turn),
        ("Ten turns", change.before.now.ten_turns, change.after.now.ten_turns),
    ):
        costs = (words.about(before, "estimated"), words.about(after, "estimated"))
        rows.append((label, *costs, words.difference(after, before)))
    by_server: dict[str, list[str]] = {}
    for tool in change.tools:
        by_server.setdefault(tool.tool.server, []).append(tool.tool.tool)
    unused = KeyValues(tuple((server, ", ".join(names)) for server, names in by_server.items()))
    blocks = (
        Table(columns("Tokens in", "Now #", "Then #", "Difference #"), tuple(rows)),
        Section("Tools", (unused,), note=str(len(change.tools)), fold="closed"),
    )
    tools, turns = words.count(len(change.tools), "loaded tool"), words.count(change.turns, "turn")
    title = f"With unused tools {change.mode}"
    return View("usage-change", title, blocks, note=f"{tools} never used in {turns}")


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
    block: Block = TextBlock("None.")
    if messages:
        block = _app_messages(messages, limits)
    return View(
        "app-messages", "Messages of the app", (block,), note=words.count(len(messages), "message")
    )


def app_message_view(message: AppMessage, limits: DisplayLimits) -> View:
    """Show one message of an app."""
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
