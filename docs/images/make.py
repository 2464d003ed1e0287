"""Make the pictures of the README and the site: `.venv/bin/python docs/images/make.py [drawings | dashboard | usage]`.

All of them show real sessions. The screenshots, light and dark, need chromium; `drawings` makes
only what does not, `dashboard` only the dashboard, and `usage` only the use of tools.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from kit.lab import Lab, started_lab  # noqa: E402
from kit.pages import LOOKS, execute, look, opened, run_cell, written  # noqa: E402

from casual_mcp_nb import Session, Turn  # noqa: E402

QUESTION = "What time is it in Tokyo when it is 14:30 in Oslo?"
SETUP = "%load_ext casual_mcp_nb\n%mcp demo"
CHOSEN = "session.conversations.new()\nsession.selection.servers['math'] = 'loaded'"
COMPARISON = f"""\
session.experiments.compare(
    ["{QUESTION}", "What is 17 * 23?"],
    discovery=[False, True],
    check=["22:30", "391"],
)"""
CELLS = [f"%%mcp\n{QUESTION}", "session.explore()", "session.panel()", COMPARISON]
SHOP = '''
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import scripted_model
from fastmcp import FastMCP

shop = FastMCP("shop")

@shop.tool(annotations={"readOnlyHint": True})
def orders() -> list[dict]:
    "List all orders."
    return [{"id": number, "amount": number * 10} for number in range(40)]

@shop.tool(annotations={"destructiveHint": True})
def cancel_order(id: int) -> str:
    "Cancel an order for good."
    return f"Order {id} is cancelled."

session = Session({}, in_process={"shop": shop}, approval={"shop": "destructive"})
session.connect(quiet=True)
PROGRAM = """```python
large = [each for each in session.tools.shop.orders() if each["amount"] > 370]
for order in large:
    session.tools.shop.cancel_order(id=order["id"])
len(large)
```"""
REPAIRED = PROGRAM.replace("len(large)", "[order['id'] for order in large]")
model = scripted_model(PROGRAM, REPAIRED)
'''
WRITTEN = [
    "cell = session.models.write('Cancel the orders above 370.', model=model)\ncell",
    "cell.insert()",
    "cell = cell.repair()\ncell",
]
APP = r'''
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from fastmcp import FastMCP
from fastmcp.resources import ResourceContent, ResourceResult

PAGE = """<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><style>
body { font: 14px system-ui, sans-serif; margin: 10px 14px; }
button { display: flex; align-items: center; gap: 10px; width: 100%; padding: 3px 0; font: inherit;
  border: 0; background: none; }
b { flex: none; width: 5em; text-align: left; font-weight: normal; }
i { height: 16px; border-radius: 3px; background: light-dark(#9ec5f4, #1f3d66); }
.on i { background: light-dark(#0969da, #4493f8); } .on b { font-weight: 600; }
</style><div></div><script>
let last = 0;
const send = (method, params, id) => parent.postMessage({jsonrpc: "2.0", id, method, params}, "*");
const show = (tides) => {
  for (const [port, metres] of Object.entries(tides)) {
    const button = document.createElement("button");
    button.innerHTML = `<b>${port}</b><i style="width: ${metres * 110}px"></i>${metres} m`;
    button.onclick = () => {
      document.querySelector(".on")?.classList.remove("on");
      button.classList.add("on");
      send("ui/update-model-context", {structuredContent: {port, metres}}, ++last);
    };
    document.querySelector("div").append(button);
  }
  send("ui/notifications/size-changed", {height: document.querySelector("div").offsetHeight + 20});
};
addEventListener("message", ({data}) => {
  if (data.id === 1) send("ui/notifications/initialized", {});
  if (data.method === "ui/notifications/tool-result") show(data.params.structuredContent);
});
send("ui/initialize", {appInfo: {name: "tides", version: "1"}, appCapabilities: {}}, ++last);
</script>"""

harbours = FastMCP("harbours")
KIND = "text/html;profile=mcp-app"
page = lambda: ResourceResult([ResourceContent(PAGE, mime_type=KIND)])
harbours.resource("ui://harbours/tides", mime_type=KIND)(page)

@harbours.tool(meta={"ui": {"resourceUri": "ui://harbours/tides"}}, annotations={"readOnlyHint": True})
def tides(day: str) -> dict[str, float]:
    "Get the high tides of a day."
    return {"Narvik": 3.1, "Bodø": 2.6, "Bergen": 1.4, "Oslo": 0.6}

session = Session({}, in_process={"harbours": harbours})
session.connect(quiet=True)
model = scripted_model(call("harbours__tides", day="Friday"), "These are the high tides on Friday. Choose a harbour.")
'''
SHOWN = ["session.chat('Show the tides on Friday.', model=model)", "session.tools.apps[-1].value"]
DASHBOARD = """\
from casual_mcp_nb.widgets import (
    ManifestView, ModelSearches, SearchBox, ServerToggles, TokenMeter, ToolsetPicker
)
from ipywidgets import HBox, VBox

half = {"flex": "1 1 0"}
controls = [ToolsetPicker(session), ServerToggles(session), TokenMeter(session)]
searches = [ModelSearches(session), SearchBox(session)]
VBox([
    HBox(
        [VBox(controls, layout=half), VBox(searches, layout=half)],
        layout={"align_items": "flex-start"},
    ),
    ManifestView(session),
])"""
USAGE = "%mcp usage this"
COLORS = 64
WIDTH = 780

STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .number { font-weight: 600 } .quiet { font-size: 12px; fill: #57606a }
.code { font: 13px ui-monospace, monospace } .answer { font-size: 16px } .ok { fill: #1a7f37 } .end { text-anchor: end }
.tools { fill: #0969da } .more { fill: #9ec5f4 } .search { fill: #1a7f37 } .manifest { fill: #bf8700 }
.page { fill: #ffffff; stroke: #d8dee4 } .cell { fill: #f6f8fa } .line { stroke: #d8dee4 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9198a1 } .tools { fill: #4493f8 } .more { fill: #1f3d66 }
.search, .ok { fill: #3fb950 } .manifest { fill: #d29922 }
.page { fill: #0d1117; stroke: #3d444d } .cell { fill: #161b22 } .line { stroke: #3d444d }
}
"""


def main() -> None:
    """Write the drawings and the screenshots beside this file, or only some of them."""
    for name, only in (("dashboard", dashboard), ("usage", usage)):
        if name in sys.argv:
            with tempfile.TemporaryDirectory() as home, lab_page(Path(home)) as (lab, page, _):
                only(page, lab)
            return
    with Session.demo() as session:
        session.connect()
        (HERE / "tokens.svg").write_text(tokens(session), encoding="utf-8")
        turn = session.chat(QUESTION, echo="none")
        (HERE / "turn.svg").write_text(film(turn), encoding="utf-8")
        if "drawings" in sys.argv:
            return
        with tempfile.TemporaryDirectory() as home:
            screenshots(Path(home), session.export(Path(home) / "player.html", player=True))


def svg(title: str, height: int, style: str, rows: list[str]) -> str:
    """Put the rows of a drawing into an SVG with a title, in light and dark colours."""
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}'
        f' role="img">\n<title>{escape(title)}</title>'
    )
    return "\n".join([head, f"<style>{STYLE}{style}</style>", *rows, "</svg>\n"])


def tokens(session: Session) -> str:
    """Draw what the first request of the demo costs with every tool loaded, and as the demo defers
    them.
    """
    status, manifest = session.status, session.tools.manifest
    loaded = status.tokens - manifest.tokens - manifest.finder_tokens
    tools = sum(server.tools for server in session.servers.values())
    all_tools = [("tools", loaded), ("more", status.undeferred_tokens - loaded)]
    bars = [
        (f"Every tool loaded ({tools} tools)", status.undeferred_tokens, all_tools),
        (
            f"{manifest.tools} of them deferred",
            status.tokens,
            [("tools", loaded), ("search", manifest.finder_tokens), ("manifest", manifest.tokens)],
        ),
    ]
    legend = {
        "tools": f"{tools - manifest.tools} loaded tools",
        "more": f"{manifest.tools} more",
        "search": "search_tools",
    }
    legend["manifest"] = "manifest: a short list of what can be found"
    rows = []
    for place, (title, total, parts) in enumerate(bars):
        y, x = 34 + 62 * place, 16.0
        rows.append(f'<text x="16" y="{y}">{title}</text>')
        for kind, count in parts:
            width = 600 * count / status.undeferred_tokens
            rows.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y + 8}" width="{width:.1f}" height="20"/>'
            )
            x += width
        rows.append(f'<text class="number" x="{x + 10:.0f}" y="{y + 23}">≈ {total:,} tokens</text>')
    for place, (kind, title) in enumerate(legend.items()):
        x = 16 + 160 * place
        rows.append(f'<rect class="{kind}" x="{x}" y="150" width="11" height="11"/>')
        rows.append(f'<text class="quiet" x="{x + 17}" y="160">{title}</text>')
    return svg(
        "Tokens of tool definitions in the first request, with the demo's servers", 176, "", rows
    )


def film(turn: Turn) -> str:
    """Draw a turn as a film of 12 seconds: question, search, call, answer; without motion, its
    end.
    """
    search, stats = turn.searches[0], turn.stats
    sizes = [
        step.request.tokens.total for step in turn.steps if step.request and step.request.tokens
    ]
    best = max(hit.score for hit in search.rows)
    hits = []
    for y, hit in enumerate(search.rows):
        width = 200 * hit.score / best
        hits.append(
            f'<text class="code" x="44" y="{168 + 20 * y}">{escape(str(hit.tool))}</text>'
            f'<rect class="tools" x="260" y="{159 + 20 * y}" width="{width:.0f}" height="8"/>'
            f'<text class="quiet" x="{268 + width:.0f}" y="{168 + 20 * y}">{hit.score:.1f}</text>'
        )
    y = 176 + 20 * len(hits)
    scenes = [
        f'<text class="code" x="24" y="62">{escape(turn.prompt)}</text>',
        _step(1, 146, sizes[0], f"Searched tools for “{escape(search.query)}”"),
        "".join(hits),
    ]
    for number, call in enumerate((call for call in turn.tool_calls if not call.search), 2):
        arguments = escape(
            ", ".join(f"{name}={value!r}" for name, value in call.arguments.items()), quote=False
        )
        text = (
            f'<tspan class="code">{call.tool}</tspan><tspan class="quiet"'
            f' dx="10">{arguments}</tspan>'
        )
        scenes.append(_step(number, y, sizes[number - 1], text))
        y += 24
    saved = (
        f", {1 - stats.sent_tokens / stats.undeferred_tokens:.0%} less than with every tool loaded"
    )
    figures = f"{len(turn.steps)} steps · ≈ {stats.sent_tokens:,} tokens in{saved}"
    scenes.append(
        f"{_step(len(turn.steps), y, sizes[-1], 'Answered')}"
        f'<text class="answer" x="24" y="98">{escape(turn.answer.partition(" (from")[0])}</text>'
        f'<text class="quiet" x="24" y="120"><tspan class="ok">✓ done</tspan> · {figures}</text>'
    )
    style = ["@media (prefers-reduced-motion: no-preference) {"]
    for place in range(len(scenes)):
        shown = 4 + 54 * place // (len(scenes) - 1)
        frames = (
            f"0%, {shown}% {{ opacity: 0 }} {shown + 4}%, 96% {{ opacity: 1 }} 100% {{ opacity:"
            " 0 }"
        )
        style.append(
            f".s{place} {{ animation: s{place} 12s infinite }} @keyframes s{place} {{ {frames} }}"
        )
    rows = [
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y + 23}" rx="8"/>',
        (
            '<rect class="cell" x="12" y="12" width="756" height="62" rx="4"/><text class="code"'
            ' x="24" y="38">%%mcp</text>'
        ),
        *(f'<g class="s{place}">{scene}</g>' for place, scene in enumerate(scenes)),
    ]
    title = f"{turn.prompt} The model searches the tools, calls one, and answers: {turn.answer}"
    return svg(title, y + 24, "\n".join([*style, "}\n"]), rows)


def _step(number: int, y: int, tokens: int, text: str) -> str:
    return (
        f'<text class="quiet" x="24" y="{y}">{number}</text><text x="44" y="{y}">{text}</text>'
        f'<text class="quiet end" x="756" y="{y}">≈ {tokens:,} tokens in</text>'
    )


@contextmanager
def lab_page(home: Path) -> Iterator[tuple[Lab, Any, Any]]:
    """Serve JupyterLab from a folder, and open a page in a browser."""
    from playwright.sync_api import sync_playwright

    with started_lab(home) as lab, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        # The page of an app prefers light or dark as the notebook has it.
        page = browser.new_page(
            viewport={"width": 1000, "height": 1500}, device_scale_factor=1.5, color_scheme="null"
        )
        page.set_default_timeout(120_000)
        yield lab, page, browser
        browser.close()


def screenshots(home: Path, player: Path) -> None:
    """Show a turn, a comparison, the explorer, the panel, a dashboard of the small widgets, the
    use of tools, a written cell, an app, and a player, in both themes.
    """
    with lab_page(home) as (lab, page, browser):
        written(lab, "pictures.ipynb", CELLS)
        opened(page, lab, "pictures.ipynb")
        page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
        execute(page, SETUP)
        cells = page.locator(".jp-CodeCell")
        run_cell(page, 0)
        cells.nth(0).get_by_text("✓ done").wait_for()
        cells.nth(0).locator(".cmn-step > summary").first.click()
        execute(page, CHOSEN)
        run_cell(page, 1)
        explorer = page.get_by_test_id("explorer")
        explorer.get_by_test_id("tab-search").click()
        explorer.get_by_test_id("query").fill("how long until a date")
        explorer.get_by_test_id("hits").get_by_text("date_difference").first.wait_for()
        run_cell(page, 2)
        panel = page.get_by_test_id("chat-panel")
        panel.get_by_test_id("message").fill(QUESTION)
        page.keyboard.press("Enter")
        panel.get_by_text("22:30 in Asia/Tokyo").first.wait_for()
        panel.get_by_test_id("undo").and_(page.locator(":enabled")).wait_for()
        panel.locator("summary").first.click()
        page.locator(".cmn-chat").evaluate("element => element.style.height = '52em'")
        shots(
            page,
            {"turn": (cells.nth(0), 1000), "explorer": (explorer, 1200), "panel": (panel, 1000)},
        )
        execute(page, "session.selection.servers['math'] = 'deferred'")
        run_cell(page, 3)
        page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
        cells.nth(3).get_by_role("table").first.wait_for()
        shots(page, {"comparison": (cells.nth(3), 1150)})
        dashboard(page, lab)
        usage(page, lab)
        written_cell(page, lab)
        app(page, lab)
        for scheme, light in (("light", "true"), ("dark", "false")):
            alone = browser.new_page(
                viewport={"width": 900, "height": 620}, device_scale_factor=1.5, color_scheme=scheme
            )
            alone.goto(player.as_uri())
            for _ in range(3):
                alone.keyboard.press("ArrowRight")
            shot(alone, "player", light)


def dashboard(page: Any, lab: Lab) -> None:
    """Show the small widgets as one arranges them, after a turn in another cell."""
    written(lab, "dashboard.ipynb", [DASHBOARD, f"%%mcp\n{QUESTION}"])
    opened(page, lab, "dashboard.ipynb")
    execute(page, SETUP)
    cells = page.locator(".jp-CodeCell")
    run_cell(page, 0)
    cells.nth(0).get_by_test_id("search-box").wait_for()
    cells.nth(0).get_by_test_id("query").fill("how long until a date")
    cells.nth(0).get_by_test_id("hits").get_by_text("date_difference").first.wait_for()
    run_cell(page, 1)
    cells.nth(1).get_by_text("✓ done").wait_for()
    cells.nth(0).get_by_test_id("model-searches").get_by_text("turn 1, step 1").wait_for()
    page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    shots(page, {"dashboard": (cells.nth(0).locator(".jp-OutputArea").first, 1200)})


def usage(page: Any, lab: Lab) -> None:
    """Show how the demo's tools were used in two turns."""
    written(lab, "usage.ipynb", [f"%mcp ask {QUESTION}", "%mcp ask What is 17 * 23?", USAGE])
    opened(page, lab, "usage.ipynb")
    execute(page, SETUP)
    execute(page, "for name in ('files', 'text'):\n    session.selection.servers[name] = 'off'")
    cells = page.locator(".jp-CodeCell")
    for number in range(2):
        run_cell(page, number)
        cells.nth(number).get_by_text("✓ done").wait_for()
    run_cell(page, 2)
    cells.nth(2).get_by_role("table").first.wait_for()
    page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    shots(page, {"usage": (cells.nth(2), 1280)})


def written_cell(page: Any, lab: Lab) -> None:
    """Show a written cell that is inserted, edited by hand so that it fails, and repaired."""
    written(lab, "cell.ipynb", WRITTEN)
    opened(page, lab, "cell.ipynb")
    execute(page, SHOP)
    cells = page.locator(".jp-CodeCell")
    run_cell(page, 0)
    cells.nth(0).locator(".cmn-written").wait_for()
    run_cell(page, 1)
    cells.nth(2).get_by_text("len(large)").wait_for()
    cells.nth(2).locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.type(" / 0")
    run_cell(page, 2)
    cells.nth(2).get_by_text("ZeroDivisionError").first.wait_for()
    run_cell(page, 3)
    cells.nth(3).get_by_text("-len(large) / 0").wait_for()
    shots(page, {"cell": (page.locator(".jp-Notebook .jp-WindowedPanel-viewport"), 1000)})


def app(page: Any, lab: Lab) -> None:
    """Show an app below the card of a turn, with a click in it, and its value in the next cell."""
    written(lab, "app.ipynb", SHOWN)
    opened(page, lab, "app.ipynb")
    execute(page, APP)
    run_cell(page, 0)
    view = page.get_by_test_id("app-view")
    view.frame_locator("iframe").frame_locator("iframe").get_by_text("Bergen").click()
    page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    while page.get_by_text("'metres': 1.4").count() == 0:
        run_cell(page, 1)
        page.wait_for_timeout(500)
    shots(page, {"app": (page.locator(".jp-Notebook .jp-WindowedPanel-viewport"), 1000)})


def shots(page: Any, faces: dict[str, tuple[Any, int]]) -> None:
    """Write a screenshot of each face in JupyterLab, light and dark, with its width of the page."""
    for theme, light in LOOKS:
        look(page, theme, light)
        page.locator("#jupyterlab-splash").wait_for(state="detached")
        for name, (face, width) in faces.items():
            page.set_viewport_size({"width": width, "height": 1500})
            page.mouse.move(0, 0)
            shot(face, name, light)


def shot(face: Any, name: str, light: str) -> None:
    """Write a screenshot with few colours: a third of the size, and no difference that anybody
    sees.
    """
    from PIL import Image

    image = (
        Image.open(io.BytesIO(face.screenshot()))
        .convert("RGB")
        .quantize(COLORS, dither=Image.Dither.NONE)
    )
    image.save(HERE / f"{name}{'' if light == 'true' else '-dark'}.png", optimize=True)


if __name__ == "__main__":
    main()
