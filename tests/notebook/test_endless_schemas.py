"""A server's schema that can never be checked, in a real kernel: the call ends, and the next cell
runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.kernel import Kernel, started_kernel
from kit.raw_server import raw_config
from kit.waiting import wait_until

pytestmark = pytest.mark.kernel

SCHEMA = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
RESULT = {
    "content": [{"type": "text", "text": "words"}],
    "structuredContent": {"x": "a" * 32 + "!"},
}
TOOL = {"name": "odd", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}
SERVERS = {
    "odd": raw_config(tools=[TOOL], calls={"odd": {"result": RESULT}}) | {"call_timeout": 1.0}
}
SETUP = f"""
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
session = Session.from_config({{"servers": {SERVERS!r}}})
session.connect();
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


@pytest.mark.defect("A2")
def test_the_call_ends_at_its_limit_and_the_next_cell_runs(kernel: Kernel) -> None:
    said = kernel.printed("print(session.tools.call('odd:odd').content[-1].text)")
    assert "not checked" in said
    turn = (
        "turn = session.chat('go', model=scripted_model(call('odd__odd'), 'done'));"
        " print(turn.status, turn.answer)"
    )
    assert kernel.printed(turn).splitlines()[-1] == "done done"
    assert kernel.printed("print(1 + 1)") == "2"


@pytest.mark.defect("A2", "B2")
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are counted through /proc"
)
def test_no_process_of_a_check_is_left_when_the_session_is_closed(kernel: Kernel) -> None:
    kernel.printed("print(session.tools.call('odd:odd').content[-1].text)")
    kernel.run("session.close()")
    pid = int(kernel.printed("import os; print(os.getpid())"))
    wait_until(lambda: not workers(pid), "the end of the process for checks")


def workers(parent: int) -> list[str]:
    """The command lines of a process's children that are workers."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdigit()
                and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            ):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [command for command in found if "isolation" in command and "_child.py" in command]
