"""Functions of a notebook as tools, in a real kernel: objects of other cells work, cells run again,
async tools await.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = pytest.mark.kernel

SETUP = """
import asyncio, sqlite3, threading
from casual_mcp_nb import Session, ToolContext, ToolOutput
from casual_mcp_nb.providers.scripted import call, scripted_model
session = Session.from_config({})
connection = sqlite3.connect(":memory:")
connection.execute("create table stock (amount int)")
connection.execute("insert into stock values (12), (30)");
"""
STOCK = """
@session.tool
def stock() -> int:
    "Count the stock."
    (amount,) = connection.execute("select sum(amount) from stock").fetchone()
    display(f"counted on {threading.current_thread().name}")
    return amount
"""
CHAT = (
    "turn = session.chat('How much?', model=scripted_model(call('notebook__stock'), 'Done.'),"
    " echo='none')"
)
PLOT = """
import matplotlib.pyplot as plt
@session.tool
def plot() -> plt.Figure:
    "Plot the stock."
    figure, axes = plt.subplots()
    axes.plot([12, 30])
    return figure
turn = session.chat("Plot it", model=scripted_model(call("notebook__plot"), "Done."), echo="none")
print(turn.tool_calls[0].status, type(turn.payloads[0]).__name__, turn.tool_calls[0].content[0].mime_type)
"""
DRAW = """
@session.tool
def draw() -> ToolOutput:
    "Draw the stock for the person alone."
    figure, axes = plt.subplots()
    axes.plot([12, 30])
    return ToolOutput("A plot was shown.", figure)
turn = session.chat("Draw it", model=scripted_model(call("notebook__draw"), "Done."))
"""
WAIT = """
gate = asyncio.Event()
@session.tool
async def wait() -> str:
    "Wait for the gate of the notebook's own loop."
    await gate.wait()
    return "open"
"""
AWAIT = """
asyncio.get_running_loop().call_later(0.05, gate.set)
turn = await session.chat_async("Wait", model=scripted_model(call("notebook__wait"), "Done."), echo="none")
print(turn.tool_calls[0].result)
"""
NEST = """
@session.tool
def report(context: ToolContext) -> str:
    "Report the stock."
    return f"{context.call_tool('stock').result} on {threading.current_thread().name}"
turn = session.chat("Report", model=scripted_model(call("notebook__report"), "Done."), echo="none")
print(f"{turn.tool_calls[0].result} {len(turn.tool_calls[0].nested)}")
"""
LONG = """
@session.tool
def spin() -> None:
    "Run for ever."
    print("spinning")
    while True:
        pass
turn = session.chat("Spin", model=scripted_model(call("notebook__spin"), "Done."), echo="none")
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


def test_a_connection_of_another_cell_and_display_work_in_a_blocking_chat(kernel: Kernel) -> None:
    kernel.run(STOCK)
    ran = kernel.run(CHAT)
    assert ran.status == "ok"
    assert "MainThread" in ran.outputs[0]["data"]["text/plain"]
    assert kernel.run("print(turn.tool_calls[0].result)").text().strip() == "42"


def test_a_cell_that_runs_again_never_doubles_a_tool(kernel: Kernel) -> None:
    for _ in range(3):
        kernel.run(STOCK)
    kernel.run(CHAT)
    names = kernel.run(
        "print([tool['name'] for tool in turn.steps[0].request.tools], session.tools.changed)"
    ).text()
    assert names.count("stock") == 1
    assert "{}" in names


def test_functions_of_other_cells_call_each_other_on_the_main_thread(kernel: Kernel) -> None:
    kernel.run(STOCK)
    assert "42 on MainThread 1" in kernel.run(NEST).text()


def test_a_figure_is_made_on_the_main_thread_and_reaches_model_and_person(kernel: Kernel) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install matplotlib")
    assert kernel.run(PLOT).text().startswith("ok Figure image/png")
    assert "data:image/png" in kernel.run(DRAW).text("text/html")


def test_an_async_tool_runs_on_the_kernels_loop_unless_a_blocking_call_holds_it(
    kernel: Kernel,
) -> None:
    kernel.run(WAIT)
    assert kernel.run(AWAIT).text().strip() == "open"
    kernel.run(
        "turn = session.chat('Wait', model=scripted_model(call('notebook__wait'), 'Done.'),"
        " echo='none')"
    )
    assert "chat_async" in kernel.run("print(turn.tool_calls[0].result)").text()


def test_an_interrupt_ends_a_function_that_never_ends_and_the_conversation_goes_on(
    kernel: Kernel,
) -> None:
    before = int(kernel.run("print(len(session.turns))").text())
    cell = kernel.start(LONG)
    kernel.wait(cell, until="stream")
    assert kernel.interrupt(cell).status == "error"
    assert int(kernel.run("print(len(session.turns))").text()) == before + 1
    assert kernel.run("print(session.turns[-1].status)").text().strip() == "stopped"
    kernel.run(CHAT)
    assert kernel.run("print(turn.tool_calls[0].result)").text().strip() == "42"
