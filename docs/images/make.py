"""Take the pictures of the README from a real JupyterLab: `.venv/bin/python docs/images/make.py`. Needs chromium."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from kit.lab import started_lab  # noqa: E402
from kit.pages import execute, opened, run_cell, written  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

DEMO = "from casual_mcp_nb import Session\nsession = Session.demo()\nsession.connect();"
CHOSEN = "session.selection.servers['math'] = 'loaded'"
QUESTION = "What time is it in Tokyo when it is 14:30 in Oslo?"


def main() -> None:
    """Write `explorer.png` and `panel.png` beside this file."""
    with tempfile.TemporaryDirectory() as home, started_lab(Path(home)) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 1500})
        written(lab, "pictures.ipynb", [DEMO, "session.explore()", "session.panel()"])
        opened(page, lab, "pictures.ipynb")
        execute(page, DEMO)
        explorer(page)
        panel(page)
        browser.close()


def explorer(page: Any) -> None:
    run_cell(page, 1)
    widget = page.get_by_test_id("explorer")
    widget.wait_for()
    execute(page, CHOSEN)
    widget.get_by_test_id("tab-search").click()
    widget.get_by_test_id("query").fill("how long until a date")
    widget.get_by_test_id("hits").locator("text=date_difference").first.wait_for()
    widget.screenshot(path=HERE / "explorer.png")


def panel(page: Any) -> None:
    run_cell(page, 2)
    widget = page.get_by_test_id("chat-panel")
    widget.get_by_test_id("message").fill(QUESTION)
    page.keyboard.press("Enter")
    widget.locator("p", has_text="22:30 in Asia/Tokyo").wait_for()
    widget.get_by_test_id("undo").and_(page.locator(":enabled")).wait_for()
    page.mouse.move(0, 0)
    widget.screenshot(path=HERE / "panel.png")


if __name__ == "__main__":
    main()
