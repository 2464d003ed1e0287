"""The widget of runs in a real JupyterLab: while they are made, by keyboard, filtered, with
transcripts, in both themes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab
from kit.pages import (
    LOOKS,
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

BOOK = "runs.ipynb"
RUNS = "[data-testid=tool-use]"
TESTS = str(Path(__file__).resolve().parents[1])
EVIL = (
    "<script>document.body.dataset.pwned=1</script><img src=x"
    " onerror='document.body.dataset.pwned=1'>"
)
SETUP = f"""
import asyncio, dataclasses, sys
sys.path.insert(0, {TESTS!r})
from kit.weather import desk, weather
from casual_mcp_nb import Session
from casual_mcp_nb.experiments.cases import ExpectedCall, ToolUseCase
from casual_mcp_nb.providers.scripted import call, scripted_model
EVIL = {EVIL!r}
session = Session({{}}, in_process={{"weather": weather(), "desk": desk()}}, store=None, quiet=True)
session.connect()
limit = 8
async def answer(messages, tools):
    if len(model.client.requests) > limit:
        await asyncio.Event().wait()
    if messages[-1].role == "tool":
        return "It says: **" + messages[-1].content + "** " + EVIL
    text = messages[-1].content
    tool = next((tool for tool in tools if tool["description"].split()[0].lower() in text.lower()), tools[0])
    return call(tool["name"], **dict.fromkeys(tool["parameters"]["properties"], "Oslo"))
def endless():
    while True:
        yield answer
model = scripted_model()
model.client._answers = endless()
cases = [
    ToolUseCase("Forecast for Oslo " + EVIL, [ExpectedCall("weather:forecast", {{"city": "Oslo"}})], id=EVIL, cluster="c"),
    *(ToolUseCase(f"Past weather, day {{n}}", ["weather:history"], id=f"past {{n}}") for n in range(6)),
    *(ToolUseCase(f"Today in Oslo, no. {{n}}", ["weather:history"], id=f"today {{n}}") for n in range(5)),
]
better = {{"clearer": {{"weather:history": "Today and past weather of a city."}}}}
"""
RUN = "session.experiments.run(cases, models=model, descriptions=better, repeats=3, concurrency=1)"
MANY = """
results = session.experiments.results
records = tuple(
    dataclasses.replace(record, case=f"{record.case} {n}", key=f"{record.key} {n}")
    for n in range(125) for record in results.records if record.repeat == 0
)
many = dataclasses.replace(results, records=records, cases=tuple(dict.fromkeys(each.case for each in records)), repeats=1)
explorer = session.experiments.explore(many)
explorer
"""


@pytest.fixture(scope="module")
def page(lab_browser: Any, lab: Lab) -> Iterator[Any]:
    written(lab, BOOK, [SETUP, RUN, MANY])
    page = lab_browser.new_page(1300, 1200)
    page.set_default_timeout(20_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    opened(page, lab, BOOK)
    execute(page, SETUP)
    yield page
    assert page.evaluate("() => document.body.dataset.pwned === undefined")
    assert page.complaints == []
    page.close()


def test_runs_are_followed_filtered_and_opened_by_keyboard(page: Any) -> None:
    # Four runs are made; those after them wait until they are stopped.
    run_cell(page, 1)
    sync_api.expect(page.get_by_test_id("figures")).to_contain_text("4 of 72 runs")
    sync_api.expect(page.get_by_test_id("run-status")).to_have_text("▸ running")
    sync_api.expect(page.locator("[data-mark=running]")).to_have_count(1)
    sync_api.expect(page.get_by_test_id("arm-0")).to_contain_text("100%")
    pictured(page, "runs-live")
    page.get_by_test_id("stop").click()
    sync_api.expect(page.get_by_test_id("run-status")).to_have_text("■ stopped")
    execute(page, "limit = 10_000")
    page.evaluate("() => document.querySelector('[data-testid=tool-use]').dataset.old = 'yes'")
    run_cell(page, 1)
    page.wait_for_selector(f"{RUNS}:not([data-old]) >> visible=true")
    sync_api.expect(page.get_by_test_id("run-status")).to_have_text("✓ done")
    sync_api.expect(page.get_by_test_id("figures")).to_contain_text("72 runs")
    sync_api.expect(page.get_by_test_id("arm-1")).to_contain_text("50%")

    page.get_by_test_id("filter-outcome").select_option("wrong tool")
    sync_api.expect(page.get_by_test_id("count")).to_contain_text("11 of 24 rows")
    page.get_by_test_id("figures").click()
    page.keyboard.press("/")
    focuses(page, "filter")
    page.keyboard.type("no. 3")
    sync_api.expect(page.get_by_test_id("count")).to_contain_text("1 of 24 rows")
    page.keyboard.press("ArrowDown")
    sync_api.expect(page.locator("[role=row]:focus")).to_contain_text("today 3")
    page.keyboard.press("Enter")
    focuses(page, "run")
    sync_api.expect(page.get_by_test_id("outcome")).to_contain_text("wrong tool")
    sync_api.expect(page.get_by_test_id("prompt")).to_have_text("Today in Oslo, no. 3")
    page.get_by_test_id("repeat-0").focus()
    page.keyboard.press("ArrowRight")
    sync_api.expect(page.get_by_test_id("repeat-1")).to_be_checked()
    page.keyboard.press("Escape")
    sync_api.expect(page.get_by_test_id("run")).to_have_count(0)
    sync_api.expect(page.locator("[role=row]:focus")).to_contain_text("today 3")
    page.get_by_test_id("filter-none").click()
    page.get_by_test_id("choose-arm-1").click()
    sync_api.expect(page.get_by_test_id("count")).to_contain_text("12 of 24 rows")
    page.get_by_test_id("choose-arm-1").click()
    # What a model and a case say is text.
    page.get_by_test_id("case-0.0").click()
    sync_api.expect(page.get_by_test_id("prompt")).to_contain_text("<script>")
    sync_api.expect(page.get_by_test_id("transcript")).to_contain_text("<script>")
    page.evaluate(
        "selector => { document.querySelector(selector).parentElement.style.width = '560px' }", RUNS
    )
    pictured(page, "runs-narrow")
    assert page.evaluate(
        "selector => { const one = document.querySelector(selector); return one.scrollWidth <="
        " 560 }",
        RUNS,
    )
    page.evaluate(
        "selector => { document.querySelector(selector).parentElement.style.width = '' }", RUNS
    )


def test_runs_are_accessible_in_both_themes(page: Any, axe: Path) -> None:
    for theme, light in LOOKS:
        look(page, theme, light)
        sync_api.expect(page.locator("#jupyterlab-splash")).to_have_count(0)
        pictured(page, f"runs-{light}")
        assert violations(page, axe, RUNS) == []
    look(page, *LOOKS[0])


def test_thousands_of_rows_are_few_elements_and_leave_a_picture(page: Any) -> None:
    page.locator(RUNS).evaluate("widget => widget.remove()")
    run_cell(page, 2)
    sync_api.expect(page.get_by_test_id("count")).to_contain_text("3,000 rows")
    sync_api.expect(page.locator("[role=row]").first).to_be_visible()
    assert page.locator(f"{RUNS} .cmn-rows [role=row]").count() < 60
    page.get_by_test_id("filter").fill("today 4 7")
    sync_api.expect(page.get_by_test_id("count")).to_contain_text("of 3,000 rows")
    page.get_by_test_id("filter").fill("")
    page.locator("[role=row]").first.focus()
    page.keyboard.press("End")
    sync_api.expect(page.locator("[role=row]:focus")).to_contain_text("today 4 124")
    execute(page, "explorer.freeze()")
    sync_api.expect(page.locator(RUNS)).to_have_count(0)
    html = value(page, "explorer._static_bundle()['text/html']")
    assert "<script" not in html
    assert "clearer" in html
