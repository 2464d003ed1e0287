"""The `%mcp` commands: each takes a session and the rest of the line, and returns the cell's
output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.model_options import DELIVERY_SETTINGS
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.args import (
    STRATEGIES,
    one_word,
    parse_assignments,
    parse_call,
    parse_cassette,
    parse_compare,
    parse_fork,
    parse_position,
    parse_wire,
    words_of,
)

if TYPE_CHECKING:
    from casual_mcp_nb.base.selection import Mode
    from casual_mcp_nb.conversation.step import Step
    from casual_mcp_nb.session import Session


@dataclass(frozen=True)
class Command:
    """A `%mcp` command.

    `example` comes after its name. `names` are its completions: `servers`, `tools`, `tool_sets`,
    `models`, `templates`, `strategies`, `deliveries`, `cases`, `resources`, `prompts`, `skills`,
    `conversations`, or `doctor` for servers and tools. `run` returns the cell's output. It is None
    for one that needs no session, or opens or closes it.
    """

    group: str
    summary: str
    usage: str = ""
    example: str = ""
    names: str = ""
    run: Callable[[Session, str], Any] | None = None

    @property
    def is_verbatim(self) -> bool:
        """Whether its line can hold JSON or a person's words, in which braces and dollar signs
        stay.
        """
        return bool(re.search(r"\{|\b(?:MESSAGE|TEXT|TITLE|WORDS)\b", self.usage))


def _search(session: Session, line: str) -> Any:
    words = line.split()
    all_tools = "--all" in (words[:1] + words[-1:])
    if all_tools:
        words.pop(0 if words[0] == "--all" else -1)
    if not words:
        raise UsageError(
            "What are you looking for?", hint="For example: %mcp search convert a time zone"
        )
    return session.search(" ".join(words), all_tools=all_tools)


def _connected(session: Session) -> Session:
    """Connect the session's servers: properties show only connected ones."""
    session.connect()
    return session


def _listed(command: str, read: Callable[[Session], Any]) -> Callable[[Session, str], Any]:
    """Create the command that lists all servers' items, or one server's."""

    def show(session: Session, line: str) -> Any:
        everything = read(session)
        if not line:
            return everything
        name = one_word(command, line, "server", "time")
        _check("server", name, session.servers)
        return everything.of_server(name)

    return show


def _call(session: Session, line: str) -> Any:
    name, arguments = parse_call(line)
    return session.tools.call(name, **arguments)


def _app(session: Session, line: str) -> Any:
    name, arguments = parse_call(line)
    return session.tools.app(name, **arguments)


def _toolset(session: Session, line: str) -> Any:
    if line:
        name = one_word("toolset", line, "toolset", "all")
        _check("toolset", name, [*_connected(session).tools.sets, "all"])
        session.selection.tool_set = None if name == "all" else name
    return _connected(session).tools.sets


def _model(session: Session, line: str) -> Any:
    if line:
        session.model = one_word("model", line, "model")
    return session.models


def set_mode(mode: Mode) -> Callable[[Session, str], Any]:
    """Create the command that sets the server mode.

    Deferring turns discovery on, without which nothing is deferred.
    """

    def run(session: Session, line: str) -> Any:
        words = words_of(line)
        if not words:
            raise UsageError("Which server?", hint="%mcp servers lists them.")
        names = [word for word in words if ":" not in word or mode != "loaded"]
        for name in names:
            _check("server", name, session.servers)
        before = session.status
        for word in words:
            if word not in names:
                session.tools.load(word)
        for name in names:
            session.selection.servers[name] = mode
        if mode == "deferred":
            session.selection.discovery = True
        session.connect()
        after = session.status
        # The tokens are only known if the servers were connected before.
        modes = [
            f"{name}: {before.servers.modes[name]} → {after.servers.modes[name]}" for name in names
        ]
        tokens = (
            [f"tool definitions: ≈ {before.tokens:,} → ≈ {after.tokens:,} tokens"]
            if before.tokens
            else []
        )
        return replace(after, notes=("; ".join([*modes, *tokens]), *after.notes))

    return run


def _new(session: Session, line: str) -> Any:
    if line not in ("", "--private"):
        raise UsageError(
            "%mcp new takes only --private.",
            hint="%mcp new --private starts one that is not saved.",
        )
    session.conversations.new(private=bool(line))
    return session.status


def _fork(session: Session, line: str) -> Any:
    fork = parse_fork(line)
    turn = _index("turn", fork.turn, len(session.turns))
    if fork.step is None:
        return session.conversations.fork(turn)
    step = _index("step", fork.step, len(session.turns[turn].steps))
    forked = session.conversations.fork_at(step, turn, **fork.options)
    forked.raise_for_status()
    return forked


def _rename(session: Session, line: str) -> Any:
    id, _, title = line.partition(" ")
    return session.conversations.rename(id, title)


def _on_conversation(change: str) -> Callable[[Session, str], Any]:
    """Create the command that resumes, archives, restores or deletes a saved conversation."""
    return lambda session, line: getattr(session.conversations, change)(
        one_word(change, line, "conversation", "k7m2p9xa")
    )


def _rerun(session: Session, line: str) -> Any:
    """Run a turn again: the last one, or the one whose number comes first, with another text if
    there is one.
    """
    number, _, text = line.strip().partition(" ")
    if not re.fullmatch(r"-?[0-9]{1,9}", number):
        number, text = "-1", line
    count = len(session.turns)
    index = int(number) - (int(number) > 0)
    if number.lstrip("-0") == "" or not -count <= index < count:
        hint = (
            f"There are turns 1 to {count}, and -1 is the last one."
            if count
            else "There are no turns yet."
        )
        raise UsageError(f"There is no turn {int(number)}.", hint=hint)
    turn = session.rerun(index, text.strip() or None)
    turn.raise_for_status()
    return turn


def _plan(session: Session, line: str) -> Any:
    if not line:
        raise UsageError("What is your message?", hint="For example: %mcp plan What is 17 * 24?")
    return session.plan(line)


def _compare(session: Session, line: str) -> Any:
    message, options = parse_compare(line)
    return session.experiments.compare(message, **options)


def _ask(session: Session, line: str) -> Any:
    if not line:
        raise UsageError("What is your message?", hint="For example: %mcp ask What is 17 * 24?")
    turn = session.chat(line)
    turn.raise_for_status()
    return turn


def _undo(session: Session, _line: str) -> Any:
    if session.undo() is None:
        raise UsageError("There is no turn to undo.")
    return session.status


def unload(session: Session, line: str) -> Any:
    """Unload a tool that a search has loaded."""
    session.tools.unload(one_word("unload", line, "tool", "math:add"))
    return session.status


def _tasks(session: Session, line: str) -> Any:
    """Show the tasks, or wait for one, cancel it, or show its result."""
    words, tasks = words_of(line), session.servers.tasks
    if not words:
        return tasks
    *named, number = words
    action = named[0] if named else "wait"
    if (
        len(named) > 1
        or action not in ("wait", "cancel", "result")
        or not re.fullmatch(r"[0-9]{1,9}", number)
    ):
        raise UsageError(
            "Which task?", hint="For example: %mcp tasks, %mcp tasks wait 1, %mcp tasks cancel 1."
        )
    return getattr(tasks, action)(int(number))


def _stop(session: Session, _line: str) -> Any:
    session.stop()
    return session.status


def _preview(session: Session, line: str) -> Any:
    return session.models.preview(one_word("preview", line, "template") if line else None)


def _export(session: Session, line: str) -> Any:
    words = words_of(line)
    named = [word for word in words if word not in ("--overwrite", "--player")]
    if not 1 <= len(named) <= 2:
        text = (
            "Which file?"
            if not named
            else "%mcp export takes a file and, optionally, the id of a saved conversation."
        )
        raise UsageError(text, hint="For example: %mcp export lesson.html")
    return session.export(*named, overwrite="--overwrite" in words, player="--player" in words)


def _import_file(session: Session, line: str) -> Any:
    from casual_mcp_nb.conversation.conversation import Conversation

    return session.conversations.save(
        Conversation.load(one_word("import", line, "file", "lesson.json"))
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


def _step_of(command: str) -> Callable[[Session, str], Step]:
    """Create the function that finds a command's step: the last one, one in the last turn, or one
    in any turn.
    """

    def find(session: Session, line: str) -> Step:
        turn, step = parse_position(command, line)
        turns = session.turns
        if not turns:
            raise UsageError(
                "There are no turns yet.", hint="Start with %%mcp and a message below it."
            )
        steps = turns[_index("turn", turn, len(turns))].steps
        return steps[_index("step", step, len(steps))]

    return find


def _index(kind: str, number: int | None, count: int) -> int:
    if number is None and count:
        return count - 1
    if number is None or not 1 <= number <= count:
        text = f"There is no {kind} {number}." if number is not None else f"There is no {kind}."
        raise UsageError(
            text,
            hint=(
                f"There are {kind}s 1 to {count}."
                if count
                else "The turn ended before its first step."
            ),
        )
    return number - 1


def _check(kind: str, name: str, valid: Iterable[str]) -> None:
    if name not in valid:
        raise UnknownNameError(kind, name, valid)


def _choice(option: str, valid: Sequence[str], example: str) -> Callable[[Session, str], Any]:
    """Create the command that sets a selection option to one of a few words."""

    def run(session: Session, line: str) -> Any:
        if line:
            name = one_word(option, line, option, example)
            _check(option, name, valid)
            session.selection.set_option(option, name)
        return session.selection

    return run


def evaluate(session: Session, line: str) -> Any:
    """Measure how well tools are found for a file's cases."""
    words = words_of(line)
    new = "--new" in words
    words = [word for word in words if word != "--new"]
    if not words or len(words) > 2 or not all(word.isdecimal() for word in words[1:]):
        raise UsageError(
            "%mcp evaluate takes a file of cases and, optionally, a number of tools.",
            hint=(
                "For example: %mcp evaluate cases.jsonl 5. With --new, it first writes the file"
                " from past conversations."
            ),
        )
    if new:
        session.experiments.save_cases(words[0])
    return session.experiments.evaluate(words[0], k=int(words[1][:9]) if len(words) > 1 else None)


def _option(session: Session, line: str) -> Any:
    if line:
        name, *values = words_of(line)
        if len(values) != 1:
            raise UsageError(
                "%mcp option takes a name and a value.",
                hint="For example: %mcp option max_active_tools 30",
            )
        value = {"true": True, "false": False}.get(values[0], values[0])
        session.selection.set_option(name, value)
    return session.selection


def _server(session: Session, line: str) -> Any:
    name = one_word("server", line, "server", "time")
    _check("server", name, session.servers)
    return session.servers[name]


def _add(session: Session, line: str) -> Any:
    name: str | None = None
    if match := re.match(r"--name\s+(?P<name>\S+)\s+", line):
        name, line = match["name"], line[match.end() :]
    return session.servers.add(name, line)


def _remove(session: Session, line: str) -> Any:
    session.servers.remove(one_word("remove", line, "server", "docs"))
    return session.servers


def _read(session: Session, line: str) -> Any:
    name, values = parse_assignments("read", line, "resource", "docs:readme")
    return session.resources.read(name, **values)


def _subscribe(session: Session, line: str) -> Any:
    if not line:
        return session.resources.subscriptions
    return session.resources.subscribe(one_word("subscribe", line, "resource", "docs://readme"))


_skills = _listed("skills", lambda session: session.resources.skills.list())


def _skill(session: Session, line: str) -> Any:
    name, values = parse_assignments("skill", line, "skill", "docs:fill-forms file=forms.md")
    return session.resources.skills.read(name, **values)


def _prompt(session: Session, line: str) -> Any:
    name, values = parse_assignments("prompt", line, "prompt", "docs:summarize topic=harbours")
    return session.prompts.get(name, **values)


def _doctor(session: Session, line: str) -> Any:
    name, given, query = (part.strip() for part in f" {line} ".partition(" --query "))
    if given and not (name and query):
        problem = "What are you looking for?" if name else "Which tool should the query find?"
        raise UsageError(problem, hint="For example: %mcp doctor math:power --query raise a number")
    if not name:
        return session.servers.doctor()
    return _connected(session).servers.doctor(
        one_word("doctor", name, "tool", "math:power"), query=query or None
    )


def _trust(session: Session, line: str) -> Any:
    if line:
        if line != "--accept":
            raise UsageError("%mcp trust takes only --accept.")
        session.consent.trust().accept()
    return session.consent.trust()


def _messages(session: Session, line: str) -> Any:
    words = words_of(line)
    if not 1 <= len(words) <= 2:
        raise UsageError(
            "%mcp messages takes a server and, optionally, a tool.",
            hint="For example: %mcp messages time",
        )
    return session.servers.messages(*words)


_START, _OVERVIEW, _CHOOSE, _TRY = (
    "Start and close",
    "Look around",
    "Choose the model's tools",
    "Try a tool",
)
_TALK, _TROUBLE = "The conversation", "Troubleshooting"

COMMANDS: dict[str, Command] = {
    "demo": Command(
        _START,
        "start the bundled servers, with the offline planner (no key, no network) or a model",
        "[--model PROVIDER:MODEL]",
        "--model ollama:qwen3:8b",
    ),
    "connect": Command(
        _START,
        "start the servers and models of a config file, or one server, with a model",
        "FILE [--trust] | COMMAND | ADDRESS | DOMAIN [SERVER] [--model PROVIDER:MODEL]",
        "npx -y @modelcontextprotocol/server-memory --model openai:gpt-4.1",
    ),
    "add": Command(
        _START,
        "add a server: a command, an address, a bundled one, or one that a domain or the registry"
        " lists",
        "[--name NAME] COMMAND | ADDRESS | NAME | DOMAIN [SERVER] | REGISTRY-NAME",
        "npx -y @modelcontextprotocol/server-memory",
        run=_add,
    ),
    "find": Command(
        _START,
        "find servers: what a domain lists, or what the registry has. Starts and contacts none of"
        " them",
        "DOMAIN | REGISTRY-NAME | WORDS",
        "resend.com",
    ),
    "remove": Command(
        _START, "stop a server and forget it", "SERVER", "memory", "servers", _remove
    ),
    "accounts": Command(
        _START,
        "the sign-ins to servers that are remembered on this computer. remove forgets one",
        "[remove NAME]",
        "remove weather",
    ),
    "replay": Command(
        _START,
        "open a session in which a cassette answers: no key, no network, no server",
        "FILE [--pace FACTOR]",
        "lesson.json",
    ),
    "close": Command(_START, "stop all servers"),
    "trust": Command(
        _START,
        "the config's commands, and the addresses that get keys. --accept accepts them",
        "[--accept]",
        "--accept",
        run=_trust,
    ),
    "status": Command(
        _OVERVIEW,
        "the session at a glance (like %mcp alone)",
        run=lambda session, _: session.status,
    ),
    "servers": Command(
        _OVERVIEW, "each server: state, tools, tokens", run=lambda session, _: session.connect()
    ),
    "server": Command(
        _OVERVIEW, "one server: its features and messages", "SERVER", "math", "servers", _server
    ),
    "tools": Command(
        _OVERVIEW,
        "all tools and their cost in tokens",
        "[SERVER]",
        "math",
        "servers",
        _listed("tools", lambda session: _connected(session).tools.now),
    ),
    "tool": Command(
        _OVERVIEW,
        "one tool: parameters, schema",
        "TOOL",
        "math:add",
        "tools",
        lambda session, line: _connected(session).tools[one_word("tool", line, "tool", "math:add")],
    ),
    "manifest": Command(
        _OVERVIEW,
        "the text about deferred tools that the model reads",
        run=lambda session, _: _connected(session).tools.manifest,
    ),
    "preview": Command(
        _OVERVIEW, "the system prompt", "[TEMPLATE]", "teacher", "templates", _preview
    ),
    "models": Command(
        _OVERVIEW,
        "the models, and whether their keys are set",
        run=lambda session, _: session.models,
    ),
    "clients": Command(
        _OVERVIEW, "the providers behind the models", run=lambda session, _: session.models.clients
    ),
    "budget": Command(
        _OVERVIEW,
        "the estimated cost of one turn and ten turns",
        run=lambda session, _: session.tools.budget,
    ),
    "explore": Command(
        _CHOOSE,
        "a widget to explore servers, tools and their cost",
        run=lambda session, _: session.explore(),
    ),
    "selection": Command(_CHOOSE, "the current choices", run=lambda session, _: session.selection),
    "load": Command(
        _CHOOSE,
        "send a server's tools, or single ones, with each request",
        "SERVER … | SERVER:TOOL …",
        "math units:convert_units",
        "servers",
        set_mode("loaded"),
    ),
    "defer": Command(
        _CHOOSE,
        "let the model find them by search",
        "SERVER …",
        "files time",
        "servers",
        set_mode("deferred"),
    ),
    "off": Command(
        _CHOOSE, "hide a server's tools", "SERVER …", "files", "servers", set_mode("off")
    ),
    "toolsets": Command(
        _CHOOSE, "the toolsets", run=lambda session, _: _connected(session).tools.sets
    ),
    "toolset": Command(_CHOOSE, "choose a toolset", "NAME | all", "reading", "tool_sets", _toolset),
    "option": Command(
        _CHOOSE, "how deferred tools are found", "[NAME VALUE]", "max_active_tools 30", run=_option
    ),
    "strategy": Command(
        _CHOOSE,
        "how the model finds deferred tools",
        "search | browse",
        "browse",
        "strategies",
        _choice("strategy", STRATEGIES, "browse"),
    ),
    "delivery": Command(
        _CHOOSE,
        "how the model receives search results",
        "auto | definitions | native | bridge | code",
        "bridge",
        "deliveries",
        _choice("delivery", DELIVERY_SETTINGS, "bridge"),
    ),
    "model": Command(_CHOOSE, "choose a model", "NAME", "planner", "models", _model),
    "search": Command(
        _TRY,
        "search deferred tools as the model would, with scores. --all includes the loaded ones",
        "WORDS [--all]",
        "convert a time zone",
        run=_search,
    ),
    "call": Command(
        _TRY,
        "call a tool yourself",
        'TOOL {"argument": value} | TOOL argument=value …',
        'math:add {"a": 1, "b": 2}',
        "tools",
        _call,
    ),
    "app": Command(
        _TRY,
        "call a tool yourself, and open the app that its server has for it",
        'TOOL {"argument": value} | TOOL argument=value …',
        "budget:get-budget-data",
        "tools",
        _app,
    ),
    "calls": Command(
        _TRY, "the calls that you made yourself", run=lambda session, _: session.tools.calls
    ),
    "check": Command(_TRY, "check your answer to a lesson's exercise", "NAME", "3.1"),
    "audit": Command(
        _TRY,
        "list or save every call and who allowed it, or measure the token cost of another host's"
        " config",
        "[FILE.jsonl [--overwrite] | CONFIG [--trust]]",
        "~/.cursor/mcp.json",
    ),
    "resources": Command(
        _TRY,
        "the resources that servers offer",
        "[SERVER]",
        "files",
        "servers",
        _listed("resources", lambda session: session.resources.list()),
    ),
    "read": Command(
        _TRY,
        "read a resource",
        "URI | SERVER:NAME [parameter=value …]",
        "docs:readme",
        "resources",
        _read,
    ),
    "subscribe": Command(
        _TRY, "follow a resource's changes", "[URI]", "docs://readme", "resources", _subscribe
    ),
    "unsubscribe": Command(
        _TRY,
        "stop following a resource",
        "URI",
        "docs://readme",
        "resources",
        lambda session, line: session.resources.unsubscribe(
            one_word("unsubscribe", line, "resource", "docs://readme")
        ),
    ),
    "skills": Command(
        _TRY,
        "the skills that servers offer, with their tokens",
        "[SERVER]",
        "docs",
        "servers",
        _skills,
    ),
    "skill": Command(
        _TRY,
        "read a skill, or a file of it",
        "SERVER:NAME [file=PATH]",
        "docs:fill-forms",
        "skills",
        _skill,
    ),
    "prompts": Command(
        _TRY,
        "the prompts that servers offer",
        "[SERVER]",
        "files",
        "servers",
        _listed("prompts", lambda session: session.prompts.list()),
    ),
    "prompt": Command(
        _TRY,
        "a prompt's messages, filled in",
        "SERVER:NAME [argument=value …]",
        "docs:summarize topic=harbours",
        "prompts",
        _prompt,
    ),
    "evaluate": Command(
        _TRY,
        "measure how well test cases find tools",
        "FILE [K] [--new]",
        "cases.jsonl 5",
        "cases",
        evaluate,
    ),
    "lint": Command(
        _TRY,
        "check tools for descriptions that are hard to find or expensive",
        run=lambda session, _: session.experiments.lint(),
    ),
    "ask": Command(
        _TALK,
        "ask the model on one line (%%mcp takes several)",
        "MESSAGE",
        "What is 17 * 24?",
        run=_ask,
    ),
    "history": Command(
        _TALK, "the turns so far", run=lambda session, _: session.conversations.current
    ),
    "stats": Command(
        _TALK, "the conversation's tokens and calls", run=lambda session, _: session.stats
    ),
    "step": Command(_TALK, "one model call", "[[TURN.]STEP]", "2", run=_step_of("step")),
    "request": Command(
        _TALK,
        "a step's exact request",
        "[[TURN.]STEP]",
        "1.2",
        run=lambda session, line: _step_of("request")(session, line).request,
    ),
    "diff": Command(
        _TALK,
        "the new parts of a request",
        "[[TURN.]STEP]",
        "2",
        run=lambda session, line: _step_of("diff")(session, line).diff(),
    ),
    "export": Command(
        _TALK,
        "save it, or a saved conversation, as .html, .md or .json",
        "FILE [ID] [--player] [--overwrite]",
        "lesson.html --player",
        run=_export,
    ),
    "import": Command(
        _TALK,
        "add a conversation from a .json file to the saved ones",
        "FILE",
        "lesson.json",
        run=_import_file,
    ),
    "cassette": Command(
        _TALK,
        "record models' and servers' answers, or replay them. off ends it",
        "[FILE [--mode once|none|all] [--pace FACTOR] | off]",
        "lesson.json",
        run=_cassette,
    ),
    "plan": Command(
        _TALK, "the model's calls, without running them", "MESSAGE", "What is 17 * 24?", run=_plan
    ),
    "compare": Command(
        _TALK,
        "answer a message with several set-ups: tokens, time and cost of each",
        "[--discovery on,off,auto] [--models A,B] [--toolsets A,B] [--strategies search,browse] "
        "[--deliveries definitions,bridge] [--repeats N] [--check TEXT] [--max-runs N] MESSAGE",
        "--discovery on,off What is 17 * 24?",
        run=_compare,
    ),
    "new": Command(
        _TALK, "start a new conversation. --private does not save it", "[--private]", run=_new
    ),
    "conversations": Command(
        _TALK,
        "the saved conversations, or those with a text in them",
        "[TEXT]",
        "tides",
        run=lambda session, line: session.conversations.find(line),
    ),
    "resume": Command(
        _TALK,
        "continue a saved conversation",
        "ID",
        "k7m2",
        "conversations",
        _on_conversation("resume"),
    ),
    "fork": Command(
        _TALK,
        "continue in a new conversation, from a turn of this one, or from a step with something"
        " changed",
        "[TURN[.STEP]] [--result TEXT] [--text TEXT] [--model NAME] [--toolset NAME]",
        '2.1 --result "No berth is free."',
        run=_fork,
    ),
    "rename": Command(
        _TALK,
        "give a saved conversation a title",
        "ID TITLE",
        "k7m2 Tides of Bergen",
        "conversations",
        _rename,
    ),
    "archive": Command(
        _TALK, "hide one from the list", "ID", "k7m2", "conversations", _on_conversation("archive")
    ),
    "restore": Command(
        _TALK, "list it again", "ID", "k7m2", "conversations", _on_conversation("restore")
    ),
    "delete": Command(
        _TALK,
        "delete a saved conversation",
        "ID",
        "k7m2",
        "conversations",
        _on_conversation("delete"),
    ),
    "panel": Command(
        _TALK,
        "a panel to chat in, with approvals and step mode",
        run=lambda session, _: session.panel(),
    ),
    "rerun": Command(
        _TALK, "run the last turn, or turn N, again", "[N] [NEW TEXT]", "2", run=_rerun
    ),
    "undo": Command(_TALK, "undo the last turn", run=_undo),
    "unload": Command(
        _TALK,
        "unload a tool that a search has loaded",
        "TOOL",
        "units:convert_units",
        "tools",
        unload,
    ),
    "tasks": Command(
        _TALK,
        "calls that servers continue by themselves. Wait for one, cancel it, or show its result",
        "[[wait|cancel|result] NUMBER]",
        "result 1",
        run=_tasks,
    ),
    "stop": Command(_TALK, "stop a panel's running turn", run=_stop),
    "test": Command(
        _TROUBLE, "replay a cassette's turns, and show the differences", "FILE", "lesson.json"
    ),
    "doctor": Command(
        _TROUBLE,
        "check packages, keys and servers, or follow one tool: listed, selected, searchable, sent,"
        " called",
        "[SERVER:TOOL | SERVER] [--query WORDS]",
        "math:power --query raise a number",
        "doctor",
        _doctor,
    ),
    "reconnect": Command(
        _TROUBLE,
        "connect to a server again",
        "SERVER",
        "files",
        "servers",
        lambda session, line: session.servers.reconnect(
            one_word("reconnect", line, "server", "time")
        ),
    ),
    "log": Command(
        _TROUBLE,
        "a server's log: stderr and log messages",
        "SERVER",
        "files",
        "servers",
        lambda session, line: session.servers.log(one_word("log", line, "server", "time")),
    ),
    "messages": Command(
        _TROUBLE,
        "the JSON-RPC messages to and from a server",
        "SERVER [TOOL]",
        "files",
        "servers",
        _messages,
    ),
    "wire": Command(
        _TROUBLE,
        "the messages to and from servers, by request, with HTTP headers",
        "[SERVER] [--method METHOD] [--text TEXT]",
        "files --method tools/*",
        "servers",
        lambda session, line: session.servers.wire(**parse_wire(line)),
    ),
    "nested": Command(_TROUBLE, "allow asyncio.run in your own cells (patches asyncio)", "on"),
    "help": Command(_TROUBLE, "this help, or help on one command", "[COMMAND]", "call", "commands"),
}
"""All commands by name, in the order in which help lists them."""
