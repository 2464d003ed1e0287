"""`python -m casual_mcp_nb.bundled NAME [options]`: run one bundled server over stdio."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from casual_mcp_nb.bundled.registry import BUNDLED, available, build_server, bundled_server

USAGE = "usage: python -m casual_mcp_nb.bundled NAME [options] | --list | NAME --help"


def main(argv: Sequence[str]) -> int:
    """Run the command line, and return the exit code: 0 for a clean exit, 2 for an invalid name or
    option.
    """
    if not argv:
        return _refuse(USAGE)
    if argv[0] == "--list":
        sys.stdout.write(_list())
        return 0
    if argv[0] in ("-h", "--help"):
        sys.stdout.write(f"{USAGE}\n\n{_list()}")
        return 0
    try:
        _serve(argv[0], argv[1:])
    except ValueError as error:
        return _refuse(str(error))
    return 0


def _serve(name: str, options: Sequence[str]) -> None:
    # The SDK's objects live forever: garbage collection while they are created takes a tenth of the
    # startup time.
    gc.disable()
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")
    server = build_server(bundled_server(name), options, add_help=True)
    gc.freeze()
    gc.enable()

    def end(_signum: int, _frame: FrameType | None) -> None:
        # The thread that waits on stdin cannot be woken, so an ordinary exit would wait for it.
        server.close()
        os._exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    server.run()
    server.close()


def _list() -> str:
    missing = available().missing
    lines = ""
    for name, server in BUNDLED.items():
        note = f" ({missing[name]})" if name in missing else ""
        lines += f"{name:<12} {server.summary}{note}\n"
    return lines


def _refuse(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
