"""The widgets, and cells that a model writes, outside of JupyterLab: Notebook 7, marimo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from kit.lab import Lab
from kit.pages import pictured, ready, written
from kit.waiting import wait_until

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

SETUP = """from casual_mcp_nb import Session
from casual_mcp_nb.widgets import ManifestView, SearchBox, ServerToggles, TokenMeter, ToolsetPicker
session = Session.from_config({
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        "math": {"bundled": "math", "transport": "in-process", "defer_loading": True},
        "units": {"bundled": "units", "transport": "in-process"},
    },
    "tool_sets": {"numbers": {"description": "Numbers", "servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
})
session.connect();"""
SMALL = (
    "ServerToggles(session), ToolsetPicker(session), ManifestView(session), SearchBox(session),"
    " TokenMeter(session)"
)
MARIMO = f"""import marimo
app = marimo.App()

@app.cell
def _():
    import marimo as mo
{chr(10).join("    " + line for line in SETUP.splitlines())}
    return mo, session, {SMALL.replace("(session)", "")}

@app.cell
def _(mo, session, {SMALL.replace("(session)", "")}):
    mo.vstack([mo.ui.anywidget(widget) for widget in ({SMALL})])
    return

@app.cell
def _(session):
    session.explore()
    return

@app.cell
def _(session):
    session.panel()
    return
"""


@pytest.fixture
def tall(lab_browser: Any) -> Iterator[Any]:
    page = lab_browser.new_page(1200, 2400)
    page.set_default_timeout(30_000)
    yield page
    page.close()


def at(page: Any, *names: str) -> Any:
    """The first element with a test id inside of one with another, and so on."""
    place = page
    for name in names:
        place = place.get_by_test_id(name).first
    return place


def defers_units_and_finds_addition(page: Any) -> None:
    """Use the small widgets: what one changes, the others show."""
    manifest = at(page, "manifest-text")
    manifest.wait_for()
    sync_api.expect(manifest).to_contain_text("math")
    sync_api.expect(manifest).not_to_contain_text("units")
    at(page, "server-toggles", "server-units").locator("label:has([value=deferred])").click()
    sync_api.expect(manifest).to_contain_text("units")
    at(page, "search-box", "query").fill("add two numbers")
    sync_api.expect(at(page, "search-box", "hits")).to_contain_text("add")


@pytest.mark.slow
@pytest.mark.defect("C16")
def test_the_explorer_and_the_panel_work_in_notebook_7(page: Any, lab: Lab) -> None:
    pytest.importorskip("notebook", reason="notebook is not installed: pip install notebook")
    written(lab, "seven.ipynb", [SETUP, "session.explore()", "session.panel()"])
    page.goto(f"{lab.url}/notebooks/seven.ipynb?token=test")
    ready(page)
    for number in range(3):
        page.locator(".jp-CodeCell .cm-content").nth(number).click()
        page.keyboard.press("Control+Enter")
    at(page, "explorer", "server-units").locator("label:has([value=deferred])").click()
    sync_api.expect(at(page, "explorer", "manifest-text")).to_contain_text("units")
    asks_what_is_two_plus_two(page)
    pictured(page, "notebook-7")
    # Opened again, it shows the pictures, without a line about lost widgets.
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    (lab.folder / "seven-again.ipynb").write_text((lab.folder / "seven.ipynb").read_text())
    page.goto(f"{lab.url}/notebooks/seven-again.ipynb?token=test")
    lost = page.get_by_text("model not found")
    sync_api.expect(lost).to_have_count(2)
    page.locator(".cmn-exploration").wait_for()
    for line in lost.all():
        sync_api.expect(line).to_be_hidden()


@pytest.mark.slow
def test_the_widgets_work_in_marimo(tall: Any, tmp_path: Path) -> None:
    with marimo_app(MARIMO, tmp_path) as address:
        tall.goto(address)
        defers_units_and_finds_addition(tall)
        # The page is narrow, and only rows in sight are elements.
        at(tall, "explorer", "filter").fill("units")
        sync_api.expect(at(tall, "explorer", "server-units")).to_have_attribute(
            "data-mode", "deferred"
        )
        asks_what_is_two_plus_two(tall)
        pictured(tall, "marimo")


WRITES = """import marimo
app = marimo.App()

@app.cell
def _():
    from casual_mcp_nb import Session
    from casual_mcp_nb.providers.scripted import scripted_model
    session = Session({})
    model = scripted_model("```python\\nanswer = 6 * 7\\nanswer\\n```")
    cell = session.models.write("Answer.", model=model)
    cell.insert()
    cell
    return
"""


@pytest.mark.slow
def test_a_written_cell_is_inserted_in_marimos_editor_and_waits(tall: Any, tmp_path: Path) -> None:
    with marimo_app(WRITES, tmp_path, "edit") as address:
        tall.goto(address)
        tall.locator(".cm-content").first.click()
        tall.keyboard.press("Control+Enter")
        inserted = tall.locator("[data-cell-id]").nth(1)
        # The kernel imports everything first, which takes a minute and more on a busy machine.
        inserted.locator(".cm-content").get_by_text("answer = 6").wait_for(timeout=180_000)
        sync_api.expect(tall.get_by_text("Nothing has run.").first).to_be_visible()
        pictured(tall, "marimo-written")
        inserted.locator(".cm-content").click()
        tall.keyboard.press("Control+Enter")
        sync_api.expect(tall.get_by_text("42", exact=True).first).to_be_visible()


def asks_what_is_two_plus_two(page: Any) -> None:
    at(page, "chat-panel", "message").fill("What is 2 plus 2?")
    page.keyboard.press("Enter")
    sync_api.expect(at(page, "chat-panel", "transcript")).to_contain_text(
        "4 (from math:evaluate_expression)"
    )
    sync_api.expect(at(page, "chat-panel", "send")).to_be_enabled()


@contextmanager
def marimo_app(source: str, folder: Path, mode: str = "run") -> Iterator[str]:
    """Serve a marimo app on loopback, or with the mode `edit` its editor."""
    pytest.importorskip("marimo", reason="marimo is not installed: pip install marimo")
    app, port = folder / "app.py", free_port()
    app.write_text(source)
    command = [
        sys.executable,
        "-m",
        "marimo",
        mode,
        str(app),
        "--headless",
        "--no-token",
        "--port",
        str(port),
    ]
    quiet = {**os.environ, "MARIMO_SKIP_UPDATE_CHECK": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(f"{address}/health"), "marimo answers", 60)
            yield address
        finally:
            server.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return bool(answer.status == 200)
    except (URLError, ConnectionError):
        return False
