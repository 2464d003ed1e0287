"""MCP servers that ship with the package and do real work offline.

Each server runs alone (`python -m casual_mcp_nb.bundled NAME`) or in process (`build(NAME)`).
Importing this package imports no server and no SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from casual_mcp_nb.bundled.registry import BUNDLED as BUNDLED
from casual_mcp_nb.bundled.registry import Available, Missing, available, build_server
from casual_mcp_nb.bundled.registry import BundledServer as BundledServer
from casual_mcp_nb.bundled.registry import bundled_server as bundled_server

if TYPE_CHECKING:
    from casual_mcp_nb.bundled._server import FunctionServer

__all__ = ["Available", "Missing", "available", "build", "command"]


def build(name: str, args: Sequence[str] = ()) -> FunctionServer:
    """Build a server for use in this process, for instance with `fastmcp.Client(build("math"))`.

    `args` are its command-line options, such as `["--root", "data"]`. Call the server's `close()`
    when it is no longer used. A ValueError names the valid or missing options.
    """
    return build_server(bundled_server(name), args)


def command(name: str, args: Sequence[str] = ()) -> list[str]:
    """Build the command line that runs a server over stdio with this Python, with the server's
    options.
    """
    # Without -P, a `random.py` in the working directory would shadow the standard library's.
    return [
        sys.executable,
        "-P",
        str(Path(__file__).with_name("_run.py")),
        bundled_server(name).name,
        *args,
    ]
