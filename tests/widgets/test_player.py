"""A player: a conversation as one file that loads nothing, however hostile its contents are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.widgets.base import bundle_of
from casual_mcp_nb.widgets.player import MAX_BYTES, player_page

CONFIG = {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}
EVIL = (
    "</script><img src=x onerror=alert(1)><!-- \u2028 <script>alert(2)</script> ${x} {{x}} \u202e"
)


def filled(value: Any, texts: list[str]) -> Any:
    """Put the long texts of a page in their places."""
    match value:
        case {"text": int(number)}:
            return texts[number]
        case dict():
            return {key: filled(item, texts) for key, item in value.items()}
        case list():
            return [filled(item, texts) for item in value]
        case _:
            return value


class Page(HTMLParser):
    """The tags of a page, and its embedded data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self._in_data = False
        self._data = ""
        self.feed(text)
        data = json.loads(self._data)
        self.data: dict[str, Any] = filled(data, data["texts"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._in_data = ("id", "player") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        self._data += data if self._in_data else ""

    def slides(self, kind: str) -> list[dict[str, Any]]:
        return [slide for slide in self.data["slides"] if slide["kind"] == kind]


def page_of(conversation: Conversation) -> Page:
    return Page(player_page(conversation, "A title"))


@pytest.fixture(scope="module")
def session() -> Session:
    with Session.from_config(
        {**CONFIG, "tool_discovery": {"enabled": True, "defer_all": True}}
    ) as session:
        steps = [
            call("search_tools", query="add numbers"),
            call("math__add", a=1, b=2),
            "It is **3**.",
        ]
        session.chat("Add 1 and 2.", model=scripted_model(*steps), echo="none")
        session.chat("And again.", model=scripted_model("Three."), echo="none")
        return session


def test_a_page_has_a_slide_for_the_prompt_each_request_each_call_and_the_answer(
    session: Session, tmp_path: Path
) -> None:
    page = Page(session.export(tmp_path / "lesson.html", player=True).read_text(encoding="utf-8"))
    kinds = [slide["kind"] for slide in page.data["slides"] if slide["turn"] == 1]
    assert kinds == ["prompt", "request", "search", "request", "call", "request", "answer"]
    turn = session.turns[0]
    (search,) = page.slides("search")
    assert [(row[0], row[1]) for row in search["rows"]] == [
        (str(row.tool), row.score) for row in turn.searches[0].rows
    ]
    (made,) = page.slides("call")
    assert json.loads(made["arguments"]) == {"a": 1, "b": 2}
    assert made["result"] == turn.tool_calls[1].result
    for slide, step in zip(
        page.slides("request"), (*turn.steps, *session.turns[1].steps), strict=True
    ):
        assert sum(slide["parts"]) == step.request.tokens.total
        assert sum(end - start for start, end in slide["messages"]) == len(step.request.messages)
    assert page.slides("answer")[0]["text"] == [["p", "It is ", ["strong", "3"], "."]]


def test_only_the_script_that_the_policy_names_runs_in_a_page(session: Session) -> None:
    text = player_page(session.conversations.current, "")
    page = Page(text)
    assert page.tags.count("script") == 2
    assert not {"link", "img", "iframe", "base", "form", "a"} & set(page.tags)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    for part in bundle_of("player"):
        assert "</script" not in part
        assert "</style" not in part
        assert base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in policy


def test_what_is_hostile_stays_data(tmp_path: Path) -> None:
    with Session.from_config(CONFIG) as session:
        steps = [calls((EVIL, {EVIL: EVIL}), ("math__add", {"a": EVIL, "b": 1})), EVIL]
        session.chat(EVIL, model=scripted_model(*steps), echo="none")
        text = session.export(tmp_path / "evil.html", player=True).read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("script") == 3
    assert "img" not in page.tags
    assert "alert(1)" in page.slides("prompt")[0]["text"]
    assert not {"\u2028", "\u202e"} & set(json.dumps(page.data, ensure_ascii=False))


def test_what_stays_in_the_kernel_and_what_is_secret_is_in_no_page() -> None:
    with Session.from_config(CONFIG) as session:

        @session.tool
        def table() -> ToolResult:
            """Return a table."""
            return ToolResult((), payload={"hidden": "in the kernel only"})

        model = scripted_model(call("table"), "Done.")
        session.chat(
            "Show me.",
            model=model,
            extra_headers={"Authorization": "Bearer sk-hidden"},
            echo="none",
        )
        text = player_page(session.conversations.current, "")
    assert "in the kernel only" not in text
    assert "sk-hidden" not in text


def test_twenty_turns_fit_into_a_megabyte_and_very_long_ones_too(session: Session) -> None:
    with Session.from_config(CONFIG) as longer:
        for number in range(20):
            steps = [call("math__add", a=number, b=2), f"It is {number + 2}. " + "word " * 200]
            longer.chat(f"Add {number} and 2.", model=scripted_model(*steps), echo="none")
        ordinary = player_page(longer.conversations.current, "")
        longer.chat("long " * 40_000, model=scripted_model("x" * 400_000), echo="none")
        huge = player_page(longer.conversations.current, "")
    assert len(ordinary.encode()) < 400_000
    assert len(huge.encode()) < 1_000_000
    assert len(page_of(session.conversations.current).data["slides"]) == 10


def test_a_page_is_a_cassette_that_replays_the_conversation(
    session: Session, tmp_path: Path
) -> None:
    path = session.export(tmp_path / "cassette.html", player=True)
    with Session.quick(cassette=path, quiet=True) as replayed:
        turns = replayed.cassettes.replay(echo="none")
    assert [turn.answer for turn in turns] == [turn.answer for turn in session.turns]
    assert [call.result for turn in turns for call in turn.tool_calls] == [
        call.result for turn in session.turns for call in turn.tool_calls
    ]
    assert [row.score for row in turns[0].searches[0].rows] == [
        row.score for row in session.turns[0].searches[0].rows
    ]


def test_a_cassette_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    with Session.from_config(CONFIG) as session:
        session.chat("long " * 80_000, model=scripted_model("Yes."), echo="none")
        text = session.export(tmp_path / "long.html", player=True).read_text(encoding="utf-8")
    page = Page(text)
    assert page.data["cassette"] is False
    assert page.tags.count("script") == 2


def test_a_key_of_the_config_is_masked_in_what_somebody_said(tmp_path: Path) -> None:
    key = "sk-proj-Zk3vQ8xW2mN5bT7yR1cL9dF4"
    server = {"bundled": "math", "transport": "in-process"}
    config = {
        "clients": {"own": {"provider": "openai", "api_key": key}},
        "servers": {"math": server},
    }
    with Session.from_config(config) as session:
        session.chat(f"Is {key} a key?", model=scripted_model(f"{key} is."), echo="none")
        text = session.export(tmp_path / "key.html", player=True).read_text(encoding="utf-8")
    assert key not in text
    assert "a key?" in text


def test_many_long_texts_are_cut_shorter_until_the_page_is_small_enough() -> None:
    with Session.from_config(CONFIG) as session:
        for number in range(60):
            text = f"{number} " + "x" * 30_000
            session.chat(text, model=scripted_model(text), echo="none")
        page = player_page(session.conversations.current, "")
    assert len(page.encode()) < MAX_BYTES


def test_a_turn_that_failed_or_was_stopped_says_so_in_place_of_its_answer() -> None:
    with Session.from_config(CONFIG) as session:
        session.chat(
            "Add.", model=scripted_model(call("math__add", a=1, b=2)), echo="none", max_steps=1
        )
        page = page_of(session.conversations.current)
        assert session.turns[0].status != "done"
    assert page.slides("answer")[0]["status"][1] in ("bad", "quiet")


def test_the_tools_that_the_model_could_search_are_in_the_page(
    session: Session, tmp_path: Path
) -> None:
    page = Page(session.export(tmp_path / "search.html", player=True).read_text(encoding="utf-8"))
    catalog, deferred = page.data["catalog"], session.parts.chat.current_view().deferred
    assert catalog["deferred"]
    assert catalog["total"] == len(deferred)
    assert catalog["tools"] == sorted([str(tool.tool_name), tool.description] for tool in deferred)


def test_a_page_with_very_many_tools_has_the_first_of_them() -> None:
    tools = [ToolSpec("big", f"tool_{number:04}", EVIL + "word " * 200) for number in range(3_000)]
    view = ToolView(Catalog(tools), Selection(), (), tuple(tools))
    text = player_page(Conversation(), "", view=view)
    catalog = Page(text).data["catalog"]
    assert len(text.encode()) < MAX_BYTES
    assert (catalog["deferred"], catalog["total"]) == (True, 3_000)
    names = [name for name, _ in catalog["tools"]]
    assert names == [str(tool.tool_name) for tool in tools[: len(names)]]
    assert len(names) >= 100


def test_a_page_without_a_session_has_no_tools() -> None:
    assert page_of(Conversation()).data["catalog"] == {"deferred": False, "total": 0, "tools": []}


def test_a_conversation_without_turns_has_a_page() -> None:
    page = page_of(Conversation())
    assert page.data["slides"] == []
    assert "A title" in player_page(Conversation(), "A title")


def test_a_player_is_html(session: Session, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="html"):
        session.export(tmp_path / "lesson.md", player=True)
    assert not (tmp_path / "lesson.md").exists()
