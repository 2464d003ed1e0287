"""`casual-mcp-nb servers`, `tools`, `tool`, `search`, `call`, `models`, `clients` and `audit`: look
at a config.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from casual_mcp_nb.base.iterables import attributes, field_names
from casual_mcp_nb.cli import FAILED, exit_code
from casual_mcp_nb.cli.terminal import (
    DEFAULT_CONFIG,
    AsJson,
    Flag,
    Source,
    Trust,
    connect,
    show,
    write_json,
)
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.base.search import Explanation, SearchHit
    from casual_mcp_nb.base.status import Servers, ServerStatus, Tools
    from casual_mcp_nb.base.tool import ToolSpec
    from casual_mcp_nb.display.view import View
    from casual_mcp_nb.session import Session


_SOURCE = Source()
_CALL_EXAMPLES = """For example: casual-mcp-nb call math:add a=1 b=2, or '{"a": 1, "b": 2}'"""


def models(*, source: Source = _SOURCE, json: AsJson = False) -> None:
    """List the config's models."""
    from casual_mcp_nb.notebook.models import models_of

    config = source.load()
    rows = models_of(config, next(iter(config.models), None))
    if json:
        write_json(list(map(asdict, rows)))
    else:
        show(rows)


def clients(*, source: Source = _SOURCE, json: AsJson = False) -> None:
    """List the config's clients, and whether their keys are set."""
    from casual_mcp_nb.notebook.models import clients_of

    rows = clients_of(source.load())
    if json:
        write_json(list(map(asdict, rows)))
    else:
        show(rows)


def servers(server: str | None = None, /, *, source: Source = _SOURCE, json: AsJson = False) -> int:
    """Start the servers, and list them with their tools, tokens and errors.

    Exits with 1 if a server fails.

    Args:
        server: Show everything about this one.
    """
    with source.open() as session:
        if server is not None and server not in session.servers:
            raise UnknownNameError("server", server, session.servers)
        connect(session)
        statuses = session.servers.now
        chosen = statuses if server is None else {server: statuses[server]}
        if json:
            write_json([_plain(status, statuses.modes[name]) for name, status in chosen.items()])
        elif server is not None:
            show(statuses[server])
        else:
            show(_servers_view(statuses))
        for status in chosen.values():
            if status.state == "failed" or status.error:
                return FAILED
        return 0


def find(target: str, /, *more: str, source: Source = _SOURCE, json: AsJson = False) -> int:
    """Find servers: those that a domain's AI catalog lists, or those of the registry.

    None is started or contacted.

    Args:
        target: A domain (resend.com), a name in the registry (io.github.user/weather), or words to
            search for there.
    """
    from casual_mcp_nb.base.config import REGISTRY
    from casual_mcp_nb.notebook.servers import find_servers

    no_config = source.config == DEFAULT_CONFIG and not source.config.exists()
    registry = REGISTRY if no_config else source.load().registry
    listing = find_servers(" ".join([target, *more]), registry)
    if json:
        write_json([{**asdict(server), "entry": dict(server.entry)} for server in listing])
    else:
        show(listing, whole=True)
    if any(not server.problem for server in listing):
        return 0
    return FAILED


def accounts(
    action: Literal["remove"] | None = None, name: str | None = None, /, *, json: AsJson = False
) -> None:
    """List the sign-ins to servers that are remembered on this computer, or forget one: accounts
    remove NAME.

    Args:
        action: Forget the sign-in to the server NAME.
        name: The server's name, or its address.
    """
    from casual_mcp_nb.notebook.servers import SessionAccounts

    if action is not None:
        if name is None:
            raise UsageError(
                "Which account?", hint="For example: casual-mcp-nb accounts remove weather"
            )
        SessionAccounts().remove(name)
    if json:
        write_json(list(map(asdict, SessionAccounts())))
    else:
        show(SessionAccounts().now, whole=True)


def audit(path: Path, /, *, trust: Trust = False, json: AsJson = False) -> int:
    """Start a config's servers, or another MCP host's, and list their tools' cost in tokens, sorted
    by price.

    Also shows the cost with every tool deferred. Of a saved conversation, or a session with another
    agent, shows what deferring would have saved in it. Changes nothing. Exits with 1 if a server
    fails.

    Args:
        path: The config, such as ~/.claude.json, .vscode/mcp.json, ~/.codex/config.toml or
            jupyter-ai's mcp_settings.json. Or the file of a session.
    """
    from casual_mcp_nb.config.loader import load_readable
    from casual_mcp_nb.conversation.foreign.opening import is_session

    path = path.expanduser()
    if path.is_file() and is_session(path):
        _audit_session(path, json=json)
        return 0
    source = Source(path, trust=trust)
    with source.open(load_readable(path, source.accept)) as session:
        connect(session)
        measured = session.servers.audit()
    if json:
        write_json(measured.as_dict())
    else:
        show(measured, whole=True)
    return exit_code(not measured.failed)


def _audit_session(path: Path, *, json: bool) -> None:
    from casual_mcp_nb.discovery.conversation_audit import audit_conversation

    audited = audit_conversation(path)
    if not json:
        show(audited, whole=True)
        return
    tokens = {name: getattr(audited, name)._asdict() for name in ("sent", "deferred")}
    calls = {str(each.tool): each.calls for each in audited.usage if each.calls}
    write_json(
        {
            "requests": audited.requests,
            "deferring": audited.deferring,
            **tokens,
            "origin": audited.origin,
            "saved": audited.saved,
            "calls": calls,
        }
    )


def _plain(status: ServerStatus, mode: str) -> dict[str, Any]:
    plain = attributes(status, field_names(status))
    del plain["specs"]
    return {**plain, "mode": mode}


def _servers_view(servers: Servers) -> View:
    from casual_mcp_nb.display.view import SIZE_TIERS, Column, Table, View
    from casual_mcp_nb.servers.views import failures, servers_view

    limits = SIZE_TIERS[0]
    view = servers_view(servers, limits)
    table = view.blocks[0]
    if not isinstance(table, Table):
        return view
    rows = tuple(
        (*row, (status.version or "").removeprefix(f"{status.name} "))
        for row, status in zip(table.rows, servers.values(), strict=False)
    )
    table = Table((*table.columns, Column("Version")), rows, table.hidden)
    return View(view.name, view.title, (table, *failures(servers, limits)), view.mark, view.note)


def tools(
    server: str | None = None,
    *,
    toolset: Annotated[str | None, Parameter(alias="-t")] = None,
    source: Source = _SOURCE,
    json: AsJson = False,
) -> None:
    """List the tools with their cost in tokens.

    With discovery there is also a status: sent with every request (loaded), found by search
    (deferred), or never offered (off).

    Args:
        server: Only this server's tools.
        toolset: Only the tools that this toolset includes.
    """
    from casual_mcp_nb.base.tool import of_server

    with source.connected() as session:
        choose(session, toolset)
        if server is not None and server not in session.servers:
            raise UnknownNameError("server", server, session.servers)
        everything = session.tools.now
        rows = list(everything)
        if server is not None:
            rows = of_server(rows, server)
        if toolset is not None:
            rows = [tool for tool in rows if everything.mode(tool) != "off"]
        if json:
            write_json([plain_tool(tool, status_of(everything, tool)) for tool in rows])
        else:
            show(_tools_view(everything, rows, session.status.discovery))


def tool(name: str, /, *, source: Source = _SOURCE, json: AsJson = False) -> None:
    """Show one tool: its description, its parameters and their schema.

    Args:
        name: The tool, such as math:add.
    """
    with source.connected() as session:
        everything = session.tools.now
        spec = everything[name]
        if json:
            write_json(plain_tool(spec, status_of(everything, spec)))
        else:
            show(spec)


def search(
    query: Annotated[tuple[str, ...], Parameter(negative=())],
    /,
    *,
    all: Flag = False,
    why: Flag = False,
    why_not: str | None = None,
    server: str | None = None,
    limit: Annotated[int | None, Parameter(alias="-n", validator=Number(gte=1))] = None,
    source: Source = _SOURCE,
    json: AsJson = False,
) -> None:
    """Search the deferred tools as the model does, and show scores.

    Args:
        query: The search words.
        all: Search the loaded tools too.
        why: Explain each rank.
        why_not: Explain the rank of this tool only, even if it was not found.
        server: Only this server's tools.
        limit: How many the model would get, instead of the config's limit.
    """
    if not query:
        raise UsageError(
            "What are you looking for?",
            hint='For example: casual-mcp-nb search "convert a time zone"',
        )
    with source.connected() as session:
        if server is not None and server not in session.servers:
            raise UnknownNameError("server", server, session.servers)
        results = session.search(" ".join(query), k=limit, server=server, all_tools=all)
        if why_not is not None:
            explanation = results.why_not(why_not)
            if json:
                write_json(
                    {
                        **_plain_reason(explanation),
                        "tool": str(explanation.tool.tool_name),
                        "verdict": explanation.verdict,
                    }
                )
            else:
                show(explanation, whole=True)
        elif json:
            hits = [_plain_hit(hit, results.cut, why) for hit in results]
            write_json(
                {
                    "query": results.query,
                    "searched": results.searched,
                    "limit": results.cut,
                    "hits": hits,
                }
            )
        else:
            show(results, whole=why)


def call(
    name: str,
    arguments: str = "{}",
    /,
    *more: Annotated[str, Parameter(show=False)],
    source: Source = _SOURCE,
    json: AsJson = False,
) -> int:
    """Call a tool yourself, without a model. Fails if the tool reports an error.

    Args:
        name: The tool, such as math:add.
        arguments: Its arguments: a JSON object, or name=value for each.
        more: Further arguments, or the rest of the object if a shell split it at spaces.
    """
    words = [arguments, *more]
    values = _assigned(words) if re.match(r"[^\W\d]\w*=", arguments) else _object(" ".join(words))
    with source.connected() as session:
        call = session.tools.call(name, **values)
        if json:
            write_json(
                {
                    "tool": str(call.tool),
                    "status": call.status,
                    "seconds": call.seconds,
                    "result": call.result,
                    "structured": call.structured,
                }
            )
        else:
            show(call)
        return exit_code(call.status == "ok")


def choose(session: Session, toolset: str | None) -> None:
    """Select a toolset by name, if there is one."""
    if toolset is not None:
        session.selection.tool_set = toolset


def status_of(tools: Tools, tool: ToolSpec) -> str:
    """Describe a tool's status: `loaded`, `deferred`, `off`, or why it is never offered."""
    if tool.restriction:
        return tool.restriction
    if tool.tool_name in tools.excluded:
        return "excluded by config"
    return tools.mode(tool)


def plain_tool(tool: ToolSpec, status: str) -> dict[str, Any]:
    """Convert a tool for `--json`."""
    return {
        "name": str(tool.tool_name),
        "server": tool.server,
        "tool": tool.name,
        "wire_name": tool.wire_name,
        "status": status,
        "tokens": tool.tokens,
        "behaviour": list(tool.annotations.badges) if tool.annotations else [],
        "description": tool.description,
        "input_schema": tool.input_schema,
    }


def _tools_view(tools: Tools, rows: list[ToolSpec], discovery: bool) -> View:
    from casual_mcp_nb.base.tokens import total_tokens
    from casual_mcp_nb.base.tool import for_models
    from casual_mcp_nb.display import words
    from casual_mcp_nb.display.view import Cell, Name, Table, TextBlock, View, columns
    from casual_mcp_nb.display.words import SUMMARY, first
    from casual_mcp_nb.servers.views import behaviour

    statuses = {tool.tool_name: status_of(tools, tool) for tool in rows}
    with_status = discovery or any(status != "loaded" for status in statuses.values())

    titles = ["Tool", "Tokens #", "Behaviour", "Description"]
    if with_status:
        titles.insert(1, "Status")

    def row(tool: ToolSpec) -> tuple[Cell, ...]:
        price = "" if tool.restriction else words.about(tool.tokens, "estimated")
        cells: list[Cell] = [
            Name(str(tool.tool_name)),
            price,
            behaviour(tool),
            first(tool.description, SUMMARY),
        ]
        if with_status:
            cells.insert(1, statuses[tool.tool_name])
        return tuple(cells)

    price = words.tokens(total_tokens(for_models(rows)), "estimated")
    note = f"{words.count(len(rows), 'tool')}, {price}"
    return View(
        "tools",
        "Tools",
        (Table(columns(*titles), tuple(map(row, rows))) if rows else TextBlock("None."),),
        note=note,
    )


def _plain_hit(hit: SearchHit, limit: int, why: bool) -> dict[str, Any]:
    plain = {
        "tool": str(hit.tool.tool_name),
        "rank": hit.rank,
        "score": hit.score,
        "returned": hit.rank <= limit,
        "description": hit.tool.description,
    }
    if why:
        plain |= _plain_reason(hit.explain())
    return plain


def _plain_reason(explanation: Explanation) -> dict[str, Any]:
    return {
        "rank": explanation.rank,
        "score": explanation.score,
        "shares": list(map(asdict, explanation.shares)),
        "missing": list(explanation.missing),
    }


def _assigned(words: list[str]) -> dict[str, Any]:
    """Parse `name=value` words, as `%mcp call` does."""
    from casual_mcp_nb.base.limits import typed_value

    if bad := next((word for word in words if "=" not in word), None):
        raise UsageError(f"{shown(bad)} is not an argument with its value.", hint=_CALL_EXAMPLES)
    return {name: typed_value(value) for name, value in (word.split("=", 1) for word in words)}


def _object(text: str) -> dict[str, Any]:
    import json

    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UsageError(
            "The arguments must be a JSON object, or name=value for each.", hint=_CALL_EXAMPLES
        )
    return value
