"""The chat panel in a real JupyterLab: by mouse and by keyboard, live, beside a cell that runs, in
both themes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
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
from kit.pictures import DOT

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(300)]

BOOK = "panel.ipynb"
PANEL = "[data-testid=chat-panel]"
TESTS = str(Path(__file__).resolve().parents[1])
EVIL = (
    "<script>document.body.dataset.pwned=1</script><img src=x"
    " onerror='document.body.dataset.pwned=1'>"
)
FORM = {
    "type": "object",
    "properties": {
        EVIL: {"title": EVIL, "description": EVIL, "enum": ["a", EVIL], "default": EVIL}
    },
}
SETUP = f"""
import asyncio, sys, time
from collections import deque
sys.path.insert(0, {TESTS!r})
from fastmcp import Context, FastMCP
from kit.travel import travel_server
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
EVIL, FORM = {EVIL!r}, {FORM!r}
plays = deque()
model = scripted_model(*[lambda messages, tools: plays.popleft()] * 1000)
box = FastMCP("box")
go_on = False
@box.tool
async def work(ctx: Context) -> str:
    "Work until it is told to end."
    done = 0
    while not go_on:
        done += 1
        await ctx.report_progress(done, 1000000, "at it")
        await asyncio.sleep(0.05)
    return "worked"
session = Session.from_config({{
    "clients": {{"offline": {{"provider": "offline"}}}},
    "models": {{"one": {{"client": "offline", "model": "planner"}}, "two": {{"client": "offline", "model": "planner"}}}},
    "servers": {{"math": {{"bundled": "math", "transport": "in-process", "approval": "always"}}}},
    "tool_sets": {{"numbers": {{"description": "Numbers", "servers": {{"math": True}}}}}},
}}, in_process={{"box": box, "travel": travel_server(), "evil": travel_server(EVIL, FORM)}})
session.connect()
ADD = call("math__add", a=1, b=2)
def fresh(*answers):
    global go_on
    go_on = False
    session.stop()
    session.consent.step_mode = False
    session.conversations.new()
    session.selection.tool_set = None
    plays.clear()
    plays.extend(answers)
"""
AWAITING = "awaited = await session.chat_async('From a cell', model=model, echo='none')"
OTHER = "other = session.panel()\nother"
METER = (
    "from casual_mcp_nb.widgets import TokenMeter\nfrom ipywidgets import"
    " VBox\nVBox([TokenMeter(session)])"
)
THEIRS = """
import json, os
from pathlib import Path
os.environ.pop("MCP_TRUST_CONFIGS", None)
os.environ["XDG_CONFIG_HOME"] = str(Path("user").absolute())
entry = {"bundled": "math", "approval": {"<b>add</b>": "never"}}
Path("theirs.json").write_text(json.dumps({"servers": {"math": entry}}))
theirs = Session.from_config("theirs.json")
careful = theirs.panel()
careful
"""
SIGN_IN = """
import os
from pathlib import Path
from kit.sites import OAuthSite
os.environ["XDG_CONFIG_HOME"] = str(Path("user").absolute())
site = OAuthSite().__enter__()
private = Session({"servers": {"account": site.config()}}, store=None, quiet=True)
private_panel = private.panel()
private_panel
"""
CONNECTING = "connecting = private.parts.engine.submit(private.parts.starter.view())[0]"
SAVING = """
saving = Session.from_config({
    "servers": {"units": {"bundled": "units", "transport": "in-process", "defer_loading": True}},
    "tool_discovery": {"enabled": True},
}, store="conversations.db")
for text in ("Tides of Bergen", EVIL, "Harbours"):
    saving.conversations.new()
    saving.chat(text, model=scripted_model(call("search_tools", query="convert units"), "ok"), echo="none")
keeper = saving.panel()
keeper
"""
BLOCKING = "blocked = session.chat('From a cell', model=model, echo='none')"


@pytest.fixture(scope="module")
def book(lab_browser: Any, lab: Lab) -> Iterator[Any]:
    """A page with a notebook: a panel, then cells that await, block and sleep."""
    panel = "panel = session.panel(model=model)\npanel"
    sleeping = (
        f"import os\nwhile not os.path.exists({str(lab.folder / 'wake up')!r}):\n   "
        " time.sleep(0.1)"
    )
    cells = [SETUP, panel, AWAITING, BLOCKING, sleeping, OTHER, METER, THEIRS, SAVING, SIGN_IN]
    written(lab, BOOK, cells)
    page = lab_browser.new_page(1200, 1800)
    page.set_default_timeout(20_000)
    page.complaints = []
    page.on("pageerror", lambda error: _is_labs(error) or page.complaints.append(str(error)))
    opened(page, lab, BOOK)
    execute(page, SETUP)
    run_cell(page, 1)
    page.wait_for_selector(PANEL)
    yield page
    page.close()


def _is_labs(error: Any) -> bool:
    """Check for an error in which only JupyterLab has a part: it fails to remove cells that it
    moved out of sight before.
    """
    places = re.findall(r"^ +at (.*)$", error.stack or "", re.MULTILINE)
    return bool(places) and all("/static/lab/" in place for place in places)


@pytest.fixture
def page(book: Any) -> Iterator[Any]:
    """The panel of a conversation that has not begun."""
    execute(book, "fresh()")
    book.wait_for_selector(f"{PANEL} [data-testid=empty]:visible")
    yield book
    assert book.evaluate("() => document.body.dataset.pwned === undefined")
    assert book.complaints == []


def at(page: Any, name: str, nth: int = 0) -> Any:
    return page.get_by_test_id(name).nth(nth)


def send(page: Any, prompt: str, *answers: str) -> None:
    """Send a message with the keyboard; the answers are expressions of the kernel."""
    execute(page, f"plays.extend([{', '.join(answers)}])")
    at(page, "message").fill(prompt)
    at(page, "message").press("Enter")


def ended(page: Any, number: int, status: str = "done") -> Any:
    turn = at(page, f"turn-{number}")
    sync_api.expect(turn).to_have_attribute("data-status", status)
    return turn


def reads(locator: Any, text: str) -> None:
    sync_api.expect(locator).to_contain_text(text)


def redrawn(page: Any) -> None:
    """Wait until the first turn shows something new."""
    text = "document.querySelector('[data-testid=turn-1]').textContent"
    page.wait_for_function(f"before => {text} !== before", arg=page.evaluate(f"() => {text}"))


def gone(page: Any, name: str) -> None:
    sync_api.expect(page.get_by_test_id(name)).to_have_count(0)


def idle(page: Any) -> None:
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']", state="attached")


def busy(page: Any) -> None:
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='busy']", state="attached")


# --- talking


def test_a_message_is_written_and_sent_by_keyboard_and_its_turn_shows(page: Any) -> None:
    execute(page, "plays.append('# Hello\\n\\n**there**')")
    at(page, "message").focus()
    page.keyboard.type("Say hello,")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("in x and dd")
    page.keyboard.press("Enter")
    turn = ended(page, 1)
    assert turn.get_by_test_id("prompt").inner_text() == "Say hello,\nin x and dd"
    reads(turn.locator("strong", has_text="there"), "there")
    sync_api.expect(at(page, "message")).to_have_value("")
    reads(at(page, "status"), "Turn 1 is done.")
    focuses(page, "message")


def test_an_empty_message_is_not_sent_and_the_alert_says_why_a_turn_cannot_begin(page: Any) -> None:
    at(page, "send").click()
    gone(page, "turn-1")
    execute(
        page,
        "session.selection.tool_set = 'numbers'; numbers ="
        " session.parts.chat.tool_sets.pop('numbers')",
    )
    send(page, "Is anybody there?")
    reads(at(page, "alert"), "numbers")
    sync_api.expect(at(page, "message"), "what was not sent can be sent again").to_have_value(
        "Is anybody there?"
    )
    execute(
        page, "session.selection.tool_set = None; session.parts.chat.tool_sets['numbers'] = numbers"
    )
    send(page, "And now?", "'Yes.'")
    ended(page, 1)
    sync_api.expect(at(page, "alert")).to_be_hidden()


def test_a_turn_of_a_cell_shows_in_the_panel(page: Any) -> None:
    execute(
        page,
        "plays.extend(['From the cell.']); session.chat('Said in a cell', model=model,"
        " echo='none')",
    )
    reads(ended(page, 1), "From the cell.")


def test_toolset_and_model_are_chosen(page: Any) -> None:
    at(page, "tool-set").select_option("numbers")
    page.wait_for_function(
        "() => document.querySelector('[data-testid=tool-set]').value === 'numbers'"
    )
    assert value(page, "session.selection.tool_set") == "numbers"
    execute(page, "session.selection.tool_set = None")
    sync_api.expect(at(page, "tool-set")).to_have_value("")
    sync_api.expect(at(page, "model")).to_have_value("scripted")


def test_tokens_stand_as_bars_with_their_numbers_and_their_origin(page: Any) -> None:
    send(page, "x", "call('no_tool')", "'ok'")
    ended(page, 1)
    at(page, "tokens-toggle").click()
    reads(at(page, "tokens-turn-1"), "Turn 1: 2 steps")
    reads(at(page, "tokens-1-2"), "≈")
    page.locator("[data-testid=tokens-1-2] .cmn-stack > i").nth(1).wait_for(state="attached")
    sent = value(page, "session.stats.sent_tokens")
    reads(at(page, "tokens-all"), f"≈ {sent:,} tokens in")
    at(page, "tokens-toggle").click()
    gone(page, "tokens-part")
    execute(page, "session.limits.set('day', max_total_tokens=5_000_000)")
    reads(at(page, "limits").locator("li"), " of 5,000,000 tokens today")
    pictured(page, "panel-limits")
    execute(page, "session.limits.clear()")
    sync_api.expect(at(page, "limits")).to_have_count(0)


def test_what_each_step_sent_unfolds_under_its_turn(page: Any, axe: Path) -> None:
    send(page, "Weigh the hat", "call('no_tool')", "'ok'")
    turn = ended(page, 1)
    turn.get_by_test_id("request-turn").click()
    reads(turn.get_by_test_id("request"), "no_tool")
    sync_api.expect(turn.get_by_test_id("sent-2")).to_have_attribute("aria-pressed", "true")
    turn.get_by_test_id("request").evaluate(
        "part => part.querySelectorAll('details').forEach(each => each.open = true)"
    )
    page.wait_for_function("() => document.querySelector('[data-testid=request] pre[tabindex]')")
    assert violations(page, axe, PANEL) == []
    turn.get_by_test_id("sent-1").focus()
    page.keyboard.press("Enter")
    sync_api.expect(turn.get_by_test_id("request")).not_to_contain_text("no_tool")
    reads(turn.get_by_test_id("request"), "Weigh the hat")


def test_answer_arguments_result_and_python_are_copied(page: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    send(page, "Add", "call('math__subtract', a=5, b=3)", "'**Two**'")
    at(page, "approve").click()
    turn = ended(page, 1)
    turn.locator("details[data-step='1'] > summary").click()
    sync_api.expect(turn.locator("details[data-step='1']")).to_have_attribute("open", "")
    texts = []
    for name in ("copy-answer", "copy-python", "copy-arguments", "copy-call-python", "copy-result"):
        button = turn.get_by_test_id(name).first
        button.click()
        sync_api.expect(button).to_have_attribute("data-copied", "true")
        texts.append(page.evaluate("() => navigator.clipboard.readText()"))
    answer, python, arguments, call_python, result = texts
    assert (answer, python) == ("**Two**", 'session.chat("Add")')
    assert json.loads(arguments) == {"a": 5, "b": 3}
    assert call_python == 'session.tools.call("math:subtract", a=5, b=3)'
    assert result == value(page, "session.turns[0].tool_calls[0].result")


def test_an_example_is_sent_with_a_click_and_then_there_are_none(page: Any) -> None:
    execute(page, "plays.append('391')")
    at(page, "example").click()
    turn = ended(page, 1)
    sync_api.expect(turn.get_by_test_id("prompt")).to_have_text("What is 17 * 23?")
    gone(page, "examples")


DOCS = """
docs = FastMCP("docs")
docs.resource("docs://readme", name="readme", description="Harbours")(lambda: "Harbours of Norway")
docs.prompt(name="compare")(lambda first: f"Compare {first} with Oslo.")
session.servers.add("docs", docs)
"""


def test_resources_and_prompts_are_attached_removed_and_sent(page: Any, axe: Path) -> None:
    execute(page, DOCS)
    execute(page, "fresh('Fine.')")
    at(page, "attach-resource").click()
    page.get_by_test_id("offer").nth(1).wait_for()
    pictured(page, "panel-attach")
    page.locator("[data-testid=offer]", has_text="docs://readme").click()
    at(page, "offer-attach").click()
    at(page, "offers-back").click()
    page.locator("[data-testid=offer]", has_text="compare").click()
    at(page, "argument-first").fill("Bergen")
    at(page, "offer-attach").click()
    sync_api.expect(page.get_by_test_id("detach")).to_have_count(2)
    pictured(page, "panel-attached")
    assert violations(page, axe, PANEL) == []
    page.get_by_test_id("detach").nth(1).click()
    sync_api.expect(page.get_by_test_id("detach")).to_have_count(1)
    at(page, "argument-first").press("Escape")
    sync_api.expect(page.get_by_test_id("resources")).to_have_count(0)
    at(page, "message").fill("Is it fine?")
    page.keyboard.press("Enter")
    sync_api.expect(page.get_by_test_id("detach")).to_have_count(0)
    page.wait_for_selector("[data-status=done]")
    asked = "[str(message.content) for message in session.turns[0].prompt_messages]"
    assert (
        value(
            page,
            f"'Harbours of Norway' in {asked}[0] and 'Compare' not in {asked}[0] and {asked}[1]",
        )
        == "Is it fine?"
    )
    execute(page, "session.servers.remove('docs')")


def test_images_are_chosen_pasted_dropped_removed_and_sent(page: Any, axe: Path) -> None:
    files = [{"name": "dot.png", "mimeType": "image/png", "buffer": DOT}]
    at(page, "attach-files").set_input_files(files)
    at(page, "message").evaluate(
        """(box, data) => {
            const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
            const clipboardData = new DataTransfer();
            clipboardData.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
            box.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
        }""",
        base64.b64encode(DOT).decode(),
    )
    sync_api.expect(page.get_by_test_id("remove-image")).to_have_count(2)
    at(page, "transcript").evaluate(
        """(box, data) => {
            const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
            box.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        base64.b64encode(DOT).decode(),
    )
    page.get_by_label("Remove dropped.png").click()
    assert violations(page, axe, PANEL) == []
    page.get_by_label("Remove dot.png").click()
    sync_api.expect(page.get_by_test_id("remove-image")).to_have_count(1)
    at(page, "attach-files").set_input_files(
        [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no image"}]
    )
    reads(at(page, "alert"), "notes.txt is not a PNG, JPEG, GIF or WebP image.")
    send(page, "What is this?", "'A dot.'")
    turn = ended(page, 1)
    gone(page, "attachments")
    assert (
        turn.get_by_test_id("prompt-image").evaluate(
            "image => image.decode().then(() => image.naturalWidth)"
        )
        == 1
    )
    assert value(page, "len(session.turns[0].prompt_messages[0].content)") == 2


def test_the_panel_keeps_its_height_and_the_message_box_stays_in_sight(page: Any) -> None:
    before = at(page, "message").bounding_box()
    send(page, "x", "'line\\n\\n' * 100")
    ended(page, 1)
    assert at(page, "message").bounding_box()["y"] <= before["y"] + 40, (
        "the examples above it are gone, and that is all"
    )
    whole = page.locator(f"{PANEL} .cmn-chat").bounding_box()
    box = at(page, "message").bounding_box()
    assert whole["y"] < box["y"] < box["y"] + box["height"] < whole["y"] + whole["height"]


def test_a_button_leads_to_the_newest_when_the_transcript_is_scrolled_up(page: Any) -> None:
    send(page, "x", "'line\\n\\n' * 60")
    ended(page, 1)
    # It follows the end of the answer once that is drawn; before, there is nothing to scroll.
    page.wait_for_function("() => document.querySelector('[data-testid=transcript]').scrollTop > 0")
    gone(page, "newest")
    at(page, "transcript").evaluate("box => box.scrollTop = 0")
    at(page, "newest").click()
    gone(page, "newest")
    page.wait_for_function("() => document.querySelector('[data-testid=transcript]').scrollTop > 0")


def test_the_meter_of_tokens_stands_by_itself_in_a_box_of_widgets(page: Any) -> None:
    run_cell(page, 6)
    meter = page.get_by_test_id("token-meter")
    reads(meter, "Nothing sent yet.")
    send(page, "x", "'ok'")
    reads(meter.get_by_test_id("tokens-turn-1"), "Turn 1: 1 step,")


def test_every_control_is_reached_with_the_tab_key_in_the_order_of_the_page(page: Any) -> None:
    send(page, "x", "'ok'")
    ended(page, 1)
    at(page, "tool-set").focus()
    order = []
    for _ in range(24):
        name = page.evaluate(
            "() => document.activeElement.dataset.testid ?? document.activeElement.tagName"
        )
        if name != "SUMMARY":
            order.append(name)
        page.keyboard.press("Tab")
    turn = ["edit", "ask-again", "copy-answer", "copy-python", "request-turn"]
    head, composer = (
        ["tool-set", "undo", "clear", "large-text"],
        ["message", "send", "attach", "attach-resource", "model", "step-mode"],
    )
    assert order[: len(head) + 1 + len(turn) + len(composer) + 1] == [
        *head,
        "transcript",
        *turn,
        *composer,
        "tokens-toggle",
    ]


# --- stopping and answering


def test_a_message_shows_with_a_stop_before_the_kernel_has_read_it(page: Any, lab: Lab) -> None:
    execute(page, "plays.append('pong')")
    run_cell(page, 4)
    at(page, "message").fill("Ping")
    at(page, "message").press("Enter")
    reads(at(page, "pending"), "Ping")
    reads(at(page, "waiting"), "Sending …")
    sync_api.expect(at(page, "stop")).to_be_visible()
    pictured(page, "panel-sent")
    (lab.folder / "wake up").touch()
    ended(page, 1)
    gone(page, "pending")
    sync_api.expect(at(page, "send")).to_be_visible()
    (lab.folder / "wake up").unlink()


def test_stop_ends_a_turn_while_the_kernel_is_idle(page: Any) -> None:
    send(page, "Work", "call('box__work')")
    reads(at(page, "doing"), "running box:work")
    reads(at(page, "turn-1"), "at it")
    at(page, "stop").click()
    ended(page, 1, "stopped")
    sync_api.expect(at(page, "send")).to_be_visible()
    assert value(page, "session.turns[0].status") == "stopped"


@pytest.mark.parametrize(("button", "status"), [("approve", "ok"), ("deny", "denied")])
def test_a_call_waits_for_the_panel_while_the_kernel_is_idle(
    page: Any, button: str, status: str
) -> None:
    send(page, "Add", "ADD", "'ok'")
    reads(at(page, "question-tool"), "add")
    reads(at(page, "question-server"), "math")
    assert json.loads(at(page, "question-arguments").inner_text()) == {"a": 1, "b": 2}
    reads(at(page, "status"), "Allow math to run add?")
    at(page, button).click()
    ended(page, 1)
    gone(page, "question-approval")
    assert value(page, "session.turns[0].tool_calls[0].status") == status


def test_an_approval_for_the_conversation_is_given_with_the_keyboard_and_holds(page: Any) -> None:
    send(page, "Add", "ADD", "ADD", "'ok'", "ADD", "'ok'")
    at(page, "question-approval").wait_for()
    page.keyboard.press("Shift+Tab")
    focuses(page, "deny-reason")
    page.keyboard.press("Shift+Tab")
    focuses(page, "deny")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    ended(page, 1)
    focuses(page, "message")
    send(page, "Again")
    ended(page, 2)
    assert value(page, "[call.status for turn in session.turns for call in turn.tool_calls]") == [
        "ok",
        "ok",
        "ok",
    ]


def test_tab_leads_from_the_message_box_to_what_waits(page: Any) -> None:
    send(page, "Add", "ADD", "'ok'")
    at(page, "question-approval").wait_for()
    focuses(page, "message")
    page.keyboard.press("Tab")
    focuses(page, "to-question")
    page.keyboard.press("Enter")
    focuses(page, "question-approval")
    for name in ("question-arguments", "approve"):
        page.keyboard.press("Tab")
        focuses(page, name)
    page.keyboard.press("Enter")
    ended(page, 1)
    gone(page, "to-question")
    focuses(page, "message")
    # Nothing leads back from behind the message box, so Tab still leaves the panel.
    page.keyboard.press("Tab")
    focuses(page, "send")


def test_a_steps_name_stands_beside_its_number_where_there_is_little_room(page: Any) -> None:
    send(page, "Add", "call('math__add_whatever_is_in_the_harbour_book_of_this_year')", "'ok'")
    turn = ended(page, 1)
    size = page.viewport_size
    page.set_viewport_size({"width": 800, "height": 1800})
    tops = """step => [...step.querySelectorAll(":scope > summary .cmn-number, :scope > summary code")]
        .map(each => each.getClientRects()[0].top)"""
    number, name = turn.locator(".cmn-step").first.evaluate(tops)
    pictured(page, "panel-narrow")
    page.set_viewport_size(size)
    assert abs(number - name) < 8


def test_approve_and_stop_work_while_a_cell_awaits(page: Any) -> None:
    execute(page, "plays.extend([ADD, 'ok'])")
    run_cell(page, 2)
    at(page, "approve").click()
    ended(page, 1)
    idle(page)
    assert value(page, "(awaited.status, awaited.tool_calls[0].status)") == ("done", "ok")
    execute(page, "plays.extend([call('box__work')])")
    run_cell(page, 2)
    reads(at(page, "turn-2"), "at it")
    at(page, "stop").click()
    ended(page, 2, "stopped")
    idle(page)
    assert value(page, "awaited.status") == "stopped"


def test_what_a_blocked_cell_asks_is_answered_there_and_the_panel_says_so(page: Any) -> None:
    execute(page, "plays.extend([ADD, 'ok'])")
    run_cell(page, 3)
    reads(at(page, "asked-in-cell"), "answer in the box below the cell")
    gone(page, "approve")
    reads(at(page, "doing"), "■ in the toolbar stops it.")
    page.locator(".jp-Stdin-input").fill("y")
    page.locator(".jp-Stdin-input").press("Enter")
    ended(page, 1)
    idle(page)
    assert value(page, "blocked.tool_calls[0].status") == "ok"


@pytest.mark.slow
def test_a_turn_moves_on_the_page_while_a_cell_sleeps(page: Any, lab: Lab) -> None:
    send(page, "Work", "call('box__work')")
    reads(at(page, "turn-1"), "at it")
    run_cell(page, 4)
    busy(page)
    text = (
        "() => document.querySelector('[data-testid=turn-1]').innerText.match(/([0-9,]+) of"
        " 1,000,000/)[1]"
    )
    for _ in range(10):
        page.wait_for_function(f"last => ({text})() !== last", arg=page.evaluate(text))
    sync_api.expect(
        page.locator(".jp-Notebook-ExecutionIndicator[data-status='busy']")
    ).to_have_count(1)
    (lab.folder / "wake up").touch()
    idle(page)
    at(page, "stop").click()
    ended(page, 1, "stopped")


def test_what_is_open_scrolled_and_focused_stays_while_a_turn_is_redrawn(page: Any) -> None:
    many = "{'a': list(range(300)), 'b': 2}"
    execute(page, f"plays.extend([call('no_tool', **{many}), call('box__work')])")
    at(page, "message").fill("Work")
    at(page, "message").press("Enter")
    turn = at(page, "turn-1")
    reads(turn, "at it")
    summary = turn.locator("details summary").first
    summary.click()
    if not turn.locator("details").first.evaluate("part => part.open"):
        summary.click()
    sync_api.expect(turn.locator("details").first).to_have_attribute("open", "")
    turn.locator("details pre").first.evaluate("pre => { pre.scrollTop = 100; window.kept = pre; }")
    summary.focus()
    redrawn(page)
    assert page.evaluate("() => [window.kept.isConnected, window.kept.scrollTop]") == [True, 100]
    focuses(page, "SUMMARY")
    summary.click()
    redrawn(page)
    sync_api.expect(turn.locator("details").first).not_to_have_attribute("open", "")
    at(page, "stop").click()
    ended(page, 1, "stopped")


def test_the_reason_of_a_denial_reaches_the_model(page: Any) -> None:
    send(page, "Add", "ADD", "'ok'")
    at(page, "deny-reason").fill("Work it out by yourself.")
    at(page, "deny-reason").press("Enter")
    ended(page, 1)
    assert value(page, "session.turns[0].tool_calls[0].status") == "denied"
    assert "Work it out by yourself." in value(
        page, "session.turns[0].steps[1].request.messages[-1].content"
    )


def test_the_calls_so_far_unfold_with_who_allowed_them(page: Any, axe: Path) -> None:
    before = value(page, "len(session.consent.audit)")
    send(page, "Add", "ADD", "ADD", "'ok'")
    at(page, "deny-reason").fill("Not <b>this</b> one.")
    at(page, "deny-reason").press("Enter")
    # The field of the next question, which is empty again.
    sync_api.expect(at(page, "deny-reason")).to_have_value("")
    at(page, "approve").click()
    ended(page, 1)
    reads(at(page, "audit-toggle"), f": {before + 2}")
    at(page, "audit-toggle").click()
    rows = at(page, "audit").locator("tbody tr")
    reads(rows.nth(0), "you, once")
    reads(rows.nth(1), "you: “Not <b>this</b> one.”")
    for index, status in enumerate(("ok", "denied")):
        sync_api.expect(rows.nth(index)).to_have_attribute("data-status", status)
    assert violations(page, axe, PANEL) == []
    pictured(page, "calls-so-far")
    at(page, "audit-toggle").click()
    gone(page, "audit-part")


# --- what servers ask, and the step mode


def test_the_form_of_a_server_is_filled_in_corrected_and_sent(page: Any) -> None:
    send(page, "Book", "call('travel__book')", "'Booked.'")
    reads(at(page, "question-server"), "travel")
    reads(at(page, "question-message"), "Where to?")
    reads(at(page, "question-form"), "Where you want to go.")
    sync_api.expect(at(page, "field-class")).to_have_value("second")
    at(page, "send-form").click()
    reads(at(page, "alert"), "'City' must be filled in")
    at(page, "field-city").fill("Oslo")
    at(page, "field-city").press("Tab")
    page.keyboard.type("3")
    at(page, "field-window").check()
    at(page, "field-class").select_option("first")
    at(page, "field-meals").get_by_label("breakfast").check()
    at(page, "field-city").press("Enter")
    ended(page, 1)
    result = value(page, "session.turns[0].tool_calls[0].result")
    assert (
        result == "accept {'city': 'Oslo', 'nights': 3, 'window': True, 'class': 'first', 'meals':"
        " ['breakfast', 'dinner']}"
    )


def test_a_form_is_declined(page: Any) -> None:
    send(page, "Book", "call('travel__book')", "'Not booked.'")
    at(page, "decline").click()
    ended(page, 1)
    assert value(page, "session.turns[0].tool_calls[0].result") == "decline None"


def test_the_step_mode_pauses_takes_an_edit_and_runs_to_the_end(page: Any) -> None:
    at(page, "step-mode").check()
    send(page, "Weigh the hat", "call('no_tool')", "call('no_tool')", "'ok'")
    reads(at(page, "question-step"), "Paused before step 1")
    reads(at(page, "step-request"), "Weigh the hat")
    at(page, "to-question").press("Enter")
    focuses(page, "question-step")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    # Behind the edit, and before the messages, of which there can be many.
    focuses(page, "step-next")
    at(page, "step-edit").locator("summary").click()
    at(page, "edit-message").fill("Weigh the cat")
    sync_api.expect(at(page, "step-next")).to_have_text("Send edited")
    at(page, "step-next").click()
    reads(at(page, "question-step"), "Paused before step 2")
    reads(at(page, "turn-1").get_by_test_id("prompt"), "Weigh the cat")
    at(page, "step-run").click()
    ended(page, 1)
    assert value(page, "[m.content for m in session.messages if m.role == 'user']") == [
        "Weigh the cat"
    ]
    at(page, "step-mode").uncheck()


# --- going back


def test_turns_are_edited_asked_again_taken_back_and_forgotten(page: Any) -> None:
    for number, prompt in enumerate(("one", "two", "three"), 1):
        send(page, prompt, f"'answer {number}'")
        ended(page, number)
    execute(page, "plays.extend(['three again', 'another two'])")
    at(page, "turn-3").get_by_test_id("ask-again").click()
    reads(at(page, "turn-3"), "three again")
    at(page, "turn-2").get_by_test_id("edit").click()
    page.keyboard.press("Escape")
    focuses(page, "edit")
    page.keyboard.press("Enter")
    reads(at(page, "turn-2"), "This replaces this turn and removes the one after it.")
    focuses(page, "edit-box")
    page.keyboard.press("Control+a")
    page.keyboard.type("another question")
    page.keyboard.press("Enter")
    reads(at(page, "turn-2"), "another two")
    gone(page, "turn-3")
    assert value(page, "[turn.prompt for turn in session.turns]") == ["one", "another question"]
    at(page, "undo").click()
    gone(page, "turn-2")
    sync_api.expect(at(page, "message")).to_have_value("another question")
    at(page, "message").fill("")
    at(page, "clear").click()
    reads(at(page, "clear-confirm"), "This clears 1 turn")
    at(page, "clear-no").click()
    assert value(page, "len(session.turns)") == 1
    at(page, "clear").click()
    at(page, "clear-yes").click()
    gone(page, "turn-1")
    assert value(page, "len(session.turns)") == 0


def test_two_panels_on_one_session_agree(page: Any) -> None:
    run_cell(page, 5)
    sync_api.expect(page.locator(PANEL)).to_have_count(2)
    idle(page)
    send(page, "Add", "ADD", "'ok'")
    sync_api.expect(page.get_by_test_id("question-approval")).to_have_count(2)
    at(page, "approve", 1).click()
    gone(page, "question-approval")
    sync_api.expect(page.get_by_test_id("turn-1")).to_have_count(2)
    reads(at(page, "turn-1", 1), "ok")
    at(page, "step-mode", 1).check()
    sync_api.expect(at(page, "step-mode", 0)).to_be_checked()
    at(page, "undo", 1).click()
    gone(page, "turn-1")
    execute(page, "other.close()")


def test_a_config_that_was_not_accepted_is_shown_and_started_with_a_click(
    page: Any, axe: Path
) -> None:
    run_cell(page, 7)
    reads(at(page, "trust"), "theirs.json")
    reads(at(page, "trust-text"), "server math (new)")
    reads(at(page, "trust-text"), "<b>add</b>")
    assert violations(page, axe, "[data-testid=trust]") == []
    pictured(page, "config-not-accepted")
    assert value(page, "theirs.servers['math'].state") == "closed"
    at(page, "trust-accept").click()
    gone(page, "trust")
    execute(page, "theirs.connect()")
    assert value(page, "theirs.servers['math'].state") == "ready"
    execute(page, "careful.close(); theirs.close()")


@pytest.mark.slow
def test_conversations_are_listed_opened_and_kept_in_order(page: Any, axe: Path) -> None:
    run_cell(page, 8)
    at(page, "conversations").click()
    focuses(page, "conversations-search")
    listed = page.get_by_test_id("conversation")
    sync_api.expect(listed).to_have_count(3)
    reads(listed.nth(1), "<script>")
    assert (
        page.evaluate(
            "() => document.querySelectorAll('[data-testid=conversations-list] :is(script,"
            " img)').length"
        )
        == 0
    )
    pictured(page, "conversations")

    # With the keyboard: found, opened, renamed.
    page.keyboard.type("bergen")
    sync_api.expect(listed).to_have_count(1)
    page.keyboard.press("ArrowDown")
    focuses(page, "conversation")
    page.keyboard.press("Enter")
    sync_api.expect(listed).to_have_attribute("aria-current", "true")
    assert value(page, "[turn.prompt for turn in saving.turns]") == ["Tides of Bergen"]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    at(page, "conversation-rename").press("Enter")
    focuses(page, "conversation-title")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Bergen, again")
    page.keyboard.press("Enter")
    reads(listed, "Bergen, again")
    focuses(page, "conversations-search")
    at(page, "conversations-search").fill("")
    sync_api.expect(listed).to_have_count(3)

    at(page, "conversation-more").click()
    at(page, "conversation-archive").click()
    sync_api.expect(listed).to_have_count(2)
    at(page, "conversation-more").click()
    at(page, "conversation-fork").click()
    sync_api.expect(listed).to_have_count(3)
    at(page, "conversation-more").click()
    at(page, "conversation-delete").click()
    focuses(page, "conversation-delete-no")
    assert violations(page, axe, "[data-testid=conversations-list]") == []
    at(page, "conversation-delete-yes").click()
    sync_api.expect(listed).to_have_count(2)
    assert value(
        page, "(len(saving.turns), len(saving.conversations.find(status='archived')))"
    ) == (0, 1)

    # What is saved is left without a question.
    listed.first.click()
    sync_api.expect(page.get_by_test_id("tools-toggle")).to_have_count(1)
    at(page, "tools-toggle").click()
    found = value(page, "len(saving.tools.discovered)")
    assert violations(page, axe, "[data-testid=tools-part]") == []
    at(page, "unload").click()
    sync_api.expect(page.get_by_test_id("unload")).to_have_count(found - 1)
    at(page, "clear", 1).click()
    gone(page, "tools-toggle")
    at(page, "conversations-search").press("Escape")
    focuses(page, "conversations")
    gone(page, "conversations-list")
    execute(page, "keeper.close(); saving.close()")


@pytest.mark.slow
def test_a_person_signs_in_by_keyboard_with_a_browser_elsewhere(page: Any, axe: Path) -> None:
    run_cell(page, 9)
    # While the cell runs, it would be asked.
    page.locator(".jp-Cell").nth(9).locator(PANEL).wait_for()
    execute(page, CONNECTING)
    reads(at(page, "question-form"), "Sign in to server account")
    address = at(page, "question-address").inner_text()
    assert value(page, "private.questions[0].address") == address
    for theme, light in LOOKS[::-1]:
        look(page, theme, light)
        pictured(page, f"panel-sign-in-{light}")
        assert violations(page, axe, "[data-testid=question-form]") == []
    at(page, "question-address").focus()
    for name in ("copy-address", "field-address"):
        page.keyboard.press("Tab")
        focuses(page, name)
    page.keyboard.type("http://127.0.0.1/callback?code=1&state=other")
    page.keyboard.press("Enter")
    page.get_by_text("does not belong to this sign-in").wait_for()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(value(page, f"OAuthSite.visit({address!r})"))
    page.keyboard.press("Enter")
    gone(page, "question-address")
    execute(page, "connecting.result(60)")
    assert value(page, "private.servers['account'].state") == "ready"
    execute(page, "private_panel.close(); private.close(); site.__exit__(None, None, None)")


# --- hostile text, themes, access, what stays


def test_what_servers_models_and_people_say_is_text(page: Any) -> None:
    send(
        page,
        EVIL,
        "call(EVIL, x=EVIL)",
        "calls(call('math__add', a=EVIL, b=1), call('evil__book'))",
        "EVIL",
    )
    reads(at(page, "question-arguments"), "<script>")
    reads(at(page, "question-form"), "<script>")
    reads(at(page, "question-message"), "<script>")
    at(page, "deny").click()
    gone(page, "deny")
    at(page, "send-form").click()
    turn = ended(page, 1)
    reads(turn, "<script>document.body")
    assert (
        page.evaluate(
            f"() => document.querySelectorAll('{PANEL} :is(script, iframe, a, [onerror])').length"
        )
        == 0
    )


@pytest.mark.parametrize(("theme", "light"), LOOKS)
@pytest.mark.slow
def test_nothing_in_it_is_a_barrier(page: Any, axe: Path, theme: str, light: str) -> None:
    look(page, theme, light)
    send(
        page,
        "Add",
        "calls(ADD, call('travel__book'))",
        "'# Done\\n\\n| a | b |\\n|---|---|\\n| 1 | `2` |'",
    )
    at(page, "question-form").wait_for()
    at(page, "question-approval").wait_for()
    pictured(page, f"panel-asks-{light}")
    assert violations(page, axe, PANEL) == []
    at(page, "deny").click()
    at(page, "cancel").click()
    ended(page, 1)
    at(page, "edit").click()
    at(page, "clear").click()
    at(page, "large-text").click()
    pictured(page, f"panel-{light}")
    assert violations(page, axe, PANEL) == []
    at(page, "large-text").click()
    at(page, "edit-cancel").click()
    look(page, *LOOKS[0])


@pytest.mark.slow
def test_a_saved_notebook_shows_what_was_said_without_a_kernel(
    page: Any, lab: Lab, lab_browser: Any
) -> None:
    send(page, "What stays?", "'This stays.'")
    ended(page, 1)
    # Beside the live panel its picture is hidden.
    sync_api.expect(page.locator(".jp-Cell").nth(1).locator("[class*=cmn-picture-]")).to_be_hidden()
    page.wait_for_function(
        "() => document.querySelector('[class*=cmn-picture-]').textContent.includes('This stays.')"
    )
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    saved = nbformat.read(lab.folder / BOOK, as_version=4)
    html = "".join(
        str(output.get("data", {}).get("text/html", "")) for output in saved.cells[1].outputs
    )
    assert "This stays." in html
    saved.metadata["copy"] = "reopened"
    nbformat.write(saved, lab.folder / "panel-reopened.ipynb")
    lab.trust("panel-reopened.ipynb")
    again = lab_browser.new_page()
    again.goto(lab.address("panel-reopened.ipynb"))
    again.wait_for_function("() => document.body.innerText.includes('This stays.')")
    again.close()


def test_frozen_it_is_a_picture_for_good(page: Any) -> None:
    send(page, "What stays?", "'This stays too.'")
    ended(page, 1)
    execute(page, "panel.freeze()")
    sync_api.expect(page.locator(PANEL)).to_have_count(0)
    page.wait_for_function("() => document.body.innerText.includes('This stays too.')")
    run_cell(page, 1)
    page.wait_for_selector(PANEL)
