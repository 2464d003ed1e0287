"""A written cell in a real JupyterLab, from the keyboard: written, inserted, edited by hand, run,
repaired, approved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab
from kit.pages import LOOKS, execute, look, opened, pictured, value, violations, written

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

SETUP = '''
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import scripted_model
from fastmcp import FastMCP

shop, CANCELLED = FastMCP("shop"), []

@shop.tool(annotations={"readOnlyHint": True})
def orders() -> list[dict]:
    "List all orders."
    return [{"id": number, "amount": number * 10} for number in range(40)]

@shop.tool(annotations={"destructiveHint": True})
def cancel_order(id: int) -> str:
    "Cancel an order for good. <img src=x onerror=alert(1)>"
    CANCELLED.append(id)
    return f"Order {id} is cancelled."

session = Session({}, in_process={"shop": shop}, approval={"shop": "destructive"})
session.connect(quiet=True)
PROGRAM = """```python
large = [each for each in session.tools.shop.orders() if each["amount"] > 370]
for order in large:
    session.tools.shop.cancel_order(id=order["id"])
len(large)
```"""
model = scripted_model(PROGRAM, PROGRAM.replace("len(large)", "[order['id'] for order in large]"))
'''
TASK = (
    "cell = session.models.write('Cancel the large orders. <img src=x onerror=alert(1)>',"
    " model=model)\ncell"
)


def test_a_task_becomes_a_cell_that_is_edited_run_and_repaired_from_the_keyboard(
    page: Any, lab: Lab, axe: Path
) -> None:
    written(lab, "written.ipynb", [TASK])
    opened(page, lab, "written.ipynb")
    execute(page, SETUP)
    cells, keyboard = page.locator(".jp-CodeCell"), page.keyboard

    def enter(text: str) -> None:
        keyboard.type(text)
        keyboard.press("Shift+Enter")

    page.locator(".jp-CodeCell .cm-content").first.focus()
    keyboard.press("Shift+Enter")
    page.locator(".cmn-written .cmn-row-bad[data-line='3']").wait_for()
    assert value(page, "(CANCELLED, cell.state, len(session.tools.calls))") == ([], "not run", 0)

    enter("cell.insert()")
    inserted = cells.nth(2).locator(".cm-content")
    sync_api.expect(inserted).to_contain_text("len(large)")
    # Up from the empty cell below to the inserted one.
    keyboard.press("Escape")
    keyboard.press("ArrowUp")
    keyboard.press("Enter")
    keyboard.press("Control+End")
    enter(" / 0")
    cells.nth(2).get_by_text("ZeroDivisionError").first.wait_for()
    # The person's own calls ask nobody.
    assert value(page, "(CANCELLED, cell.state)") == ([38, 39], "failed")

    # The empty cell below is selected, and not yet edited.
    keyboard.press("Enter")
    enter("cell = cell.repair()\ncell")
    cells.nth(3).get_by_text("-len(large) / 0").wait_for()
    enter("cell.run()")
    cells.nth(4).locator("input.jp-Stdin-input").wait_for()
    assert value_while_asked(page, cells.nth(4)) == "38"
    enter_answer(page, "y")
    cells.nth(4).get_by_text('"id": 39').wait_for()
    enter_answer(page, "y")
    cells.nth(4).get_by_text("[38, 39]").wait_for()
    assert value(page, "(CANCELLED, cell.state, cell.call_counts)") == (
        [38, 39] * 2,
        "ok",
        {"ok": 3},
    )
    for theme, light in LOOKS:
        look(page, theme, light)
        assert violations(page, axe, ".cmn-written") == []
        pictured(page, f"written-{light}")


def value_while_asked(page: Any, cell: Any) -> str:
    """Read the argument in the question that a cell shows."""
    text: str = cell.locator(".jp-Stdin-prompt").inner_text()
    return text.partition('"id": ')[2].split()[0]


def enter_answer(page: Any, text: str) -> None:
    """Type the answer to a question, which has the focus."""
    page.wait_for_function("() => document.activeElement.classList.contains('jp-Stdin-input')")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
