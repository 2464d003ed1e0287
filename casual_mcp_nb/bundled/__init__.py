"""MCP servers that ship with the package and do real work offline.

Each server runs alone (`python -m casual_mcp_nb.bundled NAME`) or in process (`build(NAME)`).
Importing this module imports no server and no SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from casual_mcp_nb.bundled._server import ToolServer

__all__ = ["BUNDLED", "BundledServer", "build", "command"]


@dataclass(frozen=True)
class BundledServer:
    """One server of the package: what it is for and how a client should treat it.

    `module` is the module that builds it, `default` says whether it is offered without being asked for,
    `approval` is the policy that a client applies unless its config says otherwise.
    """

    name: str
    summary: str
    module: str
    default: bool = True
    approval: Literal["never", "destructive", "always"] = "never"


_SERVERS = (
    BundledServer(
        "system-info",
        "Facts about this computer: system, processor, memory, disks, network addresses, processes.",
        "casual_mcp_nb.bundled.system_info_server",
    ),
    BundledServer(
        "files",
        "Read, write, list, search, copy, move and delete files inside one folder.",
        "casual_mcp_nb.bundled.files_server",
        approval="destructive",
    ),
    BundledServer(
        "math",
        "Arithmetic, a safe expression evaluator, statistics, equations and number theory.",
        "casual_mcp_nb.bundled.math_server",
    ),
    BundledServer(
        "time",
        "Current time, time zones, dates, durations and calendars.",
        "casual_mcp_nb.bundled.time_server",
    ),
    BundledServer(
        "units",
        "Convert length, mass, temperature, volume, speed, area, data, energy, pressure and time.",
        "casual_mcp_nb.bundled.units_server",
    ),
    BundledServer(
        "text",
        "Work on text: HTML to text, counting, extracting, replacing, comparing, encoding, JSON and CSV.",
        "casual_mcp_nb.bundled.text_server",
    ),
    BundledServer(
        "sqlite",
        "Look into and change an SQLite database; a sample shop is there when no file is given.",
        "casual_mcp_nb.bundled.sqlite_server",
        approval="destructive",
    ),
    BundledServer(
        "shell",
        "Run shell commands on this computer, with a limit on time and output.",
        "casual_mcp_nb.bundled.shell_server",
        default=False,
        approval="always",
    ),
)

BUNDLED: Mapping[str, BundledServer] = MappingProxyType({server.name: server for server in _SERVERS})


def build(name: str, args: Sequence[str] = ()) -> ToolServer:
    """Build a server to be used in this process, for instance with `fastmcp.Client(build("math"))`.

    Args:
        name: A key of `BUNDLED`.
        args: The options of its command line, such as `["--root", "data"]`.

    Returns:
        The server, an SDK `MCPServer`; call its `close()` when it is no longer used.

    Raises:
        ValueError: The name is unknown, or an option is; the message names the valid ones.
    """
    from casual_mcp_nb.bundled._options import build_server

    return build_server(_known(name), args)


def command(name: str, args: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs a server over stdio with this Python.

    Args:
        name: A key of `BUNDLED`.
        args: The options of the server.

    Raises:
        ValueError: The name is unknown; the message names the valid ones.
    """
    # Without -P, a `random.py` in the working folder would take the place of the standard library's.
    return [sys.executable, "-P", str(Path(__file__).with_name("_run.py")), _known(name).name, *args]


def _known(name: str) -> BundledServer:
    if name in BUNDLED:
        return BUNDLED[name]
    from difflib import get_close_matches

    close = get_close_matches(name, BUNDLED, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(f"unknown bundled server {name!r}; {hint}valid names: {', '.join(BUNDLED)}")
