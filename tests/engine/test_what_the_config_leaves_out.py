"""Servers that a config switches off, tools that it leaves out, and servers that it never
defers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.raw_server import raw_config

from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

TOOLS = {
    name: {"result": {"content": [{"type": "text", "text": name}]}}
    for name in ("read", "write", "drop_table", "drop_row")
}


def session_of(discovery: dict[str, Any] | None = None, **servers: dict[str, Any]) -> Session:
    entries = {name: raw_config(config=fields, calls=TOOLS) for name, fields in servers.items()}
    return Session.from_config({"servers": entries, "tool_discovery": discovery or {}})


CHOICES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "include": ({"include_tools": ["read", "write"]}, {"read", "write"}),
    "include nothing": ({"include_tools": []}, set()),
    "exclude": ({"exclude_tools": ["write"]}, {"read", "drop_table", "drop_row"}),
    "exclude a pattern": ({"exclude_tools": ["drop_*"]}, {"read", "write"}),
    "a host's list": ({"disabledTools": ["read"]}, {"write", "drop_table", "drop_row"}),
}


@pytest.mark.defect("D14", "D12")
@pytest.mark.parametrize(("fields", "left"), CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("deferred", [False, True])
def test_a_tool_that_the_config_leaves_out_is_reached_by_no_way(
    fields: dict[str, Any], left: set[str], deferred: bool
) -> None:
    discovery = {"enabled": deferred, "defer_all": deferred}
    asked = [call(f"s__{name}") for name in TOOLS]
    search = [calls(call("search_tools", tool_names=list(TOOLS)))] if deferred and left else []
    with session_of(discovery, s=fields) as session:
        turn = session.chat("go", model=scripted_model(*search, calls(*asked), "done"))
        sent = (
            json.dumps([step.request.tools for step in turn.steps], default=dict)
            + session.tools.manifest.text
        )
        ran = {row.name for row in turn.tool_calls if row.status == "ok"}
        listed = {tool.name for tool in session.tools}
        by_hand = session.tools.call("s:drop_table")
        shown = {
            tool.name for tool in session.tools if tool.tool_name in session.tools.now.excluded
        }
    assert listed == set(TOOLS)
    assert shown == set(TOOLS) - left
    assert by_hand.status == "ok"
    assert {name for name in TOOLS if any(name in str(tool) for tool in ran)} == left
    for name in set(TOOLS) - left:
        assert name not in sent


@pytest.mark.defect("D14")
def test_a_list_with_an_unknown_tool_is_reported_when_the_tools_are_listed() -> None:
    with session_of(s={"exclude_tools": ["wriet", "drop_*"]}) as session:
        turn = session.chat("go", model=scripted_model("done"))
        notices = [event for event in turn.trace if type(event).__name__ == "Notice"]
    (notice,) = [notice for notice in notices if "exclude_tools" in notice.text]
    assert notice.server == "s"
    assert "'wriet'" in notice.text
    assert "'write'" in notice.text
    assert "drop_" not in notice.text.split(".")[0]


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        ({"include_tools": ["raed", "write"]}, "'raed'"),
        ({"exclude_tools": ["write", "delete_*"]}, "'delete_*'"),
        ({"include_tools": ["read", "drop_*"]}, None),
        ({}, None),
    ],
)
def test_the_doctor_finds_a_list_that_names_a_tool_which_does_not_exist(
    fields: dict[str, Any], unknown: str | None
) -> None:
    with session_of(s=fields) as session:
        warned = [
            finding
            for finding in session.servers.doctor()
            if finding.verdict == "warn" and finding.part == "Servers"
        ]
    assert [finding.name for finding in warned] == (["s"] if unknown else [])
    assert all(
        next(iter(fields)) in finding.found and str(unknown) in finding.found for finding in warned
    )


def test_the_doctor_says_nothing_of_the_tools_of_a_server_that_is_not_connected() -> None:
    session = session_of(s={"include_tools": ["raed"]})
    assert [
        finding.verdict for finding in session.servers.doctor() if finding.part == "Servers"
    ] == ["ok"]
    session.close()


@pytest.mark.defect("D12")
def test_a_disabled_server_is_listed_and_starts_when_a_person_enables_it() -> None:
    with session_of(on={}, off={"disabled": True}) as session:
        assert session.servers["off"].state == "closed"
        assert session.servers["off"].seconds is None
        assert session.servers.modes["off"] == "off"
        turn = session.chat("go", model=scripted_model("done"))
        assert not [event for event in turn.trace if getattr(event, "server", None) == "off"]
        assert {tool.server for tool in session.tools} == {"on"}
        findings = [finding for finding in session.servers.doctor() if finding.name == "off"]
        assert [finding.verdict for finding in findings] == ["ok"]
        session.selection.servers["off"] = "loaded"
        session.connect()
        assert session.servers["off"].state == "ready"
        assert {tool.server for tool in session.tools} == {"on", "off"}


@pytest.mark.defect("D12")
def test_a_server_that_is_switched_off_can_be_reconnected_by_name() -> None:
    with session_of(off={"enabled": False}) as session:
        assert session.servers.reconnect("off").state == "ready"


@pytest.mark.defect("E6")
def test_a_server_that_is_always_loaded_is_not_deferred_with_the_others() -> None:
    with session_of({"enabled": True, "defer_all": True}, a={"alwaysLoad": True}, b={}) as session:
        assert session.servers.modes == {"a": "loaded", "b": "deferred"}
        assert {session.tools.now.mode(tool) for tool in session.tools if tool.server == "a"} == {
            "loaded"
        }
        assert {session.tools.now.mode(tool) for tool in session.tools if tool.server == "b"} == {
            "deferred"
        }


@pytest.mark.defect("E6")
def test_a_server_whose_tools_are_to_be_deferred_is() -> None:
    with session_of({"enabled": True}, a={"deferTools": True}, b={}) as session:
        assert session.servers.modes == {"a": "deferred", "b": "loaded"}


@pytest.mark.defect("E8")
def test_the_doctor_says_that_sse_is_deprecated() -> None:
    session = Session.from_config(
        {"servers": {"old": {"url": "http://127.0.0.1:9/sse", "transport": "sse"}}}
    )
    assert [
        finding.verdict
        for finding in session.servers.doctor()
        if "deprecated" in finding.found and finding.name == "old"
    ] == ["warn"]
    session.close()


def test_single_tools_of_a_deferred_server_stay_loaded() -> None:
    a = {"defer_loading": True, "always_load": ["tool"]}
    with session_of({"enabled": True}, a=a, b={"defer_loading": True}) as session:
        assert session.selection.always_loaded == ("a:tool",)
        assert session.servers.modes == {"a": "deferred", "b": "deferred"}
