"""Views for services: addresses, routes, tools, and how to call them."""

from __future__ import annotations

import json
import shlex

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.service import TOKEN_VARIABLE, ServedAddresses, ServedTools, ServiceStatus
from casual_mcp_nb.display import words
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


def served_tools_view(served: ServedTools, _limits: DisplayLimits) -> View:
    """Show the tools' address, and the entry for another host's config."""
    mark = Status("○ ended", "quiet") if served.closed else Status("● serving", "good")
    tools = f"{count(served.offered, 'tool')} listed"
    if served.deferred:
        tools += f", {count(served.deferred, 'tool')} more by search"
    rows = (
        ("Address", served.url),
        ("Tools", tools),
        ("Token", "needed" if served.has_token else "not needed: only this computer reaches it"),
        ("Clients", str(served.clients)),
    )
    config = TextBlock(
        json.dumps(served.host_config, indent=2, ensure_ascii=False),
        "In another MCP host",
        code=True,
    )
    return View("served-tools", "Tools as one MCP server", (KeyValues(rows), config), mark=mark)


def served_addresses_view(served: ServedAddresses, limits: DisplayLimits) -> View:
    """Show a session's services with their addresses."""
    heads = columns("Address", "Purpose", "Who uses it")
    table = Table.of(heads, served.services, _service_row, limits.rows)
    nothing = TextBlock(
        "Nothing is served. To begin: session.serve.http(), or session.serve.mcp()."
    )
    return View(
        "served-addresses",
        "Served",
        (table if table.rows else nothing,),
        note=words.count(len(served), "address"),
    )


def _service_row(service: ServiceStatus | ServedTools) -> tuple[Cell, ...]:
    url = Name(service.url)
    if isinstance(service, ServedTools):
        return (url, "MCP server", words.count(service.clients, "client"))
    return (url, "HTTP API", f"{words.count(service.turns, 'turn')} running")


_ROUTES = (
    ("POST /chat", "answers a conversation. With Accept: text/event-stream, event by event"),
    ("GET /toolsets", "the toolsets by name"),
    ("GET /health", "whether it runs"),
    ("GET /docs", "the API, to try in a browser. /openapi.json is for programs"),
)
_NO_TOKEN = (
    "none, because only this computer can reach it. Other addresses, such as 0.0.0.0, need one in"
    f" {TOKEN_VARIABLE}"
)


def service_view(service: ServiceStatus, limits: DisplayLimits) -> View:
    """Show the address, the routes and a command that calls them."""
    if not service.running:
        ended = TextBlock(f"{service.url} is no longer served.")
        return View("service", "HTTP API", (ended,), mark=Status("closed", "quiet"))
    routes: tuple[tuple[Cell, ...], ...] = tuple((Name(route), what) for route, what in _ROUTES)
    facts: tuple[tuple[str, Cell], ...] = (
        ("Address", Name(service.url)),
        ("Token", "needed" if service.token_variable else _NO_TOKEN),
        ("Models", _names(service.models, limits)),
        ("Toolsets", _names(service.tool_sets, limits)),
    )
    blocks: tuple[Block, ...] = (
        KeyValues(facts),
        Table(columns("Request", "Purpose"), routes),
        *_denied(service),
        Section("From a shell", (TextBlock(_curl(service), code=True),)),
    )
    note = f"{words.count(service.turns, 'turn')} running" if service.turns else ""
    return View("service", "HTTP API", blocks, mark=Status("✓ serving", "good"), note=note)


def _denied(service: ServiceStatus) -> tuple[Block, ...]:
    if not service.denied:
        return ()
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (Name(str(each.tool)), each.reason) for each in service.denied
    )
    options = dict.fromkeys(each.option for each in service.denied if each.option)
    return (
        Section(
            "Denied, because no one can be asked",
            (Table(columns("Tool", "Why"), rows), *map(TextBlock, options)),
        ),
    )


def _names(names: tuple[str, ...], limits: DisplayLimits) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[: limits.rows])
    more = len(names) - limits.rows
    if more <= 0:
        return shown
    return f"{shown} and {more:,} more"


def _curl(service: ServiceStatus) -> str:
    model = service.models[0] if service.models else "MODEL"
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": "Hello"}], "include_stats": True}
    )
    token = ""
    if service.token_variable:
        token = f' -H "Authorization: Bearer ${service.token_variable}"'
    return (
        f"curl {service.url}/chat{token} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )
