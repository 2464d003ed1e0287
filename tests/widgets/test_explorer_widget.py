"""The explorer and its parts as widgets, without a front end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from ipywidgets import Layout  # type: ignore[import-untyped]
from kit.shops import shelves

from casual_mcp_nb import Session
from casual_mcp_nb.base.status import ExplorerSnapshot
from casual_mcp_nb.views import MAX_BYTES
from casual_mcp_nb.widgets import (
    Explorer,
    ManifestView,
    ModelSearches,
    Panel,
    SearchBox,
    ServerToggles,
    TokenMeter,
    ToolsetPicker,
)
from casual_mcp_nb.widgets.base import bundle_of

KINDS: list[Callable[[Session], Any]] = [
    Explorer,
    ManifestView,
    ModelSearches,
    SearchBox,
    ServerToggles,
    ToolsetPicker,
]


@pytest.mark.parametrize("kind", KINDS)
def test_each_widget_is_one_module_and_has_a_picture(
    session: Session, kind: Callable[[Session], Any]
) -> None:
    widget = kind(session)
    assert len(re.findall(r"\bexport default\b|\bas default\b", widget._esm)) == 1
    assert not re.search(r"(^|;)import[ {*]", widget._esm, re.MULTILINE)
    bundle, _ = widget._repr_mimebundle_()
    assert "cmn-" in bundle["text/html"]
    assert bundle["text/plain"]
    widget.close()


@pytest.mark.parametrize("kind", [*KINDS, Panel, TokenMeter])
def test_each_widget_has_a_layout_and_takes_one(session: Session, kind: Callable[..., Any]) -> None:
    widget = kind(session)
    # What `AppLayout` and the other templates of ipywidgets do with each of their children.
    widget.layout.grid_area = "left-sidebar"
    assert widget.get_state("layout") == {"layout": f"IPY_MODEL_{widget.layout.model_id}"}
    widget.close()
    wide = Layout(width="80%")
    for given in (wide, {"width": "80%"}):
        widget = kind(session, layout=given)
        assert widget.layout.width == "80%"
        widget.close()
    assert wide.comm is not None, "a layout that a person gave may be that of another widget, too"


def test_the_picture_of_an_explorer_lists_servers_and_tools_without_a_script(
    session: Session,
) -> None:
    session.connect()
    session.selection.tools_off.add("math:add")
    explorer = Explorer(session)
    html = explorer._static_bundle()["text/html"]
    assert "<script" not in html
    rows = dict(
        re.findall(
            r'<th scope="row"[^>]*><code[^>]*>([^<]+)</code></th>.*?>([^<>]+)</td></tr>', html
        )
    )
    assert {tool.name for tool in session.tools} <= rows.keys()
    assert rows["add"] == "off"
    titles = re.findall(
        r'<summary><span class="cmn-phrase"><span>([^<]+)</span>.*?</span></span>'
        r" <span[^>]*>([^<]+)</span>",
        html,
    )
    modes = {name: session.servers.modes[name] for name in session.servers}
    assert dict(titles) == modes | {"gone": "✗ failed"}
    explorer.close()


def test_the_picture_of_a_panel_has_a_line_for_the_next_question(session: Session) -> None:
    panel = session.panel()
    assert panel.footer in panel._static_bundle()["text/html"]
    panel.close()


def test_the_picture_of_an_explorer_over_many_tools_stays_small(many: Session) -> None:
    explorer = Explorer(many)
    assert 10_000 < len(explorer._static_bundle()["text/html"]) < MAX_BYTES
    explorer.close()


@pytest.mark.parametrize(
    "name", ["explorer", "manifest_view", "search_box", "server_toggles", "toolset_picker"]
)
def test_the_style_of_a_widget_stays_with_widgets(name: str) -> None:
    _, style = bundle_of(name)
    selectors = re.findall(r"(?:^|[{}])\s*([^{}@]+)\{", style)
    assert len(selectors) > 20
    assert [selector for selector in selectors if ".cmn-" not in selector] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_widget_lets_go_of_the_session(
    session: Session, kind: Callable[[Session], Any]
) -> None:
    def followers() -> tuple[int, int]:
        return len(session.selection._listeners), len(session.parts.observers.changes)

    before = followers()
    widget = kind(session)
    assert sum(followers()) > sum(before)
    widget.close()
    widget.close()
    assert followers() == before


@pytest.mark.parametrize("kind", [ManifestView, ServerToggles, ToolsetPicker])
def test_a_small_widget_stays_small_over_many_tools(
    many: Session, kind: Callable[[Session], Any]
) -> None:
    widget = kind(many)
    assert len(str(widget.shown)) < 40_000
    widget.close()


@pytest.fixture(scope="module")
def many() -> Any:
    with Session.from_config(
        {"tool_discovery": {"enabled": True}}, in_process=shelves(20, 2_000)
    ) as session:
        yield session


def test_the_picture_says_what_the_widget_says(session: Session) -> None:
    session.selection.servers["units"] = "off"
    widget = session.explore()
    noun = widget.static()
    assert isinstance(noun, ExplorerSnapshot)
    assert (
        noun.tokens == widget.shown["selection"]["budget"]["now"]["total"] == session.status.tokens
    )
    assert str(noun.manifest) == widget.shown["selection"]["manifest"]["text"]
    text = noun._repr_mimebundle_()["text/plain"]
    assert "✗ failed" in text
    assert "a-secret-value" not in text
    widget.close()


def test_the_picture_of_many_tools_is_small(many: Session) -> None:
    many.selection.defer_all = True
    widget = many.explore()
    bundle = widget.static()._repr_mimebundle_()
    assert max(len(form.encode()) for form in bundle.values()) <= MAX_BYTES
    widget.close()
    many.selection.defer_all = False


def test_an_explorer_of_a_closed_session_shows_what_it_knew(session: Session) -> None:
    session.close()
    widget = session.explore()
    assert {info["state"] for info in widget.shown["selection"]["servers"].values()} == {"closed"}
    widget.close()
