"""MCP Apps without a browser: what is declared and read, the policy of a page, and what an app may
ask of a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets
import pytest
import traitlets
from kit.app_pages import MIME, app_server
from kit.raw_server import raw_config
from kit.setups import OFFLINE
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.mcp import APPS_EXTENSION
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation import audit
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.errors import ResourceError, ToolCallError, UsageError
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.notebook import apps as session_apps
from casual_mcp_nb.notebook.app import MAX_VALUE, App
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.app_pages import app_policy, is_domain


@pytest.fixture
def session() -> Iterator[Session]:
    with Session({}, in_process={"places": app_server()}, quiet=True, store=None) as session:
        yield session


def _run(session: Session, work: Any) -> Any:
    return session.parts.engine.submit(work)[0].result(30)


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
def test_apps_are_declared_in_both_eras_unless_turned_off(protocol: str) -> None:
    servers = {
        name: {
            "bundled": "math",
            "transport": "in-process",
            "protocol": protocol,
            **({} if apps is None else {"apps": apps}),
        }
        for name, apps in (("usual", None), ("off", False), ("on", True))
    }
    for everywhere, declaring in ((True, {"usual", "on"}), (False, {"on"})):
        with Session({"servers": servers, "apps": everywhere}, quiet=True, store=None) as session:
            for name in servers:
                declared = list(_declared(session, name))
                assert declared
                assert all(
                    each == ({"mimeTypes": [MIME]} if name in declaring else None)
                    for each in declared
                )


def _declared(session: Session, server: str) -> Iterator[Any]:
    for record in session.servers.wire(server):
        if record.direction == "sent":
            capabilities = _capabilities(record.message.get("params") or {})
            if capabilities is not None:
                yield (capabilities.get("extensions") or {}).get(APPS_EXTENSION)


def _capabilities(params: Mapping[str, Any]) -> Any:
    meta = params.get("_meta") or {}
    return params.get("capabilities") or meta.get("io.modelcontextprotocol/clientCapabilities")


def test_a_server_whose_apps_are_off_has_none() -> None:
    with Session(
        {"apps": False}, in_process={"places": app_server()}, quiet=True, store=None
    ) as session:
        turn = session.chat(
            "Show", model=scripted_model(call("places__show", city="Rome"), "ok"), echo="none"
        )
        assert (
            list(session.tools.apps),
            session.servers["places"].apps,
            turn.tool_calls[0].app,
        ) == ([], (), "")
        with pytest.raises(UsageError):
            session.tools.app("places:show")


def test_a_tool_knows_its_app_and_who_may_call_it(session: Session) -> None:
    tools = {tool.name: tool for tool in session.tools.of_server("places")}
    assert (tools["show"].app, tools["show"].for_apps, tools["show"].restriction) == (
        "ui://places/show",
        True,
        None,
    )
    assert (tools["peek"].for_apps, tools["peek"].restriction) == (True, "app only")
    assert (tools["for_model"].for_apps, tools["for_model"].restriction) == (False, None)
    assert "places__peek" not in session.parts.chat.current_view().loaded_by_name
    assert "peek" not in [
        hit.tool.name for hit in session.search("look at what was erased", all_tools=True)
    ]
    assert "peek" not in str(session.tools.manifest)
    assert "show" in session.servers["places"].apps
    assert "peek" in session.servers["places"].app_only
    assert "ui://places/show" in str(session.tools["places:show"])


def test_no_model_calls_a_tool_for_apps(session: Session) -> None:
    turn = session.chat("Peek", model=scripted_model(call("places__peek"), "ok"), echo="none")
    assert [each.status for each in turn.tool_calls] == ["error"]
    assert session.tools.call("places:peek").result == "[]"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "https://example.org",
            "https://*.example.org",
            "https://a-b.example.org:8443",
            "wss://example.org/",
            "https://x.org:*",
        ),
        *("http://localhost:3000", "ws://127.0.0.1:9", "HTTPS://Example.ORG"),
    ],
)
def test_origins_are_domains(text: str) -> None:
    assert is_domain(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "*",
            "https:",
            "https://*",
            "https://*.org",
            "data:",
            "http://example.org",
            "'self'",
            "https://a.org;script-src *",
        ),
        *(
            "https://a.org https://b.org",
            'https://a.org" onload="x',
            "https://a.org,b.org",
            "https://a.org/path",
            "//a.org",
        ),
        *(
            "https://a.org\n",
            "https://ä.org",
            "https://user@a.org",
            "https://a..org",
            "https://-a.org",
            "https://" + "a." * 200,
        ),
        *(
            "javascript://a.org",
            "https://*.*.a.org",
            5,
            None,
            ["https://a.org"],
            {"a": 1},
            "https://a.org#x",
            "https://a.org?x",
        ),
    ],
)
def test_nothing_else_gets_into_a_policy(text: Any) -> None:
    assert not is_domain(text)
    policy, left_out = app_policy({"connectDomains": [text], "frameDomains": [text]})
    assert policy == app_policy(None)[0]
    assert len(left_out) == 2


@pytest.mark.defect("N2")
@pytest.mark.parametrize(
    ("home", "domain", "allowed"),
    [
        ("https://mcp.org/mcp", "https://api.org", True),
        ("https://mcp.org/mcp", "https://*.cdn.org:*", True),
        ("https://mcp.org/mcp", "wss://live.org", True),
        ("https://mcp.org/mcp", "http://localhost:8888", False),
        ("https://mcp.org/mcp", "https://127.0.0.1:8888", False),
        ("https://mcp.org/mcp", "wss://192.168.1.1", False),
        ("https://mcp.org/mcp", "https://*.router.local", False),
        ("https://mcp.org/mcp", "https://169.254.169.254:*", False),
        ("http://127.0.0.1:8000/mcp", "http://localhost:8888", True),
        ("http://127.0.0.1:8000/mcp", "https://192.168.1.1", False),
        (None, "ws://127.0.0.1:9", True),
    ],
)
def test_an_app_of_a_server_elsewhere_reaches_nothing_here(
    home: str | None, domain: str, allowed: bool
) -> None:
    policy, left_out = app_policy({"connectDomains": [domain]}, home)
    assert (domain in policy, left_out) == (allowed, () if allowed else (domain,))


def test_a_policy_is_closed_but_for_what_is_declared() -> None:
    closed = dict(part.split(" ", 1) for part in app_policy("anything")[0].split("; "))
    assert (
        closed["default-src"]
        == closed["frame-src"]
        == closed["form-action"]
        == closed["base-uri"]
        == "'none'"
    )
    assert not [
        value for value in closed.values() if "http" in value or "*" in value or "self" in value
    ]
    declared = {
        "connectDomains": ["https://api.org"],
        "resourceDomains": ["https://*.cdn.org"],
        "frameDomains": ["https://f.org"],
    }
    opened = dict(part.split(" ", 1) for part in app_policy(declared)[0].split("; "))
    assert {name for name, value in opened.items() if "https://api.org" in value} == {"connect-src"}
    assert {name for name, value in opened.items() if "https://*.cdn.org" in value} == {
        *("script-src", "style-src", "img-src", "font-src", "media-src")
    }
    assert opened["frame-src"] == "https://f.org"


def test_an_app_shows_a_call_and_gives_a_value(session: Session) -> None:
    app = session.tools.app("places:show", city="Bergen")
    assert isinstance(app, App)
    assert (app.status, app.value, app.call.structured) == ("not opened", None, {"city": "Bergen"})
    (_, first, arguments), (last, second, result) = app.feed(0)
    assert (first, arguments) == ("ui/notifications/tool-input", {"arguments": {"city": "Bergen"}})
    assert (second, result["structuredContent"], result["_meta"]["secret"]) == (
        *("ui/notifications/tool-result", {"city": "Bergen"}, "of the app"),
    )
    slider, seen = ipywidgets.Text(), list[Any]()
    traitlets.dlink(
        (app, "value"),
        (slider, "value"),
        lambda value: value["city"] if isinstance(value, dict) else "",
    )
    end = app.on_change(seen.append)
    _run(session, app.set_context([{"type": "text", "text": "picked"}], {"city": "Oslo"}))
    assert (app.value, slider.value, seen) == ({"city": "Oslo"}, "Oslo", [{"city": "Oslo"}])
    assert app.context is not None
    assert "picked" in app.context.text
    end()
    _run(session, app.set_context([{"type": "text", "text": "only text"}, "no block"], None))
    assert (app.value, len(seen)) == ("only text", 1)
    app.send({"city": "Rome"}, result={"city": "Rome"})
    assert [method for _, method, _ in app.feed(last)] == [
        "ui/notifications/tool-input",
        "ui/notifications/tool-result",
    ]
    app.send(cancelled="enough")
    assert [method for _, method, _ in app.feed(0)] == [
        "ui/notifications/tool-input",
        "ui/notifications/tool-cancelled",
    ]
    app.send(partial={"city": "Ro"})
    assert app.feed(0)[-1][1] == "ui/notifications/tool-input-partial"
    assert list(session.tools.apps) == [app]
    app.close()
    with pytest.raises(UsageError):
        app.send({"city": "Oslo"})
    with pytest.raises(UsageError):
        session.tools.app("places:erase", city="Oslo")


def test_the_magic_opens_one(session: Session) -> None:
    run = COMMANDS["app"].run
    assert run is not None
    app = run(session, 'places:show {"city": "Rome"}')
    assert app.call.arguments == {"city": "Rome"}


def test_what_cannot_be_sent_is_refused(session: Session) -> None:
    app = session.tools.app("places:show")
    for value in ({1, 2}, 5, {"x": float("nan")}, {"x": object()}):
        with pytest.raises(UsageError):
            app.send(result=value)
    app.send(result=session.tools.call("places:peek"))
    app.send(result="text")
    assert app.feed(0)[-1][2] == {"content": [{"type": "text", "text": "text"}]}
    with pytest.raises(UsageError):
        _run(session, app.set_context([], {"x": "y" * MAX_VALUE}))


def test_calls_of_an_app_need_approval_and_are_recorded(session: Session) -> None:
    app = session.tools.app("places:show")
    cancel = session.questions.panel_opened()
    asked = session.parts.engine.submit(app.call_tool("erase", {"city": "Oslo"}))[0]
    question = session.questions.wait(10)
    assert (question.kind, question.channel, question.server) == ("approval", "panel", "places")
    question.deny("Not that one")  # type: ignore[attr-defined]
    with pytest.raises(ToolCallError, match="Not that one"):
        asked.result(10)
    assert session.tools.call("places:peek").result == "[]"
    asked = session.parts.engine.submit(app.call_tool("erase", {"city": "Oslo"}))[0]
    session.questions.wait(10).approve()  # type: ignore[attr-defined]
    result = asked.result(10)
    assert result["content"] == [{"type": "text", "text": '["Oslo"]'}]
    assert result["structuredContent"] == {"result": '["Oslo"]'}
    assert _run(session, app.call_tool("peek", {}))["content"][0]["text"] == '["Oslo"]'
    cancel()
    made = [
        (record.tool.tool, record.status)
        for record in session.consent.audit
        if record.caller == "app"
    ]
    assert made == [("erase", "denied"), ("erase", "ok"), ("peek", "ok")]
    assert [each.caller for each in session.tools.calls] == [
        "app",
        "app",
        "person",
        "app",
        "person",
    ]
    assert [each.tool.tool for each in app.calls] == ["erase", "peek"]


def test_an_app_reaches_only_what_is_for_it(session: Session) -> None:
    app = session.tools.app("places:show")
    names = [tool["name"] for tool in app.list_tools()["tools"]]
    assert {"peek", "erase"} < set(names)
    assert "for_model" not in names
    for name in ("for_model", "places:peek", "none", ""):
        with pytest.raises(ToolCallError):
            _run(session, app.call_tool(name, {}))
    assert session.consent.audit[-1].tool.tool == "for_model"
    session.selection.tools_off = ("places:peek",)
    with pytest.raises(ToolCallError):
        _run(session, app.call_tool("peek", {}))
    contents = _run(session, app.read_resource("ui://places/data"))["contents"]
    assert contents == [
        {"uri": "ui://places/data", "mimeType": "application/json", "text": '{"a": 1}'}
    ]
    with pytest.raises(ResourceError):
        _run(session, app.read_resource("ui://places/none"))
    with pytest.raises(UsageError):
        _run(session, app.sample({"messages": [], "maxTokens": 5}))


SELECTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "nothing": ({}, {}, {"show", "erase", "peek"}),
    "excluded by the config": ({"exclude_tools": ["erase"]}, {}, {"show", "peek"}),
    "included by the config": ({"include_tools": ["show"]}, {}, {"show"}),
    "a tool off": ({}, {"tools_off": ["places:erase"]}, {"show", "peek"}),
    "the server off": ({}, {"servers": {"places": "off"}}, set()),
    "a list": ({}, {"tool_set": {"servers": {"places": ["show"]}}}, {"show", "peek"}),
    "an empty list": ({}, {"tool_set": {"servers": {"places": []}}}, set()),
    "all of it": ({}, {"tool_set": {"servers": {"places": True}}}, {"show", "erase", "peek"}),
    "an exclusion": (
        {},
        {"tool_set": {"servers": {"places": {"exclude": ["erase", "peek"]}}}},
        {"show"},
    ),
    "another server": ({}, {"tool_set": {"servers": {"places": False}}}, set()),
    "a toolset by name": ({}, {"tool_set": "narrow"}, {"show", "peek"}),
}


@pytest.mark.parametrize(("server", "chosen", "usable"), SELECTIONS.values(), ids=SELECTIONS)
def test_an_app_calls_nothing_that_the_config_or_the_selection_excludes(
    server: dict[str, Any], chosen: dict[str, Any], usable: set[str]
) -> None:
    page = {"resourceUri": "ui://places/show"}
    meta = {"show": page, "erase": {}, "peek": {"visibility": ["app"]}}
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": ui}}
        for name, ui in meta.items()
    ]
    config = {
        "servers": {"places": raw_config(config=server, tools=tools)},
        "tool_sets": {"narrow": {"servers": {"places": ["show"]}}},
    }
    with Session(config, quiet=True, store=None) as session:
        app = session.tools.app("places:show")
        for name, value in chosen.items():
            setattr(session.selection, name, value)
        called = set()
        for name in meta:
            with suppress(ToolCallError):
                _run(session, app.call_tool(name, {}))
                called.add(name)
        assert called == usable
        assert {tool["name"] for tool in app.list_tools()["tools"]} == usable


@pytest.mark.parametrize(("tool", "error"), [("plain", UsageError), ("lost", ResourceError)])
def test_a_page_that_cannot_be_shown_says_why(
    session: Session, tool: str, error: type[Exception]
) -> None:
    app = session.tools.app(f"places:{tool}")
    with pytest.raises(error):
        _run(session, app.page())
    assert app.status == "failed"
    assert f"ui://places/{tool}" in app.problem
    assert app.problem in str(app)


def test_a_turn_opens_the_apps_of_its_calls_with_whole_results(session: Session) -> None:
    turn = session.chat(
        "Show", model=scripted_model(call("places__show", city="Rome"), "ok"), echo="none"
    )
    (app,) = session.tools.apps
    assert app.call.id == turn.tool_calls[0].id
    assert [params for _, _, params in app.feed(0)][1]["_meta"]["secret"] == "of the app"
    assert session.parts.apps.of_turn(turn) == [app]
    restored = ToolCall("other", "places__show", app.tool, {"city": "Rome"}, "ok", "Places of Rome")
    again = session.parts.apps.of_call(turn, restored)
    assert again is not None
    assert again.feed(0)[1][2]["content"][0]["text"] == "Places of Rome"


def test_the_result_of_a_call_in_another_conversation_is_not_for_an_app(session: Session) -> None:
    model = scripted_model(call("places__show", city="Rome"), "ok")
    shown = session.chat("Show", model=model, echo="none").tool_calls[0]
    (app,) = session.tools.apps
    feed, result = app.feed(0), app.call.result
    session.conversations.new()
    model = scripted_model(call("places__for_model"), "ok")
    other = session.chat("Tell", model=model, echo="none").tool_calls[0]
    assert (other.id, other.status) == (shown.id, "ok")
    assert (app.feed(0), app.call.result) == (feed, result)


def test_equal_calls_of_two_conversations_have_an_app_each(session: Session) -> None:
    turns = []
    for _ in range(2):
        model = scripted_model(call("places__show", city="Rome"), "ok")
        turns.append(session.chat("Show", model=model, echo="none"))
        session.conversations.new()
    first, second = (session.parts.apps.of_turn(turn) for turn in turns)
    assert [turn.tool_calls[0].id for turn in turns] == [turns[0].tool_calls[0].id] * 2
    assert [app.turn() for app in (*first, *second)] == turns
    assert session.parts.apps.of_turn(turns[0]) == first


def test_a_stub_answers_the_calls_of_an_app(session: Session) -> None:
    app = session.tools.app("places:show")
    with session.tools.mock({"places:*": "STUB"}):
        result = _run(session, app.call_tool("erase", {"city": "Rome"}))
    assert result["content"][0]["text"] == "STUB"
    assert _run(session, app.call_tool("peek", {}))["content"][0]["text"] == "[]"


def test_calls_of_an_app_are_on_its_turns_trace_and_saved(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    with Session({}, in_process={"places": app_server()}, quiet=True, store=file) as session:
        turn = session.chat(
            "Show", model=scripted_model(call("places__show", city="Rome"), "ok"), echo="none"
        )
        messages, (app,) = turn.messages, session.tools.apps
        _run(session, app.call_tool("peek", {}))
        with pytest.raises(ToolCallError):
            _run(session, app.call_tool("for_model", {"x": "y" * 30_000}))
        first, second = turn.app_calls
        assert (first.tool, first.arguments, first.status, first.value) == (
            ToolName("places", "peek"),
            {},
            "ok",
            "[]",
        )
        assert (second.status, second.from_app, type(second.arguments)) == ("error", True, str)
        (made,) = turn.tool_calls
        assert (made.app_calls, made.from_app, turn.messages) == ((first, second), False, messages)
        assert (turn.stats.tool_calls.total, turn.stats.tool_calls.from_apps["places:peek"]) == (
            1,
            1,
        )
        for form in (str(turn), turn._repr_html_(), str(made), str(turn.stats)):
            assert "places:peek" in form
        assert "from the app" in str(turn)
        for name in ("chat.html", "chat.md", "chat.json"):
            assert (
                "places:peek" in session.export(tmp_path / name).read_text() or name == "chat.json"
            )
        assert [each.tool for each in Conversation.load(tmp_path / "chat.json")[0].app_calls] == [
            first.tool,
            second.tool,
        ]
        id = session.conversations.id
    with Session({}, in_process={"places": app_server()}, quiet=True, store=file) as session:
        session.conversations.resume(id)
        again = session.turns[0]
        assert [replace(each, at=0.0) for each in again.app_calls] == [
            replace(each, at=0.0) for each in (first, second)
        ]
        (app,) = session.tools.apps
        assert (app.reopened, app.status, app.call.app) == (True, "not opened", "ui://places/show")
        assert session.parts.apps.opened_in(again) == [app]
        assert [method for _, method, _ in app.feed(0)] == [
            "ui/notifications/tool-input",
            "ui/notifications/tool-result",
        ]
        # Its page is not read before somebody opens it.
        assert "resources/read" not in [
            record.message.get("method") for record in session.servers.wire("places")
        ]
        assert (app.obstacle, _run(session, app.page()).html[:9]) == ("", "<!DOCTYPE")
        _run(session, app.call_tool("peek", {}))
        assert len(again.app_calls) == 3
        assert len(session.conversations.current[0].app_calls) == 3
    with Session({}, quiet=True, store=file) as session:
        with pytest.warns(UserWarning, match="places"):
            session.conversations.resume(id)
        (app,) = session.tools.apps
        with pytest.raises(UsageError, match="is not connected"):
            _run(session, app.page())
        assert (app.obstacle, app.status) == (app.problem, "failed")
    with Session(
        {"apps": False}, in_process={"places": app_server()}, quiet=True, store=file
    ) as session:
        session.conversations.resume(id)
        assert (list(session.tools.apps), len(session.turns[0].app_calls)) == ([], 3)
        assert "ok · app" in str(session.turns[0])


def test_the_apps_of_a_resumed_conversation_keep_their_order_and_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_apps, "MAX_APPS", 5)
    file, cities = tmp_path / "store.sqlite", "abcdefgh"
    shows = [call("places__show", city=city) for city in cities]
    # Of the first turn, the last three are opened again.
    monkeypatch.setattr(session_apps, "MAX_REOPENED", 3)
    answers = [calls(*shows[:4]), "ok", calls(*shows[4:6]), "ok", calls(*shows[6:]), "ok"]
    with Session({}, in_process={"places": app_server()}, quiet=True, store=file) as session:
        model = scripted_model(*answers)
        for _ in range(3):
            session.chat("Show", model=model, echo="none")
        id = session.conversations.id

    def shown(listed: Iterable[App]) -> str:
        return "".join(app.call.arguments["city"] for app in listed)

    with Session({}, in_process={"places": app_server()}, quiet=True, store=file) as session:
        session.tools.app("places:show", city="x")
        session.conversations.resume(id)
        assert shown(session.tools.apps) == "efghx"
        of_turns = [shown(session.parts.apps.opened_in(turn)) for turn in session.turns]
        assert of_turns == ["", "ef", "gh"]
        # What opens later takes the place of the oldest.
        session.tools.app("places:show", city="y")
        assert shown(session.tools.apps) == "fghxy"
        # Another time, they are newer than what had been resumed before.
        session.conversations.resume(id)
        assert shown(session.tools.apps) == "fghxy"
        assert shown(session.parts.apps.opened_in(session.turns[-1])) == "gh"
    monkeypatch.setattr(session_apps, "MAX_APPS", 50)
    with Session({}, in_process={"places": app_server()}, quiet=True, store=file) as session:
        session.conversations.resume(id)
        assert shown(session.tools.apps) == "bcdefgh"


def test_a_turn_keeps_a_bounded_number_of_an_apps_calls(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_APP_CALLS", 2)
    turn = session.chat("Show", model=scripted_model(call("places__show"), "ok"), echo="none")
    for _ in range(4):
        _run(session, session.tools.apps[0].call_tool("peek", {}))
    assert (len(turn.app_calls), len(turn.notices), len(session.consent.audit)) == (2, 1, 5)


def test_an_app_is_told_that_its_call_was_stopped(session: Session) -> None:
    running = session.submit("Wait", model=scripted_model(call("places__wait", city="Rome"), "ok"))
    wait_until(lambda: bool(session.tools.apps), "the app of the call that runs")
    (app,) = session.tools.apps
    assert [(method, params) for _, method, params in app.feed(0)] == [
        ("ui/notifications/tool-input", {"arguments": {"city": "Rome"}})
    ]
    session.stop()
    assert running.result(30).status == "stopped"
    assert app.feed(0)[-1][1:] == ["ui/notifications/tool-cancelled", {"reason": "stopped"}]


def test_a_message_of_an_app_becomes_a_turn_with_its_context() -> None:
    offline = {
        **OFFLINE,
    }
    with Session(offline, in_process={"places": app_server()}, quiet=True, store=None) as session:
        _submits(session)


def _submits(session: Session) -> None:
    app = session.tools.app("places:show")
    _run(session, app.set_context([{"type": "text", "text": "The person looks at Bergen."}], None))
    with pytest.raises(UsageError):
        app.submit(" ")
    app.submit("Tell me more")
    wait_until(lambda: bool(session.turns) and not session.turns[-1].running, "the turn has ended")
    texts = [str(message.content) for message in session.turns[-1].prompt_messages]
    assert any("The person looks at Bergen." in text for text in texts)
    assert "Tell me more" in texts[-1]
