"""The first question of a kernel has nothing left to import, and its time counts from when the
person asked.
"""

import subprocess
import sys
import time
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.kernel import started_kernel

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import StepStarted, TurnStarted
from casual_mcp_nb.providers.scripted import scripted_model

MAX_MODULES = 3


@pytest.mark.slow
@pytest.mark.kernel
def test_after_the_demo_the_first_question_imports_next_to_nothing() -> None:
    with started_kernel(fresh=True) as kernel:
        kernel.printed("%load_ext casual_mcp_nb\n%mcp demo")
        kernel.printed("import sys\nbefore = set(sys.modules)")
        assert "5" in kernel.printed("%%mcp\nWhat is 2 + 3?")
        imported = kernel.printed("print(*sorted(set(sys.modules) - before))").split()
    assert len(imported) <= MAX_MODULES, imported
    assert all(name.startswith("casual_mcp_nb.") for name in imported)


ENDS_AT_ONCE = """
import atexit

# What is registered first runs last.
atexit.register(lambda: print("still importing" if warming._thread.is_alive() else "ended"))
from casual_mcp_nb.notebook import warming

warming.warm_up()
"""


def test_a_script_that_ends_at_once_ends_no_thread_amid_an_import() -> None:
    # Not from a template, in which `starting` is imported already.
    command = [sys.executable, "-c", ENDS_AT_ONCE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "ended"), done.stderr


def test_the_time_of_a_turn_counts_its_preparation() -> None:
    server: FastMCP[Any] = FastMCP("notes")
    read: list[float] = []

    @server.resource("notes://today")
    def today() -> str:
        read.append(time.time())
        return "Nothing."

    asked = time.time()
    with Session.from_config({}, in_process={"notes": server}) as session:
        turn = session.chat(
            "Hello", model=scripted_model("Hi"), attach="notes://today", echo="none"
        )
    (started,), step = turn.trace.of(TurnStarted), turn.trace.of(StepStarted)[0]
    assert started.began is not None
    assert asked <= started.began <= read[0] <= started.began + step.at
    assert turn.seconds >= step.at
