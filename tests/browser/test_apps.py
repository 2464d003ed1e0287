"""Apps of servers in a real JupyterLab: used by mouse, in both themes, and held where they try what
no app may do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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

BOOK = "apps.ipynb"
APP = "[data-testid=app-view]"
TESTS = str(Path(__file__).resolve().parents[1])
NAMES = ["show", "silent", "plain", "lost", "reach", "forged", "leave", "network", "flood", "crowd"]


class Visits:
    """Two servers on the loopback: one that no policy allows, and one that a policy can allow.

    Both note what reaches them.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), self._handler()) for _ in range(2)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.forbidden, self.allowed = (
            f"http://127.0.0.1:{server.server_port}" for server in self.servers
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        paths = self.paths

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                paths.append(self.path)
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()
                self.wfile.write(b"here")

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()


@pytest.fixture(scope="module")
def visits() -> Iterator[Visits]:
    visits = Visits()
    yield visits
    visits.close()


@pytest.fixture(scope="module")
def page(lab_browser: Any, lab: Lab, visits: Visits) -> Iterator[Any]:
    setup = f"""
import sys
sys.path.insert(0, {TESTS!r})
from kit.app_pages import app_server
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
model = scripted_model(call("places__wait", city="Rome"), "Here it is.")
models = {{"planner": {{"client": "offline", "model": "planner"}}}}
session = Session({{"clients": {{"offline": {{"provider": "offline"}}}}, "models": models}}, store="chats.sqlite", quiet=True,
    in_process={{"places": app_server({visits.forbidden!r}, {visits.allowed!r})}})
session.connect()
"""
    cells = [f"app = session.tools.app('places:{name}', city='Bergen')\napp" for name in NAMES]
    written(
        lab,
        BOOK,
        [setup, *cells, "turn = session.chat('Show Rome', model=model)", "session.panel()"],
    )
    page = lab_browser.new_page(1200, 1400)
    page.set_default_timeout(20_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    opened(page, lab, BOOK)
    execute(page, setup)
    yield page
    assert page.url.startswith(lab.url)
    assert page.complaints == []
    page.close()


def _open(page: Any, name: str) -> Any:
    """Run the cell of an app, after those before it were cleared, and return the frame of its
    page.
    """
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    sync_api.expect(page.locator(APP)).to_have_count(0)
    run_cell(page, NAMES.index(name) + 1)
    sync_api.expect(page.locator(APP)).to_have_count(1)
    return page.frame_locator(f"{APP} iframe").frame_locator("iframe")


def _status(page: Any, status: str) -> None:
    sync_api.expect(page.locator(APP)).to_have_attribute("data-status", status)


def test_an_app_is_used_by_mouse_and_read_in_python(page: Any, axe: Path) -> None:
    inside = _open(page, "show")
    _status(page, "shown")
    # Nothing was sent before `initialized`.
    sync_api.expect(inside.locator("#said")).to_have_text("ready 0")
    sync_api.expect(inside.locator("#input")).to_have_text('{"city":"Bergen"}')
    sync_api.expect(inside.locator("#result")).to_contain_text('{"city":"Bergen"}')
    sync_api.expect(inside.locator("#result")).to_contain_text("of the app")
    sync_api.expect(inside.locator("#theme")).to_have_text("light")
    sync_api.expect(page.get_by_test_id("app-place")).to_have_css("height", "300px")
    inside.locator("#pick").click()
    sync_api.expect(inside.locator("#said")).to_have_text("{}")
    assert value(page, "app.value") == {"city": "Bergen"}
    assert value(page, "app.status") == "shown"
    execute(page, "app.send({'city': 'Rome'}, result={'city': 'Rome'})")
    sync_api.expect(inside.locator("#result")).to_contain_text("Rome")

    inside.locator("#large").click()
    sync_api.expect(page.locator(APP)).to_have_attribute("data-mode", "fullscreen")
    assert page.evaluate(
        f"() => document.querySelector('{APP}').getBoundingClientRect().width === innerWidth"
    )
    pictured(page, "app-fullscreen")
    # The focus is in the page, and no key that is pressed there reaches the notebook by itself.
    page.keyboard.press("Escape")
    sync_api.expect(page.locator(APP)).to_have_attribute("data-mode", "inline")
    page.get_by_test_id("app-mode").click()
    sync_api.expect(page.locator(APP)).to_have_attribute("data-mode", "fullscreen")
    # Nor does the focus leave for the notebook behind it.
    page.locator(".jp-CodeCell .cm-content").first.focus()
    focuses(page, "app-messages")
    page.get_by_test_id("app-mode").click()
    sync_api.expect(page.locator(APP)).to_have_attribute("data-mode", "inline")
    sync_api.expect(inside.locator("#said")).to_contain_text("context")

    inside.locator("#script").click()
    sync_api.expect(inside.locator("#said")).to_contain_text("error Only addresses")
    inside.locator("#link").click()
    sync_api.expect(page.get_by_test_id("app-ask-text")).to_have_text("https://example.org/a?b=1")
    assert violations(page, axe, APP) == []
    page.get_by_test_id("app-refuse").click()
    sync_api.expect(inside.locator("#said")).to_contain_text("did not allow")
    inside.locator("#file").click()
    sync_api.expect(page.get_by_test_id("app-ask-text")).to_have_text("notes.txt (10 bytes)")
    with page.expect_download() as download:
        page.get_by_test_id("app-allow").click()
    assert download.value.suggested_filename == "notes.txt"

    for theme, light in LOOKS[::-1]:
        look(page, theme, light)
        sync_api.expect(page.locator("#jupyterlab-splash")).to_have_count(0)
        sync_api.expect(inside.locator("#said")).to_contain_text(
            '"theme":"dark"' if light == "false" else '"theme":"light"'
        )
        page.get_by_test_id("app-messages").click()
        pictured(page, f"app-{light}")
        assert violations(page, axe, APP) == []
    methods = value(page, "[(each.sender, each.method) for each in app.messages]")
    assert [method for sender, method in methods if sender == "app"][:2] == [
        "ui/initialize",
        "ui/notifications/initialized",
    ]


def test_calls_of_an_app_wait_for_the_person(page: Any) -> None:
    inside = _open(page, "show")
    sync_api.expect(inside.locator("#said")).to_have_text("ready 0")
    inside.locator("#erase").click()
    sync_api.expect(page.get_by_test_id("app-question-tool")).to_have_text("erase")
    pictured(page, "app-question")
    page.get_by_test_id("app-deny").click()
    sync_api.expect(inside.locator("#said")).to_contain_text("error This call was not approved")
    inside.locator("#peek").click()
    sync_api.expect(inside.locator("#said")).to_contain_text('"text":"[]"')
    inside.locator("#erase").click()
    page.get_by_test_id("app-approve").click()
    sync_api.expect(inside.locator("#said")).to_contain_text('[\\"Oslo\\"]')
    inside.locator("#hidden").click()
    sync_api.expect(inside.locator("#said")).to_contain_text("not a tool that apps may call")
    made = value(
        page, "[(each.tool.tool, each.caller, each.status) for each in session.consent.audit][-4:]"
    )
    assert made == [
        *(
            ("erase", "app", "denied"),
            ("peek", "app", "ok"),
            ("erase", "app", "ok"),
            ("for_model", "app", "error"),
        ),
    ]
    inside.locator("#done").click()
    _status(page, "closed")
    page.get_by_test_id("app-messages").click()
    sync_api.expect(page.get_by_test_id("app-log")).to_contain_text("ui/resource-teardown")
    page.get_by_test_id("app-open").click()
    _status(page, "shown")
    sync_api.expect(inside.locator("#result")).to_contain_text("Bergen")
    execute(page, "app.close()")
    _status(page, "closed")


@pytest.mark.parametrize(
    ("name", "says"),
    [("plain", "is declared as"), ("lost", "ui://places/lost"), ("silent", "handshake")],
)
def test_an_app_that_is_not_shown_says_why(page: Any, name: str, says: str) -> None:
    execute(page, "import casual_mcp_nb.widgets.app as module; module.HANDSHAKE_SECONDS = 2")
    _open(page, name)
    _status(page, "failed" if name == "silent" else "stopped")
    sync_api.expect(page.get_by_test_id("app-problem")).to_contain_text(says)
    sync_api.expect(page.get_by_test_id("app-log")).to_be_visible()
    execute(page, "module.HANDSHAKE_SECONDS = 15")
    assert value(page, "app.status") == "failed"
    assert says in value(page, "app.problem")
    pictured(page, f"app-{name}")


def test_a_page_reaches_nothing_around_it(page: Any) -> None:
    inside = _open(page, "reach")
    sync_api.expect(inside.locator("#said")).to_contain_text("parent.document: SecurityError")
    tried = dict(part.split(": ") for part in inside.locator("#said").inner_text().split("; "))
    assert set(tried.values()) == {"SecurityError"}


def test_forged_messages_change_nothing(page: Any) -> None:
    inside = _open(page, "forged")
    sync_api.expect(inside.locator("#said")).to_have_text("forged")
    # What was sent after them arrives after them.
    page.get_by_test_id("app-messages").click()
    sync_api.expect(page.get_by_test_id("app-log")).to_contain_text("tools/call needs a name")
    _status(page, "shown")
    assert value(page, "app.value") is None
    log = page.get_by_test_id("app-log").inner_text()
    assert log.count("ignored") >= 4
    assert "-32601" in log


def test_a_page_that_leaves_sends_nothing(page: Any, visits: Visits) -> None:
    visits.paths.clear()
    inside = _open(page, "leave")
    page.get_by_test_id("app-messages").click()
    sync_api.expect(page.get_by_test_id("app-log")).to_contain_text("ui/notifications/initialized")
    sync_api.expect(page.get_by_test_id("app-log")).to_contain_text("elsewhere")
    execute(page, "app.send({'city': 'Rome'})")
    assert inside is not None
    assert visits.paths == []
    assert "apps.ipynb" in page.url


def test_the_network_is_only_what_the_policy_allows(page: Any, visits: Visits) -> None:
    visits.paths.clear()
    inside = _open(page, "network")
    sync_api.expect(inside.locator("#said")).to_have_text("allowed here")
    assert visits.paths == ["/allowed"]
    page.get_by_test_id("app-messages").click()
    sync_api.expect(page.get_by_test_id("app-log")).to_contain_text("blocked")


def test_a_flood_of_messages_is_stopped(page: Any) -> None:
    _open(page, "flood")
    _status(page, "stopped")
    sync_api.expect(page.get_by_test_id("app-problem")).to_contain_text("messages in one second")
    sync_api.expect(page.locator(f"{APP} iframe")).to_have_count(0)
    # Lab and the kernel go on.
    assert value(page, "1 + 1") == 2
    assert value(page, "len(app.messages) < 300")


@pytest.mark.defect("N3")
def test_only_so_many_requests_of_an_app_are_open_and_it_is_closed_before_their_answers(
    page: Any,
) -> None:
    inside = _open(page, "crowd")
    sync_api.expect(inside.locator("#said")).to_have_text("busy 92")
    # A cell waits behind few of them, and the app is taken away while they wait.
    execute(page, "session.tools.functions.places.asked_for_a_slow_place()")
    execute(page, "app.close()")
    _status(page, "closed")
    sync_api.expect(page.locator(f"{APP} iframe")).to_have_count(0)
    # One that is read after the end of the app reaches its server no more.
    reached = value(page, "sorted(session.tools.functions.places.release())")
    assert reached == list(range(len(reached)))
    assert 1 <= len(reached) <= 8


def test_the_apps_of_a_turn_are_below_its_card_and_leave_a_picture(page: Any) -> None:
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    run_cell(page, len(NAMES) + 1)
    inside = page.frame_locator(f"{APP} iframe").frame_locator("iframe")
    card = page.locator(".jp-OutputArea-output").filter(has_text="places:wait").first
    # The call ends when the app has called a tool, so the app is there and used before.
    sync_api.expect(inside.locator("#input")).to_have_text('{"city":"Rome"}')
    sync_api.expect(card).to_contain_text("running")
    sync_api.expect(inside.locator("#result")).to_have_text("")
    pictured(page, "app-early")
    inside.locator("#peek").click()
    sync_api.expect(inside.locator("#result")).to_contain_text("Rome")
    sync_api.expect(card).to_contain_text("Here it is.")
    inside.locator("#peek").click()
    # The card of the turn, which has ended, grows.
    sync_api.expect(
        card.get_by_text("✓ ok · from the app", exact=True).locator("visible=true")
    ).to_have_count(2)
    pictured(page, "app-turn")
    execute(page, "last = session.tools.apps[-1]")
    assert (
        value(page, "[(str(each.tool), each.status) for each in turn.app_calls]")
        == [("places:peek", "ok")] * 2
    )
    inside.locator("#pick").click()
    sync_api.expect(inside.locator("#said")).to_have_text("{}")
    assert value(page, "last.value") == {"city": "Bergen"}
    execute(page, "import asyncio\nwhile last.picture is None:\n    await asyncio.sleep(0.05)")
    html = value(page, "last._repr_mimebundle_()['text/html']")
    assert "data:image/jpeg;base64," in html
    assert "<script" not in html


def test_the_panel_shows_the_app_and_sends_its_message_when_told_to(page: Any) -> None:
    panel = page.get_by_test_id("chat-panel")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    run_cell(page, len(NAMES) + 2)
    sync_api.expect(panel.get_by_test_id("app-view")).to_have_attribute("data-status", "shown")
    inside = page.frame_locator(f"{APP} iframe").frame_locator("iframe")
    sync_api.expect(inside.locator("#input")).to_have_text('{"city":"Rome"}')
    panel.get_by_test_id("app-view").scroll_into_view_if_needed()
    pictured(page, "app-panel")
    inside.locator("#message").click()
    sync_api.expect(page.get_by_test_id("app-ask-text")).to_have_text("Tell me about Bergen")
    assert value(page, "len(session.turns)") == 1
    page.get_by_test_id("app-refuse").click()
    sync_api.expect(inside.locator("#said")).to_contain_text("did not allow")
    inside.locator("#message").click()
    page.get_by_test_id("app-allow").click()
    sync_api.expect(panel.get_by_test_id("turn-2").get_by_test_id("prompt")).to_have_text(
        "Tell me about Bergen"
    )


def test_a_resumed_conversation_opens_its_apps_when_told_to(page: Any, axe: Path) -> None:
    panel = page.get_by_test_id("chat-panel")
    view, log = (
        panel.get_by_test_id("app-view"),
        "[each.method for each in session.tools.apps[0].messages]",
    )
    execute(page, "session.conversations.resume(session.conversations.id)")
    sync_api.expect(view).to_have_attribute("data-status", "closed")
    sync_api.expect(view.get_by_test_id("app-status")).to_have_text("○ not opened")
    sync_api.expect(panel.get_by_test_id("turn-1")).to_contain_text("from the app")
    assert value(page, log) == []
    pictured(page, "app-resumed")
    view.get_by_test_id("app-open").click()
    sync_api.expect(view).to_have_attribute("data-status", "shown")
    inside = page.frame_locator(f"{APP} iframe").frame_locator("iframe")
    sync_api.expect(inside.locator("#result")).to_contain_text("Rome")
    view.get_by_test_id("app-close").click()
    execute(
        page,
        "session.servers.remove('places')\nsession.conversations.resume(session.conversations.id)",
    )
    sync_api.expect(view.get_by_test_id("app-obstacle")).to_contain_text("is not connected")
    sync_api.expect(view.get_by_test_id("app-open")).to_have_count(0)
    assert violations(page, axe, "[data-testid=app-view]") == []
    pictured(page, "app-without-its-server")
