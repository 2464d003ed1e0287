"""Speed of the explorer in a real JupyterLab in Chromium: `python benchmarks/widgets.py [--tools
10000] [--rounds 5]`.

It needs JupyterLab, playwright and chromium. Each figure is the best of all rounds, because other
load only adds to it; a freeze is the longest time between two frames of the page. An explorer is
created first, so that nothing is imported during the measurement.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import ROOT
from common.figures import Figure, Unavailable, print_figures
from kit.lab import Lab, started_lab
from kit.pages import execute, opened, written
from playwright.sync_api import sync_playwright

SETUP = """
import sys
sys.path.insert(0, {tests!r})
from kit.shops import shelves
from casual_mcp_nb import Session
session = Session.from_config({{"tool_discovery": {{"enabled": True}}}}, in_process=shelves(20, {tools}), name="of {tools}")
session.connect()
session.explore().close()
"""
OPEN = """async () => {
  const frames = [];
  let running = true;
  const tick = (now) => { frames.push(now); if (running) requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  const old = document.querySelector('[data-testid=explorer]');
  const begin = performance.now();
  window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0;
  window.jupyterapp.commands.execute('notebook:run-cell');
  await new Promise((done) => {
    const look = () => {
      const now = document.querySelector('[data-testid=explorer]');
      if (now && now !== old && now.querySelector('[role=row]')) requestAnimationFrame(() => setTimeout(done));
      else setTimeout(look, 2);
    };
    look();
  });
  const end = performance.now();
  await new Promise((done) => setTimeout(done, 500));
  running = false;
  const gaps = frames.slice(1).map((at, place) => at - frames[place]);
  return { rendered: end - begin, freeze: Math.max(...gaps) };
}"""
TOGGLE = """async (mode) => {
  const total = document.querySelector('[data-testid=now-all]');
  const before = total.textContent;
  const begin = performance.now();
  document.querySelector(`[data-testid=server-shelf-00] [value=${mode}]`).click();
  await new Promise((done) => {
    const look = () => (total.textContent !== before ? requestAnimationFrame(() => setTimeout(done)) : setTimeout(look, 1));
    look();
  });
  return performance.now() - begin;
}"""
FILTER = """async (text) => {
  const filter = document.querySelector('[data-testid=filter]');
  const list = document.querySelector('[data-testid=tools]');
  const begin = performance.now();
  filter.value = text;
  filter.dispatchEvent(new Event('input', { bubbles: true }));
  // Components are drawn in a microtask.
  await new Promise((done) => setTimeout(done));
  list.getBoundingClientRect();
  const took = performance.now() - begin;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return took;
}"""
QUERIES = ("c", "create", "create ev", "ticket 77", "shelf-03", "zzz", "")


class Frames:
    """The kernel's messages to the page, by kind."""

    def __init__(self, page: Any) -> None:
        self.sizes: list[tuple[str, int]] = []
        page.on("websocket", lambda socket: socket.on("framereceived", self._note))

    def _note(self, frame: Any) -> None:
        content = frame if isinstance(frame, bytes) else frame.encode()
        kind = re.search(
            rb'"msg_type": ?"(comm_open|comm_msg|display_data|update_display_data)"', content
        )
        if kind:
            self.sizes.append((kind[1].decode(), len(content)))

    def taken(self) -> list[tuple[str, int]]:
        """Return the messages since the last call."""
        taken, self.sizes = self.sizes, []
        return taken


def measured(browser: Any, lab: Lab, tools: int, rounds: int) -> dict[str, float]:
    """Return the figures for a number of tools."""
    page = browser.new_page(viewport={"width": 1400, "height": 1200})
    page.set_default_timeout(120_000)
    frames = Frames(page)
    name = f"with-{tools}.ipynb"
    written(lab, name, ["session.explore()"])
    opened(page, lab, name)
    execute(page, SETUP.format(tests=str(ROOT / "tests"), tools=tools))
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        frames.taken()
        row = dict(page.evaluate(OPEN))
        page.wait_for_timeout(1_500)
        opening = frames.taken()
        row["models"] = sum(kind.startswith("comm") for kind, _ in opening)
        row["messages"] = len(opening)
        row["megabytes"] = sum(size for _, size in opening) / 1e6
        row["toggle"] = min(page.evaluate(TOGGLE, mode) for mode in ("deferred", "off", "loaded"))
        page.wait_for_timeout(200)
        row["toggle kB"] = max(size for kind, size in frames.taken() if kind == "comm_msg") / 1e3
        row["filter"] = max(page.evaluate(FILTER, query) for query in QUERIES)
        found.append(row)
    page.close()
    return {key: min(row[key] for row in found) for key in found[0]}


def measure(sizes: Sequence[int], rounds: int) -> list[Figure]:
    """Measure the explorer with each number of tools."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise Unavailable("chromium is not installed.")
    rows = []
    with (
        tempfile.TemporaryDirectory() as home,
        started_lab(Path(home)) as lab,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for tools in sizes:
            row = measured(browser, lab, tools, rounds)
            rows += [
                Figure(
                    f"{tools:,} tools, from Run to the list on screen",
                    row["rendered"],
                    "ms",
                    limit=500,
                ),
                Figure("  longest freeze of the page meanwhile", row["freeze"], "ms", limit=100),
                Figure("  messages to open it", row["messages"], ""),
                Figure("  of them to models", row["models"], ""),
                Figure("  size of the messages", row["megabytes"], "MB"),
                Figure(
                    "  from a toggle to the new budget on screen", row["toggle"], "ms", limit=100
                ),
                Figure("  size of its message", row["toggle kB"], "kB", limit=20),
                Figure(
                    f"  a key in the filter, the slowest of {len(QUERIES)}",
                    row["filter"],
                    "ms",
                    limit=16,
                ),
            ]
        browser.close()
    return rows


def figures(quick: bool) -> list[Figure]:
    """Opening the explorer, a toggle, and a key in its filter."""
    return measure((100,), 1) if quick else measure((1_000, 10_000), 5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print_figures(measure((1_000, options.tools), options.rounds))
