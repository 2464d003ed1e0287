"""The explorer in a real JupyterLab: every control by mouse and by keyboard, live, in both themes,
and without barriers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab
from kit.pages import (
    LOOKS,
    clear_cell,
    execute,
    focuses,
    look,
    opened,
    pictured,
    run_cell,
    value,
    violations,
    written,
)

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

BOOK = "explorer.ipynb"
MINUS = "\N{MINUS SIGN}"
EXPLORER = "[data-testid=explorer]"
TESTS = str(Path(__file__).resolve().parents[1])
# A server that cannot start before a file is there.
SHY = """
import pathlib, sys
if not pathlib.Path("ready").exists():
    sys.exit("The file <b>ready</b> is missing.")
from fastmcp import FastMCP
shy = FastMCP("shy")
@shy.tool
def greet() -> str:
    "Say hello."
    return "hello"
shy.run(show_banner=False)
"""
# Whether the elements of a selector, more than ten, are in order: falling numbers, or rising names
# of tools.
IN_ORDER = """([selector, order]) => {
    const texts = [...document.querySelectorAll(selector)].map(one => one.innerText);
    const keys = texts.map(text => order === "falling" ? -Number(text) : text.split(":")[1]);
    return keys.length > 10 && keys.every((key, index) => index === 0 || keys[index - 1] <= key);
}"""
# Types a text in the filter, with what is done first, and returns how many rows became elements.
TYPE = """async ([text, first]) => {
    const list = document.querySelector("[data-testid=tools]");
    const filter = document.querySelector("[data-testid=filter]");
    let added = 0;
    const observer = new MutationObserver(changes => changes.forEach(({ addedNodes }) => {
        added += [...addedNodes].filter(node => node.role === "row").length;
    }));
    observer.observe(list, { childList: true, subtree: true });
    if (first) list.querySelector(first).click();
    filter.value = text;
    filter.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise(done => setTimeout(done));
    observer.disconnect();
    return added;
}"""
SETUP = f"""
import sys
sys.path.insert(0, {TESTS!r})
from kit.shops import shop
from casual_mcp_nb import Session
session = Session.from_config("casual_mcp_config.json", in_process={{"shop": shop()}})
session.connect()
start = session.selection.snapshot()
"""


@pytest.fixture(scope="module")
def book(lab_browser: Any, lab: Lab) -> Iterator[Any]:
    """A page with a notebook whose session is connected; its second cell shows an explorer."""
    config = {
        "servers": {
            "math": {"bundled": "math", "transport": "in-process", "defer_loading": True},
            "units": {"bundled": "units", "transport": "in-process"},
            "shy": {"command": sys.executable, "args": ["shy.py"], "cwd": ".", "init_timeout": 60},
        },
        "tool_sets": {
            "numbers": {
                "description": "Numbers",
                "servers": {"math": True, "units": ["convert_units"]},
            }
        },
        "tool_discovery": {"enabled": True},
    }
    (lab.folder / "casual_mcp_config.json").write_text(json.dumps(config, indent=4))
    (lab.folder / "shy.py").write_text(SHY)
    written(
        lab,
        BOOK,
        [SETUP, "explorer = session.explore()\nexplorer", "again = session.explore()\nagain"],
    )
    page = lab_browser.new_page(1500, 1400)
    page.set_default_timeout(20_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    opened(page, lab, BOOK)
    execute(page, SETUP)
    yield page
    page.close()


@pytest.fixture
def page(book: Any) -> Iterator[Any]:
    """The explorer, made anew over the selection that the config asks for."""
    execute(book, "session.selection.assign(start)")
    shown(book, 1, EXPLORER)
    yield book
    assert book.evaluate("() => document.body.dataset.pwned === undefined")
    assert book.complaints == []


def shown(page: Any, cell: int, selector: str) -> None:
    """Run a cell and wait until what it shows is another one than before."""
    page.evaluate(
        "selector => document.querySelectorAll(selector).forEach(one => one.dataset.old = 'yes')",
        selector,
    )
    run_cell(page, cell)
    page.wait_for_selector(f"{selector}:not([data-old]) >> visible=true")


def at(page: Any, name: str, nth: int = 0) -> Any:
    return page.get_by_test_id(name).nth(nth)


def tool(page: Any, name: str) -> Any:
    """The row of a tool: only those in sight are elements, so the list is filtered."""
    at(page, "filter").fill(name.partition("__")[2])
    row = page.get_by_test_id(f"tool-{name}")
    row.wait_for()
    return row


def expect(page: Any, locator: Any, **attributes: str) -> None:
    for name, text in attributes.items():
        sync_api.expect(locator).to_have_attribute(name.replace("_", "-"), text)


def selection(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(value(page, "session.selection.model_dump_json()"))
    return found


def reads(page: Any, name: str, text: str) -> None:
    sync_api.expect(at(page, name)).to_contain_text(text)


# --- servers


def test_a_server_is_loaded_deferred_or_off_by_mouse(page: Any) -> None:
    math = page.get_by_test_id("server-math")
    for mode in ("loaded", "off", "deferred"):
        math.locator(f"label:has([value={mode}])").click()
        expect(page, math, data_mode=mode)
        assert selection(page)["servers"]["math"] == mode


def test_a_server_is_loaded_deferred_or_off_by_keyboard(page: Any) -> None:
    units = page.get_by_test_id("server-units")
    units.get_by_test_id("mode-loaded").focus()
    page.keyboard.press("ArrowRight")
    expect(page, units, data_mode="deferred")
    page.keyboard.press("ArrowRight")
    expect(page, units, data_mode="off")
    assert selection(page)["servers"]["units"] == "off"


def test_a_failed_server_says_why_and_is_connected_anew(page: Any, lab: Lab) -> None:
    sync_api.expect(at(page, "server-shy")).to_have_attribute("data-status", "failed")
    reads(page, "failed", "1 server failed")
    reads(page, "reason", "The file <b>ready</b> is missing.")
    at(page, "reconnect").click()
    sync_api.expect(at(page, "alert")).to_contain_text(
        "Server 'shy' could not be connected: The file <b>ready</b> is missing."
    )
    (lab.folder / "ready").touch()
    at(page, "reconnect").focus()
    page.keyboard.press("Enter")
    expect(page, at(page, "server-shy"), data_status="ready")
    tool(page, "shy__greet")
    at(page, "filter").fill("")
    sync_api.expect(page.get_by_test_id("reconnect")).to_have_count(0)
    (lab.folder / "ready").unlink()
    execute(page, "try:\n    session.servers.reconnect('shy')\nexcept Exception:\n    pass")
    expect(page, at(page, "server-shy"), data_status="failed")


# --- tools


def test_a_tool_goes_out_and_in_by_mouse_and_the_budget_follows(page: Any) -> None:
    before = at(page, "now-all").inner_text()
    row = tool(page, "units__list_units")
    price = int(row.locator(".cmn-price").inner_text())
    row.get_by_test_id("in").uncheck()
    expect(page, row, data_status="excluded")
    sync_api.expect(at(page, "now-all")).to_have_text(f"{int(before.replace(',', '')) - price:,}")
    sync_api.expect(at(page, "before-all")).to_have_text(before)
    reads(page, "headline", f"{MINUS}{price}")
    assert selection(page)["tools_off"] == ["units__list_units"]
    row.get_by_test_id("in").check()
    expect(page, row, data_status="loaded")
    assert selection(page)["tools_off"] == []


def test_tools_and_servers_are_changed_and_folded_by_keyboard(page: Any) -> None:
    at(page, "filter").focus()
    page.keyboard.press("ArrowDown")
    focuses(page, "server-math")
    page.keyboard.press("Space")
    expect(page, page.get_by_test_id("server-math"), data_mode="off")
    # Faster than the answers come.
    for _ in range(8):
        page.keyboard.press("Space")
    expect(page, page.get_by_test_id("server-math"), data_mode="deferred")
    page.keyboard.press("ArrowDown")
    focuses(page, "tool-math__evaluate_expression")
    # A tool of a server that is off cannot be excluded, so the answers to all keys before must have
    # come, not only to the first one after which the server is deferred.
    execute(page, "import asyncio; session.parts.engine.run(asyncio.sleep(0))")
    expect(page, page.get_by_test_id("tool-math__evaluate_expression"), data_status="deferred")
    page.keyboard.press("Space")
    expect(page, page.get_by_test_id("tool-math__evaluate_expression"), data_status="excluded")
    page.keyboard.press("ArrowLeft")
    focuses(page, "server-math")
    page.keyboard.press("ArrowLeft")
    expect(page, page.get_by_test_id("server-math"), aria_expanded="false")
    page.keyboard.press("ArrowDown")
    focuses(page, "server-units")
    page.keyboard.press("End")
    focuses(page, "tool-shop__evil")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page, page.get_by_test_id("server-math"), aria_expanded="true")
    assert selection(page)["tools_off"] == ["math__evaluate_expression"]


def test_a_letter_in_the_list_does_nothing_to_the_notebook(page: Any) -> None:
    cells = page.locator(".jp-Notebook .jp-CodeCell").count()
    at(page, "filter").focus()
    page.keyboard.press("ArrowDown")
    for key in ("x", "d", "d", "a", "b", "m"):
        page.keyboard.press(key)
    focuses(page, "server-math")
    sync_api.expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(cells)


def test_the_list_is_filtered_and_sorted(page: Any) -> None:
    at(page, "filter").fill("convert_un")
    sync_api.expect(page.get_by_test_id("count")).to_have_text("1 of 19 tools")
    page.keyboard.press("Escape")
    sync_api.expect(page.get_by_test_id("count")).to_have_text("19 tools")
    at(page, "sort").select_option("tokens")
    page.wait_for_function(IN_ORDER, arg=[".cmn-tool .cmn-price", "falling"])
    at(page, "sort").select_option("name")
    page.wait_for_function(IN_ORDER, arg=[".cmn-tool [data-testid=open]", "rising"])
    at(page, "sort").select_option("server")
    at(page, "fold-all").click()
    sync_api.expect(page.locator(".cmn-tool")).to_have_count(0)
    page.get_by_test_id("server-math").get_by_test_id("name").click()
    page.get_by_test_id("tool-math__add").wait_for()


@pytest.mark.defect("G12")
def test_tools_that_the_filter_finds_are_drawn_in_elements_that_were_there(page: Any) -> None:
    page.evaluate(TYPE, ["math", ""])
    rows = page.locator("[data-testid=tools] [role=row]").count()
    sync_api.expect(page.get_by_test_id("server-math").locator("[value=deferred]")).to_be_checked()
    for text in ("shop", "sto", "stoc", "stock"):
        assert page.evaluate(TYPE, [text, ""]) == 0, text
        sync_api.expect(
            page.get_by_test_id("server-shop").locator("[value=loaded]")
        ).to_be_checked()
    assert page.evaluate(TYPE, ["zzz", ""]) == 0
    # What was left is not kept for later.
    assert page.locator("[data-testid=tools] [role=row]").count() == 0
    # A frame has time for so many new elements; the others follow in the next one.
    assert 0 < page.evaluate(TYPE, ["math", ""]) <= 12
    sync_api.expect(page.locator("[data-testid=tools] [role=row]")).to_have_count(rows)
    assert rows > 4


@pytest.mark.defect("G12")
def test_a_row_that_is_drawn_for_another_tool_keeps_neither_its_choice_nor_the_focus(
    page: Any,
) -> None:
    page.evaluate(TYPE, ["math", ""])
    first = page.locator("[data-testid=tools] .cmn-tool").first.get_attribute("data-testid")
    # Before the answer to the click comes.
    page.evaluate(TYPE, ["shop", "[data-testid=in]"])
    assert (
        page.evaluate(
            "() => [...document.querySelectorAll('.cmn-tool input')].map(one => one.checked)"
        )
        == [True] * 3
    )
    sync_api.expect(at(page, "alert")).to_be_hidden()
    expect(page, tool(page, str(first).removeprefix("tool-")), data_included="false")
    tool(page, "shop__stock").focus()
    page.evaluate(TYPE, ["math", ""])
    focuses(page, "server-math")


def test_a_slash_leads_to_the_filter(page: Any) -> None:
    at(page, "fold-all").focus()
    page.keyboard.press("/")
    focuses(page, "filter")
    page.keyboard.type("a/b")
    sync_api.expect(at(page, "filter")).to_have_value("a/b")


@pytest.mark.defect("C10")
@pytest.mark.parametrize("place", ["headline", "saving", "count"])
def test_keys_after_a_click_on_a_text_stay_in_the_widget(page: Any, place: str) -> None:
    kinds = (
        "() => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.type)"
    )
    before = page.evaluate(kinds)
    at(page, place).click()
    focuses(page, "explorer")
    for key in ("b", "r", "d", "d"):
        page.keyboard.press(key)
    page.keyboard.press("/")
    page.keyboard.type("a b")
    sync_api.expect(at(page, "filter")).to_have_value("a b")
    at(page, "filter").fill("")
    at(page, place).click()
    page.keyboard.press("ArrowDown")
    focuses(page, "server-math")
    assert page.evaluate(kinds) == before


# --- a tool's card


def test_enter_leads_to_the_card_and_escape_back(page: Any) -> None:
    tool(page, "shop__stock").focus()
    page.keyboard.press("Enter")
    expect(page, at(page, "card"), data_tool="shop__stock")
    page.wait_for_function("() => document.activeElement.tagName === 'H3'")
    reads(page, "card", "List what is in the shop.")
    sync_api.expect(at(page, "parameters").locator("tbody tr")).to_have_count(3)
    page.keyboard.press("Tab")
    focuses(page, "field-kind")
    page.keyboard.press("Escape")
    focuses(page, "tool-shop__stock")


def test_arrows_walk_from_tool_to_tool_and_the_card_follows(page: Any) -> None:
    page.get_by_test_id("tool-math__evaluate_expression").click()
    expect(page, at(page, "card"), data_tool="math__evaluate_expression")
    page.keyboard.press("ArrowDown")
    expect(page, at(page, "card"), data_tool="math__add")
    expect(page, page.get_by_test_id("tool-math__add"), aria_selected="true")
    focuses(page, "tool-math__add")
    page.keyboard.press("End")
    expect(page, at(page, "card"), data_tool="shop__evil")
    page.keyboard.press("Home")
    expect(page, at(page, "server-card"), data_server="math")
    focuses(page, "server-math")


def test_nothing_moves_when_something_is_chosen(page: Any) -> None:
    parts = ("headline", "filter", "tools", "tab-tool", "count", "server-math")
    places = {name: at(page, name).bounding_box() for name in parts}
    page.get_by_test_id("tool-math__add").get_by_test_id("open").click()
    at(page, "parameters").wait_for()
    assert {name: at(page, name).bounding_box() for name in parts} == places
    at(page, "schema-toggle").click()
    for tab in ("search", "budget", "manifest"):
        at(page, f"tab-{tab}").click()
        assert {name: at(page, name).bounding_box() for name in parts} == places
    page.get_by_test_id("server-math").locator("label:has([value=off])").click()
    expect(page, page.get_by_test_id("server-math"), data_mode="off")
    del places["headline"]
    assert {name: at(page, name).bounding_box() for name in places} == places
    at(page, "new-tool-set").click()
    at(page, "editor").wait_for()
    # The bar of a toolset is below the controls and above the list.
    above = {
        name: box
        for name, box in places.items()
        if box["y"] < at(page, "editor").bounding_box()["y"]
    }
    assert "filter" in above
    assert {name: at(page, name).bounding_box() for name in above} == above
    at(page, "cancel-edit").click()
    assert {name: at(page, name).bounding_box() for name in places} == places


def test_tabs_and_cards_keep_what_was_typed(page: Any) -> None:
    tool(page, "shop__stock").click()
    at(page, "field-most").fill("7")
    at(page, "tab-search").click()
    at(page, "query").fill("add two numbers")
    page.get_by_test_id("hit-math__add").wait_for()
    tool(page, "math__add").click()
    expect(page, at(page, "card"), data_tool="math__add")
    tool(page, "shop__stock").click()
    sync_api.expect(at(page, "field-most")).to_have_value("7")
    at(page, "tab-search").click()
    sync_api.expect(at(page, "query")).to_have_value("add two numbers")
    sync_api.expect(page.get_by_test_id("hit-math__add")).to_be_visible()


def test_a_tool_is_tried_from_its_card(page: Any) -> None:
    tool(page, "shop__stock").get_by_test_id("open").click()
    at(page, "call").click()
    reads(page, "alert", "kind is required")
    focuses(page, "field-kind")
    at(page, "field-kind").select_option('"tea"')
    at(page, "field-most").fill("seven")
    at(page, "call").click()
    reads(page, "alert", "'most' is not a whole number")
    at(page, "field-most").fill("7")
    at(page, "field-filters").fill('{"price": 3}')
    at(page, "field-most").press("Enter")
    expect(page, at(page, "result"), data_status="ok")
    reads(page, "result", "shop:stock")
    sync_api.expect(at(page, "alert")).to_be_hidden()


def test_a_required_text_is_empty_only_if_it_was_emptied(page: Any) -> None:
    tool(page, "math__evaluate_expression").click()
    at(page, "call").click()
    reads(page, "alert", "expression is required")
    focuses(page, "field-expression")
    sync_api.expect(at(page, "calls").get_by_test_id("earlier-call")).to_have_count(0)
    at(page, "field-expression").fill("1")
    at(page, "field-expression").fill("")
    at(page, "call").click()
    expect(page, at(page, "result"), data_status="error")
    sync_api.expect(at(page, "alert")).to_be_hidden()


def test_hostile_texts_of_a_tool_stay_texts(page: Any) -> None:
    row = tool(page, "shop__evil")
    sync_api.expect(row).to_contain_text("<img src=x")
    row.get_by_test_id("open").click()
    reads(page, "description", "<img src=x onerror")
    at(page, "call").click()
    expect(page, at(page, "result"), data_status="ok")
    reads(page, "result", "<img src=x")
    sync_api.expect(page.locator(f"{EXPLORER} :is(script, iframe, img, [onerror])")).to_have_count(
        0
    )


def test_calls_are_kept_with_their_messages_and_as_python(page: Any) -> None:
    tool(page, "math__add").click()
    at(page, "field-a").fill("2")
    for number in ("3", "40"):
        at(page, "field-b").fill(number)
        at(page, "field-b").press("Enter")
        sync_api.expect(at(page, "calls").get_by_test_id("earlier-call").first).to_contain_text(
            number
        )
    newest, older = (
        at(page, "calls").get_by_test_id("earlier-call").nth(place) for place in (0, 1)
    )
    expect(page, newest, aria_pressed="true")
    older.click()
    expect(page, older, aria_pressed="true")
    reads(page, "result", "5")
    at(page, "messages-toggle").click()
    reads(page, "messages", "tools/call")
    at(page, "messages").locator("summary").first.click()
    reads(page, "messages", '"jsonrpc": "2.0"')
    at(page, "copy-python").click()
    expect(page, at(page, "copy-python"), data_copied="true")


# --- servers are added, looked into and removed


@pytest.mark.slow
def test_a_server_is_added_and_removed(page: Any) -> None:
    at(page, "add-server").click()
    focuses(page, "server-text")
    page.keyboard.press("Escape")
    focuses(page, "add-server")
    page.keyboard.press("Enter")
    focuses(page, "server-text")
    page.keyboard.type("time")
    at(page, "server-name").fill("units")
    page.keyboard.press("Enter")
    reads(page, "add-problem", "units")
    at(page, "server-name").fill("clock")
    page.keyboard.press("Enter")
    expect(page, at(page, "server-card"), data_server="clock", data_status="ready")
    sync_api.expect(page.get_by_test_id("add-server-form")).to_have_count(0)
    assert "clock" in value(page, "sorted(session.servers.modes)")
    at(page, "remove").click()
    focuses(page, "remove-cancel")
    at(page, "remove-confirm").click()
    sync_api.expect(page.get_by_test_id("server-clock")).to_have_count(0)
    assert "clock" not in value(page, "sorted(session.servers.modes)")


@pytest.mark.slow
def test_a_bundled_server_is_added_with_one_click(page: Any) -> None:
    at(page, "add-server").click()
    at(page, "bundled-text").click()
    expect(page, at(page, "server-card"), data_server="text", data_status="ready")
    execute(page, "session.servers.remove('text')")
    sync_api.expect(page.get_by_test_id("server-text")).to_have_count(0)


def test_the_wire_of_a_server_is_read_by_group_and_filtered(page: Any) -> None:
    execute(page, "session.tools.call('math:add', a=19, b=23)")
    at(page, "server-math").click()
    at(page, "wire-toggle").click()
    newest = at(page, "wire-group").first
    sync_api.expect(newest).to_contain_text("tools/call")
    newest.locator("summary").first.click()
    newest.get_by_test_id("wire-message").nth(1).locator("summary").click()
    sync_api.expect(newest).to_contain_text('"jsonrpc": "2.0"')
    at(page, "wire-method").select_option("prompts/*")
    sync_api.expect(at(page, "wire-group")).to_have_count(0)
    at(page, "wire-method").select_option("")
    at(page, "wire-text").fill("tools/list")
    at(page, "wire-text").press("Enter")
    sync_api.expect(at(page, "wire-group")).to_have_count(1)


def test_the_log_of_a_failed_server_is_one_click_away(page: Any) -> None:
    at(page, "failure-shy").get_by_test_id("show-log").click()
    expect(page, at(page, "server-card"), data_server="shy", data_status="failed")
    reads(page, "log", "The file <b>ready</b> is missing.")
    page.keyboard.press("Escape")
    focuses(page, "server-shy")


# --- discovery, manifest, budget


def test_discovery_is_chosen_by_mouse_and_by_keyboard(page: Any) -> None:
    reads(page, "manifest-text", "- math (13 tools)")
    assert at(page, "manifest-text").inner_text() == value(page, "str(session.tools.manifest)")
    at(page, "more-options").locator("summary").click()
    at(page, "defer-all").check()
    reads(page, "manifest-text", "- units (3 tools)")
    at(page, "delivery").select_option("bridge")
    page.keyboard.press("Escape")
    sync_api.expect(at(page, "defer-all")).to_be_hidden()
    at(page, "max_search_results").fill("3")
    page.keyboard.press("Enter")
    at(page, "strategy").focus()
    page.keyboard.press("b")
    reads(page, "manifest-text", "math (13), ")
    sync_api.expect(at(page, "manifest-text")).to_have_text(
        value(page, "str(session.tools.manifest)")
    )
    at(page, "max_active_tools").wait_for()
    chosen = selection(page)
    assert (chosen["strategy"], chosen["max_search_results"], chosen["defer_all"]) == (
        "browse",
        3,
        True,
    )
    assert chosen["delivery"] == "bridge"
    at(page, "discovery").focus()
    page.keyboard.press("ArrowDown")
    sync_api.expect(at(page, "max_active_tools")).to_be_enabled()
    page.keyboard.press("ArrowDown")
    reads(page, "manifest-text", "Nothing is deferred")
    sync_api.expect(at(page, "max_active_tools")).to_be_disabled()
    reads(page, "verdict", "Nothing is deferred.")


def test_unused_tools_are_turned_off_by_keyboard_once_the_difference_was_shown(page: Any) -> None:
    execute(
        page,
        "from casual_mcp_nb import scripted_model\n"
        "session.chat('Hello', model=scripted_model('Hi'), echo='none')",
    )
    at(page, "tab-budget").click()
    reads(page, "unused", "Loaded now, and never used in 1 turn: ")
    at(page, "unused-off").focus()
    page.keyboard.press("Enter")
    expect(page, at(page, "unused-off"), aria_expanded="true")
    reads(page, "unused-difference", "A turn")
    assert selection(page)["tools_off"] == []
    before = at(page, "now-all").inner_text()
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.dataset.testid") != "leave-unused":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    reads(page, "unused", " turned off.")
    sync_api.expect(at(page, "before-all")).to_have_text(before)
    assert selection(page)["tools_off"]
    assert page.evaluate("document.activeElement.getAttribute('role')") == "status"


def test_spend_limits_stand_in_the_budget_with_what_is_used_of_them(page: Any) -> None:
    at(page, "tab-tool").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    sync_api.expect(at(page, "spend")).to_have_text("")
    execute(
        page,
        "session.limits.set('day', max_total_tokens=5_000_000, max_cost=1)\n"
        "session.limits.set('conversation', max_total_tokens=80_000)",
    )
    items = at(page, "limits").locator("li")
    sync_api.expect(items).to_have_count(3)
    assert [text.split(" of ")[1] for text in items.all_inner_texts()] == [
        "80,000 tokens in this conversation",
        "$1.00 today",
        "5,000,000 tokens today",
    ]
    expect(page, at(page, "spend"), role="status")
    for width in (480, 1400):
        page.evaluate(
            "([selector, width]) => document.querySelector(selector).style.width = `${width}px`",
            [EXPLORER, width],
        )
        panel, limits = at(page, "panel-budget").bounding_box(), at(page, "limits").bounding_box()
        assert limits["x"] + limits["width"] <= panel["x"] + panel["width"]
        pictured(page, f"explorer-limits-{width}")
    execute(page, "session.limits.clear()")
    sync_api.expect(at(page, "spend")).to_have_text("")


def test_a_limit_that_cannot_be_is_refused_and_taken_back(page: Any) -> None:
    at(page, "max_search_results").fill("0")
    page.keyboard.press("Tab")
    reads(page, "alert", "max_search_results")
    sync_api.expect(at(page, "max_search_results")).to_have_value("5")


# --- toolsets


def test_a_toolset_is_picked(page: Any) -> None:
    at(page, "tool-set").select_option("n:numbers")
    expect(page, tool(page, "units__list_units"), data_status="not in toolset")
    at(page, "tool-set").focus()
    page.keyboard.press("Home")
    expect(page, tool(page, "units__list_units"), data_status="loaded")
    assert selection(page)["tool_set"] is None


@pytest.mark.slow
def test_ticks_become_a_toolset_that_is_saved_and_replaced_only_when_wanted(
    page: Any, lab: Lab
) -> None:
    file = lab.folder / "casual_mcp_config.json"
    before = file.read_text()
    tool(page, "math__add").get_by_test_id("in").uncheck()
    at(page, "new-tool-set").click()
    focuses(page, "tool-set-name")
    sync_api.expect(tool(page, "math__add").get_by_test_id("in")).not_to_be_checked()
    at(page, "filter").fill("")
    at(page, "tick-none").click()
    reads(page, "edit-sum", "0 of 19 tools ticked")
    at(page, "server-math").get_by_test_id("in-all").check()
    tool(page, "math__add").get_by_test_id("in").uncheck()
    expect(page, tool(page, "math__add"), data_included="false")
    # A row's one control is pressed with the space bar.
    tool(page, "units__convert_units").click()
    page.keyboard.press(" ")
    expect(page, tool(page, "units__convert_units"), data_included="true")
    at(page, "filter").fill("")
    assert at(page, "server-math").get_by_test_id("in-all").evaluate("box => box.indeterminate")
    price = value(
        page,
        "sum(t.tokens for t in session.tools if t.server == 'math' or t.name == 'convert_units')",
    )
    price -= value(page, "session.tools['math:add'].tokens")
    reads(page, "edit-sum", f"≈ {price:,} tokens")
    at(page, "save-tool-set").click()
    reads(page, "alert", "name")
    assert file.read_text() == before
    at(page, "tool-set-name").fill("few")
    page.keyboard.press("Enter")
    sync_api.expect(page.get_by_test_id("tool-set")).to_have_value("n:few")
    focuses(page, "new-tool-set")
    saved = json.loads(file.read_text())["tool_sets"]["few"]["servers"]
    assert saved == {"math": {"exclude": ["add"]}, "units": ["convert_units"]}
    # Another toolset of the name is asked about; the one that is edited is not.
    at(page, "new-tool-set").click()
    at(page, "server-math").get_by_test_id("in-all").check()
    at(page, "tool-set-name").fill("few")
    at(page, "save-tool-set").click()
    reads(page, "question", "There is a toolset “few”")
    focuses(page, "keep")
    page.keyboard.press("Enter")
    focuses(page, "save-tool-set")
    assert json.loads(file.read_text())["tool_sets"]["few"]["servers"] == saved
    at(page, "save-tool-set").click()
    at(page, "replace").click()
    sync_api.expect(page.get_by_test_id("editor")).to_have_count(0)
    assert json.loads(file.read_text())["tool_sets"]["few"]["servers"]["math"] is True
    at(page, "edit-tool-set").click()
    sync_api.expect(at(page, "tool-set-name")).to_have_value("few")
    tool(page, "math__add").get_by_test_id("in").uncheck()
    at(page, "save-tool-set").click()
    sync_api.expect(page.get_by_test_id("editor")).to_have_count(0)
    assert json.loads(file.read_text())["tool_sets"]["few"]["servers"] == saved


@pytest.mark.slow
def test_a_toolset_of_its_own_is_used_without_saving_and_an_edit_is_left(
    page: Any, axe: Path
) -> None:
    at(page, "new-tool-set").click()
    at(page, "server-math").get_by_test_id("in-all").uncheck()
    at(page, "tool-set-name").press("Escape")
    focuses(page, "new-tool-set")
    assert selection(page)["tool_set"] is None
    at(page, "new-tool-set").click()
    at(page, "server-math").get_by_test_id("in-all").uncheck()
    pictured(page, "toolset-editor")
    at(page, "use-tool-set").click()
    sync_api.expect(page.get_by_test_id("tool-set")).to_have_value("own")
    expect(page, tool(page, "math__add"), data_status="not in toolset")
    tool(page, "math__add").get_by_test_id("in").check()
    expect(page, tool(page, "math__add"), data_status="deferred")
    assert selection(page)["tool_set"]["servers"]["math"] == ["add"]
    at(page, "edit-tool-set").click()
    assert violations(page, axe, EXPLORER) == []


# --- search


def test_the_search_ranks_at_each_key_and_marks_the_cut(page: Any) -> None:
    execute(page, "session.selection.max_search_results = 2")
    at(page, "tab-search").click()
    at(page, "query").press_sequentially("add two num")
    page.get_by_test_id("hit-math__add").wait_for()
    reads(page, "found", "of 13 tools, ranked by words. The model gets the top 2.")
    rows = page.get_by_test_id("hits").locator("> li")
    sync_api.expect(rows.nth(0)).to_have_attribute("data-testid", "hit-math__add")
    sync_api.expect(rows.nth(2)).to_have_attribute("data-testid", "cut")
    sync_api.expect(at(page, "terms")).to_contain_text("add")
    execute(page, "session.selection.max_search_results = 3")
    reads(page, "found", "of 13 tools, ranked by words. The model gets the top 3.")
    at(page, "scope").select_option("all")
    reads(page, "found", "of 19 tools, ranked by words. The model gets the top 3.")
    at(page, "query").fill("zzzz")
    reads(page, "found", "No match among 19 tools.")
    at(page, "query").fill("")
    sync_api.expect(page.get_by_test_id("found")).to_have_text("")


def test_the_search_looks_where_the_model_looks_until_another_place_is_chosen(page: Any) -> None:
    at(page, "tab-search").click()
    at(page, "discovery").select_option("off")
    sync_api.expect(at(page, "scope")).to_have_value("all")
    at(page, "discovery").select_option("on")
    sync_api.expect(at(page, "scope")).to_have_value("deferred")
    at(page, "scope").select_option("all")
    at(page, "more-options").locator("summary").click()
    at(page, "defer-all").check()
    reads(page, "manifest-text", "units")
    sync_api.expect(at(page, "scope")).to_have_value("all")


def test_a_score_is_explained_and_why_a_tool_is_not_found(page: Any) -> None:
    at(page, "tab-search").click()
    at(page, "query").fill("add two numbers")
    hit = page.get_by_test_id("hit-math__add")
    hit.get_by_test_id("why-hit").focus()
    page.keyboard.press("Enter")
    sync_api.expect(hit.get_by_test_id("why-text").locator("table").first).to_contain_text("add")
    at(page, "why-not-name").fill("units__list_units")
    page.keyboard.press("Enter")
    reads(page, "why-not", "list_units")
    reads(page, "why-not", "search skips it")
    at(page, "why-not-name").fill("math__ad")
    at(page, "why-not-ask").click()
    reads(page, "alert", "math:add")
    sync_api.expect(page.get_by_test_id("why-not")).to_have_count(0)
    hit.get_by_test_id("hit-name").click()
    expect(page, at(page, "card"), data_tool="math__add")
    at(page, "why").click()
    sync_api.expect(at(page, "why-not-name")).to_have_value("math__add")
    reads(page, "why-not", "add")
    sync_api.expect(at(page, "alert")).to_be_hidden()


def test_a_rank_can_be_asked_for_before_there_is_a_query(page: Any) -> None:
    tool(page, "math__add").click()
    at(page, "why").click()
    page.wait_for_function("() => document.activeElement.dataset.testid === 'query'")
    reads(page, "why-not-hint", "math__add")
    page.keyboard.type("add two numbers")
    reads(page, "why-not", "add")


# --- one session, several hands


DOCS = """
import tempfile
from pathlib import Path
from fastmcp import FastMCP
from kit.skills import Tampering, skill_folder
from fastmcp.skills.provider import SkillsDirectoryProvider
skills = skill_folder(Path(tempfile.mkdtemp()) / "skills", sneaky="<b onclick=document.body.dataset.pwned=1>Sneak</b>")
docs = FastMCP("docs", providers=[SkillsDirectoryProvider(skills), Tampering()])
docs.resource("docs://readme", name="readme", description="<b>Read</b> me first")(lambda: "# Harbours")
docs.resource("docs://tides/{port}", name="tides", description="High tides")(lambda port: f"Tides of {port}: 03:12, 15:40")
@docs.prompt(description="Compare two ports with each other")
def compare(first: str, second: str = "Oslo") -> str:
    return f"Compare {first} with {second}."
session.servers.add("docs", docs)
"""


@pytest.mark.slow
def test_resources_and_prompts_are_read_filled_in_and_added_to_the_next_message(
    page: Any, axe: Path
) -> None:
    execute(page, DOCS)
    at(page, "tab-resources").click()
    reads(page, "resources-found", "4 skills, 2 resources and 1 prompt")
    pictured(page, "resources-list")
    page.get_by_label("Skills", exact=True).locator(
        "[data-testid=offer]", has_text="docs:fill-forms"
    ).click()
    reads(page, "offer-title", "tokens")
    at(page, "offer-read").click()
    reads(page, "offer-contents", "Ask for what is missing")
    reads(page, "offer-contents", "digest checked")
    at(page, "argument-file").fill("forms/fields.md")
    at(page, "offer-read").click()
    reads(page, "offer-contents", "fullName")
    pictured(page, "skill-card")
    assert violations(page, axe, "[data-testid=panel-resources]") == []
    at(page, "offers-back").click()
    page.locator("[data-testid=offer]", has_text="send-money").click()
    at(page, "offer-read").click()
    reads(page, "alert", "is refused")
    pictured(page, "skill-refused")
    at(page, "offers-back").click()
    at(page, "resources-filter").fill("tides")
    sync_api.expect(page.get_by_test_id("offer")).to_have_count(1)
    at(page, "offer").focus()
    page.keyboard.press("Enter")
    focuses(page, "offer-title")
    at(page, "offer-read").click()
    reads(page, "alert", "port is required.")
    at(page, "argument-port").fill("Bergen")
    page.keyboard.press("Enter")
    reads(page, "offer-contents", "Tides of Bergen: 03:12, 15:40")
    at(page, "offer-attach").click()
    reads(page, "offer-state", "1 attachment")
    pictured(page, "resources-card")
    assert violations(page, axe, "[data-testid=panel-resources]") == []
    at(page, "offers-back").click()
    focuses(page, "offer")
    at(page, "resources-filter").fill("")
    page.locator("[data-testid=offer]", has_text="compare").click()
    at(page, "argument-first").fill("Bergen")
    at(page, "offer-read").click()
    reads(page, "offer-contents", "Compare Bergen with Oslo.")
    execute(page, "session.servers.remove('docs'); session.parts.resource_service.take_pending()")
    at(page, "offers-back").click()
    reads(page, "resources-found", "no resources, prompts or skills")


def test_a_change_from_code_shows_at_once_also_while_a_cell_runs(page: Any, lab: Lab) -> None:
    execute(page, "session.selection.servers['units'] = 'off'")
    expect(page, at(page, "server-units"), data_mode="off")
    # To open a pipe waits until somebody opens its other end.
    change, end = lab.folder / "explorer-change", lab.folder / "explorer-end"
    os.mkfifo(change)
    os.mkfifo(end)
    code = """
import threading
def later():
    open("explorer-change").close()
    session.selection.servers['units'] = 'deferred'
threading.Thread(target=later).start()
open("explorer-end").close()
"""
    execute(page, code, wait=False)
    busy = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status"
    page.wait_for_function(f"() => {busy} === 'busy'")
    change.open("w").close()
    expect(page, at(page, "server-units"), data_mode="deferred")
    assert page.evaluate(f"() => {busy}") == "busy"
    end.open("w").close()
    page.wait_for_function(f"() => {busy} === 'idle'")


def test_two_explorers_agree(page: Any) -> None:
    shown(page, 2, f".jp-CodeCell:nth-of-type(3) {EXPLORER}, .jp-Cell:nth-child(3) {EXPLORER}")
    page.wait_for_function("() => document.querySelectorAll('[data-testid=explorer]').length === 2")
    first, second = page.get_by_test_id("explorer").nth(0), page.get_by_test_id("explorer").nth(1)
    second.get_by_test_id("server-math").locator("label:has([value=off])").click()
    expect(page, first.get_by_test_id("server-math"), data_mode="off")
    first.get_by_test_id("discovery").select_option("off")
    sync_api.expect(second.get_by_test_id("discovery")).to_have_value("false")
    sync_api.expect(second.get_by_test_id("now-all")).to_have_text(
        first.get_by_test_id("now-all").inner_text()
    )
    execute(page, "again.close()")
    clear_cell(page, 2)


# --- looks, access, saved notebooks


def barriers(page: Any, axe: Path) -> list[str]:
    """What axe-core finds in the explorer; what it unfolded for that is folded again."""
    found = violations(page, axe, EXPLORER)
    page.evaluate("() => { document.querySelector('[data-testid=more-options]').open = false }")
    return found


@pytest.mark.parametrize(("theme", "light"), LOOKS)
@pytest.mark.slow
def test_there_are_no_barriers_in_either_theme(
    page: Any, axe: Path, theme: str, light: str
) -> None:
    look(page, theme, light)
    execute(
        page,
        "session.selection.tools_off.add('math__add'); session.selection.servers['shop'] ="
        " 'deferred'; session.limits.set('day', max_total_tokens=5_000_000)",
    )
    at(page, "max_search_results").fill("0")
    page.keyboard.press("Tab")
    at(page, "alert").wait_for()
    at(page, "tab-search").click()
    at(page, "query").fill("add two numbers")
    at(page, "why-hit").click()
    at(page, "why-text").wait_for()
    for part in ("search", "budget", "manifest"):
        at(page, f"tab-{part}").click()
        pictured(page, f"explorer-{part}-{light}")
        assert barriers(page, axe) == []
    tool(page, "shop__stock").get_by_test_id("open").click()
    at(page, "field-kind").select_option('"tea"')
    at(page, "call").click()
    at(page, "result").wait_for()
    at(page, "schema-toggle").click()
    at(page, "filter").fill("")
    pictured(page, f"explorer-{light}")
    assert barriers(page, axe) == []
    page.get_by_test_id("server-shy").click()
    at(page, "server-card").wait_for()
    assert barriers(page, axe) == []
    for form in ("new-tool-set", "add-server"):
        at(page, form).click()
        pictured(page, f"explorer-{form}-{light}")
        assert barriers(page, axe) == []
    execute(page, "session.limits.clear()")


@pytest.mark.parametrize("width", [600, 900, 1200, 1440])
@pytest.mark.slow
def test_it_fits_its_width_in_large_text_too(page: Any, width: int) -> None:
    page.evaluate(
        "([selector, width]) => document.querySelector(selector).style.width = `${width}px`",
        [EXPLORER, width],
    )
    at(page, "tab-search").click()
    at(page, "query").fill("add two numbers")
    page.get_by_test_id("hit-math__add").wait_for()
    for _ in range(2):
        box = page.evaluate(
            "selector => [document.querySelector(selector).scrollWidth,"
            " document.querySelector(selector).clientWidth]",
            EXPLORER,
        )
        assert box[0] <= box[1]
        pictured(page, f"explorer-{width}")
        at(page, "large-text").click()
    sync_api.expect(at(page, "large-text")).to_have_attribute("aria-pressed", "false")


def test_freezing_leaves_a_picture_for_good(page: Any) -> None:
    execute(page, "session.selection.servers['math'] = 'off'")
    execute(page, "explorer.freeze()")
    page.wait_for_selector(".jp-OutputArea .cmn-exploration >> visible=true")
    sync_api.expect(page.locator(EXPLORER)).to_have_count(0)
    sync_api.expect(page.locator(".cmn-exploration").first).to_contain_text("off")
    assert value(page, "explorer.freeze()") is None


@pytest.mark.slow
def test_a_notebook_that_is_opened_again_shows_the_last_state(
    lab_browser: Any, page: Any, lab: Lab
) -> None:
    sync_api.expect(page.locator(".cmn-exploration")).to_have_count(1)
    sync_api.expect(page.locator(".cmn-exploration")).not_to_be_visible()
    execute(page, "session.selection.servers['units'] = 'deferred'")
    page.wait_for_function(
        "() => document.querySelector('.cmn-exploration').textContent.includes(', 3 searchable') ||"
        " /16 searchable/.test(document.querySelector('.cmn-exploration').textContent)"
    )
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    saved = (lab.folder / BOOK).read_text()
    assert "16 searchable" in saved
    (lab.folder / "again.ipynb").write_text(saved)
    other = lab_browser.new_page(1200, 1400)
    other.goto(lab.address("again.ipynb"))
    other.wait_for_selector(".cmn-exploration >> visible=true")
    sync_api.expect(other.locator(".cmn-exploration").first).to_contain_text("16 searchable")
    lost = other.get_by_text("model not found").first
    lost.wait_for(state="attached")
    sync_api.expect(lost).not_to_be_visible()
    pictured(other, "explorer-reopened")
    other.close()


@pytest.fixture(scope="module")
def lone(lab_browser: Any, lab: Lab) -> Iterator[Any]:
    """A page with an explorer whose kernel no other test needs."""
    written(
        lab, "lone.ipynb", ["from casual_mcp_nb import Session\nSession.from_config({}).explore()"]
    )
    page = lab_browser.new_page(1200, 1000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    opened(page, lab, "lone.ipynb")
    yield page
    page.close()


@pytest.mark.defect("C11")
@pytest.mark.slow
def test_a_widget_whose_kernel_was_restarted_says_so_before_it_is_clicked(lone: Any) -> None:
    shown(lone, 0, EXPLORER)
    at(lone, "new-tool-set").click()
    sync_api.expect(at(lone, "save-tool-set")).to_be_disabled()
    sync_api.expect(at(lone, "save-tool-set")).to_have_accessible_description(
        at(lone, "cannot-save").inner_text()
    )
    sync_api.expect(at(lone, "gone")).to_be_hidden()
    lone.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    reads(lone, "gone", "%mcp resume")
    assert lone.evaluate(
        "() => document.querySelector('.cmn-explorer').closest('[inert]') !== null"
    )
    shown(lone, 0, EXPLORER)
    sync_api.expect(at(lone, "gone")).to_be_hidden()


@pytest.mark.defect("C11")
@pytest.mark.slow
def test_a_widget_whose_kernel_crashed_says_so_before_it_is_clicked(lone: Any) -> None:
    lone.complaints.clear()
    shown(lone, 0, EXPLORER)
    sync_api.expect(at(lone, "gone")).to_be_hidden()
    os.kill(value(lone, "__import__('os').getpid()"), signal.SIGKILL)
    reads(lone, "gone", "%mcp resume")
    assert lone.evaluate(
        "() => document.querySelector('.cmn-explorer').closest('[inert]') !== null"
    )
    # Lab tells the person of the crash, and runs nothing before that is read.
    lone.get_by_role("dialog").get_by_role("button", name="Ok").click()
    shown(lone, 0, EXPLORER)
    sync_api.expect(at(lone, "gone")).to_be_hidden()
    assert lone.complaints == []


def test_the_small_widgets_compose_and_agree(page: Any, axe: Path) -> None:
    code = (
        "from ipywidgets import VBox\\nfrom casual_mcp_nb.widgets import ManifestView, SearchBox,"
        " ServerToggles, TokenMeter, ToolsetPicker\\neach = (ToolsetPicker, ServerToggles,"
        " ManifestView, SearchBox, TokenMeter)\\nVBox([widget(session) for widget in each])"
    )
    page.evaluate(
        "() =>"
        f" window.jupyterapp.shell.currentWidget.content.widgets[2].model.sharedModel.setSource(`{code}`)"
    )
    shown(page, 2, "[data-testid=server-toggles]")
    box = page.locator(".jp-OutputArea .widget-vbox")
    box.get_by_test_id("tool-set").select_option("n:numbers")
    sync_api.expect(page.get_by_test_id("explorer").get_by_test_id("tool-set")).to_have_value(
        "n:numbers"
    )
    box.get_by_test_id("server-math").locator("label:has([value=loaded])").click()
    sync_api.expect(box.get_by_test_id("manifest-text")).to_contain_text("Nothing is deferred")
    expect(page, page.get_by_test_id("explorer").get_by_test_id("server-math"), data_mode="loaded")
    # Radio buttons of one name exclude each other, whichever widget they are in.
    for widget in (box, page.get_by_test_id("explorer").first):
        sync_api.expect(
            widget.get_by_test_id("server-math").locator("input:checked")
        ).to_have_value("loaded")
    box.get_by_test_id("query").fill("add")
    box.get_by_test_id("hit-math__add").wait_for()
    pictured(page, "small-widgets")
    assert violations(page, axe, ".widget-vbox") == []
    box.get_by_test_id("edit-tool-set").click()
    box.get_by_test_id("filter").fill("list_units")
    box.get_by_test_id("tool-units__list_units").get_by_test_id("in").check()
    sync_api.expect(box.get_by_test_id("edit-sum")).to_contain_text("tools ticked")
    pictured(page, "toolset-picker")
    box.get_by_test_id("use-tool-set").click()
    sync_api.expect(box.get_by_test_id("tool-set")).to_have_value("own")
    clear_cell(page, 2)
