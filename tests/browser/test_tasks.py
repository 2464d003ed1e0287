"""Tasks on the page: the card of a turn follows its task after its cell has ended, and the explorer
has them all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab
from kit.pages import execute, opened, pictured, value, violations, written

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

KIT = Path(__file__).resolve().parents[1]
SETUP = """
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
server = {{"command": {python!r}, "args": ["-m", "kit.tasks", {folder!r}], "env": {{"PYTHONPATH": {kit!r}}}, "task_wait": 0}}
session = Session.from_config({{"servers": {{"lab": server}}}}, trust=True, quiet=True)
model = scripted_model(call("lab__survey"), "The survey runs as task 1, and asks for a region.", "North.")
session.connect(quiet=True)
"""


def test_the_card_follows_the_task_when_its_cell_has_ended(
    page: Any, lab: Lab, tmp_path: Path, axe: Path
) -> None:
    cells = [
        "session.chat('Make a survey.', model=model)",
        "session.servers.tasks",
        "session.explore()",
    ]
    written(lab, "tasks.ipynb", cells)
    opened(page, lab, "tasks.ipynb")
    execute(page, SETUP.format(python=sys.executable, folder=str(tmp_path), kit=str(KIT)))
    page.locator(".jp-CodeCell .cm-content").first.focus()
    page.keyboard.press("Shift+Enter")
    card = page.locator(".jp-CodeCell").first
    card.locator("text=task 1 waiting for you").first.wait_for()
    pictured(page, "task-running")
    assert value(page, "(session.turns[0].status, session.servers.tasks[0].is_over)") == (
        "done",
        False,
    )
    page.keyboard.press("Shift+Enter")
    page.locator(".jp-CodeCell").nth(1).locator("text=lab:survey").first.wait_for()
    pictured(page, "task-table")
    execute(page, "session.questions[0].answer({'region': 'north'})")
    card.locator("text=task 1 done").first.wait_for()
    pictured(page, "task-done")
    assert value(page, "session.servers.tasks[0].status") == "completed"

    page.keyboard.press("Shift+Enter")
    at = page.get_by_test_id
    at("tab-tool").focus()
    # The tabs are a circle, and this one is the last.
    page.keyboard.press("ArrowLeft")
    task = at("task-1")
    task.locator("text=task 1 done").wait_for()
    assert "lab:survey" in task.inner_text()
    execute(
        page,
        "session.tools.call('lab:crunch', topic='<b onclick=x()>rye</b>', polls=1);"
        " session.tools.call('lab:endless')",
    )
    at("task-3").locator("text=still at it").wait_for()
    age = at("task-3").locator("td").nth(2).inner_text()
    page.wait_for_function(
        "before => document.querySelector('[data-testid=task-3] td:nth-child(4)').innerText !=="
        " before",
        arg=age,
    )
    at("task-3").get_by_test_id("task-cancel").focus()
    page.keyboard.press("Enter")
    at("task-3").locator("text=task 3 cancelled").wait_for()
    at("task-2").get_by_test_id("task-read").click()
    result = at("task-result")
    result.locator("text=rye").first.wait_for()
    assert result.locator("b[onclick]").count() == 0
    assert violations(page, axe, "[data-testid=explorer]") == []
    pictured(page, "task-explorer")
