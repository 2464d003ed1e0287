"""The example servers of MCP Apps, in a real JupyterLab: used by mouse, and read in the next
cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab
from kit.pages import LOOKS, execute, look, opened, pictured, run_cell, value, written

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

SERVERS = (
    Path(__file__).resolve().parents[2]
    / ".third-party"
    / "apps"
    / "node_modules"
    / "@modelcontextprotocol"
)
BOOK = "others.ipynb"
APP = "[data-testid=app-view]"
INK = {"true": "rgb(31, 41, 55)", "false": "rgb(249, 250, 251)"}
PDF = b"""%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Count 2 /Kids [3 0 R 4 0 R] /MediaBox [0 0 200 100]>> endobj
3 0 obj <</Type /Page /Parent 2 0 R>> endobj
4 0 obj <</Type /Page /Parent 2 0 R>> endobj
trailer <</Root 1 0 R>>"""
TOOLS = {
    "debug": "debug-tool",
    "basic-vanillajs": "get-time",
    "basic-react": "get-time",
    "budget-allocator": "get-budget-data",
    "cohort-heatmap": "get-cohort-data",
    "threejs": "show_threejs_scene",
    "wiki-explorer": "get-first-degree-links",
    "pdf": "display_pdf",
    "map": "show-map",
}


@pytest.fixture(scope="module")
def page(lab_browser: Any, lab: Lab) -> Iterator[Any]:
    if not SERVERS.exists():
        pytest.skip("the servers with apps are not installed: python3 .ci/third_party.py apps")
    document = str(lab.folder / "two-pages.pdf")
    Path(document).write_bytes(PDF)
    servers = {
        name: {
            "command": "node",
            "args": [
                str(SERVERS / f"server-{name}" / "dist" / "index.js"),
                "--stdio",
                *([document] if name == "pdf" else []),
            ],
            "init_timeout": 60,
        }
        for name in TOOLS
    }
    setup = (
        f"from casual_mcp_nb import Session\nsession = Session({{'servers': {servers!r}}},"
        " store=None, quiet=True, trust=True)"
    )
    arguments = {"pdf": {"url": document}}
    cells = [
        f"app = session.tools.app('{name}:{tool}', **{arguments.get(name, {})})\napp"
        for name, tool in TOOLS.items()
    ]
    written(lab, BOOK, [setup, *cells])
    # What the pages prefer, light or dark, comes from the notebook's theme, so nothing else may set
    # it.
    page = lab_browser.new_page(1200, 1100)
    page.emulate_media(color_scheme="null")
    page.route("https://**", lambda route: route.abort())
    page.set_default_timeout(20_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    opened(page, lab, BOOK)
    execute(page, setup)
    execute(page, "session.connect(strict=True)")
    yield page
    assert page.complaints == []
    page.close()


def _open(page: Any, name: str, status: str = "shown") -> Any:
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    sync_api.expect(page.locator(APP)).to_have_count(0)
    run_cell(page, [*TOOLS].index(name) + 1)
    sync_api.expect(page.locator(APP)).to_have_attribute("data-status", status)
    return page.frame_locator(f"{APP} iframe").frame_locator("iframe")


def test_a_click_in_the_debug_app_is_a_value_in_python(page: Any) -> None:
    inside = _open(page, "debug")
    # It logs to its server by a tool that declares nothing.
    sync_api.expect(page.get_by_test_id("app-question-tool")).to_have_text("debug-log")
    page.get_by_test_id("app-approve-for-server").click()
    sync_api.expect(page.get_by_test_id("app-question")).to_have_count(0)
    inside.locator("#update-context-structured-btn").click()
    page.get_by_test_id("app-messages").click()
    sync_api.expect(page.get_by_test_id("app-log")).to_contain_text("ui/update-model-context ←")
    assert isinstance(value(page, "app.value"), dict)
    assert ("debug-log", "app", "ok") in value(
        page, "[(each.tool.tool, each.caller, each.status) for each in session.consent.audit]"
    )
    assert value(
        page,
        "[tool.name for tool in session.tools if (tool.server, tool.restriction) == ('debug', 'app"
        " only')]",
    ) == [
        *("debug-refresh", "debug-log"),
    ]


def test_a_call_of_an_app_is_read_in_the_next_cell(page: Any) -> None:
    inside = _open(page, "basic-vanillajs")
    inside.get_by_text("Get Server Time").click()
    page.get_by_test_id("app-approve").click()
    sync_api.expect(page.get_by_test_id("app-question")).to_have_count(0)
    execute(page, "import asyncio\nwhile not app.calls:\n    await asyncio.sleep(0.05)")
    assert value(page, "[(each.tool.tool, each.status) for each in app.calls]") == [
        ("get-time", "ok")
    ]


def test_a_slider_of_an_app_moves_in_both_themes(page: Any) -> None:
    inside = _open(page, "budget-allocator")
    slider = inside.get_by_role("slider").first
    sync_api.expect(slider).to_have_value("25")
    slider.press("ArrowRight")
    sync_api.expect(slider).not_to_have_value("25")
    for theme, light in LOOKS[::-1]:
        look(page, theme, light)
        sync_api.expect(inside.locator("body")).to_have_css("color", INK[light])
        pictured(page, f"app-budget-{light}")
        sync_api.expect(slider).to_be_visible()
    # Nothing of it is cut, and no scroll bar is beside it.
    output = page.locator(".jp-OutputArea-output", has=page.locator(APP))
    assert output.evaluate("output => output.scrollHeight <= output.clientHeight")


def _calls(page: Any, count: int) -> list[tuple[str, str]]:
    execute(page, f"import asyncio\nwhile len(app.calls) < {count}:\n    await asyncio.sleep(0.05)")
    return value(page, "[(each.tool.tool, each.status) for each in app.calls]")


def test_the_other_examples_are_shown_and_used(page: Any) -> None:
    inside = _open(page, "basic-react")
    inside.get_by_text("Get Server Time").click()
    page.get_by_test_id("app-approve").click()
    assert _calls(page, 1) == [("get-time", "ok")]

    inside = _open(page, "cohort-heatmap")
    page.get_by_test_id("app-approve-for-server").click()
    sync_api.expect(page.get_by_test_id("app-question")).to_have_count(0)
    inside.get_by_role("combobox").first.select_option(index=1)
    assert _calls(page, 2) == [("get-cohort-data", "ok")] * 2
    assert value(page, "app.calls[-1].arguments['metric']") == "revenue"

    inside = _open(page, "threejs")
    sync_api.expect(inside.locator("canvas")).to_have_css("height", "400px")
    inside.locator("canvas").click()

    inside = _open(page, "wiki-explorer")
    inside.get_by_role("button", name="+").click()

    inside = _open(page, "pdf")
    page.get_by_test_id("app-approve-for-server").click()
    inside.get_by_title("Next page").click()
    execute(
        page,
        "import asyncio\nwhile 'Current Page: 2/2' not in (app.value or ''):\n    await"
        " asyncio.sleep(0.05)",
    )

    execute(page, "import casual_mcp_nb.widgets.app as module; module.HANDSHAKE_SECONDS = 2")
    _open(page, "map", "failed")
    problem = page.get_by_test_id("app-problem")
    sync_api.expect(problem).to_contain_text("It could not load https://cesium.com/")
    sync_api.expect(problem.locator("iframe")).to_have_count(0)
