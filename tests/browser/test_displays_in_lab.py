"""The displays in a real JupyterLab: trusted and not, light and dark, live, and without
barriers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from kit.lab import Lab
from kit.pages import ready
from nbclient import NotebookClient

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

EVIL = (
    "<script>document.body.dataset.pwned=1</script><img src=x"
    " onerror='document.body.dataset.pwned=1'>[x](https://evil.example)"
)
SETUP = """%load_ext casual_mcp_nb
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from casual_mcp_nb.base.status import Diagnosis
EVIL = {evil!r}
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcffff3f0300060005fea72d6b"
    "5d0000000049454e44ae426082")
shop = FastMCP("shop", instructions=EVIL)
@shop.tool(description="List what is in the shop. " + EVIL)
def stock(kind: str) -> list[dict]:
    return [{{"item": "tea", "price": 3}}, {{"item": EVIL, "price": 4}}]
@shop.tool
def picture() -> Image:
    "Draw the shop."
    return Image(data=PIXEL, format="png")
@shop.tool(annotations={{"destructiveHint": True}})
def burn() -> str:
    "Burn the shop."
    raise ValueError(EVIL)
session = Session.from_config({{
    "clients": {{"offline": {{"provider": "offline"}}}},
    "models": {{"planner": {{"client": "offline", "model": "planner"}}}},
    "servers": {{
        "math": {{"bundled": "math", "transport": "in-process", "defer_loading": True}},
        "gone": {{"command": "no-such-command-anywhere"}},
    }},
    "tool_sets": {{"numbers": {{"description": EVIL, "servers": {{"math": True}}}}}},
    "tool_discovery": {{"enabled": True}},
}}, in_process={{"shop": shop}})
session.connect();"""
TURN = """answer = "# Done\\n\\nThe **shop** has:\\n\\n| item | price |\\n|---|---|\\n| tea | 3 |\\n\\n" + EVIL
script = [call("search_tools", query="add numbers"), call("shop__stock", kind="tea"), call("shop__picture"), call("shop__burn")]
session.chat("What is in the shop?" + EVIL, model=scripted_model(*script, answer), echo="all")"""
CELLS = [
    SETUP.format(evil=EVIL),
    "session",
    "session.servers['gone']",
    "session.tools",
    "session.tools['shop__stock']",
    "session.tools.manifest",
    "session.tools.sets",
    "session.models",
    "session.models.clients",
    "session.selection",
    "session.models.preview()",
    "session.search('list the items of the shop')",
    "session.search('add').why_not('shop__burn')",
    TURN,
    "session.turns[0].steps[1]",
    "session.turns[0].steps[1].request",
    "session.turns[0].steps[1].diff()",
    "session.turns[0].tool_calls[1]",
    "session.stats",
    "session.conversations.current",
    "session.servers.doctor()",
    "%mcp help",
]
# One a cell; the first shows how the servers started.
DISPLAYS = len(CELLS)
LOOKS = [("JupyterLab Light", "true"), ("JupyterLab Dark", "false")]


@pytest.fixture(scope="module")
def book() -> Any:
    """A notebook with every display, executed."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return book


@pytest.fixture(scope="module", params=[True, False], ids=["trusted", "untrusted"])
def saved(lab_browser: Any, lab: Lab, book: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page of that notebook, opened once for all that is looked at there; it knows what it has
    requested.
    """
    name = f"{'trusted' if request.param else 'untrusted'}.ipynb"
    placed(book, lab, name, request.param)
    page = lab_browser.new_page(1200, 1600)
    page.set_default_timeout(60_000)
    page.trusted, page.asked = request.param, []
    page.on("request", lambda request: page.asked.append(request.url))
    opened(page, lab, name, DISPLAYS)
    yield page
    page.close()


def placed(book: Any, lab: Lab, name: str, trusted: bool) -> None:
    """Put a copy of the notebook where Lab finds it.

    Trust goes by content, so each copy has its name in it.
    """
    copy = nbformat.from_dict({**book, "metadata": {**book.metadata, "copy": name}})
    nbformat.write(copy, lab.folder / name)
    if trusted:
        lab.trust(name)


def opened(page: Any, lab: Lab, name: str, displays: int) -> None:
    page.goto(lab.address(name))
    page.wait_for_function(
        "count => document.querySelectorAll('.jp-OutputArea .cmn').length >= count", arg=displays
    )


def look(page: Any, theme: str, light: str) -> None:
    page.wait_for_function("() => window.jupyterapp !== undefined")
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
    )
    page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)


def violations(page: Any, axe: Path) -> list[str]:
    page.add_script_tag(path=str(axe))
    page.evaluate(
        "() => document.querySelectorAll('.cmn details').forEach(part => part.open = true)"
    )
    found = page.evaluate("() => axe.run({include: [['.cmn']]}, {resultTypes: ['violations']})")
    return [
        f"{v['id']}: {node['html'][:200]} {node['any'][:1]}"
        for v in found["violations"]
        for node in v["nodes"][:3]
    ]


def run_all(page: Any) -> None:
    """Run all cells; a Lab that asks for the kernel first, or has none yet, runs none of them and
    is asked again.
    """
    begun = "document.querySelector('.jp-InputPrompt')?.innerText.includes('[*]')"
    for _ in range(6):
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
        with contextlib.suppress(sync_api.TimeoutError):
            page.wait_for_function(
                f"() => {begun} || document.querySelector('.jp-Dialog .jp-mod-accept')",
                timeout=10_000,
            )
        if page.evaluate(f"() => {begun}"):
            return
        if page.locator(".jp-Dialog .jp-mod-accept").count():
            page.locator(".jp-Dialog .jp-mod-accept").click()
            page.locator(".jp-Dialog").wait_for(state="detached")
            ready(page)
    raise AssertionError("Lab did not run the cells.")


def pictured(page: Any, name: str) -> None:
    """Keep a picture of the whole notebook where `SCREENSHOTS` names a folder, for a person to look
    at.
    """
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        height = page.evaluate(
            "() => document.querySelector('.jp-WindowedPanel-outer').scrollHeight"
        )
        page.set_viewport_size({"width": 1200, "height": min(16_000, int(height) + 200)})
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


@pytest.mark.slow
def test_a_search_fits_a_narrow_page(saved: Any) -> None:
    size = saved.viewport_size
    saved.set_viewport_size({"width": 410, "height": 900})
    fits = "tables => tables.map(table => table.scrollWidth <= table.parentElement.clientWidth)"
    found = saved.locator(".cmn-search > .cmn-table").evaluate_all(fits)
    saved.set_viewport_size(size)
    assert found
    # Without trust there is no style sheet.
    assert all(found) or not saved.trusted


@pytest.mark.slow
def test_what_is_folded_opens_by_keyboard(saved: Any) -> None:
    folded = saved.locator(".cmn details:not([open]) > summary").first
    before = saved.locator(".cmn details[open]").count()
    folded.focus()
    saved.keyboard.press("Enter")
    saved.wait_for_function(
        "before => document.querySelectorAll('.cmn details[open]').length > before", arg=before
    )


@pytest.mark.fault(86)
@pytest.mark.fault(91)
@pytest.mark.parametrize(("theme", "light"), LOOKS)
def test_a_saved_notebook_shows_every_display_and_runs_nothing(
    saved: Any, lab: Lab, axe: Path, theme: str, light: str
) -> None:
    look(saved, theme, light)
    assert (
        saved.evaluate("() => document.querySelectorAll('.jp-OutputArea .cmn').length") == DISPLAYS
    )
    assert (
        saved.evaluate("() => document.querySelectorAll('.cmn style').length > 0") is saved.trusted
    )
    assert saved.evaluate("() => document.body.dataset.pwned === undefined")
    assert (
        saved.evaluate(
            "() => document.querySelectorAll('.cmn :is(script, iframe, a, form, object,"
            " [onerror])').length"
        )
        == 0
    )
    assert [
        url for url in saved.asked if not url.startswith((lab.url, "data:", "blob:", "ws:"))
    ] == []
    pictured(saved, f"{'trusted' if saved.trusted else 'untrusted'}-{light}")
    assert violations(saved, axe) == []


def shows(page: Any, text: str, timeout: int = 60_000) -> None:
    """Wait until a display shows a text; a failure names everything that the notebook shows
    instead.
    """
    try:
        page.wait_for_function(
            "text => document.querySelector('.cmn')?.innerText.includes(text)",
            arg=text,
            timeout=timeout,
        )
    except sync_api.TimeoutError:
        shown = page.locator(".jp-Notebook").inner_text()
        raise AssertionError(
            f"No display shows {text!r}; the notebook shows: {shown[-2_000:]}"
        ) from None


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_running_turn_moves_in_its_cell_and_ends_as_a_still_picture(page: Any, lab: Lab) -> None:
    slow = """
import asyncio, pathlib
from fastmcp import Context, FastMCP
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
server = FastMCP("slow")
@server.tool
async def work(ctx: Context) -> str:
    "Work until it is told to end."
    done = 0
    while not pathlib.Path("end").exists():
        done = min(done + 1, 90)
        await ctx.report_progress(done, 100, "at it")
        await asyncio.sleep(0.05)
    return "worked"
session = Session.from_config({}, in_process={"slow": server})
# On a busy machine, a start is a display too.
session.connect(quiet=True)
session.chat("Work.", model=scripted_model(call("slow__work"), "All done."))
"""
    cells = [nbformat.v4.new_code_cell(slow)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}),
        lab.folder / "live.ipynb",
    )
    page.goto(lab.address("live.ipynb"))
    # Without a kernel, the indicator is idle too; a cell that is run then is forgotten when the
    # kernel is there.
    ready(page)
    run_all(page)
    # The kernel imports everything first, which takes a minute and more on a busy machine.
    shows(page, "at it", 180_000)
    shows(page, "90 of 100 (90%)")
    pictured(page, "live")
    (lab.folder / "end").write_text("now")
    shows(page, "All done.")
    sync_api.expect(page.locator(".cmn")).to_have_count(1)
    sync_api.expect(page.locator(".cmn")).not_to_contain_text("running")
