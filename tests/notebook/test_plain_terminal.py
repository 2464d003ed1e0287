"""Plain IPython in a terminal of 80 columns: what is shown is drawn once and fits its lines, and a
question is the last line.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.lean import lean

pexpect = pytest.importorskip("pexpect")

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(300)]

LIMIT = 120
SETUP = """
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from fastmcp import FastMCP

shop = FastMCP("shop")

@shop.tool(annotations={"destructiveHint": True})
def burn(item: str) -> str:
    return f"{item} is gone"

words = "The harbour has seven berths for ships that arrive from Bergen and Trondheim at noon. "
model = scripted_model(call("shop__burn", item="a letter"), words * 4)
session = Session({}, in_process={"shop": shop}, approval={"shop": "destructive"}, quiet=True)
session.connect(quiet=True);
"""


class Terminal:
    """IPython in a terminal."""

    def __init__(self, folder: Path) -> None:
        setup = folder / "setup.py"
        setup.write_text(SETUP)
        environment = {**os.environ, **lean(), "IPYTHONDIR": str(folder), "TERM": "xterm"}
        arguments = ["-m", "IPython", "--simple-prompt", "--colors=NoColor", "--no-banner"]
        self._cells = 0
        self._child: Any = pexpect.spawn(
            sys.executable,
            [*arguments, "-i", str(setup)],
            env=environment,
            dimensions=(40, 80),
            timeout=LIMIT,
            encoding="utf-8",
        )
        self.prompt()

    def prompt(self) -> str:
        """Wait for the next prompt, and return what came before it."""
        self._cells += 1
        return self.expect(rf"In \[{self._cells}\]: ")

    def expect(self, pattern: str) -> str:
        """Wait for a text, and return what came before it."""
        self._child.expect(pattern)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._child.before)

    def type(self, line: str) -> None:
        """Type a line."""
        self._child.sendline(line)

    def end(self) -> None:
        """End the program."""
        self._child.close(force=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    started = Terminal(tmp_path)
    yield started
    started.end()


def test_it_is_drawn_once_and_fits_and_the_question_comes_last(terminal: Terminal) -> None:
    terminal.type("session.explore()")
    explorer = terminal.prompt()
    assert "The model's tools" in explorer
    terminal.type("turn = session.chat('Burn a letter.', model=model)")
    asked = terminal.expect(r"type\s+why: ")
    assert "burn" in asked
    terminal.type("y")
    rest = terminal.prompt()
    terminal.type("turn")
    shown = terminal.prompt()
    for text in (explorer, asked, rest, shown):
        lines = text.splitlines()[1:]
        assert max(map(len, lines), default=0) <= 80
    assert "The model's tools" not in asked + rest + shown
    # The answer is there with whole words, and the steps are one line each.
    answer = " ".join(shown.replace("│", " ").split())
    assert "berths for ships that arrive from Bergen and Trondheim at noon." in answer
    assert len(shown.splitlines()) < 25
    terminal.type("print(turn)")
    assert len(terminal.prompt().splitlines()) > len(shown.splitlines())


@pytest.mark.parametrize(
    "line",
    ["memory on", "memory off", "approval shop never", "remove shop"],
)
def test_a_command_that_changes_something_is_confirmed_in_a_line(
    terminal: Terminal, line: str
) -> None:
    terminal.type("%load_ext casual_mcp_nb")
    terminal.prompt()
    terminal.type(f"%mcp {line}")
    _, *shown = terminal.prompt().strip().splitlines()
    assert len(shown) == 1
    assert "Error" not in shown[0]


def test_what_cannot_start_is_said_once(terminal: Terminal) -> None:
    terminal.type("import sys; sys.modules['pint'] = None")
    terminal.prompt()
    terminal.type("%load_ext casual_mcp_nb")
    terminal.prompt()
    terminal.type("del session")
    terminal.prompt()

    terminal.type("%mcp demo")
    shown = terminal.prompt()
    assert shown.count("pint") == 1
    assert shown.count("casual-mcp-nb[bundled]") == 1
    assert "failed" not in shown
    terminal.type("session.chat('What is 17 * 23?').notices")
    assert "pint" not in terminal.prompt()

    # The state is in the line of its start and in the table, the reason only above the table.
    terminal.type("%mcp connect bundled:units")
    shown = terminal.prompt()
    assert shown.count("failed") >= 2
    assert shown.count("pint is not installed") == 1
