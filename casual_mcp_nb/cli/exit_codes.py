"""The exit codes of the command."""

from __future__ import annotations

FAILED = 1
"""The command failed, and said why."""
WRONG_USAGE = 2
"""The command line is wrong: an unknown command, option or name."""
INTERRUPTED = 130
"""It was interrupted with Ctrl-C."""
SIGNALLED = 128
"""Plus the number of the signal that ended it."""
BROKEN_PIPE = 141
"""The program that read its output ended first."""
