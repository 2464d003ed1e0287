"""A kernel is restarted: two lines bring back the conversation, its session, what was shown, and
what the variables were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kernel import Kernel, Ran, started_kernel

from tests.notebook.test_resuming import edit_head

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(300)]

LOAD = "%load_ext casual_mcp_nb"
OPEN = """
import sys
from casual_mcp_nb import Session
session = Session({
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        "math": {"bundled": "math", "transport": "in-process"},
        "tides": {"command": sys.executable, "args": ["-c", "1"], "enabled": False},
    },
}, quiet=True)
session.connect(quiet=True)
session.selection.servers["math"] = "deferred"
session.selection.discovery = True
"""
OTHER = """
from casual_mcp_nb import Session
session.close()
session = Session({}, quiet=True)
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks_first: Path) -> Iterator[Kernel]:
    monkeypatch.chdir(tmp_path)
    with started_kernel(LOAD, MCP_STORE=str(tmp_path / "conversations.db")) as started:
        yield started


def widgets_in(ran: Ran) -> int:
    """Count the widgets that a cell shows."""
    kind = "application/vnd.jupyter.widget-view+json"
    return sum(kind in output.get("data", {}) for output in ran.outputs)


def test_two_lines_bring_it_back(kernel: Kernel, tmp_path: Path) -> None:
    nothing = kernel.run("%mcp resume")
    assert (nothing.status, "%mcp demo" in nothing.text()) == ("error", True)
    assert kernel.run("%mcp conversations").status == "ok"
    kernel.printed(OPEN)
    assert kernel.run("%%mcp\nWhat is 17 * 23 + 4?").status == "ok"
    assert widgets_in(kernel.run("session.explore()")) == 1
    kernel.printed(
        "turn = session.turns[-1]\nsession.tool(lambda: [1, 2], name='one', description='One.')"
    )
    kernel.printed("table = session.tools.call('notebook:one').value")
    id = kernel.printed("print(session.conversations.id)")

    kernel.restart()
    kernel.printed(LOAD)
    assert id in kernel.printed("%mcp conversations")
    # What was typed in this notebook and folder is not asked about, but what is resumed in another
    # folder is, and what another program has written in its place.
    (tmp_path / "other").mkdir()
    ran, prompts = kernel.typed(f"%cd -q other\n%mcp resume {id}", "")
    assert (ran.status, "tides" in prompts[0]) == ("error", True)
    kernel.printed("%mcp close\n%cd -q ..")
    ran, prompts = kernel.typed("%mcp resume")
    assert (ran.status, prompts) == ("ok", [])
    kernel.printed("%mcp close")

    def replace_command(head: dict[str, Any]) -> None:
        head["session"]["added"]["tides"]["args"] = ["-c", "2"]

    edit_head(tmp_path / "conversations.db", replace_command)
    ran, prompts = kernel.typed("%mcp resume", "y")
    assert ran.status == "ok", ran.text()
    (prompt,) = prompts
    assert "tides" in prompt
    # The kernel's own functions are named as what is not back.
    assert "notebook" in ran.text()
    assert widgets_in(ran) == 1
    state = "session.conversations.id, session.turns[0].prompt, session.selection.servers['math']"
    assert kernel.printed(f"print({state})") == f"{id} What is 17 * 23 + 4? deferred"
    gone = kernel.run("table[0]")
    assert (gone.status, "session.tools.call('notebook:one" in gone.text()) == ("error", True)
    assert kernel.run("turn").text().count("NameError") > 0
    assert kernel.run("%%mcp\nWhat is 2 + 3?").status == "ok"

    # It was accepted, and is not asked about again.
    kernel.restart()
    kernel.printed(LOAD)
    ran, prompts = kernel.typed("%mcp resume")
    assert (ran.status, prompts) == ("ok", [])
    assert kernel.printed("print(len(session.turns))") == "2"
    # An open session goes on with another one.
    kernel.printed("session.conversations.new()")
    assert kernel.run("%mcp resume").status == "ok"
    assert kernel.printed("print(session.conversations.id)") == id

    # One without its servers says how to get them, in the cell's result alone.
    kernel.printed(OTHER)
    ran = kernel.run("%mcp resume")
    assert ["data" in output for output in ran.outputs] == [True]
    (step,) = re.findall(r"%mcp close, then (%mcp resume \w+)", ran.text())
    assert step == f"%mcp resume {id}"
    kernel.printed("%mcp close")
    assert kernel.run(step).status == "ok"
    assert kernel.printed("print(list(session.servers))") == "['math', 'tides']"
