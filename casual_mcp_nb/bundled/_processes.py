"""List running processes and memory from /proc, or from psutil if there is no /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from casual_mcp_nb.bundled._server import ToolError

_PROC = Path("/proc")
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device",
    "T": "stopped",
    "t": "stopped",
    "Z": "ended",
    "I": "idle",
}


def meminfo() -> dict[str, int]:
    """Return the values of /proc/meminfo in bytes; empty if it does not exist."""
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in pairs if len(words) == 3}


def running() -> list[dict[str, Any]]:
    """Return every process with pid, parent, name, state and memory in bytes.

    Raises:
        ToolError: This system has no /proc and psutil is not installed.
    """
    if not (_PROC / "self" / "stat").exists():
        return _from_psutil()
    page = os.sysconf("SC_PAGE_SIZE")
    processes = (_from_stat(folder, page) for folder in _PROC.iterdir() if folder.name.isdigit())
    return [process for process in processes if process is not None]


def _from_stat(folder: Path, page: int) -> dict[str, Any] | None:
    try:
        text = (folder / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may itself contain spaces and parentheses.
    name, _, stat_fields = text.partition("(")[2].rpartition(")")
    fields = stat_fields.split()
    state = _STATES.get(fields[0], fields[0])
    memory = int(fields[21]) * page
    return {
        "pid": int(folder.name),
        "parent": int(fields[1]),
        "name": name,
        "state": state,
        "memory_bytes": memory,
    }


def _from_psutil() -> list[dict[str, Any]]:
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError as error:
        raise ToolError("Processes cannot be listed on this system without psutil: pip install psutil.") from error
    return [
        {
            "pid": process.info["pid"],
            "parent": process.info["ppid"],
            "name": process.info["name"] or "",
            "state": process.info["status"],
            "memory_bytes": getattr(process.info["memory_info"], "rss", None),
        }
        for process in psutil.process_iter(["pid", "ppid", "name", "status", "memory_info"])
    ]
