from __future__ import annotations

import pytest

from casual_mcp_nb.base.selection import Mode
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.manifest import partition_tools

TOOLS = [
    ToolSpec("my", "server_a"),
    ToolSpec("git", "log"),
    ToolSpec("my_server", "a"),
    ToolSpec("git_hub", "log"),
]


@pytest.mark.parametrize(
    ("modes", "discovery", "defer_all", "loaded", "deferred"),
    [
        ({}, True, False, "my git my_server git_hub", ""),
        ({"my": "deferred"}, True, False, "git my_server git_hub", "my"),
        (
            {"git_hub": "deferred", "my_server": "deferred"},
            True,
            False,
            "my git",
            "my_server git_hub",
        ),
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


def test_single_tools_stay_loaded_if_the_person_or_the_server_wants() -> None:
    tools = [ToolSpec("git", f"t{number}", always_load=number % 2 == 1) for number in range(30)]
    tools.append(ToolSpec("my", "a"))
    for modes, defer_all in (({"git": "deferred", "my": "deferred"}, False), ({}, True)):
        shown, hidden = partition_tools(
            tools,
            modes,  # type: ignore[arg-type]
            discovery=True,
            defer_all=defer_all,
            always_loaded=("git:t2", "my:b"),
        )
        assert [tool.name for tool in shown] == [
            "t1",
            "t2",
            *(f"t{number}" for number in range(3, 20, 2)),
        ]
        assert len(hidden) == 31 - 11
