"""Faults 43 to 49: names of servers and tools, listings without end, toolsets, and what a model may
call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.history import assert_valid
from kit.raw_server import received
from kit.turns import ask

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ConfigError, ToolSetError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]


def says(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}]}}


def called(record: Path) -> list[str]:
    """The names of the calls that reached a server."""
    return [message["params"]["name"] for message in received(record, "tools/call")]


@pytest.mark.fault(43)
async def test_two_servers_with_the_same_tool_are_both_called_each_at_its_own(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened(
        {"left": raw(calls={"a": says("from left")}), "right": raw(calls={"a": says("from right")})}
    )
    turn = await ask(chat, calls(call("right__a"), call("left__a"), call("a")), "done")
    assert [c.result for c in turn.tool_calls][:2] == ["from right", "from left"]
    assert turn.tool_calls[2].status == "error"
    assert turn.stats.tool_calls.by_server == {"right": 1, "left": 1, "_unknown": 1}


PREFIXES = ("git", "git_hub", "my", "my_server", "my_server_2")


@pytest.mark.fault(44)
@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize("name", PREFIXES)
async def test_servers_whose_names_begin_alike_are_told_apart_in_toolsets_calls_and_stats(
    opened: Opened, raw: Raw, name: str, excluded: bool
) -> None:
    tools = ("hub_push", "push", "server_x", "x")
    chat = await opened(
        {
            server: raw(calls={tool: says(f"{server}:{tool}") for tool in tools})
            for server in PREFIXES
        }
    )
    entry = ExcludeSpec(exclude=("push",)) if excluded else ("push",)
    kept = [tool for tool in tools if (tool == "push") is not excluded]
    turn = await ask(
        chat,
        calls(*(call(f"{server}__{tool}") for server in PREFIXES for tool in tools)),
        "done",
        tool_set=ToolSetConfig(servers={name: entry}),
    )
    assert [one["name"] for one in turn.steps[0].request.tools] == [
        f"{name}__{tool}" for tool in kept
    ]
    assert [c.result for c in turn.tool_calls if c.status == "ok"] == [
        f"{name}:{tool}" for tool in kept
    ]
    assert turn.stats.tool_calls.by_server == dict.fromkeys(PREFIXES, len(tools))
    assert [(c.tool.server, c.tool.tool) for c in turn.tool_calls] == [
        (s, t) for s in PREFIXES for t in tools
    ]


ODD_NAMES = (
    "with space",
    "dots.and/slashes\\and:colons",
    "größe",
    "天気",
    "прогноз",
    "emoji 🌦",
    "x" * 200,
    "x" * 201,
    "a.b",
    "a b",
    "a/b",
    "__",
    "search_tools",
    "-",
    "line\nbreak",
    "<b>bold</b>",
)


@pytest.mark.fault(45)
@pytest.mark.parametrize("server", ["plain", "my server", "сервер", "s" * 80, "a.b/c"])
async def test_names_of_all_kinds_are_sent_as_providers_take_them_and_reach_their_tool(
    raw: Raw, server: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    plan = raw(calls={name: says(name) for name in ODD_NAMES}, record=str(record))
    runs = []
    for _ in range(2):
        async with McpToolChat.from_config({"servers": {server: plan}}) as chat:
            view = await chat.view()
            wire = [definition["name"] for definition in view.definitions]
            turn = await ask(chat, calls(*map(call, wire)), "done")
        runs.append(wire)
        assert [c.tool.tool for c in turn.tool_calls] == list(ODD_NAMES)
        assert {c.tool.server for c in turn.tool_calls} == {server}
        assert {c.status for c in turn.tool_calls} == {"ok"}
        assert [c.content[0].text for c in turn.tool_calls] == list(ODD_NAMES)
        assert_valid(turn.messages)
    assert runs[0] == runs[1]
    assert len(set(wire)) == len(ODD_NAMES)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in wire)
    assert sorted(called(record)) == sorted(2 * ODD_NAMES)


@pytest.mark.fault(46)
async def test_an_endless_listing_stops_with_a_warning_and_the_chat_uses_what_came(
    opened: Opened, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    chat = await opened(
        {
            "endless": raw(listing="endless", calls={"a": says("A")}),
            "sound": raw(calls={"b": says("B")}),
        }
    )
    turn = await ask(chat, calls(call("endless__a"), call("sound__b")), "done")
    assert [c.result for c in turn.tool_calls] == ["A", "B"]
    assert [one["name"] for one in turn.steps[0].request.tools] == ["endless__a", "sound__b"]
    assert caplog.text.count("The list of tools of server 'endless' does not end") == 1
    assert re.search("Tool 'a' .*'endless' is left out: .*twice", caplog.text)


@pytest.mark.fault(47)
async def test_what_is_outside_the_toolset_or_not_loaded_does_not_reach_its_server(
    raw: Raw, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    servers = {
        "shown": raw(calls={"a": says("A"), "b": says("B")}, record=str(record)),
        "hidden": raw(
            {"defer_loading": True}, calls={"c": says("C"), "d": says("D")}, record=str(record)
        ),
    }
    tool_set = ToolSetConfig(servers={"shown": ("a",), "hidden": ("c",)})
    async with McpToolChat.from_config(
        {"servers": servers, "tool_discovery": {"enabled": True}}
    ) as chat:
        turn = await ask(
            chat,
            calls(
                call("shown__b"),
                call("hidden__c"),
                call("hidden__d"),
                call("b"),
                call("shown:b"),
                call("c"),
            ),
            call("search_tools", tool_names=["hidden__d", "hidden__c"]),
            calls(call("hidden__d"), call("hidden__c")),
            "done",
            tool_set=tool_set,
        )
    assert called(record) == ["c"]
    outside, deferred = turn.tool_calls[0].result, turn.tool_calls[1].result
    assert "is not available" in outside
    assert "shown__a" in outside
    assert "is not yet loaded" in deferred
    assert "search_tools" in deferred
    assert [c.status for c in turn.tool_calls] == ["error"] * 6 + ["ok", "error", "ok"]
    assert "hidden__d" not in json.dumps([list(step.request.tools) for step in turn.steps])


@pytest.mark.fault(48)
async def test_unknown_names_in_a_toolset_are_refused_with_close_matches(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened({"weather": raw(calls={"forecast": says("sunny")})})
    model = scripted_model("never")
    for servers, said in (
        ({"wether": True}, "'weather'"),
        ({"weather": ("forcast",)}, "'forecast'"),
    ):
        with pytest.raises(ToolSetError, match=f"Did you mean {said}"):
            await chat.run(
                [UserMessage(content="x")],
                TurnOptions(model=model, tool_set=ToolSetConfig(servers=servers)),
            )
    assert model.client.requests == []


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    "value", ["yes", 1, None, {"exclude": "forecast"}, {"include": ["forecast"]}]
)
def test_a_word_or_number_for_a_choice_of_tools_is_refused_in_a_config(
    raw: Raw, value: Any
) -> None:
    data = {"servers": {"weather": raw()}, "tool_sets": {"t": {"servers": {"weather": value}}}}
    with pytest.raises(ConfigError, match=r"tool_sets\.t\.servers\.weather"):
        load_config(data)


@pytest.mark.fault(49)
@pytest.mark.parametrize("entry", [True, ("push",), ExcludeSpec(exclude=("push",))])
async def test_a_server_that_failed_and_is_in_the_toolset_is_said_to_have_failed_and_why(
    opened: Opened, raw: Raw, entry: Any
) -> None:
    chat = await opened(
        {"git": raw(stderr="KeyError: 'TOKEN'\n", exit=1), "sound": raw(calls={"a": says("A")})}
    )
    tool_set = ToolSetConfig(servers={"git": entry, "sound": True})
    turn = await ask(chat, calls(call("git__push"), call("sound__a")), "done", tool_set=tool_set)
    (notice,) = turn.notices
    assert notice.server == "git"
    assert re.search(r"'git' failed: .*\bexited\b", notice.text)
    assert turn.tool_calls[1].result == "A"
    only = await ask(chat, "done", tool_set=ToolSetConfig(servers={"sound": True}))
    assert only.notices == []
