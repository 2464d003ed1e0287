"""The opt-in for cells that call `asyncio.run`, each in a process of its own because it patches
asyncio for good.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from casual_mcp_nb import enable_nested_asyncio
from casual_mcp_nb.errors import MissingDependencyError, install

CODE = """
import asyncio
from casual_mcp_nb import enable_nested_asyncio

async def inner():
    return 7

async def main():
    {enable}
    return asyncio.run(inner())

print(asyncio.run(main()))
"""


def run(enable: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", CODE.format(enable=enable)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="refused there")
def test_asyncio_run_works_inside_a_running_loop_only_after_it_was_enabled() -> None:
    assert "running event loop" in run("pass").stderr
    enabled = run("print(enable_nested_asyncio()); print(enable_nested_asyncio())")
    assert enabled.stdout.split("\n")[:3] == ["on", "already on", "7"]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="refused there")
def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nest_asyncio", None)
    with pytest.raises(MissingDependencyError) as raised:
        enable_nested_asyncio()
    assert raised.value.hint == install("notebook")


def test_a_foreign_loop_is_refused_with_a_reason() -> None:
    code = """
import asyncio
from casual_mcp_nb import enable_nested_asyncio
from casual_mcp_nb.errors import UsageError

class Foreign(asyncio.AbstractEventLoop):
    pass

asyncio._set_running_loop(Foreign())
try:
    enable_nested_asyncio()
except UsageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "cannot patch a loop" in done.stdout or "3.14" in done.stdout, done.stderr
