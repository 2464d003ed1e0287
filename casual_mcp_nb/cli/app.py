"""The command line: its commands, its exit codes, and how errors are reported."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from casual_mcp_nb import __version__, doors
from casual_mcp_nb.cli import BROKEN_PIPE, FAILED, INTERRUPTED, SIGNALLED, WRONG_USAGE
from casual_mcp_nb.cli.chat import chat, demo, evaluate
from casual_mcp_nb.cli.config import check, doctor, migrate_config, sign_in, sign_out
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
from casual_mcp_nb.cli.terminal import tell, write_json
from casual_mcp_nb.cli.toolsets import toolsets
from casual_mcp_nb.errors import (
    CasualMcpError,
    TrustRequiredError,
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

    def failed(code: int, kind: str, text: str, *, hint: str = "", reported: bool = False) -> int:
        """Report an error, with --json also as an object on stdout, where a program reads it."""
        if as_json:
            write_json({"event": "error", "error": text, "kind": kind})
            sys.stdout.flush()
        if not reported:
            tell(f"{text}{hint}")
        return code

    try:
        try:
            with doors.at("shell"), _signals_end_it():
                result = app(words, exit_on_error=False)
                sys.stdout.flush()
                return result if isinstance(result, int) else 0
        except CycloptsError as error:
            unexpected = isinstance(error, UnusedCliTokensError) and error.unused_tokens
            text = f"Unexpected: {' '.join(map(shown, unexpected))}." if unexpected else str(error)
            chain = error.command_chain or ()
            inner = app
            for name in chain:
                inner = inner[name]
            if unexpected and (near := closest(unexpected[0], inner)):
                text += f" {did_you_mean(near, near)}"
            command = " ".join([app.name[0], *chain, "--help"])
            return failed(WRONG_USAGE, "usage", text, hint=f" See: {command}")
        except KeyboardInterrupt:
            return failed(INTERRUPTED, "interrupted", "Interrupted.", reported=True)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else FAILED
            if code:
                return failed(code, "interrupted", f"Ended with code {code}.", reported=True)
            return code
        except CasualMcpError as error:
            wrong = isinstance(error, UsageError) and not isinstance(error, TrustRequiredError)
            return failed(WRONG_USAGE if wrong else FAILED, error.kind, str(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            return failed(
                FAILED,
                "os",
                f"{error.strerror or type(error).__name__}: {error.filename or 'input or output'}",
            )
        except Exception as error:
            text = (
                f"{type(error).__name__} at {_place_of(error)}. This is a mistake in casual-mcp-nb."
                " Please report it."
            )
            return failed(FAILED, "internal", text)
    except BrokenPipeError:
        # End silently when the reader of the output has left, as after `| head`.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return BROKEN_PIPE


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


def _place_of(error: Exception) -> str:
    """Locate an unexpected error's source. Its message could contain anything and is not shown."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return "an unknown place"
    return f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"
