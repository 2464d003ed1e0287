"""The card of a turn whose call became a task: it follows the task after its cell has ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab
from kit.pages import execute, opened, pictured, value, written

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

KIT = Path(__file__).resolve().parents[1]
SETUP = """
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
server = {{"command": {python!r}, "args": ["-m", "kit.tasks", {folder!r}], "env": {{"PYTHONPATH": {kit!r}}}, "task_wait": 0}}
session = Session.from_config({{"servers": {{"lab": server}}}}, trust=True, quiet=True)
model = scripted_model(call("lab__survey"), "The survey runs as task 1, and asks for a region.", "North.")
session.connect(quiet=True)
"""


def test_the_card_follows_the_task_when_its_cell_has_ended(page: Any, lab: Lab, tmp_path: Path) -> None:
    written(lab, "tasks.ipynb", ["session.chat('Make a survey.', model=model)", "session.servers.tasks"])
    opened(page, lab, "tasks.ipynb")
    execute(page, SETUP.format(python=sys.executable, folder=str(tmp_path), kit=str(KIT)))
    page.locator(".jp-CodeCell .cm-content").first.focus()
    page.keyboard.press("Shift+Enter")
    card = page.locator(".jp-CodeCell").first
    card.locator("text=task 1 waiting for you").first.wait_for()
    pictured(page, "task-running")
    assert value(page, "(session.turns[0].status, session.servers.tasks[0].is_over)") == ("done", False)
    page.keyboard.press("Shift+Enter")
    page.locator(".jp-CodeCell").nth(1).locator("text=lab:survey").first.wait_for()
    pictured(page, "task-table")
    execute(page, "session.questions[0].answer({'region': 'north'})")
    card.locator("text=task 1 done").first.wait_for()
    pictured(page, "task-done")
    assert value(page, "session.servers.tasks[0].status") == "completed"
