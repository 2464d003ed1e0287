from __future__ import annotations

import json
import os
import platform

import pytest

SECRET = "sk-do-not-tell-0123456789"


async def test_the_system_is_described(call) -> None:
    result = await call("system-info", "system_info")

    assert result["system"] == platform.system()
    assert platform.python_version() in result["python"]
    assert result["cpu"]["logical_processors"] == os.cpu_count()
    assert result["memory"]["total_bytes"] > 10**8
    assert result["uptime_seconds"] >= 0


async def test_processor_memory_and_disks_are_described(call) -> None:
    assert (await call("system-info", "cpu_info"))["logical_processors"] == os.cpu_count()
    memory = await call("system-info", "memory_info")
    assert memory["total_bytes"] > memory["available_bytes"] > 0
    disks = (await call("system-info", "disk_info"))["disks"]
    assert os.getcwd() in [disk["path"] for disk in disks]
    assert all(disk["total_bytes"] >= disk["free_bytes"] for disk in disks)


@pytest.mark.skipif(platform.system() != "Linux", reason="the loopback interface's name")
async def test_the_network_interfaces_are_listed(call) -> None:
    interfaces = {
        interface["name"]: interface
        for interface in (await call("system-info", "network_info"))["interfaces"]
    }

    assert interfaces["lo"]["ipv4"] == "127.0.0.1"


async def test_this_process_is_among_the_processes(call) -> None:
    result = await call("system-info", "list_processes", limit=500, sort_by="pid")
    pids = [process["pid"] for process in result["processes"]]

    assert pids == sorted(pids)
    assert result["total"] > 500 or os.getpid() in pids
    assert (await call("system-info", "list_processes", name="no-such-process"))["total"] == 0


async def test_environment_variables_are_not_revealed(
    call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", SECRET)
    tools = (
        "system_info",
        "cpu_info",
        "memory_info",
        "disk_info",
        "network_info",
        "list_processes",
    )
    answers = [await call("system-info", tool) for tool in tools]

    assert SECRET not in json.dumps(answers)
