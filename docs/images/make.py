"""Make the pictures of the README: `.venv/bin/python docs/images/make.py [tokens]`.

Those of a real JupyterLab need chromium; `tokens` makes only the one that does not.
"""

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

from casual_mcp_nb import Session  # noqa: E402

DEMO = "from casual_mcp_nb import Session\nsession = Session.demo()\nsession.connect();"
CHOSEN = "session.selection.servers['math'] = 'loaded'"
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 176" width="780" height="176" role="img">
<title>Tokens of tool definitions in the first request, with the demo's servers</title>
<style>
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .number { font-weight: 600 } .quiet { font-size: 12px; fill: #57606a }
.tools { fill: #0969da } .more { fill: #9ec5f4 } .search { fill: #1a7f37 } .manifest { fill: #bf8700 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9198a1 } .tools { fill: #4493f8 } .more { fill: #1f3d66 }
.search { fill: #3fb950 } .manifest { fill: #d29922 }
}
</style>
ROWS
</svg>
"""
QUESTION = "What time is it in Tokyo when it is 14:30 in Oslo?"


def main() -> None:
    """Write `tokens.svg`, `explorer.png` and `panel.png` beside this file; with `tokens` only the first."""
    tokens()
    if "tokens" in sys.argv:
        return
    with tempfile.TemporaryDirectory() as home, started_lab(Path(home)) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 1500})
        written(lab, "pictures.ipynb", [DEMO, "session.explore()", "session.panel()"])
        opened(page, lab, "pictures.ipynb")
        execute(page, DEMO)
        explorer(page)
        panel(page)
        browser.close()


def tokens() -> None:
    """Draw what the first request of the demo costs with every tool loaded, and as the demo defers them."""
    with Session.demo() as session:
        session.connect()
        view = session.starter.chat.current_view()
    loaded, everything = len(view.loaded), len(view.loaded) + len(view.deferred)
    rest = view.undeferred_tokens - view.loaded_tokens
    bars = [
        (f"Every tool loaded ({everything} tools)", view.undeferred_tokens, [("tools", view.loaded_tokens), ("more", rest)]),
        (
            f"{len(view.deferred)} of them deferred",
            view.first_call_tokens,
            [("tools", view.loaded_tokens), ("search", view.search_tool_tokens), ("manifest", view.manifest_tokens)],
        ),
    ]
    legend = {"tools": f"{loaded} loaded tools", "more": f"{len(view.deferred)} more", "search": "search_tools"}
    legend["manifest"] = "manifest: a short list of what can be found"
    rows = []
    for place, (title, total, parts) in enumerate(bars):
        y, x = 34 + 62 * place, 16.0
        rows.append(f'<text x="16" y="{y}">{title}</text>')
        for kind, count in parts:
            width = 600 * count / view.undeferred_tokens
            rows.append(f'<rect class="{kind}" x="{x:.1f}" y="{y + 8}" width="{width:.1f}" height="20"/>')
            x += width
        rows.append(f'<text class="number" x="{x + 10:.0f}" y="{y + 23}">≈ {total:,} tokens</text>')
    for place, (kind, title) in enumerate(legend.items()):
        x = 16 + 160 * place
        rows.append(f'<rect class="{kind}" x="{x}" y="150" width="11" height="11"/>')
        rows.append(f'<text class="quiet" x="{x + 17}" y="160">{title}</text>')
    (HERE / "tokens.svg").write_text(SVG.replace("ROWS", "\n".join(rows)), encoding="utf-8")


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
