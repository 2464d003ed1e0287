"""The `system-info` server: facts about this computer through psutil, without environment variables
or command lines.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
from pydantic import Field

from casual_mcp_nb.bundled._server import FunctionServer, counted, gigabytes, reads


def build() -> FunctionServer:
    """Build the server."""
    tools = reads(system_info, cpu_info, memory_info, disk_info, network_info, list_processes)
    return FunctionServer(
        "system-info", "Facts about the computer that this server runs on.", tools
    )


def system_info() -> dict[str, Any]:
    """Show the operating system, its version, architecture, host name, uptime, processor, memory
    and Python runtime.
    """
    return {
        "system": platform.system(),
        "release": platform.release(),
        "version": platform.version(),
        "distribution": _distribution(),
        "machine": platform.machine(),
        "hostname": platform.node(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "local_time": datetime.now(UTC).astimezone().isoformat(timespec="seconds"),
        "uptime_seconds": int(time.time() - psutil.boot_time()),
        "cpu": cpu_info(),
        "memory": memory_info(),
    }


def cpu_info() -> dict[str, Any]:
    """Show the processor: model, number of cores and logical processors, and how busy they were in
    the last minutes.
    """
    load = None
    with contextlib.suppress(OSError):
        load = dict(zip(("1_minute", "5_minutes", "15_minutes"), psutil.getloadavg(), strict=True))
    model = _cpu_model() or platform.processor() or None
    cores, logical = psutil.cpu_count(logical=False), psutil.cpu_count()
    usable = logical
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    return {
        "summary": (
            f"{model or 'The processor'}: {counted(logical or 1, 'logical processor')},"
            f" {counted(cores or 1, 'core')}."
        ),
        "model": model,
        "architecture": platform.machine(),
        "cores": cores,
        "logical_processors": logical,
        "usable_by_this_process": usable,
        "load_average": load,
    }


def memory_info() -> dict[str, Any]:
    """Show the main memory and swap in bytes: total, available and used."""
    memory = psutil.virtual_memory()
    swap = psutil.swap_memory()
    free, total = gigabytes(memory.available), gigabytes(memory.total)
    return {
        "summary": f"{free} of {total} memory are available; {memory.percent:g}% are used.",
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "used_bytes": memory.total - memory.available,
        "used_percent": memory.percent,
        "swap_total_bytes": swap.total,
        "swap_free_bytes": swap.free,
    }


def disk_info() -> dict[str, Any]:
    """Show total, used and free disk space in bytes, for each local drive and the disk of the
    working folder.
    """
    local = {each.mountpoint: each.fstype for each in psutil.disk_partitions(all=False)}
    places = dict.fromkeys((Path.cwd().anchor, *local, str(Path.cwd())))
    disks: list[dict[str, Any]] = []
    for path in places:
        # A drive without a disk in it, or a folder that may not be read.
        with contextlib.suppress(OSError):
            usage = psutil.disk_usage(path)
            disks.append(
                {
                    "path": path,
                    "file_system": local.get(path),
                    "total_bytes": usage.total,
                    "used_bytes": usage.used,
                    "free_bytes": usage.free,
                    "used_percent": usage.percent,
                }
            )
    free = ", ".join(
        f"{gigabytes(disk['free_bytes'])} of {gigabytes(disk['total_bytes'])} on {disk['path']}"
        for disk in disks
    )
    return {"summary": f"Free disk space: {free}.", "disks": disks}


_STATES = {True: "up", False: "down", None: None}


def network_info() -> dict[str, Any]:
    """Show the host name and the network interfaces with their local addresses.

    Sends no traffic.
    """
    is_up = {name: stats.isup for name, stats in psutil.net_if_stats().items()}
    interfaces: list[dict[str, Any]] = []
    for name, addresses in psutil.net_if_addrs().items():
        by_family: dict[Any, list[str]] = {}
        for address in addresses:
            by_family.setdefault(address.family, []).append(address.address.partition("%")[0])
        interfaces.append(
            {
                "name": name,
                "state": _STATES[is_up.get(name)],
                "hardware_address": next(iter(by_family.get(psutil.AF_LINK, [])), None),
                "ipv4": next(iter(by_family.get(socket.AF_INET, [])), None),
                "ipv6": by_family.get(socket.AF_INET6, []),
            }
        )
    listed = [f"{each['ipv4']} ({each['name']})" for each in interfaces if each["ipv4"]]
    summary = f"This computer is {platform.node()}: {', '.join(listed) or 'no address'}."
    return {"summary": summary, "hostname": platform.node(), "interfaces": interfaces}


def list_processes(
    sort_by: Annotated[
        Literal["memory", "name", "pid"], Field(description="The order of the list")
    ] = "memory",
    limit: Annotated[int, Field(description="The most processes to return", ge=1, le=500)] = 20,
    name: Annotated[
        str, Field(description="Only processes whose name contains this; empty for all")
    ] = "",
) -> dict[str, Any]:
    """List running processes with id, parent, name, state and memory, without their arguments."""
    wanted = name.casefold()
    processes = []
    for process in psutil.process_iter(["pid", "ppid", "name", "status", "memory_info"]):
        facts = process.info
        its_name = facts["name"] or ""
        if wanted in its_name.casefold():
            processes.append(
                {
                    "pid": facts["pid"],
                    "parent": facts["ppid"],
                    "name": its_name,
                    "state": facts["status"],
                    "memory_bytes": getattr(facts["memory_info"], "rss", None),
                }
            )
    listed = sorted(processes, key=_PROCESS_ORDERS[sort_by])[:limit]
    summary = f"{len(listed):,} of {len(processes):,} running processes, by {sort_by}."
    return {"summary": summary, "total": len(processes), "processes": listed}


def _by_memory(process: dict[str, Any]) -> int:
    return -(process["memory_bytes"] or 0)


def _by_name(process: dict[str, Any]) -> str:
    return process["name"].casefold()  # type: ignore[no-any-return]


_PROCESS_ORDERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "memory": _by_memory,
    "name": _by_name,
    "pid": itemgetter("pid"),
}


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _cpu_model() -> str | None:
    # psutil does not know it.
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None
