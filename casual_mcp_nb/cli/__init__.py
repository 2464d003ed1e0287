"""The command `casual-mcp-nb`: the magics' features in a shell.

This package's modules import only light modules at their top, so that `--help` and `--version` are
quick. A command imports what it needs when it runs. cyclopts comes with fastmcp, and makes options,
help and completion for shells of type hints and docstrings; it could import commands by strings,
which no import contract would see.
"""

from __future__ import annotations

from typing import Any

FAILED = 1
"""Exit code: the command failed, and said why."""
WRONG_USAGE = 2
"""Exit code: the command line is wrong, with an unknown command, option or name."""
INTERRUPTED = 130
"""Exit code: it was interrupted with Ctrl-C."""
SIGNALLED = 128
"""Exit code, plus the signal number."""
BROKEN_PIPE = 141
"""Exit code: the program that read its output ended first."""


def __getattr__(name: str) -> Any:
    # In casual-mcp's module with this name, all other functions are commands.
    if name != "migrate_legacy_config":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from casual_mcp_nb.config.legacy import migrate_legacy_config

    return migrate_legacy_config


def exit_code(ok: bool) -> int:
    """Return the exit code of a command that found everything right, or did not."""
    return 0 if ok else FAILED
