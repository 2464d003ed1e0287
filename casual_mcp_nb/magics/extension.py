"""The IPython magics `%mcp`, `%%mcp` and `%%mcp_config`, and their completion.

They work on the session in the notebook's variable `session`. Commands that need a session are in
`commands.py`. Those that need none, or open or close one, are methods here, each with the name of
its command: `_demo` is `%mcp demo`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Enum, Integer

from casual_mcp_nb import doors
from casual_mcp_nb.base.displayable import Done
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.magics.args import (
    ECHO,
    expanded,
    fill_in,
    first_word,
    is_config_file,
    one_word,
    parse_cassette,
    parse_cell_line,
    parse_line,
    split_ends,
    without_quotes,
    words_of,
)
from casual_mcp_nb.magics.commands import COMMANDS, SAME, conversation_id
from casual_mcp_nb.magics.completion import Names, complete, last_word
from casual_mcp_nb.magics.final_question_marks import keep_questions
from casual_mcp_nb.magics.help import help_of
from casual_mcp_nb.magics.named_models import model_named
from casual_mcp_nb.magics.written_configs import WrittenConfigs
from casual_mcp_nb.notebook.payloads import Held, HeldValues, code_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from casual_mcp_nb.base.status import SessionStatus
    from casual_mcp_nb.conversation.planned import PlannedCalls
    from casual_mcp_nb.notebook.doctor import ModelAtHand
    from casual_mcp_nb.notebook.live import Echo
    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.session import Session

T = TypeVar("T")

VARIABLE = "session"

CONFIG_FILE = "casual_mcp_config.json"

_MAGICS = {"line": ("mcp",), "cell": ("mcp", "mcp_config")}

_MATCHER = "casual_mcp_nb"


@magics_class
class McpMagics(Magics):
    """`%mcp` for one command, `%%mcp` for a message to the model, `%%mcp_config` for a config."""

    echo = Enum(ECHO, default_value="output", help="The output of a %%mcp cell.").tag(config=True)
    max_steps = Integer(
        None,
        min=1,
        allow_none=True,
        help="How many model calls a %%mcp cell may make, or None for the usual limit.",
    ).tag(config=True)

    _quiet = False

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._configs = WrittenConfigs()
        self.held = HeldValues(self._remember, shell.user_ns)

    @no_var_expand
    @line_magic("mcp")  # type: ignore[arg-type]
    def line(self, line: str) -> Any:
        """Run a command: `%mcp COMMAND …`; `%mcp help` lists them.

        `-o NAME` stores the result in a variable.
        """
        parsed = parse_line(line, COMMANDS, SAME)
        command = COMMANDS[parsed.command]
        if parsed.arguments and not command.usage:
            text = (
                f"%mcp {parsed.command} takes no arguments, but this line has"
                f" {shown(parsed.arguments)}."
            )
            raise UsageError(text, hint=f"See %mcp help {parsed.command}.")
        self._quiet = parsed.quiet
        given = parsed.arguments
        if command.fills_in:
            given = expanded(given, self._namespace)
        if command.run is not None:
            result = command.run(self._session(), given)
        else:
            result = getattr(self, f"_{parsed.command}")(given)
        if parsed.output:
            self._namespace[parsed.output] = result
            self.held.note(parsed.output, result)
        if parsed.quiet:
            return None
        return result

    @no_var_expand
    @cell_magic("mcp")  # type: ignore[arg-type]
    def cell(self, line: str, cell: str) -> Any:
        """Send the text below `%%mcp [options]` to the model; `%mcp help cells` lists the options.

        Below `%%mcp write`, it is the task for a cell that the model writes.
        """
        command, rest = first_word(line)
        if command == "write":
            return self._write(rest, cell.strip())
        args = parse_cell_line(expanded(line, self._namespace))
        prompt = fill_in(cell.strip(), args.variables, self._namespace)
        if not prompt:
            raise UsageError("%%mcp needs a message below its first line.")
        echo = args.echo or self.echo
        from casual_mcp_nb.conversation.turn import Turn

        session = self._session()
        options = {"max_steps": self.max_steps, **args.options}
        if "model" in options:
            options["model"] = model_named(session, options["model"])
        result: PlannedCalls | Turn
        if args.plan:
            result = session.plan(prompt, **options)
        else:
            result = session.chat(prompt, echo=cast("Echo", echo), **options)
        if args.output:
            self._namespace[args.output] = result
        if isinstance(result, Turn):
            result.raise_for_status()
        if echo == "none":
            return None
        return result

    def _write(self, line: str, task: str) -> Any:
        """Have the model write a cell. It may read the variables that `--var` names."""
        args = parse_cell_line(expanded(line, self._namespace))
        if args.options.keys() - {"model"} or args.plan or args.echo:
            raise UsageError(
                "%%mcp write takes only --model, --var and -o.",
                hint="For example: %%mcp write --var orders",
            )
        session = self._session()
        model: str | ChatModel | None = None
        if "model" in args.options:
            model = model_named(session, args.options["model"])
        written = session.models.write(task, variables=args.variables, model=model)
        if args.output:
            self._namespace[args.output] = written
        return written

    @no_var_expand
    @cell_magic("mcp_config")  # type: ignore[arg-type]
    def config_cell(self, line: str, cell: str) -> Any:
        """Check the config below `%%mcp_config [FILE]`, write it to the file, and connect.

        A config with a mistake, or one that cannot be written, changes nothing and starts nothing.
        A file that was not written here is overwritten only with `--overwrite`.
        """
        from casual_mcp_nb.config.loader import check_config
        from casual_mcp_nb.session import Session

        options, files = _options_and_words(expanded(line, self._namespace), ("--overwrite",))
        if len(files) > 1:
            raise UsageError(f"%%mcp_config takes only one file, but this line has {len(files)}.")
        path = Path(*(files or [CONFIG_FILE])).expanduser()
        self._check_variable()
        check_config(cell, path)
        self._configs.write(path, cell, overwrite="--overwrite" in options)

        def make() -> Session:
            # The person wrote it in the cell.
            session = Session.from_config(path, trust=True)
            report = session.consent.trust()
            if any(entry.state in ("new", "changed") for entry in report):
                with suppress(UsageError):
                    report.accept()
            return session

        return self._start(f"Starting the servers of {path.name} …", make)

    def _audit(self, line: str) -> Any:
        """List every call of the session, or save the list to a file.

        For a config, measure what its tools cost. For a past session in a file, compute what
        deferring would have saved in it. Both need no session.
        """
        if not line:
            return self._session().consent.audit
        from casual_mcp_nb.conversation.foreign.opening import is_session
        from casual_mcp_nb.discovery.conversation_audit import audit_conversation

        options, paths = _options_and_words(line, ("--overwrite", "--trust"))
        if len(paths) != 1:
            hint = "For example: %mcp audit audit.jsonl, or %mcp audit ~/.cursor/mcp.json"
            raise UsageError("%mcp audit takes, optionally, one file.", hint=hint)
        path = Path(paths[0]).expanduser()
        if path.is_file() and is_session(path):
            return audit_conversation(path)
        if paths[0].endswith(".jsonl"):
            audit = self._session().consent.audit
            return audit.save(paths[0], overwrite="--overwrite" in options)
        from casual_mcp_nb.notebook.parts import audit_host

        return audit_host(paths[0], trust="--trust" in options)

    def _open(self, line: str) -> Any:
        """Load a conversation from a file, or list the sessions of other agents."""
        if not line:
            from casual_mcp_nb.conversation.foreign.listing import find_foreign_sessions

            return find_foreign_sessions()
        from casual_mcp_nb.conversation.conversation import Conversation

        file = one_word("open", line, "file", "lesson.json")
        return Conversation.load(file)

    def _check(self, line: str) -> Any:
        """Check the answer to a lesson's exercise."""
        from casual_mcp_nb.experiments.exercises import check_exercise

        return check_exercise(one_word("check", line, "exercise", "3.1"), self._namespace)

    def _find(self, line: str) -> Any:
        """List servers of a domain or the registry.

        The registry is the one that the session's config names, if there is a session.
        """
        from casual_mcp_nb.base.config import REGISTRY
        from casual_mcp_nb.notebook.servers import find_servers

        if not line:
            raise UsageError("What are you looking for?", hint="For example: %mcp find resend.com")
        line = without_quotes(line)
        session = self.session()
        if session is None:
            return find_servers(line, REGISTRY)
        return find_servers(line, session.config.registry)

    def _accounts(self, line: str) -> Any:
        """List the sign-ins on this computer, or forget one."""
        from casual_mcp_nb.notebook.servers import SessionAccounts

        if not line:
            return SessionAccounts()
        command, name = first_word(line)
        if command != "remove" or not name:
            raise UsageError(
                "%mcp accounts takes only remove NAME.",
                hint="For example: %mcp accounts remove weather",
            )
        SessionAccounts().remove(name)
        return Done(f"The sign-in of {name} is forgotten.")

    @property
    def _namespace(self) -> dict[str, Any]:
        assert self.shell is not None
        namespace: dict[str, Any] = self.shell.user_ns
        return namespace

    def variables(self) -> list[str]:
        """List the notebook's own variables."""
        assert self.shell is not None
        return [name for name in self._namespace if name not in self.shell.user_ns_hidden]

    def session(self) -> Session | None:
        """Find the notebook's session. None if there is none. Imports no engine."""
        module = sys.modules.get("casual_mcp_nb.session")
        value = self._namespace.get(VARIABLE)
        if module is None or not isinstance(value, module.Session):
            return None
        return cast("Session", value)

    def _remember(self, held: Mapping[str, Held]) -> None:
        """Save with the conversation which variables hold results."""
        session = self.session()
        if session is None:
            return
        secrets = session.parts.secrets()
        variables = {name: code_of(name, each, secrets) for name, each in held.items()}
        session.parts.runner.remember(variables=variables)

    def _open_session(self) -> Session | None:
        """Find the notebook's session. None if there is none, or if it is closed."""
        session = self.session()
        if session is None or session.parts.runner.ended:
            return None
        return session

    def _session(self) -> Session:
        """Find the notebook's session. A UsageError if there is none."""
        session = self.session()
        if session is not None:
            return session
        other = self._namespace.get(VARIABLE)
        text = "There is no session"
        hint = (
            "Start one with `%mcp demo` or `%mcp connect FILE-or-COMMAND`, or open the last one again"
            " with `%mcp resume`."
        )
        if other is not None:
            text = f"`{VARIABLE}` is a {type(other).__name__}, not a session"
        elif elsewhere := self._session_elsewhere():
            text = f"There is no session in the variable `{VARIABLE}`"
            hint = f"To use the one in `{elsewhere}`: {VARIABLE} = {elsewhere}"
        raise UsageError(f"{text}.", hint=hint)

    def _session_elsewhere(self) -> str | None:
        """Find another variable of the notebook that has a session."""
        module = sys.modules.get("casual_mcp_nb.session")
        if module is None:
            return None
        for name in self.variables():
            if isinstance(self._namespace[name], module.Session) and not name.startswith("_"):
                return name
        return None

    def _check_variable(self) -> None:
        """Raise UsageError if the variable for the session holds something else."""
        other = self._namespace.get(VARIABLE)
        if other is not None and self.session() is None:
            kind = type(other).__name__
            raise UsageError(
                f"The variable `{VARIABLE}` holds a {kind}.",
                hint=f"Rename it, or `del {VARIABLE}`, and try again.",
            )

    def _start(
        self,
        announcement: str,
        make: Callable[[], Session],
        note: Callable[[], str] | None = None,
    ) -> Any:
        """Open a session in the place of the notebook's own, and connect its servers.

        Args:
            announcement: Shown before anything is imported for the session.
            make: Opens the session.
            note: Returns a note for the status, or an empty string. Called once all is connected.

        Returns:
            The session's status, or in a notebook its display.
        """
        from casual_mcp_nb.notebook.start_display import StartDisplay

        self._check_variable()
        display = StartDisplay(announcement, explained=not self._quiet)
        status: SessionStatus | None = None

        def final(_: object) -> SessionStatus | None:
            if self._quiet:
                return None
            return status

        try:
            display.begin()
            session = make()
            servers = session.servers
            display.follow(lambda: servers.now)
            previous = self.session()
            if previous is not None:
                previous.close()
            self._namespace[VARIABLE] = session
            session.connect(quiet=True)
            status = session.status
            text = note() if note is not None else ""
            if text:
                status = replace(status, notes=(*status.notes, text))
        finally:
            display.finish(final)
        if display.in_notebook:
            from casual_mcp_nb.notebook.live import ShownStatus

            return ShownStatus.of(status, self.shell)
        return status

    def _demo(self, line: str) -> Any:
        more, options = split_ends(line, ("--model",))
        model = options.get("--model")
        if more:
            raise UsageError(
                f"%mcp demo takes only a model, but this line has {shown(more)}.",
                hint="See %mcp help demo.",
            )

        def make() -> Session:
            from casual_mcp_nb.session import Session

            return Session.demo(model)

        if model:
            return self._start("Starting the bundled servers …", make)
        at_hand = _background(_models_at_hand)

        def note() -> str:
            from casual_mcp_nb.notebook.doctor import hint_of

            if at_hand.exception():
                return ""
            return hint_of(at_hand.result())

        return self._start("Starting the bundled servers …", make, note)

    def _connect(self, line: str) -> Any:
        target, options = split_ends(line, ("--model", "--name", "--trust"))
        model, name = options.get("--model"), options.get("--name")
        if not target and model is None:
            one_word("connect", "", "config file, command or address", "casual_mcp_config.json")
        if target and is_config_file(target):
            path = one_word("connect", target, "config file")
            if name is not None:
                raise UsageError("--name is for one server: a config file has its servers' names.")
            what = f"the servers of {Path(path).name}"
            make = _opener_of_config(path, trust="--trust" in options, model=model)
        else:
            if "--trust" in options:
                raise UsageError(
                    "--trust is for a config file.", hint="Put a command that ends in it in quotes."
                )
            # A command can hold a secret, so it is not shown.
            what = "the server" if target else "the session"
            make = _opener_of_server(target, name, model)
        previous = self.session()
        note = ""
        if previous is not None and previous.servers and not previous.status.closed:
            note = (
                "The session before, with its servers and its conversation, was closed. %mcp add adds"
                " a server to the one that is open."
            )
        return self._start(f"Starting {what} …", make, lambda: note)

    def _conversations(self, line: str) -> Any:
        """List saved conversations: those of the session, or of all sessions without one."""
        line = without_quotes(line)
        session = self._open_session()
        if session is not None:
            return session.conversations.find(line)
        from casual_mcp_nb.notebook.resuming import saved_conversations

        return saved_conversations(line)

    def _resume(self, line: str) -> Any:
        """Continue a saved conversation, in the session that is open or else in its own."""
        id = None
        if line:
            id = conversation_id("resume", line)
        from casual_mcp_nb.notebook.resuming import Resumed, resume_here, resume_session

        session = self._open_session()
        if session is not None:
            conversation, problems = resume_here(session.parts.turn_service, id)
            # A warning would name a line of this package, not of the notebook.
            conversation.repairs += tuple(problems)
            return conversation
        from casual_mcp_nb.session import Session

        resumed: Resumed[Session] | None = None

        def make() -> Session:
            nonlocal resumed
            resumed = resume_session(Session, id, "default")
            return resumed.session

        def note() -> str:
            assert resumed is not None
            return resumed.note

        status = self._start("Opening the saved conversation …", make, note)
        if resumed is not None and not self._quiet:
            resumed.show_widgets()
        return status

    def _replay(self, line: str) -> Any:
        args = parse_cassette("replay", line)

        def make() -> Session:
            from casual_mcp_nb.session import Session

            return Session.quick(cassette=args.path, pace=args.pace)

        return self._start(f"Opening {Path(args.path).name} …", make)

    def _test(self, line: str) -> str:
        from casual_mcp_nb.notebook.cassettes import tested
        from casual_mcp_nb.session import Session

        args = parse_cassette("test", line)
        with Session.quick(
            cassette=args.path, pace=0, name=f"test of {args.path}", quiet=True, store=None
        ) as session:
            turns = session.cassettes.replay()
            return tested(turns, session.cassettes.state)

    def _close(self, line: str) -> None:
        self._session().close()

    def _nested(self, line: str) -> str:
        from casual_mcp_nb.notebook.nested import enable_nested_asyncio

        if one_word("nested", line, "setting", "on") != "on":
            raise UsageError(
                "%mcp nested can only be turned on.", hint="Restart the kernel to turn it off."
            )
        return f"nested asyncio: {enable_nested_asyncio()}"

    def _help(self, line: str) -> Any:
        return help_of(line)


def _opener_of_config(path: str, *, trust: bool, model: str | None) -> Callable[[], Session]:
    """Return a function that opens a session with a config file's servers and models.

    The files of other hosts have no models: there the offline planner answers, as for one server.
    """

    def make() -> Session:
        from casual_mcp_nb.config.loader import load_accepted
        from casual_mcp_nb.config.quick import OFFLINE
        from casual_mcp_nb.notebook.consent import accept_first
        from casual_mcp_nb.session import Session

        config = load_accepted(path, partial(accept_first, trusted=trust))
        default = None if config.models else OFFLINE
        return Session.from_config(config, model=model or default, trust=trust)

    return make


def _opener_of_server(target: str, name: str | None, model: str | None) -> Callable[[], Session]:
    """Return a function that opens a session with one server, or with none if `target` is empty."""

    def make() -> Session:
        from casual_mcp_nb.config.quick import unquoted
        from casual_mcp_nb.notebook.servers import check_typed
        from casual_mcp_nb.session import Session

        server = unquoted(target)
        if not server:
            return Session.quick(model)
        check_typed(server)
        return Session.quick(model, [server] if name is None else {name: server})

    return make


def _options_and_words(line: str, options: Collection[str]) -> tuple[list[str], list[str]]:
    """Split a line into those of these options that it has, and its other words."""
    given: list[str] = []
    others: list[str] = []
    for word in words_of(line):
        if word in options:
            given.append(word)
        else:
            others.append(word)
    return given, others


def _background(work: Callable[[], T]) -> Future[T]:
    """Do work on a thread for which neither the cell nor the interpreter's exit waits."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _models_at_hand() -> list[ModelAtHand]:
    from casual_mcp_nb.config.environment import read_environment
    from casual_mcp_nb.notebook.doctor import models_at_hand

    return models_at_hand(read_environment())


def register(shell: InteractiveShell) -> None:
    """Add the magics and their completion to a shell. Doing so twice is harmless."""
    _remove(shell)
    doors.enter("notebook")
    magics = McpMagics(shell)
    shell.register_magics(magics)
    shell.input_transformers_cleanup.append(keep_questions)
    magics.held.begin()
    shell.events.register("post_run_cell", magics.held.after_cell)

    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(_matcher(magics))


def unregister(shell: InteractiveShell) -> None:
    """Close the magics' session, if there is one, and remove them."""
    for magics in _registered(shell):
        session = magics.session()
        if session is not None:
            session.close()
    _remove(shell)
    doors.enter("python")


def _registered(shell: InteractiveShell) -> list[McpMagics]:
    # By name: after %reload_ext the class is another one.
    parts: list[Any] = list(shell.configurables)
    return [part for part in parts if type(part).__name__ == McpMagics.__name__]


def _remove(shell: InteractiveShell) -> None:
    for kind, names in _MAGICS.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    configurables: list[Any] = shell.configurables
    for magics in _registered(shell):
        configurables.remove(magics)
        magics.held.end()
        with suppress(ValueError):
            shell.events.unregister("post_run_cell", magics.held.after_cell)
    # These are found by name as well.
    transformers = shell.input_transformers_cleanup
    for transformer in list(transformers):
        if getattr(transformer, "__name__", "") == keep_questions.__name__:
            transformers.remove(transformer)
    if shell.Completer is not None:
        matchers = shell.Completer.custom_matchers
        for matcher in list(matchers):
            if getattr(matcher, "matcher_identifier", "") == _MATCHER:
                matchers.remove(matcher)


def _matcher(magics: McpMagics) -> Any:
    """Make IPython's matcher for the lines of these magics, and for a session's tool functions.

    A hook for `complete_command` would leave Python's keywords in the list.
    """
    from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

    @context_matcher(identifier=_MATCHER)  # type: ignore[untyped-decorator]
    def matcher(context: CompletionContext) -> Any:
        text = context.text_until_cursor.lstrip()
        if text.startswith(("%mcp ", "%%mcp ")):
            kind = "mcp"
            known = Names.of(magics.session(), magics.variables(), text)
            names, fragment = complete(text, known), last_word(text)
        else:
            kind = "function"
            names, fragment = functions_at(text, getattr(magics.shell, "user_ns", {}))
        return {
            "completions": [SimpleCompletion(name, type=kind) for name in names],
            "matched_fragment": fragment,
            "suppress": bool(names),
            "ordered": True,
        }

    return matcher


def functions_at(text: str, variables: Mapping[str, Any]) -> tuple[list[str], str]:
    """Complete a session's tool, as in `session.tools.time.con`.

    IPython does not, since it evaluates no property.

    Args:
        text: The text before the cursor.
        variables: The notebook's variables.

    Returns:
        The names, and the fragment that they replace.
    """
    dotted = re.findall(r"[\w.]*$", text)[0].split(".")
    fragment = dotted[-1]
    if len(dotted) == 1 or "casual_mcp_nb.session" not in sys.modules:
        return [], fragment
    name, *path = dotted[:-1]
    from casual_mcp_nb.notebook.functions import ServerFunctions, ToolFunctions
    from casual_mcp_nb.notebook.tools import SessionTools
    from casual_mcp_nb.session import Session

    value = variables.get(name)
    match value, path:
        case Session(), ["tools", *path]:
            value = value.tools
        case SessionTools() | ToolFunctions() | ServerFunctions(), _:
            pass
        case _:
            return [], fragment
    for part in path:
        if isinstance(value, ServerFunctions) or part not in dir(value):
            return [], fragment
        value = getattr(value, part)
    names: list[str] = []
    for member in dir(value):
        if member.startswith(fragment) and not member.startswith("_"):
            names.append(member)
    return names, fragment
