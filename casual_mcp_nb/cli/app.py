"""The command line: its commands, its exit codes, and how errors are reported."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal, NamedTuple, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from casual_mcp_nb import __version__, doors
from casual_mcp_nb.cli import BROKEN_PIPE, FAILED, INTERRUPTED, SIGNALLED, WRONG_USAGE
from casual_mcp_nb.cli.chat import chat, demo, evaluate
from casual_mcp_nb.cli.config import check, doctor
from casual_mcp_nb.cli.migrate import migrate_config
from casual_mcp_nb.cli.serve import end_process, serve
from casual_mcp_nb.cli.servers import (
    accounts,
    audit,
    call,
    clients,
    find,
    models,
    search,
    servers,
    tool,
    tools,
)
from casual_mcp_nb.cli.sessions import sessions, usage
from casual_mcp_nb.cli.sign_in import sign_in, sign_out
from casual_mcp_nb.cli.terminal import tell, write_json
from casual_mcp_nb.cli.toolsets import toolsets
from casual_mcp_nb.errors import (
    CasualMcpError,
    TrustRequiredError,
    UnknownNameError,
    UsageError,
    closest,
    did_you_mean,
    shown,
)


def _shown_default(value: Any) -> Any:
    """Leave out the default of an option that is not given, or can be given several times."""
    if value is False or value == ():
        return None
    return value


app = App(
    name="casual-mcp-nb",
    help="Inspect MCP servers and the cost of their tools, and chat with a model that calls them.",
    version=__version__,
    help_format="markdown",
    result_action="return_value",
    print_error=False,
    default_parameter=Parameter(show_default=_shown_default),
)
app.command(chat)
app.command(demo)
app.command(evaluate)
app.command(servers)
app.command(find)
app.command(accounts)
app.command(tools)
app.command(tool)
app.command(search)
app.command(call)
app.command(toolsets)
app.command(models)
app.command(clients)
app.command(check)
app.command(doctor)
app.command(audit)
app.command(sessions)
app.command(usage)
app.command(migrate_config)
app.command(serve)
app.command(sign_in)
app.command(sign_out)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a completion script for a shell.

    For bash: eval "$(casual-mcp-nb completion bash)".

    Args:
        shell: The shell.
    """
    sys.stdout.write(app.generate_completion(shell=shell))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's, and return an exit code of
    `casual_mcp_nb.cli`.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    code = _run(words)
    if arguments is None and words[:1] == ["serve"]:
        end_process(code)
    return code


def _run(words: Sequence[str]) -> int:
    as_json = any(
        word == "--json" or word.startswith("--json=")
        for word in itertools.takewhile("--".__ne__, words)
    )
    try:
        try:
            with doors.at("shell"), _signals_end_it():
                result = app(words, exit_on_error=False)
                sys.stdout.flush()
                return result if isinstance(result, int) else 0
        except BrokenPipeError:
            raise
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            failure = _failure_of(error)
            if failure.code:
                _report(failure, as_json)
            return failure.code
    except BrokenPipeError:
        # End silently when the reader of the output has left, as after `| head`.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return BROKEN_PIPE


class _Failure(NamedTuple):
    """How a command failed.

    Args:
        code: The exit code.
        kind: The kind of error, for programs.
        text: What went wrong.
        hint: What to do next, for the person.
        is_told: Whether the person knows it already.
    """

    code: int
    kind: str
    text: str
    hint: str = ""
    is_told: bool = False


def _report(failure: _Failure, as_json: bool) -> None:
    """Report a failure, with --json also as an object on stdout, where a program reads it."""
    if as_json:
        write_json({"event": "error", "error": failure.text, "kind": failure.kind})
        sys.stdout.flush()
    if not failure.is_told:
        tell(f"{failure.text}{failure.hint}")


def _failure_of(error: BaseException) -> _Failure:
    match error:
        case CycloptsError():
            return _wrong_usage(error)
        case KeyboardInterrupt():
            return _Failure(INTERRUPTED, "interrupted", "Interrupted.", is_told=True)
        case SystemExit():
            code = error.code if isinstance(error.code, int) else FAILED
            return _Failure(code, "interrupted", f"Ended with code {code}.", is_told=True)
        case CasualMcpError():
            hint = ""
            if isinstance(error, UnknownNameError):
                hint = _hint_on_config(error.name)
            wrong = isinstance(error, UsageError) and not isinstance(error, TrustRequiredError)
            return _Failure(WRONG_USAGE if wrong else FAILED, error.kind, str(error), hint)
        case OSError():
            reason = error.strerror or type(error).__name__
            return _Failure(FAILED, "os", f"{reason}: {error.filename or 'input or output'}")
    text = (
        f"{type(error).__name__} at {_place_of(error)}. This is a mistake in casual-mcp-nb."
        " Please report it."
    )
    return _Failure(FAILED, "internal", text)


def _wrong_usage(error: CycloptsError) -> _Failure:
    """Explain what is wrong with a command line, and name the command's help."""
    chain = error.command_chain or ()
    text, on_config = str(error), ""
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        on_config = _hint_on_config(error.unused_tokens[0])
        text = f"Unexpected: {' '.join(map(shown, error.unused_tokens))}."
        inner = app
        for name in chain:
            inner = inner[name]
        if near := closest(error.unused_tokens[0], inner):
            text += f" {did_you_mean(near, near)}"
    command = " ".join([app.name[0], *chain, "--help"])
    return _Failure(WRONG_USAGE, "usage", text, hint=f"{on_config} See: {command}")


def _hint_on_config(word: str) -> str:
    """Name the option for a config, if a word that was taken for something else is a file."""
    if not os.path.isfile(word):
        return ""
    return f" If this file is the config, write --config {shlex.quote(word)}."


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """Have the signals that end a process unwind it, so that servers end too."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(SIGNALLED + number)

    names = ("SIGTERM", "SIGHUP", "SIGBREAK")
    before: dict[int, Any] = {}
    try:
        for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    except ValueError:
        # Not on the main thread, where nothing gets signals.
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _place_of(error: BaseException) -> str:
    """Locate an unexpected error's source. Its message could contain anything and is not shown."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return "an unknown place"
    return f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"
