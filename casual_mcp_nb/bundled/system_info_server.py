"""The `system-info` server: facts about this computer, without environment variables or command lines."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from casual_mcp_nb.bundled import _network, _processes
from casual_mcp_nb.bundled._server import ToolServer, reads


def build() -> ToolServer:
    """Build the server."""
    tools = reads(system_info, cpu_info, memory_info, disk_info, network_info, list_processes)
    return ToolServer("system-info", "Facts about the computer that this server runs on.", tools)


def system_info() -> dict[str, Any]:
    """Show the operating system, its version, the architecture, host name, Python version and uptime."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "version": platform.version(),
        "distribution": _distribution(),
        "machine": platform.machine(),
        "hostname": platform.node(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "local_time": datetime.now(UTC).astimezone().isoformat(timespec="seconds"),
        "uptime_seconds": _uptime(),
    }


def cpu_info() -> dict[str, Any]:
    """Show the processor: model, number of logical processors and how busy they were in the last minutes."""
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    load = dict(zip(("1_minute", "5_minutes", "15_minutes"), os.getloadavg(), strict=True)) if _posix() else None
    return {
        "model": _cpu_model() or platform.processor() or None,
        "architecture": platform.machine(),
        "logical_processors": os.cpu_count(),
        "usable_by_this_process": usable,
        "load_average": load,
    }


def memory_info() -> dict[str, Any]:
    """Show the main memory and swap in bytes: total, available and used. What is unknown here is null."""
    memory = _processes.meminfo()
    total = memory.get("MemTotal") or _physical_memory()
    available = memory.get("MemAvailable")
    used = total - available if total is not None and available is not None else None
    return {
        "total_bytes": total,
        "available_bytes": available,
        "used_bytes": used,
        "used_percent": round(used / total * 100, 1) if used is not None and total else None,
        "swap_total_bytes": memory.get("SwapTotal"),
        "swap_free_bytes": memory.get("SwapFree"),
    }


def disk_info() -> dict[str, Any]:
    """Show total, used and free disk space in bytes, for the system's disk and the working folder's."""
    places = dict.fromkeys((Path.cwd().anchor, str(Path.cwd())))
    disks = []
    for path in places:
        usage = shutil.disk_usage(path)
        percent = round(usage.used / usage.total * 100, 1) if usage.total else None
        sizes = {"total_bytes": usage.total, "used_bytes": usage.used, "free_bytes": usage.free}
        disks.append({"path": path, **sizes, "used_percent": percent})
    return {"disks": disks}


def network_info() -> dict[str, Any]:
    """Show the host name and the network interfaces with their local addresses. Sends no traffic."""
    return {"hostname": platform.node(), "interfaces": _network.interfaces()}


def list_processes(
    sort_by: Annotated[Literal["memory", "name", "pid"], Field(description="The order of the list")] = "memory",
    limit: Annotated[int, Field(description="The most processes to return", ge=1, le=500)] = 20,
    name: Annotated[str, Field(description="Only processes whose name contains this; empty for all")] = "",
) -> dict[str, Any]:
    """List running processes with id, parent, name, state and memory, without their arguments."""
    wanted = name.casefold()
    processes = [process for process in _processes.running() if wanted in process["name"].casefold()]
    keys: dict[str, Any] = {
        "memory": lambda process: -(process["memory_bytes"] or 0),
        "name": lambda process: process["name"].casefold(),
        "pid": lambda process: process["pid"],
    }
    return {"total": len(processes), "processes": sorted(processes, key=keys[sort_by])[:limit]}


def _posix() -> bool:
    return hasattr(os, "getloadavg")


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _uptime() -> int | None:
    # The boot-time clock includes sleep; without it, nothing in the standard library knows the uptime.
    return int(time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
