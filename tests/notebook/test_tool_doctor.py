"""How far a tool gets on its way to the model, where it stops, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.raw_server import raw_config
from kit.setups import OFFLINE

from casual_mcp_nb import Session
from casual_mcp_nb.base.status import ServerDiagnosis, ToolDiagnosis
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.providers.scripted import call, scripted_model

OBJECT = {"type": "object", "properties": {"amount": {"type": "number"}}}
TOOLS: list[Any] = [
    {
        "name": "pay",
        "description": "Pay a bill.",
        "inputSchema": OBJECT,
        "annotations": {"destructiveHint": True},
    },
    {
        "name": "list_bills",
        "description": "List the bills.",
        "inputSchema": OBJECT,
        "annotations": {"readOnlyHint": True},
    },
    {"name": "list_bills", "description": "Again.", "inputSchema": OBJECT},
    {"name": "widget", "inputSchema": OBJECT, "_meta": {"ui": {"visibility": ["app"]}}},
    {
        "name": "broken",
        "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/Missing"}}},
    },
    {"name": "no_schema"},
    {"name": "x" * 80, "inputSchema": OBJECT},
]
CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {
        "shop": raw_config(config={"exclude_tools": ["x*"], "approval": None}, tools=TOOLS),
        "bank": raw_config(config={"defer_loading": True}, tools=TOOLS[:2]),
        "empty": raw_config(tools=[]),
        "dead": raw_config(stderr="no token", exit=3),
        "off": raw_config(config={"enabled": False}),
        "hosted": {"type": "sdk"},
    },
    "tool_sets": {"reading": {"servers": {"shop": ["list_bills"]}}},
    "tool_discovery": {"enabled": True, "max_search_results": 1},
}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session.from_config(
        {"mcpServers" if key == "servers" else key: value for key, value in CONFIG.items()}
    ) as opened:
        opened.connect(quiet=True)
        yield opened


def tool_of(session: Session, name: str, query: str | None = None) -> ToolDiagnosis:
    diagnosis = session.servers.doctor(name, query=query)
    assert isinstance(diagnosis, ToolDiagnosis)
    assert [check.stage for check in diagnosis.stages] == [
        "listed",
        "selected",
        "searchable",
        "sent",
        "called",
    ]
    assert set(diagnosis._repr_mimebundle_()) == {"text/plain", "text/markdown", "text/html"}
    json.dumps(diagnosis.as_dict())
    return diagnosis


def off(session: Session) -> None:
    session.selection.servers["shop"] = "off"


def off_alone(session: Session) -> None:
    session.selection.tools_off.add("shop:pay")


def another_toolset(session: Session) -> None:
    session.selection.tool_set = "reading"


def unchanged(session: Session) -> None:
    pass


WAYS: dict[str, tuple[str, Callable[[Session], None], str | None, str, str]] = {
    "sent": ("shop:pay", unchanged, None, "called", ""),
    "failed server": ("dead:pay", unchanged, None, "listed", "no token"),
    "disabled server": ("off:pay", unchanged, None, "listed", "disabled"),
    "server of the host alone": ("hosted:pay", unchanged, None, "listed", "host"),
    "no tools": ("empty:pay", unchanged, None, "listed", "no tools"),
    "no such tool": ("shop:pya", unchanged, None, "listed", "4 tools"),
    "unusable schema": ("shop:broken", unchanged, None, "listed", "#/$defs/Missing"),
    "invalid definition": ("shop:no_schema", unchanged, None, "listed", "inputSchema"),
    "app only": ("shop:widget", unchanged, None, "selected", "app"),
    "excluded": ("shop:" + "x" * 80, unchanged, None, "selected", "exclude_tools"),
    "toolset": ("shop:pay", another_toolset, None, "selected", "'reading'"),
    "server off": ("shop:pay", off, None, "selected", "switched off"),
    "tool off": ("shop:pay", off_alone, None, "selected", "individually"),
    "deferred": ("bank:pay", unchanged, None, "sent", "search_tools"),
    "found": ("bank:list_bills", unchanged, "list bills", "sent", "search_tools"),
    "ranked behind the limit": ("bank:pay", unchanged, "list the bills", "searchable", "2nd"),
    "not matched": ("bank:pay", unchanged, "xylophone", "searchable", "none of the search words"),
}


@pytest.mark.defect("K3")
@pytest.mark.parametrize(("name", "change", "query", "ends_at", "words"), WAYS.values(), ids=WAYS)
def test_the_way_of_a_tool_ends_where_something_stops_it_with_the_reason(
    name: str,
    change: Callable[[Session], None],
    query: str | None,
    ends_at: str,
    words: str,
    session: Session,
) -> None:
    before = session.selection.snapshot()
    try:
        change(session)
        diagnosis = tool_of(session, name, query)
    finally:
        session.selection = before
    assert diagnosis.ends_at == ends_at
    assert words in diagnosis.end.found
    passed = [check.state for check in diagnosis.stages[: diagnosis.stages.index(diagnosis.end)]]
    assert set(passed) <= {"ok", "not needed"}
    if diagnosis.stopped:
        assert diagnosis.end.advice
        after = diagnosis.stages[diagnosis.stages.index(diagnosis.end) + 1 :]
        assert {check.state for check in after} <= {"not reached"}


@pytest.mark.defect("K3")
def test_the_wire_name_is_shown_and_a_tool_that_is_listed_twice_works(session: Session) -> None:
    diagnosis = tool_of(session, "shop:list_bills")
    assert diagnosis.wire_name == "shop__list_bills"
    assert "listed twice" in diagnosis["listed"].found
    assert "destructive" in tool_of(session, "shop:pay")["called"].found
    assert "without asking" in diagnosis["called"].found


@pytest.mark.defect("K3")
@pytest.mark.parametrize(
    ("name", "listed", "tools", "stopped"), [("shop", "ok", 6, True), ("dead", "stopped", 0, True)]
)
def test_of_a_server_every_tool_is_told_also_those_that_cannot_be_used(
    name: str, listed: str, tools: int, stopped: bool, session: Session
) -> None:
    diagnosis = session.servers.doctor(name)
    assert isinstance(diagnosis, ServerDiagnosis)
    assert (diagnosis.listed.state, len(diagnosis), diagnosis.stopped) == (listed, tools, stopped)
    text = str(diagnosis)
    assert all(tool.tool.tool in text for tool in diagnosis if len(tool.tool.tool) < 40)


@pytest.mark.defect("K3")
def test_unusable_tools_are_named_by_the_session_check_and_the_server_card(
    session: Session,
) -> None:
    assert set(session.servers["shop"].left_out) == {"broken", "no_schema", "list_bills"}
    assert "no_schema" in str(session.servers["shop"])
    (found,) = [
        check
        for check in session.servers.doctor()
        if check.name == "shop" and check.verdict == "warn"
    ]
    assert "no_schema" in found.found


@pytest.mark.defect("K3")
def test_calls_are_counted_with_their_outcomes_and_a_denial_names_its_rule() -> None:
    with Session.from_config(
        {**CONFIG, "servers": {name: CONFIG["servers"][name] for name in ("shop", "bank")}}
    ) as session:
        model = scripted_model(
            call("shop__pay"),
            call("shop__list_bills"),
            call("search_tools", tool_names=["bank__pay"]),
            "done",
        )
        session.chat("go", model=model)
        denied = tool_of(session, "shop:pay")
        assert (denied.ends_at, dict(denied.calls)) == ("called", {"denied": 1})
        assert denied.stopped is denied["called"]
        assert "policy: default" in denied.end.found
        assert "approval" in denied.end.advice
        called = tool_of(session, "shop:list_bills")
        assert (called.ends_at, dict(called.calls)) == (None, {"ok": 1})
        assert tool_of(session, "bank:pay")["sent"].state == "ok"


@pytest.mark.defect("K3")
@pytest.mark.parametrize(
    ("line", "ends_at"),
    [
        ("bank:pay", "sent"),
        ("bank:pay --query list the bills", "searchable"),
        ("bank__list_bills --query list bills", "sent"),
    ],
)
def test_the_command_takes_a_tool_and_the_words_of_a_query(
    line: str, ends_at: str, session: Session
) -> None:
    run = COMMANDS["doctor"].run
    assert run is not None
    diagnosis = run(session, line)
    assert diagnosis.ends_at == ends_at
    assert len(run(session, "bank")) == 2
    assert run(session, "").findings


@pytest.mark.defect("K3")
@pytest.mark.parametrize("line", ["--query list", "bank:pay --query", "bank:pay shop:pay"])
def test_the_command_refuses_half_a_question(line: str, session: Session) -> None:
    run = COMMANDS["doctor"].run
    assert run is not None
    with pytest.raises(UsageError):
        run(session, line)


@pytest.mark.defect("K3")
@pytest.mark.parametrize(
    ("model", "client", "stopped"),
    [
        ({}, {}, True),
        ({}, {"base_url": "http://127.0.0.1:9/v1"}, False),
        ({"tool_choice": "none"}, {"base_url": "http://127.0.0.1:9/v1"}, True),
    ],
)
def test_what_the_provider_or_the_model_refuses_is_told_before_it_is_asked(
    model: dict[str, Any], client: dict[str, Any], stopped: bool
) -> None:
    config = {
        "clients": {"c": {"provider": "openai", "api_key": "sk-0123456789abcdef0123", **client}},
        "models": {"m": {"client": "c", "model": "gpt-5.4", **model}},
        "servers": {"many": raw_config(tool_count=129)},
    }
    with Session.from_config(config) as session:
        session.connect(quiet=True)
        diagnosis = tool_of(session, "many:tool_1")
        assert (diagnosis.stopped is not None) is stopped
        assert diagnosis.ends_at == ("sent" if stopped else "called")


@pytest.mark.defect("K3")
def test_nothing_is_started_and_a_name_that_does_not_exist_gets_the_closest() -> None:
    session = Session.from_config(CONFIG)
    try:
        assert "not connected yet" in tool_of(session, "shop:pay").end.found
        with pytest.raises(UnknownNameError) as unknown:
            session.servers.doctor("shpo:pay")
        assert "shop" in str(unknown.value)
        with pytest.raises(UsageError):
            session.servers.doctor(query="bills")  # type: ignore[call-overload]
    finally:
        session.close()
