"""A display that is interrupted at any moment shows how its work ended, and nothing draws it any
more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(90)]

TESTS = Path(__file__).resolve().parents[1]
SETUP = f"""
import sys, threading, warnings
sys.path.append({str(TESTS)!r})
# Of work that an interrupt kept from being handed over.
warnings.filterwarnings("ignore", "coroutine .* was never awaited")
from pathlib import Path
from kit.interrupts import at_each_line
from kit.weather import weather
from casual_mcp_nb import Session
from casual_mcp_nb.notebook.live import drawing_thread
from casual_mcp_nb.providers.scripted import call, scripted_model

DISPLAYS = ("turn_service.py", "start_display.py", "live.py", "service.py")

def has_displays(code):
    return "casual_mcp_nb" in code.co_filename and Path(code.co_filename).name in DISPLAYS

session = Session.from_config({{}}, in_process={{"weather": weather()}})

def chat():
    session.chat("Go.", model=scripted_model(call("weather__forecast", city="Oslo"), "Done."))

def connect():
    session.connect()

def compare():
    session.experiments.compare("Go.", models=scripted_model("yes", "no"), discovery=[False, True])

def interrupt(run):
    run()
    for where in at_each_line(run, has_displays):
        for thread in threading.enumerate():
            if thread.name == "casual-mcp-start":
                thread.join(10)
                assert not thread.is_alive(), where
        session.parts.engine.run(session.parts.chat.server_manager.disconnect())
    drawing_thread().submit(int).result()
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


@pytest.mark.fault(69)
@pytest.mark.parametrize("work", ["chat", "connect", "compare"])
def test_an_interrupted_display_is_finished(kernel: Kernel, work: str) -> None:
    ran = kernel.run(f"interrupt({work})")
    assert ran.status == "ok", ran.text()
    last: dict[str, dict[str, str]] = {}
    for message in ran.messages:
        if message["msg_type"] in ("display_data", "update_display_data"):
            display = message["content"]["transient"]["display_id"]
            last[display] = message["content"]["data"]
    assert len(last) > 20
    for bundle in last.values():
        text = bundle["text/plain"].lower()
        assert "running" not in text
        assert "starting" not in text
        assert "Elapsed" not in bundle["text/html"]
