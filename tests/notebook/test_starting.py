"""Servers that start are seen: in cells, in magics, on a terminal; nowhere else, and not by who
wants quiet.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from kit.kernel import Kernel, Ran, started_kernel
from kit.lean import lean
from kit.setups import MATH, OFFLINE

from casual_mcp_nb import Session
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.notebook.live import ShownServers, ShownStatus

BROKEN: dict[str, Any] = {"command": "no-such-command-anywhere"}
SERVERS: dict[str, Any] = {"math": {"bundled": "math"}, "broken": BROKEN}
CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": SERVERS,
}


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel() as kernel:
        kernel.printed(
            f"%load_ext casual_mcp_nb\nfrom casual_mcp_nb import Session\nCONFIG = {CONFIG!r}"
        )
        yield kernel


def pictures(ran: Ran) -> list[str]:
    """List the displays of a cell one after the other."""
    kinds = ("display_data", "update_display_data", "execute_result")
    return [
        m["content"]["data"].get("text/html", "") for m in ran.messages if m["msg_type"] in kinds
    ]


@pytest.mark.kernel
@pytest.mark.defect("C14")
@pytest.mark.parametrize(
    "code",
    [
        "Session(CONFIG, name='a').connect()",
        "await Session(CONFIG, name='b').connect_async()",
        "with Session(CONFIG, name='c'):\n    pass",
    ],
)
def test_a_cell_shows_the_servers_while_they_start_and_the_final_table_once(
    kernel: Kernel, code: str
) -> None:
    ran = kernel.run(code)
    assert ran.status == "ok", ran.text()
    first, *between, last = pictures(ran)
    assert "math" in first
    assert "broken" in first
    assert any("starting" in picture for picture in between)
    assert "ready" in last
    assert "failed" in last
    assert len(ran.outputs) == 1
    assert not any(message["msg_type"] == "clear_output" for message in ran.messages)


@pytest.mark.kernel
@pytest.mark.defect("C14")
def test_a_magic_shows_a_text_before_its_imports_and_its_status_once(kernel: Kernel) -> None:
    ran = kernel.run("%mcp demo")
    kinds = [
        message["msg_type"]
        for message in ran.messages
        if message["msg_type"] not in ("status", "execute_input")
    ]
    assert kinds[0] == "display_data"
    assert "update_display_data" in kinds
    assert len(ran.outputs) == 1
    assert "Session" in ran.text()
    assert kernel.run("%mcp connect nowhere.json").status == "error"
    quiet = kernel.run("%mcp connect bundled:math;")
    assert pictures(quiet)[-1] == ""


@pytest.mark.kernel
@pytest.mark.defect("C14")
def test_the_first_output_of_a_magic_needs_no_engine() -> None:
    code = (
        "import sys, casual_mcp_nb.notebook.start_display as s; s.StartDisplay('Starting"
        " …').begin();print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'fastmcp', 'casual_llm',"
        " 'jinja2', 'mcp')])"
    )
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).strip() == "[]"
    )


@pytest.mark.kernel
@pytest.mark.defect("C14")
def test_a_chat_shows_the_servers_where_its_turn_is_shown_then(kernel: Kernel) -> None:
    ran = kernel.run("Session(CONFIG, name='d').chat('What is 2 + 3?')")
    assert ran.status == "ok", ran.text()
    assert any("starting" in picture and "math" in picture for picture in pictures(ran))
    assert len(ran.outputs) == 1
    assert (
        "broken" not in ran.outputs[0]["data"]["text/html"]
        or "5" in ran.outputs[0]["data"]["text/html"]
    )


@pytest.mark.kernel
@pytest.mark.defect("C14")
@pytest.mark.parametrize(
    "code",
    [
        "Session(CONFIG, name='e', quiet=True).connect();",
        "Session(CONFIG, name='f').connect(quiet=True);",
    ],
)
def test_quiet_shows_nothing(kernel: Kernel, code: str) -> None:
    assert pictures(kernel.run(f"{code};")) == []


@pytest.mark.slow
@pytest.mark.defect("C14")
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("quiet", "lines"), [("", {"math", "broken"}), ("1", set())])
def test_a_script_on_a_terminal_writes_a_line_per_server_unless_it_is_quiet(
    quiet: str, lines: set[str]
) -> None:
    import pty

    code = (
        f"from casual_mcp_nb import Session\nwith Session({CONFIG!r}) as s:"
        " print(s.tools.call('math:add', a=1, b=2).result)"
    )
    ours, theirs = pty.openpty()
    env = {**os.environ, **lean(), "MCP_QUIET": quiet}
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=theirs,
        timeout=90,
        check=False,
        env=env,
    )
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 10_000):
            said += piece
    except OSError:
        # The end of a pseudo-terminal on Linux.
        pass
    finally:
        os.close(ours)
    assert done.stdout.strip() == b"3"
    assert {line.partition(":")[0] for line in said.decode().splitlines()} == lines


@pytest.mark.defect("D14")
@pytest.mark.parametrize("how", ["connect", "connect_async", "raise_for_status"])
async def test_a_failed_server_is_an_error_when_strict_and_each_reason_is_named(how: str) -> None:
    servers = {**SERVERS, "math": MATH, "gone": BROKEN}
    async with Session.from_config({"servers": servers}) as session:
        if how == "raise_for_status":
            session.connect()
        ways = {
            "connect": lambda: session.connect(strict=True),
            "connect_async": lambda: session.connect_async(strict=True),
            "raise_for_status": lambda: session.servers.raise_for_status(),
        }
        with pytest.raises(ConnectError) as caught:
            await ways[how]()
        assert all(
            word in str(caught.value) for word in ("broken", "gone", "no-such-command-anywhere")
        )
        assert session.tools.call("math:add", a=1, b=2).result == "3"


@pytest.mark.defect("D14")
def test_nothing_is_raised_where_all_servers_are_ready_or_none_was_started() -> None:
    session = Session.from_config({"servers": {"math": MATH}})
    session.servers.raise_for_status()
    assert session.connect(strict=True)["math"].state == "ready"
    session.close()


class Shell:
    execution_count = 3


def test_what_a_cell_shows_already_can_be_pickled() -> None:
    with Session.from_config({"servers": {"math": MATH}}) as session:
        servers, status = (
            ShownServers(session.servers.now, Shell()),
            ShownStatus.of(session.status, Shell()),
        )
        assert pickle.loads(pickle.dumps(servers)) == session.servers
        assert pickle.loads(pickle.dumps(status)).servers == session.servers
