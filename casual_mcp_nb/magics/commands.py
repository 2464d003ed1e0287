"""The sub-commands of `%mcp`: a session and the rest of the line in, a noun out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.args import STRATEGIES, one_word, parse_call, parse_place, words_of
from casual_mcp_nb.magics.talk import panel, rerun, stop, undo

if TYPE_CHECKING:
    from casual_mcp_nb.session import Session
    from casual_mcp_nb.types.selection import Mode, Strategy
    from casual_mcp_nb.types.step import Step


@dataclass(frozen=True)
class Command:
    """A sub-command.

    Args:
        group: What it stands under in the help.
        summary: What it is for, in one line.
        usage: What stands behind its name.
        example: One way to write it.
        names: What can be completed behind it: `servers`, `tools`, `tool_sets`, `models`, `templates`, `strategies`, `cases`.
        run: Does it; its result is what the cell shows. None for a command that makes or ends the session.
    """

    group: str
    summary: str
    usage: str = ""
    example: str = ""
    names: str = ""
    run: Callable[[Session, str], Any] | None = None


def search(session: Session, rest: str) -> Any:
    """Search the tools."""
    words = rest.split()
    everything = "--all" in (words[:1] + words[-1:])
    if everything:
        words.pop(0 if words[0] == "--all" else -1)
    if not words:
        raise UsageError("%mcp search needs words to look for.", hint="For example: %mcp search convert a time zone")
    return session.search(" ".join(words), all_tools=everything)


def tools(session: Session, rest: str) -> Any:
    """Show every tool, or those of one server."""
    if not rest:
        return session.tools
    name = one_word("tools", rest, "server")
    _check("server", name, session.servers)
    return session.tools.of_server(name)


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


def preview(session: Session, rest: str) -> Any:
    """Show the system prompt."""
    return session.preview(one_word("preview", rest, "template") if rest else None)


def export(session: Session, rest: str) -> Any:
    """Write the conversation into a file."""
    words = words_of(rest)
    paths = [word for word in words if word != "--overwrite"]
    if len(paths) != 1:
        raise UsageError(f"%mcp export needs one file, found {len(paths)}.", hint="For example: %mcp export lesson.html")
    return session.export(paths[0], overwrite="--overwrite" in words)


def step_of(command: str) -> Callable[[Session, str], Step]:
    """The command's step: the last one, one of the last turn, or one of any turn."""

    def find(session: Session, rest: str) -> Step:
        turn, step = parse_place(command, rest)
        turns = session.turns
        if not turns:
            raise UsageError("Nothing has been said yet.", hint="Start with %%mcp and a message below it.")
        steps = turns[_index("turn", turn, len(turns))].steps
        return steps[_index("step", step, len(steps))]

    return find


def _index(noun: str, number: int | None, count: int) -> int:
    if number is None and count:
        return count - 1
    if number is None or not 1 <= number <= count:
        found = f"There is no {noun} {number}." if number is not None else f"There is no {noun}."
        raise UsageError(found, hint=f"There are {noun}s 1 to {count}." if count else "The turn ended before its first step.")
    return number - 1


def _check(noun: str, name: str, valid: Iterable[str]) -> None:
    if name not in valid:
        raise UnknownNameError(noun, name, valid)


def _no_server() -> list[str]:
    raise UsageError("Name at least one server.", hint="%mcp servers lists them.")


def strategy(session: Session, rest: str) -> Any:
    """Choose how deferred tools are found."""
    if rest:
        name = one_word("strategy", rest, "of search and browse")
        _check("strategy", name, STRATEGIES)
        session.selection.strategy = cast("Strategy", name)
    return session.selection


def evaluate(session: Session, rest: str) -> Any:
    """See how well tools are found for the cases of a file."""
    words = words_of(rest)
    if not words or len(words) > 2 or not all(word.isdecimal() for word in words[1:]):
        raise UsageError(
            "%mcp evaluate needs a file of cases, and may have a number.", hint="For example: %mcp evaluate cases.jsonl 5"
        )
    return session.evaluate(words[0], k=int(words[1][:9]) if len(words) > 1 else None)


def _reconnect(session: Session, rest: str) -> Any:
    return session.reconnect(one_word("reconnect", rest, "server"))


def _tool(session: Session, rest: str) -> Any:
    return session.tools[one_word("tool", rest, "tool")]


def _server(session: Session, rest: str) -> Any:
    name = one_word("server", rest, "server")
    _check("server", name, session.servers)
    return session.servers[name]


_START, _LOOK, _CHOOSE, _TRY = "Start and end", "Look", "Choose what the model sees", "Try a tool"
_TALK, _TROUBLE = "The conversation", "When something does not work"

COMMANDS: dict[str, Command] = {
    "demo": Command(_START, "bundled servers and an offline planner: no key, no network"),
    "connect": Command(_START, "the servers and models of a config file", "FILE", "%mcp connect casual_mcp_config.json"),
    "close": Command(_START, "end all servers"),
    "status": Command(_LOOK, "the session at a glance (also `%mcp` alone)", run=lambda session, _: session.status),
    "servers": Command(_LOOK, "each server: state, tools, tokens", run=lambda session, _: session.connect()),
    "server": Command(_LOOK, "one server: what it can do, what it says", "SERVER", "%mcp server math", "servers", _server),
    "tools": Command(_LOOK, "every tool with its price in tokens", "[SERVER]", "%mcp tools math", "servers", tools),
    "tool": Command(_LOOK, "one tool: parameters, schema", "TOOL", "%mcp tool math__add", "tools", _tool),
    "manifest": Command(_LOOK, "what the model reads about deferred tools", run=lambda session, _: session.manifest),
    "preview": Command(_LOOK, "the system prompt", "[TEMPLATE]", "%mcp preview teacher", "templates", preview),
    "models": Command(_LOOK, "the models and whether their key is set", run=lambda session, _: session.models),
    "clients": Command(_LOOK, "the providers behind the models", run=lambda session, _: session.clients),
    "explore": Command(_CHOOSE, "all of it to be clicked: servers, tools, prices", run=lambda session, _: session.explore()),
    "selection": Command(_CHOOSE, "what is chosen now", run=lambda session, _: session.selection),
    "load": Command(
        _CHOOSE, "send a server's tools with each request", "SERVER …", "%mcp load math", "servers", set_mode("loaded")
    ),
    "defer": Command(
        _CHOOSE, "let the model find them by search", "SERVER …", "%mcp defer files time", "servers", set_mode("deferred")
    ),
    "off": Command(_CHOOSE, "hide a server's tools", "SERVER …", "%mcp off files", "servers", set_mode("off")),
    "toolsets": Command(_CHOOSE, "the toolsets", run=lambda session, _: session.toolsets),
    "toolset": Command(_CHOOSE, "choose a toolset", "NAME | all", "%mcp toolset reading", "tool_sets", toolset),
    "strategy": Command(
        _CHOOSE, "how the model finds deferred tools", "search | browse", "%mcp strategy browse", "strategies", strategy
    ),
    "model": Command(_CHOOSE, "choose a model", "NAME", "%mcp model planner", "models", model),
    "search": Command(
        _TRY,
        "find deferred tools as the model would, with scores; --all: the others too",
        "WORDS [--all]",
        "%mcp search convert a time zone",
        run=search,
    ),
    "call": Command(
        _TRY, "call a tool by hand", 'TOOL {"argument": value}', '%mcp call math__add {"a": 1, "b": 2}', "tools", call
    ),
    "evaluate": Command(
        _TRY, "how well tools are found for the cases of a file", "FILE [K]", "%mcp evaluate cases.jsonl 5", "cases", evaluate
    ),
    "lint": Command(_TRY, "what makes tools hard to find, or dear", run=lambda session, _: session.lint()),
    "history": Command(_TALK, "the turns so far", run=lambda session, _: session.conversation),
    "stats": Command(_TALK, "tokens and calls of the conversation", run=lambda session, _: session.stats),
    "step": Command(_TALK, "one call of the model", "[[TURN.]STEP]", "%mcp step 2", run=step_of("step")),
    "request": Command(
        _TALK,
        "exactly what was sent at a step",
        "[[TURN.]STEP]",
        "%mcp request 1.2",
        run=lambda session, rest: step_of("request")(session, rest).request,
    ),
    "diff": Command(
        _TALK,
        "what was new in a request",
        "[[TURN.]STEP]",
        "%mcp diff 2",
        run=lambda session, rest: step_of("diff")(session, rest).diff(),
    ),
    "export": Command(_TALK, "write it to .html, .md or .json", "FILE [--overwrite]", "%mcp export lesson.html", run=export),
    "new": Command(_TALK, "start another conversation", run=new),
    "panel": Command(_TALK, "a panel to chat in, with approvals and step mode", run=panel),
    "rerun": Command(_TALK, "ask the last turn, or turn N, again", "[N] [OTHER TEXT]", "%mcp rerun 2", run=rerun),
    "undo": Command(_TALK, "take back the last turn", run=undo),
    "stop": Command(_TALK, "stop the turn that a panel runs", run=stop),
    "doctor": Command(_TROUBLE, "check packages, keys, servers", run=lambda session, _: session.doctor()),
    "reconnect": Command(_TROUBLE, "connect one server anew", "SERVER", "%mcp reconnect files", "servers", _reconnect),
    "nested": Command(_TROUBLE, "let your own cells call asyncio.run (patches asyncio)", "on"),
    "help": Command(_TROUBLE, "this text, or that of one command", "[COMMAND]", "%mcp help call", "commands"),
}
"""All sub-commands by name, in the order of the help."""
