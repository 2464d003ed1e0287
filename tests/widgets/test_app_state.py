"""The widget of an app without a browser: what its page asks, and what it leaves in a saved
notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.app_pages import app_server

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.widgets._rows import rows_of, tool_detail
from casual_mcp_nb.widgets.app import AppsState, AppWidget


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(
        {}, in_process={"places": app_server()}, name="places", quiet=True, store=None
    ) as session:
        yield session


def test_explorer_and_card_mark_tools_with_an_app(session: Session) -> None:
    rows = {row[0]: row[3] for row in rows_of(session.parts.chat.catalog)["places"] if len(row) > 3}
    assert (rows["show"], rows["erase"]) == ("read-only app", "destructive")
    assert tool_detail(session.tools["places:show"], None)["badges"] == ["read-only", "app"]


def test_a_panel_lists_the_apps_of_its_turns(session: Session) -> None:
    panel = session.panel()
    turn = session.chat(
        "Show", model=scripted_model(call("places__show", city="Rome"), "ok"), echo="none"
    )
    (app,) = session.parts.apps.opened_in(turn)
    shown = panel._snapshots()
    assert [row["apps"] for row in shown["conversation"]["turns"].values()] == [[app.id]]
    assert list(shown["apps"]["apps"]) == [app.id]
    panel.close()


def test_a_widget_has_no_page_in_its_state_and_leaves_a_picture(
    session: Session, do: Callable[..., Any]
) -> None:
    app = session.tools.app("places:show")
    widget = AppWidget(app)
    assert isinstance(app.widget, AppWidget)
    state = widget.states["apps"]
    assert isinstance(state, AppsState)
    page = do(state, "page", app=app.id)
    assert page["html"].startswith("<!DOCTYPE html>")
    assert page["toolInfo"]["tool"]["name"] == "show"
    assert page["capabilities"].keys() >= {"serverTools", "openLinks"}
    assert "sampling" not in page["capabilities"]
    assert "<script" not in str(widget.shown)
    do(state, "status", app=app.id, status="shown")
    do(state, "note", app=app.id, notes=[["app", "ui/initialize", "<b>hi</b>"]] * 3, dropped=7)
    assert (len(app.messages), app.messages.dropped) == (5 - 1, 7)
    for data in ("PHN2Zz4=", "AAAA"):
        do(state, "picture", app=app.id, data=data)
    assert app.picture is None
    do(state, "picture", app=app.id, data="iVBORw0KGgo=")
    assert app.picture is not None
    html = widget._static_bundle()["text/html"]
    assert "<script" not in html
    picture, call = html.split("<details")
    assert "data:image/png" in picture
    assert "Places of Oslo" in call
    with pytest.raises(UsageError):
        do(state, "page", app="app-none")
    with pytest.raises(UsageError):
        do(state, "answer", app=app.id, question="none", answer="approve")
    widget.freeze()
