"""The glue between IPython and the commands. The session that they work on is the notebook's variable `session`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.magics.args import CELL_OPTIONS, one_word, parse_cell_line, parse_line
from casual_mcp_nb.magics.commands import COMMANDS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from casual_mcp_nb.notebook.session import Session

VARIABLE = "session"
_SETUP = {
    "demo": ("", "bundled servers and an offline planner: no key, no network"),
    "connect": ("FILE", "the servers and models of a config file"),
    "close": ("", "end all servers"),
    "nested": ("on", "let your own cells call asyncio.run (patches asyncio)"),
    "help": ("", "this text"),
}


@magics_class
class McpMagics(Magics):
    """`%mcp` for one command, `%%mcp` for a message to the model."""

    @no_var_expand
    @line_magic("mcp")  # type: ignore[arg-type]
    def line(self, line: str) -> Any:
        """`%mcp COMMAND …`; `%mcp help` lists the commands."""
        parsed = parse_line(line, [*_SETUP, *COMMANDS])
        if parsed.command in _SETUP:
            return getattr(self, f"_{parsed.command}")(parsed.rest)
        return COMMANDS[parsed.command].run(self._session(), parsed.rest)

    @no_var_expand
    @cell_magic("mcp")  # type: ignore[arg-type]
    def cell(self, line: str, cell: str) -> Any:
        """`%%mcp [options]` and a message to the model below it. The text is sent as it is."""
        args = parse_cell_line(line)
        prompt = cell.strip()
        if not prompt:
            raise UsageError("%%mcp needs a message below its first line.")
        turn = self._session().chat(
            prompt,
            model=args.model,
            tool_set=args.tool_set,
            system=args.system,
            template=args.template,
            discovery=False if args.no_discovery else None,
            max_steps=args.max_steps,
        )
        turn.raise_for_status()
        return turn

    @property
    def _namespace(self) -> dict[str, Any]:
        assert self.shell is not None
        namespace: dict[str, Any] = self.shell.user_ns
        return namespace

    def _session(self) -> Session:
        from casual_mcp_nb.notebook.session import Session

        session = self._namespace.get(VARIABLE)
        if not isinstance(session, Session):
            found = f"`{VARIABLE}` is a {type(session).__name__}" if session is not None else "There is no session"
            raise UsageError(f"{found}.", hint="Start one with `%mcp demo` or `%mcp connect FILE`.")
        return session

    def _start(self, session: Session) -> Any:
        previous = self._namespace.get(VARIABLE)
        if isinstance(previous, type(session)):
            previous.close()
        elif previous is not None:
            kind = type(previous).__name__
            raise UsageError(
                f"The variable `{VARIABLE}` holds a {kind}.", hint=f"Rename it, or `del {VARIABLE}`, and try again."
            )
        self._namespace[VARIABLE] = session
        session.connect()
        return session.status

    def _demo(self, rest: str) -> Any:
        from casual_mcp_nb.notebook.session import Session

        return self._start(Session.demo())

    def _connect(self, rest: str) -> Any:
        from casual_mcp_nb.notebook.session import Session

        return self._start(Session.from_config(one_word("connect", rest, "config file")))

    def _close(self, rest: str) -> None:
        self._session().close()

    def _nested(self, rest: str) -> str:
        from casual_mcp_nb.notebook.nested import enable_nested_asyncio

        if one_word("nested", rest, "word, `on`") != "on":
            raise UsageError("%mcp nested can only be turned on.", hint="Restart the kernel to be rid of it.")
        return f"nested asyncio: {enable_nested_asyncio()}"

    def _help(self, rest: str) -> None:
        rows = {**_SETUP, **{name: (command.usage, command.summary) for name, command in COMMANDS.items()}}
        width = max(len(f"{name} {usage}") for name, (usage, _) in rows.items())
        for name, (usage, summary) in rows.items():
            print(f"%mcp {f'{name} {usage}'.ljust(width)}  {summary}")  # noqa: T201
        print(f"\n%%mcp [{'] ['.join(CELL_OPTIONS)}]\nYour message to the model.")  # noqa: T201
        print(f"\nThe session is the variable `{VARIABLE}`: {VARIABLE}.tools, {VARIABLE}.chat('…'), {VARIABLE}.stats")  # noqa: T201


def register(shell: InteractiveShell) -> None:
    """Add the magics to a shell; doing so twice is harmless."""
    shell.register_magics(McpMagics)


def unregister(shell: InteractiveShell) -> None:
    """Close the session of the magics, if there is one, and take them away."""
    import sys

    session_module = sys.modules.get("casual_mcp_nb.notebook.session")
    session = shell.user_ns.get(VARIABLE)
    if session_module is not None and isinstance(session, session_module.Session):
        session.close()
    shell.magics_manager.magics["line"].pop("mcp", None)
    shell.magics_manager.magics["cell"].pop("mcp", None)
