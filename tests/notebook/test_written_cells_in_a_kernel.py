"""Written cells in a real kernel: Stop ends them, and calls of their threads are asked about in the
cell.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

SETUP = """
import asyncio
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import scripted_model
from fastmcp import FastMCP

shop, BURNT = FastMCP("shop"), []

@shop.tool(annotations={"readOnlyHint": True})
async def wait() -> str:
    print("waiting", flush=True)
    await asyncio.Event().wait()

@shop.tool(annotations={"destructiveHint": True})
def burn(item: str) -> str:
    BURNT.append(item)
    return f"{item} is gone"

session = Session({}, in_process={"shop": shop}, approval={"shop": "destructive"}, quiet=True)
session.connect(quiet=True)

def write(code):
    return session.models.write("Do it.", model=scripted_model(f"```python\\n{code}\\n```"))
"""
THREADS = """from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    gone = list(pool.map(lambda item: session.tools.shop.burn(item=item), ["a", "b"]))
gone"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


def test_a_stop_ends_the_call_that_a_program_waits_for(kernel: Kernel) -> None:
    kernel.printed("cell = write('before = 1\\nsession.tools.shop.wait()\\nafter = 1')")
    running = kernel.start("cell.run()")
    kernel.wait(running, "stream")
    assert kernel.interrupt(running).status == "error"
    # The cell waits for the end of the call half a second at most.
    kernel.printed(
        "async with asyncio.timeout(30):\n    while not cell.call_counts: await asyncio.sleep(0.01)"
    )
    states = (
        "cell.state, cell.call_counts, session.tools.calls[0].call.status, before, 'after' in"
        " globals()"
    )
    assert kernel.printed(f"print({states})") == "stopped {'stopped': 1} stopped 1 False"


def test_a_stop_ends_a_program_that_does_not_end(kernel: Kernel) -> None:
    kernel.printed("cell = write('print(\"begun\", flush=True)\\nwhile True: pass')")
    running = kernel.start("cell.run()")
    kernel.wait(running, "stream")
    assert kernel.interrupt(running).status == "error"
    assert kernel.printed("print(cell.state, cell.error)") == "stopped None"


def test_threads_of_a_program_ask_in_its_cell(kernel: Kernel) -> None:
    kernel.printed(f"cell = write({THREADS!r})")
    ran, prompts = kernel.typed("cell.run()", "y", "y")
    assert (ran.status, len(prompts)) == ("ok", 2)
    assert kernel.printed("print(BURNT, cell.call_counts)") == "['a', 'b'] {'ok': 2}"
