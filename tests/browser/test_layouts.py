"""Every widget in every layout of ipywidgets, in a real JupyterLab: in sight, at its place, and of
the size it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab
from kit.pages import clear_cell, execute, opened, pictured, run_cell, value, written

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

BOOK = "layouts.ipynb"
WIDE = {"width": 1500, "height": 1400}
NARROW = {"width": 700, "height": 1400}
TESTS = str(Path(__file__).resolve().parents[1])
SETUP = f"""
import sys
sys.path.insert(0, {TESTS!r})
from IPython.display import display
from ipywidgets import *
from kit.app_pages import app_server
from kit.shops import shop
from casual_mcp_nb import Session
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.widgets import Explorer, ManifestView, ModelSearches, Panel, SearchBox
from casual_mcp_nb.widgets import ServerToggles, TokenMeter, ToolsetPicker
from casual_mcp_nb.widgets.app import AppWidget
from casual_mcp_nb.widgets.base import SessionWidget
from casual_mcp_nb.widgets.runs import RunsExplorer
servers = {{"shop": shop(), "places": app_server("http://127.0.0.1:9", "http://127.0.0.1:9")}}
session = Session({{}}, in_process=servers, store=None, quiet=True)
session.connect()
model = scripted_model(call("shop__stock", kind="tea"), "There is tea.")
session.chat("What is there?", model=model, echo="none")
cases = [ToolUseCase("What is there?", ["shop:stock"], id="stock")]
results = session.experiments.run(cases, models=scripted_model(call("shop__stock", kind="tea"), "Tea."), repeats=1)
app = session.tools.app("places:show", city="Bergen")
kinds = {{
    "Explorer": Explorer,
    "ManifestView": ManifestView,
    "ModelSearches": ModelSearches,
    "Panel": Panel,
    "SearchBox": SearchBox,
    "ServerToggles": ServerToggles,
    "TokenMeter": TokenMeter,
    "ToolsetPicker": ToolsetPicker,
    "RunsExplorer": lambda session: RunsExplorer(session, lambda: results),
    "AppWidget": lambda session: AppWidget(app),
}}
def widget(name):
    one = kinds[name](session)
    one.add_class("one-of-ours")
    return one
boxes = []
def each(arranged):
    "Arrange all widgets by two."
    names = [*kinds, next(iter(kinds))]
    boxes[:] = [arranged(widget(one), widget(two)) for one, two in zip(names[::2], names[1::2])]
    display(*boxes)
def grid(one, two):
    grid = GridspecLayout(2, 3)
    grid[0, :2] = one
    grid[:, 2] = two
    grid[1, :2] = Button(description="A button")
    return grid
"""
LAYOUTS = {
    "HBox": "HBox([one, two])",
    "VBox": "VBox([one, two])",
    "HBox of VBoxes": "HBox([VBox([one, Button(description='A button')]), VBox([two])])",
    "HBox with a button": "HBox([one, Button(description='A button'), two])",
    "GridBox": "GridBox([one, two], layout=Layout(grid_template_columns='1fr 1fr'))",
    "GridBox of its own size": (
        "GridBox([one, two], layout=Layout(grid_template_columns='auto auto'))"
    ),
    "TwoByTwoLayout": "TwoByTwoLayout(top_left=one, bottom_right=two)",
    "AppLayout": "AppLayout(left_sidebar=one, center=two, header=Label('A header'))",
    "AppLayout with a height": "AppLayout(left_sidebar=one, center=two, height='500px')",
    "GridspecLayout": "grid(one, two)",
    "Tab": "Tab([HBox([one, two])], titles=['The two'])",
    "Accordion": "Accordion([VBox([one]), two], titles=['One', 'Two'], selected_index=0)",
    "Stack": "Stack([one, two], selected_index=0)",
    "Box in a Box": "Box([Box([one]), Box([two])])",
}
SHOWN = {"Accordion", "Stack"}
"""The layouts that show one part at a time."""
# Each widget that its layout shows: where it is, how large, and whether it reaches out of its
# place.
PLACES = """() => [...document.querySelectorAll(".one-of-ours")].filter(view => view.checkVisibility()).map(view => {
    const root = view.querySelector(".cmn-widget");
    const { left, right, top, bottom, width, height } = root.getBoundingClientRect();
    return { name: root.dataset.testid, left, right, top, bottom, width, height, place: view.clientWidth };
})"""
IN_SIGHT = """count =>
    [...document.querySelectorAll(".one-of-ours")].filter(view => view.checkVisibility()).length === count
"""
# Whether so many widgets are drawn, and the last of them has its final size.
DRAWN = """async count => {
    const roots = () => [...document.querySelectorAll(".one-of-ours > .cmn-widget")];
    if (roots().length !== count) return false;
    const sizes = () => roots().map(root => root.getBoundingClientRect()).map(box => `${box.width} ${box.height}`).join();
    const before = sizes();
    await new Promise(done => setTimeout(done, 100));
    return before === sizes();
}"""
COLUMNS = """() => [...document.querySelectorAll(".one-of-ours .cmn-explorer > .cmn-body > .cmn-columns")].map(
    columns => [columns.closest(".cmn-widget").clientWidth, getComputedStyle(columns).gridTemplateColumns.split(" ").length]
)"""


@pytest.fixture(scope="module")
def book(lab_browser: Any, lab: Lab) -> Iterator[Any]:
    written(
        lab,
        BOOK,
        [
            SETUP,
            *(f"each(lambda one, two: {layout})" for layout in LAYOUTS.values()),
            "display(*sized)",
        ],
    )
    page = lab_browser.new_page(**WIDE)
    page.set_default_timeout(20_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    opened(page, lab, BOOK)
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    execute(page, SETUP)
    yield page
    assert page.complaints == []
    page.close()


def arranged(page: Any, cell: int, widgets: int) -> None:
    """Run a cell and wait until so many widgets are drawn."""
    page.set_viewport_size(WIDE)
    page.wait_for_function("() => document.querySelector('.one-of-ours') === null")
    run_cell(page, cell)
    page.wait_for_function(DRAWN, arg=widgets)


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    beside = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
    below = one["bottom"] <= other["top"] + 1 or other["bottom"] <= one["top"] + 1
    return not (beside or below)


def test_the_table_has_every_widget(book: Any) -> None:
    kinds = value(book, "sorted(kinds)")
    ours = (
        "sorted(kind.__name__ for kind in SessionWidget.__subclasses__() if"
        " kind.__module__.startswith('casual_mcp_nb.'))"
    )
    assert kinds == value(book, ours)


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_widget_is_in_sight_in_each_layout(book: Any, name: str) -> None:
    cell = list(LAYOUTS).index(name) + 1
    boxes = (value(book, "len(kinds)") + 1) // 2
    one_at_a_time = name in SHOWN
    # A stack draws what it shows, and the rest when it is shown.
    arranged(book, cell, boxes if name == "Stack" else 2 * boxes)
    for size in (WIDE, NARROW):
        book.set_viewport_size(size)
        for part in (0, 1) if one_at_a_time else (None,):
            if part is not None:
                execute(book, f"for box in boxes: box.selected_index = {part}")
            book.wait_for_function(IN_SIGHT, arg=boxes if one_at_a_time else 2 * boxes)
            places = book.evaluate(PLACES)
            assert [place for place in places if place["width"] < 120 or place["height"] < 20] == []
            assert [place for place in places if place["width"] > place["place"] + 1] == []
            assert [(a["name"], b["name"]) for a, b in pairwise(places) if overlap(a, b)] == []
    pictured(book, f"layout-{name}".replace(" ", "-"))
    clear_cell(book, cell)


def test_a_layout_says_how_large_a_widget_is_and_what_does_not_fit_scrolls(book: Any) -> None:
    execute(
        book,
        "sized = [widget(name) for name in kinds]\nfor one in sized: one.layout = {'width':"
        " '600px', 'height': '300px'}",
    )
    kinds = value(book, "len(kinds)")
    arranged(book, len(LAYOUTS) + 1, kinds)
    sizes = """() => [...document.querySelectorAll(".one-of-ours")].map(view => ({
        name: view.firstElementChild.dataset.testid, width: view.offsetWidth, height: view.offsetHeight,
        loose: view.scrollHeight > view.clientHeight + 1 && getComputedStyle(view).overflowY !== "auto",
    }))"""
    told = book.evaluate(sizes)
    assert [
        size for size in told if (size["width"], size["height"]) != (600, 300) or size["loose"]
    ] == []
    # A large widget fits in, as far as it can be used then.
    panel = book.locator(".one-of-ours > [data-testid=chat-panel]")
    assert panel.bounding_box()["height"] == 300
    execute(book, "for one in sized: one.layout.width = '50%'; one.layout.height = None")
    book.wait_for_function(
        "() => [...document.querySelectorAll('.one-of-ours')].every(view => view.style.width ==="
        " '50%')"
    )
    assert {size["height"] == 300 for size in book.evaluate(sizes)} == {False}
    pictured(book, "layout-sizes")
    clear_cell(book, len(LAYOUTS) + 1)


def test_widgets_share_a_row_as_their_layouts_say(book: Any) -> None:
    execute(
        book,
        "sized = [HBox([ToolsetPicker(session, layout={'flex': '3 1 0'}), ServerToggles(session,"
        " {'flex': '1 1 0'})])]",
    )
    execute(book, "for one in sized[0].children: one.add_class('one-of-ours')")
    arranged(book, len(LAYOUTS) + 1, 2)
    book.wait_for_function(IN_SIGHT, arg=2)
    picker, toggles = book.evaluate(PLACES)
    assert picker["width"] == pytest.approx(3 * toggles["width"], rel=0.1)
    clear_cell(book, len(LAYOUTS) + 1)


def test_a_widget_follows_the_width_that_it_has_and_not_that_of_the_page(book: Any) -> None:
    execute(
        book, "sized = [widget('Explorer'), HBox([widget('Explorer'), widget('ServerToggles')])]"
    )
    arranged(book, len(LAYOUTS) + 1, 3)
    # An explorer's columns come with its data, which may be later than its frame.
    book.wait_for_function(f"() => ({COLUMNS})().length === 2")
    (alone, columns), (beside, in_a_row) = book.evaluate(COLUMNS)
    assert alone > beside > 300
    assert (columns, in_a_row) == (2, 1)
    book.set_viewport_size(NARROW)
    book.wait_for_function(DRAWN, arg=3)
    assert {columns for _, columns in book.evaluate(COLUMNS)} == {1}
    clear_cell(book, len(LAYOUTS) + 1)
