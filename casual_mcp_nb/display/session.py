"""Views of a session and of its models."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.servers import failures, server_table
from casual_mcp_nb.display.tokens import saving_row
from casual_mcp_nb.display.turn import PLANNER, model_words, tool_set_words
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
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.types.budget import Budget
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.discovery_options import Strategy, option_limits
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.session import Clients, Models, SessionStatus, SystemPrompt

_FOUND: dict[Strategy, str] = {
    "search": "the model searches deferred tools",
    "browse": "the model browses deferred tools by category",
}
_FINDERS: dict[Strategy, str] = {"search": "search_tools", "browse": "the browse tools"}


def _discovery(session: SessionStatus) -> str:
    state = f"on: {_FOUND[session.strategy]}" if session.discovery else "off: nothing is deferred"
    return state if session.auto is None else f"{state} ({auto_words(session.auto)})"


def auto_words(threshold: float) -> str:
    """Describe when `auto` discovery defers."""
    return f"auto: on when tools take over {threshold:g}% of the context window"


def session_view(session: SessionStatus, limits: DisplayLimits) -> View:
    """Show the servers, the model, and the cost of the first request with and without deferring."""
    servers = session.servers
    ready = sum(status.state == "ready" for status in servers.values())
    about = (
        ("Model", model_words(session.model, session.provider)),
        ("Toolset", tool_set_words(session.tool_set)),
        ("Discovery", _discovery(session)),
        ("Conversation", words.count(session.turns, "turn")),
    )
    if session.closed:
        advice = TextBlock(in_words_of("Its turns can still be read and exported. Start again with %mcp demo or %mcp connect."))
        return View("session", "Session", (KeyValues(about), advice), mark=Status("closed", "quiet"))
    blocks: list[Block] = [
        KeyValues(about),
        Section(
            "Servers", (server_table(servers, limits), *failures(servers, limits)), note=f"{ready} of {len(servers)} ready"
        ),
        Section("Tool definitions in the first request", (KeyValues(_price(session)),)),
        *turn_section(session.budget),
    ]
    if session.notes:
        blocks.append(Section("Notes", (TextBlock("\n".join(session.notes[: limits.rows])),)))
    return View("session", "Session", tuple(blocks))


def offered_words(offered: int, deferred: int, strategy: Strategy) -> str:
    """Count the tools in the first request; those that find the deferred ones are included and named too."""
    finder = f" and {_FINDERS[strategy]}" if deferred else ""
    return f"{words.count(offered, 'tool')}{finder}"


def _price(session: SessionStatus) -> tuple[tuple[str, Cell], ...]:
    return (
        ("Sent with every request", offered_words(session.offered, session.deferred, session.strategy)),
        *((("Searchable", words.count(session.deferred, "tool")),) if session.deferred else ()),
        ("Tokens", words.tokens(session.tokens, "estimated")),
        ("If every tool were loaded", words.tokens(session.undeferred_tokens, "estimated")),
    )


def turn_section(budget: Budget | None) -> tuple[Section, ...]:
    """Show the cost of a whole turn and the saving by deferring; nothing where no tool is deferred.

    A saving in one request would be larger than any that a person gets: a search is one more request.
    """
    if budget is None or budget.saved is None:
        return ()
    now, without = budget.now.turn, budget.undeferred.turn
    rows = (
        ("Tokens", words.tokens(now, "estimated")),
        ("If every tool were loaded", words.tokens(without, "estimated")),
        *saving_row(now, without),
    )
    return (Section("A turn with one search and one call", (KeyValues(rows),), note="all its requests together"),)


def models_view(models: Models, limits: DisplayLimits) -> View:
    """Show the models with their providers, whether a key is set, and their templates if any has one."""
    templates = any(row.template for row in models.rows)
    rows = tuple(
        (
            Name(row.name),
            row.provider,
            PLANNER if row.provider == "offline" else row.model,
            row.client,
            row.key,
            Status("● default", "busy") if row.default else "",
            *([row.template or ""] if templates else []),
        )
        for row in models.rows[: limits.rows]
    )
    names = ("Name", "Provider", "Model", "Client", "Key", "Default", *(["Template"] if templates else []))
    table = Table(columns(*names), rows, len(models) - len(rows))
    return View("models", "Models", (table if rows else TextBlock("None."),), note=words.count(len(models), "model"))


def clients_view(clients: Clients, limits: DisplayLimits) -> View:
    """Show the clients with their providers, whether a key is set, and their timeouts if they differ."""
    differ = len({row.timeout for row in clients.rows}) > 1
    rows = tuple(
        (
            *(Name(row.name), row.provider, row.address or "provider default", row.key, ", ".join(row.models) or "none"),
            *([f"{row.timeout:g} s"] if differ else []),
        )
        for row in clients.rows[: limits.rows]
    )
    names = ("Client", "Provider", "Address", "Key", "Models", *(["Timeout"] if differ else []))
    table = Table(columns(*names), rows, len(clients) - len(rows))
    return View("clients", "Clients", (table if rows else TextBlock("None."),), note=words.count(len(clients), "client"))


def discovery_words(selection: Selection) -> str:
    """Describe whether a selection defers."""
    if selection.discovery == "auto":
        return auto_words(selection.auto_threshold)
    return "on" if selection.discovery else "off: nothing is deferred"


def selection_view(selection: Selection, limits: DisplayLimits) -> View:
    """Show the person's choices: toolset, mode of each server, discovery."""
    tool_set = selection.tool_set
    off = list(selection.tools_off)
    facts: list[tuple[str, Cell]] = [
        ("Toolset", tool_set_words("Custom (unsaved)" if isinstance(tool_set, ToolSetConfig) else tool_set)),
        ("Discovery", discovery_words(selection)),
        ("Defer every server", _defer_all(selection)),
        ("How the model finds tools", selection.strategy),
        ("How it gets what was found", selection.delivery),
        *((limit.label, words.count(getattr(selection, name), limit.unit)) for name, limit in option_limits()),
        ("Tools turned off", ", ".join(off) if off else "none"),
    ]
    rows = tuple((Name(name), mode) for name, mode in list(selection.servers.items())[: limits.rows])
    table = Table(columns("Server", "Mode"), rows, len(selection.servers) - len(rows))
    servers: Block = table if rows else TextBlock("Each server has the mode of its config.")
    return View("selection", "Selection", (KeyValues(tuple(facts)), Section("Servers", (servers,))))


def _defer_all(selection: Selection) -> str:
    if not selection.defer_all:
        return "no"
    return f"yes, except {', '.join(selection.always_loaded)}" if selection.always_loaded else "yes"


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
