"""The IPython magics, with their completion and help.

They work on the session in the notebook's variable `session`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Enum, Integer

from casual_mcp_nb import doors
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.magics.args import (
    ECHO,
    expanded,
    fill_in,
    is_config_file,
    one_word,
    parse_cassette,
    parse_cell_line,
    parse_line,
    split_model,
    words_of,
)
from casual_mcp_nb.magics.commands import COMMANDS, SAME, conversation_id
from casual_mcp_nb.magics.completion import Names, complete, last_word
from casual_mcp_nb.magics.final_question_marks import keep_questions
from casual_mcp_nb.magics.help import help_of
from casual_mcp_nb.magics.written_configs import WrittenConfigs
from casual_mcp_nb.notebook.payloads import Held, HeldValues, code_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from casual_mcp_nb.notebook.doctor import ModelAtHand
    from casual_mcp_nb.notebook.live import Echo
    from casual_mcp_nb.session import Session

T = TypeVar("T")

VARIABLE = "session"

CONFIG_FILE = "casual_mcp_config.json"

_MAGICS = {"line": ("mcp",), "cell": ("mcp", "mcp_config")}

_MATCHER = "casual_mcp_nb"

_TRUST = re.compile(r"^--trust\s+|\s+--trust$")


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
        if not command.is_verbatim:
            given = expanded(given, self._namespace)
        if command.run is not None:
            result = command.run(self._session(), given)
        else:
            result = getattr(self, f"_{parsed.command}")(given)
        if parsed.output:
            self._namespace[parsed.output] = result
            self.held.note(parsed.output, result)
        return None if parsed.quiet else result

    @no_var_expand
    @cell_magic("mcp")  # type: ignore[arg-type]
    def cell(self, line: str, cell: str) -> Any:
        """Send the text below `%%mcp [options]` to the model; `%mcp help cells` lists the options.

        Below `%%mcp write`, it is the task for a cell that the model writes.
        """
        if line.split()[:1] == ["write"]:
            return self._write(line.split(None, 1)[1:], cell.strip())
        args = parse_cell_line(expanded(line, self._namespace))
        prompt = fill_in(cell.strip(), args.variables, self._namespace)
        if not prompt:
            raise UsageError("%%mcp needs a message below its first line.")
        echo = args.echo or self.echo
        options = {"max_steps": self.max_steps, **args.options}
        if args.plan:
            plan = self._session().plan(prompt, **options)
            if args.output:
                self._namespace[args.output] = plan
            return None if echo == "none" else plan
        turn = self._session().chat(prompt, echo=cast("Echo", echo), **options)
        if args.output:
            self._namespace[args.output] = turn
        turn.raise_for_status()
        return None if echo == "none" else turn

    def _write(self, line: Sequence[str], task: str) -> Any:
        """Have the model write a cell. It may read the variables that `--var` names."""
        args = parse_cell_line(expanded(" ".join(line), self._namespace))
        others = [name for name in args.options if name != "model"]
        if others or args.plan or args.echo:
            raise UsageError(
                "%%mcp write takes only --model, --var and -o.",
                hint="For example: %%mcp write --var orders",
            )
        written = self._session().models.write(
            task, variables=args.variables, model=args.options.get("model")
        )
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

        words = words_of(expanded(line, self._namespace))
        files = [word for word in words if word != "--overwrite"]
        if len(files) > 1:
            raise UsageError(f"%%mcp_config takes only one file, but this line has {len(files)}.")
        path = Path(files[0] if files else CONFIG_FILE).expanduser()
        self._check_variable()
        check_config(cell, path)
        self._configs.write(path, cell, overwrite="--overwrite" in words)

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
        """Show every call in the session, save the list to a file, or measure a config's cost,
        which needs no session.
        """
        words = words_of(line)
        paths = [word for word in words if word not in ("--overwrite", "--trust")]
        if not words:
            return self._session().consent.audit
        if len(paths) != 1:
            hint = "For example: %mcp audit audit.jsonl, or %mcp audit ~/.cursor/mcp.json"
            raise UsageError("%mcp audit takes, optionally, one file.", hint=hint)
        if paths[0].endswith(".jsonl"):
            return self._session().consent.audit.save(paths[0], overwrite="--overwrite" in words)
        from casual_mcp_nb.notebook.parts import audit_host

        return audit_host(paths[0], trust="--trust" in words)

    def _check(self, line: str) -> Any:
        """Check the answer to an exercise, see `exercise`. It needs no session."""
        from casual_mcp_nb.experiments.exercises import check_exercise

        return check_exercise(one_word("check", line, "exercise", "3.1"), self._namespace)

    def _find(self, line: str) -> Any:
        """List servers of a domain or the registry.

        It needs no session, whose config can name another registry.
        """
        from casual_mcp_nb.base.config import REGISTRY
        from casual_mcp_nb.notebook.servers import find_servers

        if not line.strip():
            raise UsageError("What are you looking for?", hint="For example: %mcp find resend.com")
        session = self.session()
        return find_servers(line, session.config.registry if session is not None else REGISTRY)

    def _accounts(self, line: str) -> Any:
        """List the sign-ins on this computer, or forget one. It needs no session."""
        from casual_mcp_nb.notebook.servers import SessionAccounts

        command, _, name = line.partition(" ")
        if line and (command != "remove" or not name.strip()):
            raise UsageError(
                "%mcp accounts takes only remove NAME.",
                hint="For example: %mcp accounts remove weather",
            )
        if line:
            SessionAccounts().remove(name.strip())
        return SessionAccounts()

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
        """Find the notebook's session, if there is one. Imports no engine."""
        module = sys.modules.get("casual_mcp_nb.session")
        value = self._namespace.get(VARIABLE)
        return value if module is not None and isinstance(value, module.Session) else None

    def _remember(self, held: Mapping[str, Held]) -> None:
        """Have it saved which variables hold results."""
        session = self.session()
        if session is None:
            return
        secrets = session.parts.secrets()
        variables = {name: code_of(name, each, secrets) for name, each in held.items()}
        session.parts.runner.remember(variables=variables)

    def _open_session(self) -> Session | None:
        """Find the notebook's session, if there is one that is not closed."""
        session = self.session()
        return None if session is None or session.parts.runner.ended else session

    def _session(self) -> Session:
        session = self.session()
        if session is None:
            other = self._namespace.get(VARIABLE)
            text = "There is no session"
            if other is not None:
                text = f"`{VARIABLE}` is a {type(other).__name__}, not a session"
            raise UsageError(
                f"{text}.",
                hint="Start one with `%mcp demo` or `%mcp connect FILE-or-COMMAND`, or open the"
                " last one again with `%mcp resume`.",
            )
        return session

    def _check_variable(self) -> None:
        other = self._namespace.get(VARIABLE)
        if other is not None and self.session() is None:
            kind = type(other).__name__
            raise UsageError(
                f"The variable `{VARIABLE}` holds a {kind}.",
                hint=f"Rename it, or `del {VARIABLE}`, and try again.",
            )

    def _start(
        self, announcement: str, make: Callable[[], Session], hint: Callable[[], str] = lambda: ""
    ) -> Any:
        """Open and connect a session. The announcement is shown before anything is imported for it.

        `hint` returns a note for the status.
        """
        from casual_mcp_nb.notebook.start_display import StartDisplay

        self._check_variable()
        display, session, status = StartDisplay(announcement), None, None
        try:
            session = make()
            display.follow(lambda: session.servers.now)
            previous = self.session()
            if previous is not None:
                previous.close()
            self._namespace[VARIABLE] = session
            session.connect(quiet=True)
            status = session.status
            if note := hint():
                status = replace(status, notes=(*status.notes, note))
        finally:
            servers = session.servers.now if session else None
            display.finish(servers, None if self._quiet else status)
        if display.in_notebook:
            from casual_mcp_nb.notebook.live import ShownStatus

            return ShownStatus.of(status, self.shell)
        return status

    def _demo(self, line: str) -> Any:
        more, model = split_model(line)
        if more:
            raise UsageError(
                f"%mcp demo takes only a model, but this line has {shown(more)}.",
                hint="See %mcp help demo.",
            )
        at_hand = None if model else _background(_models_at_hand)

        def make() -> Session:
            from casual_mcp_nb.session import Session

            return Session.demo(model)

        def hint() -> str:
            from casual_mcp_nb.notebook.doctor import hint_of

            if at_hand and not at_hand.exception():
                return hint_of(at_hand.result())
            return ""

        return self._start("Starting the bundled servers …", make, hint)

    def _connect(self, line: str) -> Any:
        target, model = split_model(line)
        if not target and model is None:
            one_word("connect", "", "config file, command or address", "casual_mcp_config.json")
        file = _TRUST.sub("", target)
        is_file = bool(file) and is_config_file(file)
        previous = self.session()
        replaced = previous is not None and bool(previous.turns) and not previous.status.closed

        def make() -> Session:
            from casual_mcp_nb.config.finding import is_findable
            from casual_mcp_nb.config.quick import check_command, unquoted
            from casual_mcp_nb.session import Session

            if not is_file:
                server = unquoted(target)
                if server and not is_findable(server):
                    check_command(server)
                return Session.quick(model, [server] if server else [])
            session = Session.from_config(
                one_word("connect", file, "config file"), trust=file != target
            )
            if model is not None:
                session.model = model
            return session

        # A command can hold a secret.
        what = "the session"
        if is_file:
            what = f"the servers of {Path(file).name}"
        elif target:
            what = "the server"
        note = ""
        if replaced:
            note = "The previous session and its conversation were closed."
            note += " To keep them, use %mcp add."
        return self._start(f"Starting {what} …", make, lambda: note)

    def _conversations(self, line: str) -> Any:
        """List saved conversations: the session's, or without one those of all sessions."""
        session = self._open_session()
        if session is not None:
            return session.conversations.find(line)
        from casual_mcp_nb.notebook.resuming import saved_conversations

        return saved_conversations(line)

    def _resume(self, line: str) -> Any:
        """Continue a saved conversation, in the session that is open or else in its own."""
        id = conversation_id("resume", line) if line else None
        session = self._open_session()
        if session is not None:
            return session.conversations.resume(id)
        from casual_mcp_nb.notebook.resuming import Resumed, resume_session
        from casual_mcp_nb.session import Session

        resumed: Resumed[Session] | None = None

        def make() -> Session:
            nonlocal resumed
            resumed = resume_session(Session, id, "default")
            return resumed.session

        status = self._start(
            "Opening the saved conversation …", make, lambda: resumed.note if resumed else ""
        )
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


def _background(work: Callable[[], T]) -> Future[T]:
    """Do work on a thread that neither the cell nor interpreter exit waits for."""
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
    transformers = shell.input_transformers_cleanup
    transformers[:] = [
        one for one in transformers if getattr(one, "__name__", "") != keep_questions.__name__
    ]
    if shell.Completer is not None:
        matchers = shell.Completer.custom_matchers
        matchers[:] = [
            matcher
            for matcher in matchers
            if getattr(matcher, "matcher_identifier", "") != _MATCHER
        ]


def _matcher(magics: McpMagics) -> Any:
    """Create a matcher for our lines.

    A hook for `complete_command` would leave Python's keywords in the list.
    """
    from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

    @context_matcher(identifier=_MATCHER)  # type: ignore[untyped-decorator]
    def matcher(context: CompletionContext) -> Any:
        text = context.text_until_cursor.lstrip()
        ours = text.startswith(("%mcp ", "%%mcp "))
        if ours:
            known = Names.of(magics.session(), magics.variables(), text)
            names, fragment = complete(text, known), last_word(text)
        else:
            names, fragment = functions_at(text, getattr(magics.shell, "user_ns", {}))
        kind = "mcp" if ours else "function"
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
    dotted = re.findall(r"[\w.]*$", text)[0]
    name, *path, fragment = dotted.split(".") if "." in dotted else ("", "")
    if "casual_mcp_nb.session" not in sys.modules:
        return [], fragment
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
    public = [name for name in dir(value) if not name.startswith("_")]
    return [name for name in public if name.startswith(fragment)], fragment
