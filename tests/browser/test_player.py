"""The player in a browser: a file that is opened without a network, stepped through by keyboard,
readable by everybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.pages import pictured, violations

from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

EVIL = (
    "</script><script>document.body.dataset.pwned=1</script><img src=x"
    " onerror='document.body.dataset.pwned=1'>\u2028"
)
CONFIG = {
    "servers": {name: {"bundled": name, "transport": "in-process"} for name in ("math", "time")},
    "tool_discovery": {"enabled": True, "defer_all": True},
}


@pytest.fixture(scope="module")
def session() -> Session:
    """A session that has ended, with two turns and a cell that a model wrote."""
    with Session.from_config(CONFIG) as session:
        steps = [
            call("search_tools", query="add numbers"),
            call("math__add", a=1, b=2),
            "It is **3**.",
        ]
        session.chat("Add 1 and 2.", model=scripted_model(*steps), echo="none")
        session.chat(EVIL, model=scripted_model(call(EVIL), EVIL), echo="none")
        program = f"text = {EVIL!r}\nsession.tools.math.add(a=1, b=2)"
        session.models.write(EVIL, model=scripted_model(f"```python\n{program}\n```"))
        return session


@pytest.fixture(scope="module")
def lesson(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return session.export(tmp_path_factory.mktemp("player") / "lesson.html", player=True)


@pytest.fixture(scope="module")
def opened(browser: Any, lesson: Path, axe: Path) -> Iterator[Any]:
    """The page of the file, in a browser that has no network. It has axe already, because its
    policy allows no script of a test.
    """
    context = browser.new_context(
        offline=True, color_scheme="light", viewport={"width": 1440, "height": 900}
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.asked, page.complaints = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on(
        "console",
        lambda message: page.complaints.append(message.text) if message.type == "error" else None,
    )
    page.goto(lesson.as_uri())
    page.evaluate(axe.read_text(encoding="utf-8"))
    yield page
    context.close()


@pytest.fixture
def page(opened: Any) -> Iterator[Any]:
    """The player at its first slide."""
    opened.get_by_test_id("go-1").click()
    # The page writes it into its address a moment later, over one that a test has set.
    opened.wait_for_function("() => location.hash === '#1'")
    yield opened
    assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in opened.asked if url.startswith("file:")]) == 1
    assert opened.complaints == []
    assert opened.evaluate("() => document.body.dataset.pwned === undefined")


def shows(page: Any, kind: str, number: int) -> None:
    sync_api.expect(page.get_by_test_id("slide")).to_have_attribute("data-kind", kind)
    sync_api.expect(page.get_by_test_id("progress")).to_contain_text(f"{number} of 13")


def test_it_is_stepped_through_by_keyboard_forward_and_back(page: Any) -> None:
    shows(page, "prompt", 1)
    for number, kind in enumerate(("request", "search", "request", "call", "request", "answer"), 2):
        page.keyboard.press("ArrowRight")
        shows(page, kind, number)
    sync_api.expect(page.locator("[data-testid=answer] strong")).to_have_text("3")
    page.wait_for_function("() => location.hash === '#7'")
    page.keyboard.press("ArrowLeft")
    shows(page, "request", 6)
    page.keyboard.press("End")
    shows(page, "cell", 13)
    sync_api.expect(page.get_by_test_id("program")).to_contain_text("</script><script>")
    sync_api.expect(page.get_by_test_id("cell-calls")).to_contain_text("math:add")
    pictured(page, "player-cell")
    page.keyboard.press("ArrowLeft")
    shows(page, "answer", 12)
    sync_api.expect(page.get_by_test_id("answer")).to_contain_text("<script>")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    shows(page, "call", 10)
    page.keyboard.press("Home")
    shows(page, "prompt", 1)
    page.keyboard.press("?")
    sync_api.expect(page.get_by_test_id("keys")).to_contain_text("play")
    page.keyboard.press("?")
    # The space bar presses a button that has the focus, as it does everywhere.
    page.get_by_test_id("panel-steps").focus()
    page.keyboard.press("Space")
    sync_api.expect(page.get_by_test_id("play")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Space")
    sync_api.expect(page.get_by_test_id("play")).to_have_attribute("aria-pressed", "false")


def test_its_bar_goes_to_the_step_that_is_clicked(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    bar = page.get_by_test_id("go-to")
    box = bar.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
    shows(page, "cell", 13)
    page.keyboard.press("ArrowLeft")
    shows(page, "answer", 12)
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.set_viewport_size({"width": 1440, "height": 900})


def test_an_address_names_a_slide(page: Any) -> None:
    page.evaluate("() => { location.hash = '#5' }")
    shows(page, "call", 5)
    sync_api.expect(page.get_by_test_id("go-5")).to_have_attribute("aria-current", "step")


@pytest.mark.slow
def test_everybody_can_read_it_light_dark_and_large(page: Any, axe: Path) -> None:
    assert page.evaluate("() => document.documentElement.dataset.theme") == "light"
    for theme in ("light", "dark"):
        sync_api.expect(page.locator("html")).to_have_attribute("data-theme", theme)
        for number in (1, 2, 3, 5, 7, 10, 12):
            page.get_by_test_id(f"go-{number}").click()
            sync_api.expect(page.get_by_test_id("progress")).to_contain_text(f"{number} of 13")
            pictured(page, f"player-{theme}-{number}")
            assert violations(page, axe, "body") == []
        page.keyboard.press("d")
    size = "() => getComputedStyle(document.querySelector('[data-testid=slide]')).fontSize"
    assert page.evaluate(size) == "16px"
    page.keyboard.press("l")
    assert page.evaluate(size) == "24px"
    page.set_viewport_size({"width": 900, "height": 800})
    assert page.evaluate("() => document.documentElement.scrollWidth <= 900")
    assert violations(page, axe, "body") == []
    page.keyboard.press("l")


def test_the_searches_of_the_model_are_shown_as_they_were(
    page: Any, session: Session, axe: Path
) -> None:
    page.get_by_test_id("tab-search").click()
    recorded = page.get_by_test_id("search-3")
    (search,) = session.turns[0].searches
    sync_api.expect(recorded.locator("summary")).to_contain_text(search.query)
    hits = recorded.get_by_test_id("found-by-model").locator("li")
    sync_api.expect(hits).to_have_count(len(search.rows))
    for place, row in enumerate(search.rows):
        sync_api.expect(hits.nth(place)).to_contain_text(str(row.tool))
        sync_api.expect(hits.nth(place)).to_contain_text(f"{row.score:.1f}".removesuffix(".0"))
    pictured(page, "player-search")
    assert violations(page, axe, "body") == []
    recorded.locator("summary").click()
    sync_api.expect(hits.first).to_be_hidden()
    recorded.locator("summary").click()
    recorded.get_by_test_id("go-to-search").click()
    shows(page, "search", 3)


def test_the_tools_are_filtered_with_each_key(page: Any, session: Session, axe: Path) -> None:
    page.keyboard.press("/")
    sync_api.expect(page.get_by_label("Filter by name")).to_be_focused()
    # The key comes back to the field from anywhere.
    page.get_by_test_id("go-to-search").first.focus()
    page.keyboard.press("/")
    sync_api.expect(page.get_by_label("Filter by name")).to_be_focused()
    names = page.get_by_test_id("listed").locator(".cmn-mono")
    deferred = session.parts.chat.current_view().deferred
    sync_api.expect(names).to_have_count(len(deferred))
    page.get_by_test_id("query").press_sequentially("time CONVERT")
    # The second one has a word in its description only.
    sync_api.expect(names).to_have_text(["time:convert_time", "time:from_timestamp"])
    sync_api.expect(page.get_by_test_id("found")).to_contain_text(f"2 of {len(deferred)}")
    pictured(page, "player-tools")
    assert violations(page, axe, "body") == []
    page.get_by_test_id("query").fill(".*")
    sync_api.expect(names).to_have_count(0)
    page.get_by_test_id("query").fill("")


def test_paper_has_every_slide(page: Any) -> None:
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("[data-testid=printed] [data-testid=slide]:visible").count() == 13
    page.emulate_media(media="screen")
    page.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    sync_api.expect(page.get_by_test_id("printed")).to_have_count(0)


def test_it_works_in_a_frame_that_may_do_nothing_but_run_scripts(
    browser: Any, lesson: Path
) -> None:
    page = browser.new_page()
    page.set_content("<iframe sandbox='allow-scripts' style='width:900px;height:600px'></iframe>")
    page.evaluate(
        "text => { document.querySelector('iframe').srcdoc = text }",
        lesson.read_text(encoding="utf-8"),
    )
    frame = page.frame_locator("iframe")
    frame.get_by_test_id("next").click()
    sync_api.expect(frame.get_by_test_id("progress")).to_contain_text("2 of 13")
    page.close()
