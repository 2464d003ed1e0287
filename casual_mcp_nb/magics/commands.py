"""The `%mcp` commands.

Each takes a session and the text after its name, and returns the cell's output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from casual_mcp_nb.base.displayable import Done
from casual_mcp_nb.base.displayable import count as counted
from casual_mcp_nb.base.model_options import DELIVERY_SETTINGS
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown
from casual_mcp_nb.magics.args import (
    CELL_OPTIONS,
    STRATEGIES,
    first_word,
    one_word,
    parse_assignments,
    parse_call,
    parse_cassette,
    parse_compare,
    parse_fork,
    parse_position,
    parse_wire,
    split_ends,
    without_quotes,
    words_of,
)
from casual_mcp_nb.magics.named_models import model_named

Run = Callable[["Session", str], Any]

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Approval, Period
    from casual_mcp_nb.base.selection import Mode
    from casual_mcp_nb.conversation.step import Step
    from casual_mcp_nb.notebook.usage import SessionUsage
    from casual_mcp_nb.session import Session


@dataclass(frozen=True)
class Command:
    """A `%mcp` command.

    Attributes:
        topic: The word with which `%mcp help` lists it, one of `TOPICS`.
        summary: What it does, for the help.
        usage: What follows its name, for the help. Empty if nothing may.
        example: What can follow its name.
        names: The field of `completion.Names` with its completions, or an empty string.
        run: Runs it. None for a command that needs no session, or opens or closes it: the magics
            run it.
        ends_in_text: Whether its line ends in a person's text or in the command of a server.
            Nothing in these is an option of the magic.
        fills_in: Whether `{expression}` and `$name` are filled in before it runs. They are not
            where a line can hold JSON or a person's text.
    """

    topic: str
    summary: str
    usage: str = ""
    example: str = ""
    names: str = ""
    run: Run | None = None
    ends_in_text: bool = False
    fills_in: bool = True


def _connected(session: Session) -> Session:
    """Connect the session's servers: properties show only connected ones."""
    session.connect()
    return session


def _of_server(session: Session, items: Any, command: str, line: str) -> Any:
    """Return the items of all servers, or those of the server that the line names."""
    if not line:
        return items
    name = one_word(command, line, "server", "time")
    _check("server", name, session.servers)
    return items.of_server(name)


def set_mode(session: Session, line: str, mode: Mode) -> Any:
    """Set the mode of the servers and of the single tools that the line names.

    Deferring turns discovery on, without which nothing is deferred. The other tools of a server of
    which a tool is deferred stay loaded.

    Returns the session's status, with what has changed as a note.

    Raises:
        UsageError: No server is named, or there is no such server or tool.
    """
    words = words_of(line)
    if not words:
        raise UsageError("Which server?", hint="%mcp servers lists them.")
    servers: list[str] = []
    tools: list[str] = []
    for word in words:
        if ":" in word:
            tools.append(word)
        else:
            _check("server", word, session.servers)
            servers.append(word)
    before = session.status
    for tool in tools:
        if mode == "loaded":
            session.tools.load(tool)
        elif mode == "off":
            session.selection.tools_off.add(str(session.tools[tool].tool_name))
    if mode == "deferred" and tools:
        from casual_mcp_nb.notebook.usage import selection_deferring

        names = {session.tools[tool].tool_name for tool in tools}
        session.selection.assign(selection_deferring(session.parts.chat, names))
    for server in servers:
        session.selection.servers[server] = mode
    if mode == "deferred":
        session.selection.discovery = True
    session.connect()
    after = session.status
    changes: list[str] = []
    for server in servers:
        old, new = before.servers.modes[server], after.servers.modes[server]
        changes.append(f"{server}: {old} → {new}")
    # The tokens are only known if the servers were connected before.
    if before.tokens:
        changes.append(f"tool definitions: ≈ {before.tokens:,} → ≈ {after.tokens:,} tokens")
    return replace(after, notes=("; ".join(changes), *after.notes))


def conversation_id(command: str, line: str) -> str:
    """Parse the id of a saved conversation."""
    return one_word(command, line, "conversation", "k7m2p9xa")


def _step_at(session: Session, command: str, line: str) -> Step:
    """Find a command's step: the last one, one in the last turn, or one in any turn."""
    turn, step = parse_position(command, line)
    turns = session.turns
    if not turns:
        raise UsageError("There are no turns yet.", hint="Start with %%mcp and a message below it.")
    steps = turns[_index("turn", turn, len(turns))].steps
    return steps[_index("step", step, len(steps))]


def _index(kind: str, number: int | None, count: int) -> int:
    """Convert a number from 1 to an index. Without one it is the last."""
    if number is None and count:
        return count - 1
    if number is not None and 1 <= number <= count:
        return number - 1
    text = f"There is no {kind}."
    if number is not None:
        text = f"There is no {kind} {number}."
    hint = "There are none yet."
    if kind == "step":
        hint = "The turn ended before its first step."
    if count:
        hint = f"There are {kind}s 1 to {count}."
    raise UsageError(text, hint=hint)


def _check(kind: str, name: str, valid: Collection[str]) -> None:
    if name not in valid:
        raise UnknownNameError(kind, name, valid)


def _choose(session: Session, option: str, valid: Sequence[str], example: str, line: str) -> Any:
    """Set a selection option to one of a few words."""
    if line:
        name = one_word(option, line, option, example)
        _check(option, name, valid)
        session.selection.set_option(option, name)
    return session.selection


COMMANDS: dict[str, Command] = {}
"""All commands by name, in the order in which help lists them."""

_SERVERS = "servers"
_TOOLS = "tools"
_CHOICE = "choice"
_CHAT = "chat"
_SAVED = "saved"
_OFFERS = "offers"
_MEASURE = "measure"
_RECORDINGS = "recordings"
_PROBLEMS = "problems"

TOPICS = {
    _SERVERS: "Start servers, and see what they say",
    _TOOLS: "Look at tools and try them",
    _CHOICE: "Choose the model's tools",
    _CHAT: "Ask a model, and look at its turns",
    _SAVED: "Keep conversations, and open them again",
    _OFFERS: "Read resources, prompts and skills",
    _MEASURE: "Compare, evaluate and check",
    _RECORDINGS: "Record and replay",
    _PROBLEMS: "Find what is wrong",
}
"""What the commands of each topic are for, by the word for `%mcp help`."""

EVERY_DAY = (
    "demo",
    "connect",
    "servers",
    "tools",
    "search",
    "explore",
    "panel",
    "toolset",
    "defer",
    "load",
    "off",
    "budget",
    "resume",
    "export",
    "doctor",
)
"""The commands that `%mcp help` lists."""

SAME = {"server": "servers", "models": "model", "toolsets": "toolset"}
"""Other spellings of commands, each with the one that help and completion list."""


def command(
    name: str,
    topic: str,
    summary: str,
    usage: str = "",
    example: str = "",
    names: str = "",
    *,
    ends_in_text: bool = False,
    fills_in: bool = True,
) -> Callable[[Run], Run]:
    """Register a function as the command of this name, see `Command`."""

    def register(run: Run) -> Run:
        COMMANDS[name] = Command(
            topic, summary, usage, example, names, run, ends_in_text=ends_in_text, fills_in=fills_in
        )
        return run

    return register


COMMANDS["demo"] = Command(
    _SERVERS,
    "start the bundled servers, with the offline planner (no key, no network) or a model",
    usage="[--model PROVIDER:MODEL]",
    example="--model ollama:qwen3:8b",
)


COMMANDS["connect"] = Command(
    _SERVERS,
    "open a session with a config file's servers and models, or with one server and a model. %mcp add"
    " adds a server to it",
    usage="FILE [--trust] | [--name NAME] COMMAND | ADDRESS | DOMAIN [SERVER]"
    " [--model PROVIDER:MODEL]",
    example="npx -y @modelcontextprotocol/server-memory --model openai:gpt-4.1",
    ends_in_text=True,
)


@command(
    "add",
    _SERVERS,
    "add a server: a command, an address, a bundled one, or one that a domain or the registry"
    " lists",
    usage="[--name NAME] COMMAND | ADDRESS | NAME | DOMAIN [SERVER] | REGISTRY-NAME",
    example="npx -y @modelcontextprotocol/server-memory",
    ends_in_text=True,
)
def _add(session: Session, line: str) -> Any:
    from casual_mcp_nb.notebook.servers import check_typed

    server, options = split_ends(line, ("--name",))
    if server:
        check_typed(server)
    return session.servers.add(options.get("--name"), server)


COMMANDS["find"] = Command(
    _SERVERS,
    "find servers: what a domain lists, or what the registry has. Starts and contacts none of them",
    usage="DOMAIN | REGISTRY-NAME | WORDS",
    example="resend.com",
    ends_in_text=True,
    fills_in=False,
)


@command(
    "remove",
    _SERVERS,
    "stop a server and forget it",
    usage="SERVER",
    example="memory",
    names="servers",
)
def _remove(session: Session, line: str) -> Any:
    name = one_word("remove", line, "server", "docs")
    session.servers.remove(name)
    return Done(f"{name} is removed. {counted(len(session.servers), 'server')} left.")


COMMANDS["accounts"] = Command(
    _SERVERS,
    "the sign-ins to servers that are remembered on this computer. remove forgets one",
    usage="[remove NAME]",
    example="remove weather",
)


COMMANDS["replay"] = Command(
    _RECORDINGS,
    "open a session in which a cassette answers: no key, no network, no server",
    usage="FILE [--pace FACTOR]",
    example="lesson.json",
)


COMMANDS["close"] = Command(_SERVERS, "stop all servers")


@command(
    "trust",
    _SERVERS,
    "the config's commands, and the addresses that get keys. --accept accepts them",
    usage="[--accept]",
    example="--accept",
)
def _trust(session: Session, line: str) -> Any:
    if line:
        if line != "--accept":
            raise UsageError("%mcp trust takes only --accept.")
        session.consent.trust().accept()
    return session.consent.trust()


@command("status", _PROBLEMS, "the session at a glance (like %mcp alone)")
def _status(session: Session, _line: str) -> Any:
    return session.status


@command(
    "servers",
    _SERVERS,
    "each server: state, tools, tokens; or one as a card, with its features and notes",
    usage="[SERVER]",
    example="math",
    names="servers",
)
def _servers(session: Session, line: str) -> Any:
    if not line:
        return session.connect()
    name = one_word("servers", line, "server", "time")
    _check("server", name, session.servers)
    return session.servers[name]


@command(
    "tools",
    _TOOLS,
    "all tools and their cost in tokens",
    usage="[SERVER]",
    example="math",
    names="servers",
)
def _tools(session: Session, line: str) -> Any:
    return _of_server(session, _connected(session).tools.now, "tools", line)


@command(
    "tool",
    _TOOLS,
    "one tool: parameters, schema",
    usage="TOOL",
    example="math:add",
    names="tools",
)
def _tool(session: Session, line: str) -> Any:
    return _connected(session).tools[one_word("tool", line, "tool", "math:add")]


@command(
    "approval",
    _TOOLS,
    "when calls ask for your consent or permission, and allowing a server or a tool",
    usage="[SERVER | TOOL never | destructive | always]",
    example="library never",
    names="tools",
)
def _approval(session: Session, line: str) -> Any:
    if line:
        name, _, policy = line.rpartition(" ")
        if not name.strip():
            raise UsageError(
                "%mcp approval needs a server or a tool, and a policy.",
                hint="For example: %mcp approval library never",
            )
        session.consent.set_policy(name.strip(), cast("Approval", policy))
        return Done(f"The policy of {name.strip()} is now {policy}. %mcp approval lists them all.")
    return session.consent


@command("manifest", _TOOLS, "the text about deferred tools that the model reads")
def _manifest(session: Session, _line: str) -> Any:
    return _connected(session).tools.manifest


@command(
    "preview",
    _CHAT,
    "the system prompt",
    usage="[TEMPLATE]",
    example="teacher",
    names="templates",
)
def _preview(session: Session, line: str) -> Any:
    if not line:
        return session.models.preview()
    return session.models.preview(one_word("preview", line, "template"))


@command("clients", _CHAT, "the providers behind the models")
def _clients(session: Session, _line: str) -> Any:
    return session.models.clients


@command("budget", _CHOICE, "the estimated cost of one turn and ten turns")
def _budget(session: Session, _line: str) -> Any:
    return session.tools.budget


@command(
    "limit",
    _CHAT,
    "what models cost, and spend limits for a turn, a conversation or a day: dollars or tokens",
    usage="[(turn | conversation | day) (DOLLARS | COUNT tokens | off)]",
    example="day 2.50",
)
def _limit(session: Session, line: str) -> Any:
    if line == "off":
        session.limits.clear()
    elif line:
        match = re.fullmatch(
            r"(?P<period>\w+)\s+"
            r"(?:(?P<off>off)|(?P<count>\d[\d,_]*)\s+tokens?|\$?(?P<dollars>\d*\.?\d+))",
            line,
        )
        if match is None:
            raise UsageError(
                "%mcp limit takes a period, and an amount or off.",
                hint="For example: %mcp limit day 2.50, or %mcp limit turn 50000 tokens",
            )
        period = cast("Period", match["period"])
        if match["off"]:
            session.limits.clear(period)
        elif match["count"]:
            tokens = int(re.sub("[,_]", "", match["count"]))
            session.limits.set(period, max_total_tokens=tokens)
        else:
            session.limits.set(period, max_cost=float(match["dollars"]))
    return session.limits


@command(
    "usage",
    _CHOICE,
    "how the tools were really used in your saved conversations, and the cost of the others",
    usage="[this | ID | SERVER | SERVER:TOOL] [--defer | --off] [--apply]",
    names="doctor",
    example="--defer",
)
def _usage(session: Session, line: str) -> Any:
    words = line.split()
    options = {word for word in words if word.startswith("--")}
    names = [word for word in words if word not in options]
    if options - {"--defer", "--off", "--apply"} or len(names) > 1:
        raise UsageError(
            "%mcp usage takes one conversation, server or tool, and --defer or --off with --apply.",
            hint="For example: %mcp usage this, or %mcp usage --defer",
        )
    usage = _usage_of(session, *names)
    if not options:
        return usage
    if not ("--defer" in options) ^ ("--off" in options):
        raise UsageError(
            "Say what becomes of the tools that were never used: --defer or --off.",
            hint="%mcp usage --defer shows what it would save; with --apply it is done.",
        )
    change = usage.defer() if "--defer" in options else usage.turn_off()
    if "--apply" in options:
        change.apply()
    return change


def _usage_of(session: Session, name: str = "all") -> SessionUsage:
    """Count the uses in conversations, or those of a server or a tool in all of them."""
    if name not in session.servers and ":" not in name:
        return session.tools.usage(name)
    usage = session.tools.usage()
    # Also those of a server that the session does not have.
    rows = [tool for tool in usage if name in (tool.tool.server, str(tool.tool))]
    if not rows and ":" in name:
        rows = [usage.of(session.tools[name].tool_name)]
    return replace(usage, tools=tuple(rows))


@command(
    "memory",
    _CHOICE,
    "the questions in your saved conversations that searches learn from. Off until you turn it on",
    usage="[on | off | forget NUMBER | clear]",
    example="on",
)
def _memory(session: Session, line: str) -> Any:
    memory = session.tools.memory
    action, _, number = line.partition(" ")
    match action:
        case "on" if not number:
            memory.on = True
            questions = memory.now
            learned = counted(len(questions), "question")
            return Done(questions.note or f"Searches learn from {learned}: see %mcp memory.")
        case "off" if not number:
            memory.on = False
            return Done("Searches do not learn from your questions.")
        case "clear" if not number:
            memory.clear()
            return Done("All questions are forgotten. Their conversations stay saved.")
        case "forget" if number.isdecimal():
            questions = memory.now
            question = questions[_index("question", int(number), len(questions))]
            memory.forget(question)
            return Done(f"“{question.text}” is forgotten. Its conversation stays saved.")
        case "":
            pass
        case _:
            raise UsageError(
                "%mcp memory takes on, off, forget with a number, or clear.",
                hint="%mcp memory lists the questions with their numbers.",
            )
    return memory


@command("explore", _CHOICE, "a widget to explore servers, tools and their cost")
def _explore(session: Session, _line: str) -> Any:
    return session.explore()


@command("selection", _CHOICE, "the current choices")
def _selection(session: Session, _line: str) -> Any:
    return session.selection


@command(
    "load",
    _CHOICE,
    "send a server's tools, or single ones, with each request",
    usage="SERVER … | SERVER:TOOL …",
    example="math units:convert_units",
    names="servers",
)
def _load(session: Session, line: str) -> Any:
    return set_mode(session, line, "loaded")


@command(
    "defer",
    _CHOICE,
    "let the model find a server's tools by search, or single ones",
    usage="SERVER … | SERVER:TOOL …",
    example="files time",
    names="servers",
)
def _defer(session: Session, line: str) -> Any:
    return set_mode(session, line, "deferred")


@command(
    "off",
    _CHOICE,
    "hide a server's tools, or single ones",
    usage="SERVER … | SERVER:TOOL …",
    example="files",
    names="servers",
)
def _off(session: Session, line: str) -> Any:
    return set_mode(session, line, "off")


@command(
    "toolset",
    _CHOICE,
    "the toolsets, or choose one",
    usage="[NAME | all]",
    example="reading",
    names="tool_sets",
)
def _toolset(session: Session, line: str) -> Any:
    if line:
        name = one_word("toolset", line, "toolset", "all")
        _check("toolset", name, [*_connected(session).tools.sets, "all"])
        session.selection.tool_set = None if name == "all" else name
    return _connected(session).tools.sets


@command(
    "option",
    _CHOICE,
    "how deferred tools are found",
    usage="[NAME VALUE]",
    example="max_active_tools 30",
)
def _option(session: Session, line: str) -> Any:
    if line:
        name, *values = words_of(line)
        if len(values) != 1:
            raise UsageError(
                "%mcp option takes a name and a value.",
                hint="For example: %mcp option max_active_tools 30",
            )
        value: str | bool = values[0]
        if value in ("true", "false"):
            value = value == "true"
        session.selection.set_option(name, value)
    return session.selection


@command(
    "strategy",
    _CHOICE,
    "how the model finds deferred tools",
    usage="search | browse",
    example="browse",
    names="strategies",
)
def _strategy(session: Session, line: str) -> Any:
    return _choose(session, "strategy", STRATEGIES, "browse", line)


@command(
    "delivery",
    _CHOICE,
    "how the model receives search results",
    usage="auto | definitions | native | bridge | code",
    example="bridge",
    names="deliveries",
)
def _delivery(session: Session, line: str) -> Any:
    return _choose(session, "delivery", DELIVERY_SETTINGS, "bridge", line)


@command(
    "model",
    _CHAT,
    "the models, and whether their keys are set; or choose one",
    usage="[NAME]",
    example="planner",
    names="models",
)
def _model(session: Session, line: str) -> Any:
    if line:
        session.model = one_word("model", line, "model")
    return session.models


@command(
    "search",
    _TOOLS,
    "search deferred tools as the model would, with scores. --all includes the loaded ones",
    usage="[--all] WORDS",
    example="convert a time zone",
    ends_in_text=True,
    fills_in=False,
)
def _search(session: Session, line: str) -> Any:
    option, query = first_word(line)
    all_tools = option == "--all"
    if not all_tools:
        query = line
    query = without_quotes(query)
    if not query:
        raise UsageError(
            "What are you looking for?", hint="For example: %mcp search convert a time zone"
        )
    return session.search(" ".join(query.split()), all_tools=all_tools)


@command(
    "call",
    _TOOLS,
    "call a tool yourself",
    usage='TOOL {"argument": value} | TOOL argument=value …',
    example='math:add {"a": 1, "b": 2}',
    names="tools",
    fills_in=False,
)
def _call(session: Session, line: str) -> Any:
    name, arguments = parse_call(line)
    return session.tools.call(name, **arguments)


@command(
    "app",
    _TOOLS,
    "call a tool yourself, and open the app that its server has for it",
    usage='TOOL {"argument": value} | TOOL argument=value …',
    example="budget:get-budget-data",
    names="tools",
    fills_in=False,
)
def _app(session: Session, line: str) -> Any:
    name, arguments = parse_call(line)
    return session.tools.app(name, **arguments)


@command("calls", _TOOLS, "the calls that you made yourself")
def _calls(session: Session, _line: str) -> Any:
    return session.tools.calls


COMMANDS["check"] = Command(
    _MEASURE, "check your answer to a lesson's exercise", usage="NAME", example="3.1"
)


COMMANDS["audit"] = Command(
    _MEASURE,
    "list or save every call and who allowed it, or measure the token cost of another host's"
    " config, or what deferring would have saved in a past session",
    usage="[FILE.jsonl [--overwrite] | CONFIG [--trust] | SESSION]",
    example="~/.cursor/mcp.json",
)


@command(
    "resources",
    _OFFERS,
    "the resources that servers offer",
    usage="[SERVER]",
    example="files",
    names="servers",
)
def _resources(session: Session, line: str) -> Any:
    return _of_server(session, session.resources.list(), "resources", line)


@command(
    "read",
    _OFFERS,
    "read a resource",
    usage="URI | SERVER:NAME [parameter=value …]",
    example="docs:readme",
    names="resources",
)
def _read(session: Session, line: str) -> Any:
    name, values = parse_assignments("read", line, "resource", "docs:readme")
    return session.resources.read(name, **values)


@command(
    "subscribe",
    _OFFERS,
    "follow a resource's changes",
    usage="[URI]",
    example="docs://readme",
    names="resources",
)
def _subscribe(session: Session, line: str) -> Any:
    if not line:
        return session.resources.subscriptions
    return session.resources.subscribe(one_word("subscribe", line, "resource", "docs://readme"))


@command(
    "unsubscribe",
    _OFFERS,
    "stop following a resource",
    usage="URI",
    example="docs://readme",
    names="resources",
)
def _unsubscribe(session: Session, line: str) -> Any:
    return session.resources.unsubscribe(one_word("unsubscribe", line, "resource", "docs://readme"))


@command(
    "skills",
    _OFFERS,
    "the skills that servers offer, with their tokens",
    usage="[SERVER]",
    example="docs",
    names="servers",
)
def _skills(session: Session, line: str) -> Any:
    return _of_server(session, session.resources.skills.list(), "skills", line)


@command(
    "skill",
    _OFFERS,
    "read a skill, or a file of it",
    usage="SERVER:NAME [file=PATH]",
    example="docs:fill-forms",
    names="skills",
)
def _skill(session: Session, line: str) -> Any:
    name, values = parse_assignments("skill", line, "skill", "docs:fill-forms file=forms.md")
    return session.resources.skills.read(name, **values)


@command(
    "prompts",
    _OFFERS,
    "the prompts that servers offer",
    usage="[SERVER]",
    example="files",
    names="servers",
)
def _prompts(session: Session, line: str) -> Any:
    return _of_server(session, session.prompts.list(), "prompts", line)


@command(
    "prompt",
    _OFFERS,
    "a prompt's messages, filled in",
    usage="SERVER:NAME [argument=value …]",
    example="docs:summarize topic=harbours",
    names="prompts",
)
def _prompt(session: Session, line: str) -> Any:
    name, values = parse_assignments("prompt", line, "prompt", "docs:summarize topic=harbours")
    return session.prompts.get(name, **values)


@command(
    "evaluate",
    _MEASURE,
    "measure how well test cases find tools",
    usage="FILE [K] [--new]",
    example="cases.jsonl 5",
    names="cases",
)
def evaluate(session: Session, line: str) -> Any:
    """Measure how well tools are found for a file's cases."""
    words = words_of(line)
    is_new = "--new" in words
    if is_new:
        words.remove("--new")
    limit = None
    if len(words) == 2 and words[1].isdecimal():
        limit = int(words.pop()[:9])
    if len(words) != 1:
        raise UsageError(
            "%mcp evaluate takes a file of cases and, optionally, a number of tools.",
            hint=(
                "For example: %mcp evaluate cases.jsonl 5. With --new, it first writes the file"
                " from past conversations."
            ),
        )
    if is_new:
        session.experiments.save_cases(words[0])
    return session.experiments.evaluate(words[0], k=limit)


@command("lint", _MEASURE, "check tools for descriptions that are hard to find or expensive")
def _lint(session: Session, _line: str) -> Any:
    return session.experiments.lint()


@command(
    "ask",
    _CHAT,
    "ask the model on one line (%%mcp takes several)",
    usage="MESSAGE",
    example="What is 17 * 24?",
    ends_in_text=True,
    fills_in=False,
)
def _ask(session: Session, line: str) -> Any:
    if not line:
        raise UsageError("What is your message?", hint="For example: %mcp ask What is 17 * 24?")
    option, _ = first_word(line)
    if option.startswith("--") and option in CELL_OPTIONS:
        raise UsageError(
            f"%mcp ask has no options, and this message begins with {option}.",
            hint="Write the options behind %%mcp, and the message below it.",
        )
    turn = session.chat(without_quotes(line))
    turn.raise_for_status()
    return turn


@command("history", _CHAT, "the turns so far")
def _history(session: Session, _line: str) -> Any:
    return session.conversations.current


@command("stats", _CHAT, "the conversation's tokens and calls")
def _stats(session: Session, _line: str) -> Any:
    return session.stats


@command("step", _CHAT, "one model call", usage="[[TURN.]STEP]", example="2")
def _step(session: Session, line: str) -> Any:
    return _step_at(session, "step", line)


@command("request", _CHAT, "a step's exact request", usage="[[TURN.]STEP]", example="1.2")
def _request(session: Session, line: str) -> Any:
    return _step_at(session, "request", line).request


@command("diff", _CHAT, "the new parts of a request", usage="[[TURN.]STEP]", example="2")
def _diff(session: Session, line: str) -> Any:
    return _step_at(session, "diff", line).diff()


@command(
    "export",
    _SAVED,
    "save the conversation, or a saved one, as .html, .md, .json or .ipynb",
    usage="FILE [ID] [--player] [--overwrite]",
    example="lesson.html --player",
)
def _export(session: Session, line: str) -> Any:
    words = words_of(line)
    named = [word for word in words if word not in ("--overwrite", "--player")]
    if not 1 <= len(named) <= 2:
        text = "Which file?"
        if named:
            text = "%mcp export takes a file and, optionally, the id of a saved conversation."
        raise UsageError(text, hint="For example: %mcp export lesson.html")
    return session.export(*named, overwrite="--overwrite" in words, player="--player" in words)


@command(
    "import",
    _SAVED,
    "add a conversation from a file to the saved ones: one that was exported as .json, or another"
    " agent's session",
    usage="FILE",
    example="lesson.json",
)
def _import_file(session: Session, line: str) -> Any:
    from casual_mcp_nb.conversation.conversation import Conversation

    file = one_word("import", line, "file", "lesson.json")
    return session.conversations.save(Conversation.load(file))


COMMANDS["open"] = Command(
    _SAVED,
    "show a conversation of this package, Claude Code, Codex or OpenTelemetry from a file. Without"
    " one, list those of Claude Code and Codex",
    usage="[FILE]",
    example="~/.claude/projects/docs/4f1c.jsonl",
)


@command(
    "cassette",
    _RECORDINGS,
    "record models' and servers' answers, or replay them. off ends it",
    usage="[FILE [--mode once|none|all] [--pace FACTOR] | off]",
    example="lesson.json",
)
def _cassette(session: Session, line: str) -> Any:
    args = parse_cassette("cassette", line)
    current = session.cassettes.current
    if args.path == "off":
        if current is None:
            raise UsageError(
                "No cassette is in use.", hint="For example: %mcp cassette lesson.json"
            )
        current.close()
        return f"{current.path.name} is closed."
    if args.path:
        return str(session.cassettes.use(args.path, args.mode or "once", pace=args.pace).state)
    return str(session.cassettes.state or "No cassette is in use.")


@command(
    "plan",
    _CHAT,
    "the model's calls, without running them",
    usage="MESSAGE",
    example="What is 17 * 24?",
    ends_in_text=True,
    fills_in=False,
)
def _plan(session: Session, line: str) -> Any:
    if not line:
        raise UsageError("What is your message?", hint="For example: %mcp plan What is 17 * 24?")
    return session.plan(without_quotes(line))


@command(
    "compare",
    _MEASURE,
    "answer a message with several set-ups: tokens, time and cost of each. By default, with"
    " discovery and with every tool loaded",
    usage="[--discovery on,off,auto] [--models A,B] [--toolsets A,B] [--strategies search,browse] "
    "[--deliveries definitions,bridge] [--repeats N] [--check TEXT] [--max-runs N] MESSAGE",
    example="--discovery on,off What is 17 * 24?",
    ends_in_text=True,
    fills_in=False,
)
def _compare(session: Session, line: str) -> Any:
    message, options = parse_compare(line)
    return session.experiments.compare(message, **options)


@command("new", _SAVED, "start a new conversation. --private does not save it", usage="[--private]")
def _new(session: Session, line: str) -> Any:
    if line not in ("", "--private"):
        raise UsageError(
            "%mcp new takes only --private.",
            hint="%mcp new --private starts one that is not saved.",
        )
    session.conversations.new(private=bool(line))
    return session.status


COMMANDS["conversations"] = Command(
    _SAVED,
    "the saved conversations, or those with a text in them",
    usage="[TEXT]",
    example="tides",
    ends_in_text=True,
    fills_in=False,
)


COMMANDS["resume"] = Command(
    _SAVED,
    "continue this notebook's last conversation, or another saved one. Without a session, its own"
    " is opened again",
    usage="[ID]",
    example="k7m2",
    names="conversations",
)


@command(
    "fork",
    _SAVED,
    "continue in a new conversation, from a turn of this one, or from a step with something"
    " changed",
    usage="[TURN[.STEP]] [--result TEXT] [--text TEXT] [--model NAME] [--toolset NAME]",
    example='2.1 --result "No berth is free."',
    fills_in=False,
)
def _fork(session: Session, line: str) -> Any:
    fork = parse_fork(line)
    turn = _index("turn", fork.turn, len(session.turns))
    if fork.step is None:
        return session.conversations.fork(turn)
    step = _index("step", fork.step, len(session.turns[turn].steps))
    options = dict(fork.options)
    if "model" in options:
        options["model"] = model_named(session, options["model"])
    forked = session.conversations.fork_at(step, turn, **options)
    forked.raise_for_status()
    return forked


@command(
    "rename",
    _SAVED,
    "give a saved conversation a title",
    usage="ID TITLE",
    example="k7m2 Tides of Bergen",
    names="conversations",
    ends_in_text=True,
    fills_in=False,
)
def _rename(session: Session, line: str) -> Any:
    id, title = first_word(line)
    return session.conversations.rename(id, without_quotes(title))


@command(
    "archive",
    _SAVED,
    "hide a saved conversation from the list",
    usage="ID",
    example="k7m2",
    names="conversations",
)
def _archive(session: Session, line: str) -> Any:
    return session.conversations.archive(conversation_id("archive", line))


@command(
    "restore",
    _SAVED,
    "list an archived conversation again",
    usage="ID",
    example="k7m2",
    names="conversations",
)
def _restore(session: Session, line: str) -> Any:
    return session.conversations.restore(conversation_id("restore", line))


@command(
    "delete",
    _SAVED,
    "delete a saved conversation",
    usage="ID",
    example="k7m2",
    names="conversations",
)
def _delete(session: Session, line: str) -> Any:
    return session.conversations.delete(conversation_id("delete", line))


@command("panel", _CHAT, "a panel to chat in, with approvals and step mode")
def _panel(session: Session, _line: str) -> Any:
    return session.panel()


@command(
    "rerun",
    _CHAT,
    "run the last turn, or turn N, again",
    usage="[N] [NEW TEXT]",
    example="2",
    ends_in_text=True,
    fills_in=False,
)
def _rerun(session: Session, line: str) -> Any:
    """Run a turn again: the last one, or the one whose number comes first, with another text if
    there is one.
    """
    number, text = first_word(line)
    if not re.fullmatch(r"-?[0-9]{1,9}", number):
        number, text = "-1", line
    count = len(session.turns)
    index = int(number) - (int(number) > 0)
    if number.lstrip("-0") == "" or not -count <= index < count:
        hint = "There are no turns yet."
        if count:
            hint = f"There are turns 1 to {count}, and -1 is the last one."
        raise UsageError(f"There is no turn {int(number)}.", hint=hint)
    turn = session.rerun(index, without_quotes(text) or None)
    turn.raise_for_status()
    return turn


@command("undo", _CHAT, "undo the last turn")
def _undo(session: Session, _line: str) -> Any:
    undone = session.undo()
    if undone is None:
        raise UsageError("There is no turn to undo.")
    status = session.status
    return replace(status, notes=(f"Removed the turn {shown(undone.prompt)}.", *status.notes))


@command(
    "unload",
    _TOOLS,
    "unload a tool that a search has loaded",
    usage="TOOL",
    example="units:convert_units",
    names="tools",
)
def unload(session: Session, line: str) -> Any:
    """Unload a tool that a search has loaded."""
    session.tools.unload(one_word("unload", line, "tool", "math:add"))
    return session.status


@command(
    "tasks",
    _SERVERS,
    "calls that servers continue by themselves. Wait for one, cancel it, or show its result",
    usage="[[wait|cancel|result] NUMBER]",
    example="result 1",
)
def _tasks(session: Session, line: str) -> Any:
    """Show the tasks, or wait for one, cancel it, or show its result."""
    tasks = session.servers.tasks
    if not line:
        return tasks
    match = re.fullmatch(r"(?:(?P<action>wait|cancel|result)\s+)?(?P<number>[0-9]{1,9})", line)
    if match is None:
        raise UsageError(
            "Which task?", hint="For example: %mcp tasks, %mcp tasks wait 1, %mcp tasks cancel 1."
        )
    number = int(match["number"])
    match match["action"]:
        case "cancel":
            return tasks.cancel(number)
        case "result":
            return tasks.result(number)
        case _:
            return tasks.wait(number)


@command("stop", _CHAT, "stop a panel's running turn")
def _stop(session: Session, _line: str) -> Any:
    session.stop()
    return session.status


COMMANDS["test"] = Command(
    _RECORDINGS,
    "replay a cassette's turns, and show the differences",
    usage="FILE",
    example="lesson.json",
)


@command(
    "doctor",
    _PROBLEMS,
    "check packages, keys and servers, or follow one tool: listed, selected, searchable, sent,"
    " called",
    usage="[SERVER:TOOL | SERVER] [--query WORDS]",
    example="math:power --query raise a number",
    names="doctor",
    ends_in_text=True,
    fills_in=False,
)
def _doctor(session: Session, line: str) -> Any:
    if not line:
        return session.servers.doctor()
    hint = "For example: %mcp doctor math:power --query raise a number"
    name, rest = first_word(line)
    if name == "--query":
        raise UsageError("Which tool should the query find?", hint=hint)
    option, query = first_word(rest)
    if not option:
        return _connected(session).servers.doctor(one_word("doctor", name, "tool", "math:power"))
    if option != "--query":
        raise UsageError("%mcp doctor takes one tool or server, and --query.", hint=hint)
    if not query:
        raise UsageError("What are you looking for?", hint=hint)
    return _connected(session).servers.doctor(name, query=without_quotes(query))


@command(
    "reconnect",
    _SERVERS,
    "connect to a server again",
    usage="SERVER",
    example="files",
    names="servers",
)
def _reconnect(session: Session, line: str) -> Any:
    return session.servers.reconnect(one_word("reconnect", line, "server", "time"))


@command(
    "log",
    _SERVERS,
    "a server's log: stderr and log messages",
    usage="SERVER",
    example="files",
    names="servers",
)
def _log(session: Session, line: str) -> Any:
    return session.servers.log(one_word("log", line, "server", "time"))


@command(
    "messages",
    _SERVERS,
    "the JSON-RPC messages to and from a server",
    usage="SERVER [TOOL]",
    example="files",
    names="servers",
)
def _messages(session: Session, line: str) -> Any:
    words = words_of(line)
    if not 1 <= len(words) <= 2:
        raise UsageError(
            "%mcp messages takes a server and, optionally, a tool.",
            hint="For example: %mcp messages time",
        )
    return session.servers.messages(*words)


@command(
    "hosts",
    _SERVERS,
    "how other hosts and providers will see a server: what they cut, change or leave out",
    usage="SERVER",
    example="files",
    names="servers",
)
def _hosts(session: Session, line: str) -> Any:
    _connected(session)
    return session.servers.hosts(one_word("hosts", line, "server", "time"))


@command(
    "wire",
    _SERVERS,
    "the messages to and from servers, by request, with HTTP headers",
    usage="[SERVER] [--method METHOD] [--text TEXT]",
    example="files --method tools/*",
    names="servers",
    fills_in=False,
)
def _wire(session: Session, line: str) -> Any:
    return session.servers.wire(**parse_wire(line))


COMMANDS["nested"] = Command(
    _PROBLEMS, "allow asyncio.run in your own cells (patches asyncio)", usage="on"
)


COMMANDS["help"] = Command(
    _PROBLEMS,
    "the commands of every day, a command, a topic, or everything",
    usage="[COMMAND | TOPIC | --all]",
    example="measure",
    names="helped",
)
