"""Start server processes, and end whole process groups."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.server import ServerConfig

POLL_SECONDS = 0.02
_POSIX = os.name == "posix"


def command_of(config: ServerConfig) -> list[str]:
    """Build the command line of a stdio server: the config's own, or that of a bundled server."""
    if config.bundled:
        from casual_mcp_nb.bundled import command

        return command(config.bundled, list(config.args))
    return [config.command or "", *config.args]


def launched(command: Sequence[str], fork_server: str = "") -> list[str]:
    """Prefix a command with the launcher, so that its process can be found and cannot outlive ours; unchanged on Windows.

    Args:
        command: The command line.
        fork_server: Address of the fork server that may run it; see `fork_server_for`.
    """
    if not _POSIX:
        return list(command)
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("_launch.py")), str(os.getpid()), fork_server, *command]


def environment_of(config: ServerConfig) -> dict[str, str]:
    """Collect the variables that a server gets in addition to the SDK's few (HOME, LOGNAME, PATH, SHELL, TERM, USER)."""
    # A bundled server looks for the user's files where this process and the command line do.
    folder = os.environ.get("XDG_CONFIG_HOME") if config.bundled else None
    given = {key: value.get_secret_value() for key, value in config.env.items()}
    return {"XDG_CONFIG_HOME": folder, **given} if folder else given


def why_not_startable(command: Sequence[str], config: ServerConfig) -> str | None:
    """Explain why the command cannot be started; None if it can."""
    if config.bundled:
        from casual_mcp_nb.bundled.registry import bundled_server

        # Its process would only say so on its stderr, and end.
        if (missing := bundled_server(config.bundled).missing_libraries()) is not None:
            return f"{missing.reason} ({missing.remedy})"
    if config.cwd is not None and not Path(config.cwd).is_dir():
        return f"the folder {shown(config.cwd)} does not exist"
    if any("\0" in word for word in command):
        return "its command contains a NUL character"
    path = config.env["PATH"].get_secret_value() if "PATH" in config.env else None
    folder = config.cwd or "."
    program = str(Path(folder, command[0])) if os.sep in command[0] else command[0]
    if shutil.which(program, path=path):
        return None
    if Path(program).is_file():
        return f"the command {shown(command[0], 300)} is not executable"
    return f"the command {shown(command[0], 300)} was not found{_advice_for_command_line(command[0], path)}"


def _advice_for_command_line(command: str, path: str | None) -> str:
    first, _, arguments = command.strip().partition(" ")
    if not arguments or shutil.which(first, path=path) is None:
        return ""
    return f"; it is a whole command line: put {shown(first)} into command, and the words after it into args"


def process_ended(pid: int) -> bool:
    """Check whether a child process has ended, even if it has not been waited for."""
    if not hasattr(os, "waitid"):
        # macOS before Python 3.13; a process that ended counts as running until asyncio has waited for it.
        return not _process_exists(pid)
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(pid: int, number: int) -> bool:
    """Send a signal to a process group; return False if it has no members left."""
    if not _POSIX:
        return False
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # A zombie on macOS, or a process of another user, which we cannot end.
        return True
    return True


async def end_group(pid: int, grace: float = 0.3) -> None:
    """End the rest of a process group: SIGTERM, then SIGKILL after at most `grace` seconds."""
    if not signal_group(pid, signal.SIGTERM):
        return
    for _ in range(round(grace / POLL_SECONDS)):
        await asyncio.sleep(POLL_SECONDS)
        if not signal_group(pid, 0):
            return
    signal_group(pid, signal.SIGKILL)
