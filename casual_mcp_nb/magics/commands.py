"""The sub-commands of `%mcp`: a session and the rest of the line in, a noun out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.args import one_word, parse_call, words_of

if TYPE_CHECKING:
    from casual_mcp_nb.notebook.session import Session
    from casual_mcp_nb.types.selection import Mode


@dataclass(frozen=True)
class Command:
    """A sub-command that works on the session.

    Args:
        run: Does it; its result is what the cell shows.
        usage: What stands behind the command's name.
        summary: What it is for, in one line.
    """

    run: Callable[[Session, str], Any]
    usage: str
    summary: str


def search(session: Session, rest: str) -> Any:
    """Search the tools."""
    if not rest:
        raise UsageError("%mcp search needs words to look for.", hint="For example: %mcp search convert a time zone")
    return session.search(" ".join(words_of(rest)))


def call(session: Session, rest: str) -> Any:
    """Call a tool."""
    name, arguments = parse_call(rest)
    return session.call_tool(name, **arguments)


def toolset(session: Session, rest: str) -> Any:
    """Choose a toolset, or all tools."""
    if rest:
        name = one_word("toolset", rest, "name of a toolset, or `all`")
        _check("toolset", name, [*session.toolsets, "all"])
        session.selection.tool_set = None if name == "all" else name
    return session.toolsets


def model(session: Session, rest: str) -> Any:
    """Choose a model."""
    if rest:
        name = one_word("model", rest, "name of a model")
        _check("model", name, session.config.models)
        session.model = name
    return session.models


def set_mode(mode: Mode) -> Callable[[Session, str], Any]:
    """The command that puts servers into one mode. Deferring turns discovery on: without it nothing is deferred."""

    def run(session: Session, rest: str) -> Any:
        names = words_of(rest) or _no_server()
        for name in names:
            _check("server", name, session.servers)
        for name in names:
            session.selection.servers[name] = mode
        if mode == "deferred":
            session.selection.discovery = True
        session.connect()
        return session.status

    return run


def new(session: Session, rest: str) -> Any:
    """Start another conversation."""
    session.new_conversation()
    return session.status


def _check(noun: str, name: str, valid: Iterable[str]) -> None:
    if name not in valid:
        raise UnknownNameError(noun, name, valid)


def _no_server() -> list[str]:
    raise UsageError("Name at least one server.", hint="%mcp servers lists them.")


COMMANDS: dict[str, Command] = {
    "status": Command(lambda session, _: session.status, "", "the session at a glance (also `%mcp` alone)"),
    "servers": Command(lambda session, _: session.connect(), "", "each server: state, tools, tokens"),
    "reconnect": Command(
        lambda session, rest: session.reconnect(one_word("reconnect", rest, "server")), "SERVER", "connect one server anew"
    ),
    "tools": Command(lambda session, _: session.tools, "", "every tool with its price in tokens"),
    "tool": Command(
        lambda session, rest: session.tools[one_word("tool", rest, "tool")], "TOOL", "one tool: parameters, schema"
    ),
    "search": Command(search, "WORDS", "find tools as the model would, with scores"),
    "call": Command(call, 'TOOL {"argument": value}', "call a tool by hand"),
    "manifest": Command(lambda session, _: session.manifest, "", "what the model reads about deferred tools"),
    "toolsets": Command(lambda session, _: session.toolsets, "", "the toolsets"),
    "toolset": Command(toolset, "NAME | all", "choose a toolset"),
    "load": Command(set_mode("loaded"), "SERVER …", "send a server's tools with each request"),
    "defer": Command(set_mode("deferred"), "SERVER …", "let the model find a server's tools by search"),
    "off": Command(set_mode("off"), "SERVER …", "hide a server's tools"),
    "models": Command(lambda session, _: session.models, "", "the models and whether their key is set"),
    "model": Command(model, "NAME", "choose a model"),
    "stats": Command(lambda session, _: session.stats, "", "tokens and calls of the conversation"),
    "new": Command(new, "", "start another conversation"),
}
