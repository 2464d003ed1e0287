from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.discovery.toolsets import (
    check_tool_set,
    filter_tools,
    missing_servers,
    resolve_tool_set,
)
from casual_mcp_nb.errors import ToolSetError, UnknownNameError

CATALOG = Catalog(
    [
        ToolSpec("git", "log"),
        ToolSpec("git", "hub_log"),
        ToolSpec("git_hub", "log"),
        ToolSpec("git_hub", "issues"),
        ToolSpec("my", "server_a"),
        ToolSpec("my", "a"),
        ToolSpec("my_server", "a"),
        ToolSpec("odd name", "get / thing"),
        ToolSpec("twice", "status"),
        ToolSpec("twice", "twice_status"),
    ]
)
READY = {server: ServerStatus(server, "ready") for server in CATALOG.by_server}


def tool_set(**servers: Any) -> ToolSetConfig:
    return ToolSetConfig(servers=servers)


@pytest.mark.parametrize(
    ("servers", "kept"),
    [
        ({}, ""),
        ({"git": True}, "git:log git:hub_log"),
        ({"git": False, "my": True}, "my:server_a my:a"),
        ({"git": ["log"]}, "git:log"),
        ({"git": []}, ""),
        ({"git": {"exclude": ["log"]}}, "git:hub_log"),
        ({"git_hub": {"exclude": ["log"]}}, "git_hub:issues"),
        ({"git_hub": {"exclude": []}}, "git_hub:log git_hub:issues"),
        ({"git": ["git_hub_log"]}, "git:hub_log"),
        ({"git_hub": ["git_hub_log"]}, "git_hub:log"),
        ({"git": {"exclude": ["git_hub_log"]}}, "git:log"),
        ({"git": ["git_hub:log"]}, ""),
        ({"my": ["my_server_a"]}, "my:server_a"),
        ({"my_server": ["my_server_a"]}, "my_server:a"),
        ({"my": ["a"], "my_server": ["my_server:a"]}, "my:a my_server:a"),
        ({"my": ["my:a", "my__server_a"]}, "my:server_a my:a"),
        ({"odd name": ["odd_name__get___thing"]}, "odd name:get / thing"),
        ({"odd name": ["odd name:get / thing"]}, "odd name:get / thing"),
        ({"twice": ["twice_status"]}, "twice:twice_status"),
        ({"twice": ["twice:status"]}, "twice:status"),
        ({"nowhere": True}, ""),
    ],
)
@pytest.mark.fault(44)
def test_a_toolset_lets_through_what_its_servers_own(servers: dict[str, Any], kept: str) -> None:
    tools = filter_tools(iter(CATALOG), tool_set(**servers))
    assert " ".join(str(tool.tool_name) for tool in tools) == kept


def test_no_toolset_lets_everything_through() -> None:
    assert filter_tools(iter(CATALOG), None) == tuple(CATALOG)


@pytest.mark.parametrize(
    "servers",
    [
        {"git": True, "git_hub": ["log", "git_hub_log", "git_hub__log", "git_hub:log"]},
        {"my": {"exclude": ["server_a"]}},
        {"odd name": ["odd_name__get___thing"]},
        {},
    ],
)
def test_a_toolset_that_fits_passes(servers: dict[str, Any]) -> None:
    check_tool_set(tool_set(**servers), READY, CATALOG, "fits")
    check_tool_set(None, READY, CATALOG)


@pytest.mark.fault(48)
def test_one_error_lists_everything_that_is_unknown_with_close_matches() -> None:
    wrong = tool_set(
        gti=True, git=["lgo", "issues"], git_hub={"exclude": ["isues"]}, my=["my_server:a"]
    )
    with pytest.raises(ToolSetError) as caught:
        check_tool_set(wrong, READY, CATALOG, "research")
    assert str(caught.value).split("\n") == [
        "Toolset 'research' does not match the servers:",
        "- there is no server 'gti'. Did you mean 'git' or 'twice'?",
        "- server 'git' has no tool 'lgo'. Did you mean 'log'?",
        "- server 'git' has no tool 'issues'. Available: 'hub_log', 'log'.",
        "- server 'git_hub' has no tool 'isues'. Did you mean 'issues'?",
        "- server 'my' has no tool 'my_server:a'. Did you mean 'server_a'?",
    ]


@pytest.mark.fault(49)
@pytest.mark.parametrize(
    ("status", "notice"),
    [
        (
            ServerStatus("git", "failed", error="it ended\nwith 1."),
            "Server 'git' failed: it ended with 1, so its tools are missing.",
        ),
        (
            ServerStatus("git", "failed"),
            "Server 'git' failed: no reason was given, so its tools are missing.",
        ),
        (
            ServerStatus("git", "ready", error="no list"),
            "Server 'git' failed: no list, so its tools are missing.",
        ),
        (
            ServerStatus("git", "starting"),
            "Server 'git' is still starting, so its tools are missing.",
        ),
        (ServerStatus("git", "closed"), "Server 'git' is closed, so its tools are missing."),
    ],
)
def test_tools_of_a_server_that_is_not_there_are_missing_and_not_unknown(
    status: ServerStatus, notice: str
) -> None:
    servers = READY | {"git": status}
    others = [tool for tool in CATALOG if tool.server != "git"]
    wanted = tool_set(git=["log"], my=True)
    check_tool_set(wanted, servers, others)
    assert [(n.server, n.text) for n in missing_servers(wanted, servers)] == [("git", notice)]
    assert [n.server for n in missing_servers(None, servers)] == ["git"]
    assert missing_servers(tool_set(my=True, git=False, nowhere=True), servers) == ()


TOOL_SETS = {"research": tool_set(git=True)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("research", TOOL_SETS["research"]),
        (tool_set(my=True), tool_set(my=True)),
        ({"servers": {"my": ["a"]}}, tool_set(my=["a"])),
        ({"servers": {"my": {"exclude": ["a"]}}}, tool_set(my={"exclude": ["a"]})),
    ],
)
def test_a_toolset_is_found_by_name_or_taken_as_it_is(
    value: Any, expected: ToolSetConfig | None
) -> None:
    assert resolve_tool_set(value, TOOL_SETS) == expected


@pytest.mark.fault(48)
def test_an_unknown_toolset_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve_tool_set("reserch", TOOL_SETS)
    unknown = caught.value
    assert (unknown.category, unknown.name, unknown.matches) == ("toolset", "reserch", ["research"])


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"servers": {"git": "yes"}},
            'servers.git is true, a list of tool names, or {"exclude": [names]}',
        ),
        ({"servers": {"git": 1}}, "servers.git is true"),
        ({"servers": {"git": {"exclud": ["log"]}}}, "servers.git is true"),
        ({"server": {"git": True}}, "server: Extra inputs are not permitted"),
        (True, "A bool is not a toolset"),
        (["git"], "A list is not a toolset"),
    ],
)
def test_a_value_that_is_no_toolset_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ToolSetError) as caught:
        resolve_tool_set(value, TOOL_SETS)
    assert message in str(caught.value)


@pytest.mark.fault(48)
def test_a_word_for_yes_is_no_choice_of_tools() -> None:
    with pytest.raises(ValidationError):
        tool_set(git="yes")
