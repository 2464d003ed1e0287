"""The servers that ship with the package. Importing this module imports no server and no SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Literal


@dataclass(frozen=True)
class BundledServer:
    """A bundled server: its purpose and how a client should treat it.

    Args:
        name: Its name in a config and on the command line.
        summary: Its purpose.
        default: Whether the demo includes it.
        approval: The default policy of its tools.
        example: A question to start with that the offline planner can answer with it; empty for none.
    """

    name: str
    summary: str
    default: bool = True
    approval: Literal["never", "destructive", "always"] = "never"
    example: str = ""


_SERVERS = (
    BundledServer(
        "system-info",
        "Facts about this computer: system, processor, memory, disks, network addresses, processes.",
    ),
    BundledServer(
        "files",
        "Read, write, list, search, copy, move and delete files inside one folder.",
        approval="destructive",
    ),
    BundledServer(
        "math",
        "Arithmetic, a safe expression evaluator, statistics, equations and number theory.",
        example="What is 17 * 23?",
    ),
    BundledServer(
        "time",
        "Current time, time zones, dates, durations and calendars.",
        example="What time is it in Tokyo when it is 14:30 in Oslo?",
    ),
    BundledServer(
        "units",
        "Convert length, mass, temperature, volume, speed, area, data, energy, pressure and time.",
        example="How many kilometres are 26.2 miles?",
    ),
    BundledServer(
        "text",
        "Work on text: HTML to text, counting, extracting, replacing, comparing, encoding, JSON and CSV.",
    ),
    BundledServer(
        "sqlite",
        "Inspect and change an SQLite database, or a sample shop if no file is given.",
        approval="destructive",
    ),
    BundledServer(
        "shell",
        "Run shell commands on this computer, with a limit on time and output.",
        default=False,
        approval="always",
    ),
)

BUNDLED: Mapping[str, BundledServer] = MappingProxyType({server.name: server for server in _SERVERS})


def module_of(server: BundledServer) -> ModuleType:
    """Import a server's module, which has `build` and may have `add_options`."""
    match server.name:
        case "system-info":
            from casual_mcp_nb.bundled import system_info_server

            return system_info_server
        case "files":
            from casual_mcp_nb.bundled import files_server

            return files_server
        case "math":
            from casual_mcp_nb.bundled import math_server

            return math_server
        case "time":
            from casual_mcp_nb.bundled import time_server

            return time_server
        case "units":
            from casual_mcp_nb.bundled import units_server

            return units_server
        case "text":
            from casual_mcp_nb.bundled import text_server

            return text_server
        case "sqlite":
            from casual_mcp_nb.bundled import sqlite_server

            return sqlite_server
        case "shell":
            from casual_mcp_nb.bundled import shell_server

            return shell_server
        case _:
            raise NotImplementedError(server.name)


def known(name: str) -> BundledServer:
    """Return the server of this name.

    Raises:
        ValueError: The name is unknown; the message names the valid ones.
    """
    if name in BUNDLED:
        return BUNDLED[name]
    from difflib import get_close_matches

    close = get_close_matches(name, BUNDLED, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(f"unknown bundled server {name!r}; {hint}valid names: {', '.join(BUNDLED)}")
