"""Tasks in a real kernel: one outlives it, a form in the middle of another, an interrupt, and the
magics.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = pytest.mark.kernel

KIT = Path(__file__).resolve().parents[1]
SETUP = """
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
%load_ext casual_mcp_nb
server = {{"command": {python!r}, "args": ["-m", "kit.tasks", {folder!r}], "env": {{"PYTHONPATH": {kit!r}}}, "task_wait": 0}}
session = Session.from_config({{"servers": {{"lab": server}}}}, store={store!r}, trust=True, quiet=True)
"""


def set_up(folder: Path) -> str:
    tasks = folder / "tasks"
    tasks.mkdir(exist_ok=True)
    return SETUP.format(
        python=sys.executable, folder=str(tasks), kit=str(KIT), store=str(folder / "saved.db")
    )


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with started_kernel() as kernel:
        kernel.printed(set_up(tmp_path_factory.mktemp("cells")))
        yield kernel


@pytest.mark.slow
def test_a_task_outlives_its_killed_kernel_and_another_one_gets_its_result(tmp_path: Path) -> None:
    with started_kernel() as first:
        first.printed(set_up(tmp_path))
        code = (
            'turn = session.chat("Crunch.", model=scripted_model(call("lab__crunch", polls=30), "It'
            ' runs."), echo="none")'
        )
        first.printed(code)
        id = first.printed(
            "print(session.conversations.id, turn.tool_calls[0].task.status)"
        ).split()
        assert id[1] == "working"
        first.manager.shutdown_kernel(now=True)
    with started_kernel() as second:
        second.printed(set_up(tmp_path))
        second.printed(f"c = session.conversations.resume({id[0]!r})")
        assert (
            second.printed(
                "print(len(session.servers.tasks), session.servers.tasks.wait(1).status)"
            )
            == "1 completed"
        )
        code = """
model = scripted_model("There are 42 rows.")
turn = session.chat("And?", model=model, echo="none")
print(turn.answer, "|", model.client.requests[0].messages[-2].content)
"""
        told = second.printed(code)
        assert told.startswith("There are 42 rows. | [Task 1, lab:crunch")
        assert "sales: 42 rows" in told


def test_a_form_in_the_middle_is_filled_in_where_a_cell_waits(kernel: Kernel) -> None:
    code = 'session.tools.call("lab:survey"); print(len(session.questions))'
    assert kernel.run(code).status == "ok"
    waiting = (
        "from casual_mcp_nb.notebook.questions import"
        " FormQuestion\nprint(type(session.questions.wait()).__name__)"
    )
    assert kernel.printed(waiting) == "FormQuestion"
    code = (
        "number = session.servers.tasks[-1].number;"
        " print(session.servers.tasks.result(number).result)"
    )
    ran, prompts = kernel.typed(code, "y", "north", "2026")
    assert [prompt.split()[0] for prompt in prompts] == ["Server", "Region", "year"]
    assert ran.text().strip() == 'accept {"region": "north", "year": 2026}'


def test_an_interrupt_ends_the_waiting_and_a_magic_cancels_the_task(kernel: Kernel) -> None:
    kernel.printed('_ = session.tools.call("lab:endless")')
    number = kernel.printed("print(session.servers.tasks[-1].number)")
    cell = kernel.start(f"print('waiting', flush=True); session.servers.tasks.wait({number})")
    kernel.wait(cell, "stream")
    kernel.manager.interrupt_kernel()
    assert kernel.wait(cell).status == "error"
    assert kernel.printed("print(session.servers.tasks[-1].is_over)") == "False"
    assert "endless" in kernel.printed("%mcp tasks")
    kernel.printed(f"%mcp tasks cancel {number}")
    assert kernel.printed("print(session.servers.tasks[-1].status)") == "cancelled"


def test_a_closed_session_polls_no_more(kernel: Kernel) -> None:
    code = """
_ = session.tools.call("lab:endless")
session.close()
import asyncio
print([task.get_name() for task in asyncio.all_tasks(session.parts.engine._loop) if task.get_name().startswith("task of")])
"""
    assert kernel.printed(code) == "[]"
