from __future__ import annotations

import pytest

from casual_mcp_nb.discovery import partition_tools
from casual_mcp_nb.types.selection import Mode
from casual_mcp_nb.types.tool import ToolSpec

TOOLS = [ToolSpec("my", "server_a"), ToolSpec("git", "log"), ToolSpec("my_server", "a"), ToolSpec("git_hub", "log")]


@pytest.mark.parametrize(
    ("modes", "discovery", "defer_all", "loaded", "deferred"),
    [
        ({}, True, False, "my git my_server git_hub", ""),
        ({"my": "deferred"}, True, False, "git my_server git_hub", "my"),
        ({"git_hub": "deferred", "my_server": "deferred"}, True, False, "my git", "my_server git_hub"),
        ({"git": "off"}, True, False, "my my_server git_hub", ""),
        ({"git": "off", "my": "loaded"}, True, True, "", "my my_server git_hub"),
        ({"my": "deferred"}, False, False, "my git my_server git_hub", ""),
        ({"my": "deferred"}, False, True, "my git my_server git_hub", ""),
        ({"my": "off"}, False, True, "git my_server git_hub", ""),
        ({"elsewhere": "deferred"}, True, False, "my git my_server git_hub", ""),
    ],
)
@pytest.mark.fault(44)
def test_the_mode_of_the_owner_decides(
    modes: dict[str, Mode], discovery: bool, defer_all: bool, loaded: str, deferred: str
) -> None:
    shown, hidden = partition_tools(iter(TOOLS), modes, discovery=discovery, defer_all=defer_all)
    assert [tool.server for tool in shown] == loaded.split()
    assert [tool.server for tool in hidden] == deferred.split()
