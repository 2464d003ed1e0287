"""The one line of a failed server's stderr that says why it failed."""

from __future__ import annotations

import re

_NOISE = re.compile(
    r"""\s*$                                              # nothing
    |npm\ (error|ERR!)\s*(code\b|errno\b|syscall\b|path\b|\d+\s*$|A\ complete\ log\b|.*[/\\]_logs[/\\]|$)
    |npm\ (warn|WARN|notice)\b
    |Node\.js\ v\d                                        # the last line of every crash of Node
    |\s+at\ |\s*[\^~]+\s*$|[{}\s\]]+$                     # frames and marks of a stack
    """,
    re.VERBOSE,
)
_NPM = re.compile(r"npm (error|ERR!)\s*(\d+\s+)?")
_ERROR = re.compile(r"(error|exception|fatal|panic)\b|not found|cannot find|failed|denied", re.IGNORECASE)


def telling_line(stderr: str) -> str:
    """Return the line that says why a process failed: npm's first, the last error of others, else the last line.

    Args:
        stderr: The end of its stderr.

    Returns:
        One line without npm's prefix; empty where there is none.
    """
    lines = [line.strip() for line in stderr.splitlines() if not _NOISE.match(line)]
    npm = [line for line in lines if _NPM.match(line)]
    if npm:
        return _NPM.sub("", npm[0])
    errors = [line for line in lines if _ERROR.search(line)]
    return (errors or lines or [""])[-1]
