"""One fact, one figure: the cost of a tool, the number of tools sent, the length of a bar."""

from __future__ import annotations

import re

import pytest

from casual_mcp_nb.base.status import Servers, SessionStatus
from casual_mcp_nb.base.tokens import TokenParts
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.views import mimebundle

pytestmark = pytest.mark.defect("C6")
INFO = ToolSpec(
    "system-info",
    "system_info",
    "What machine this is, with its name and its load.",
    {"type": "object"},
)


def test_a_tool_has_the_same_price_in_a_request_and_in_the_list_of_tools() -> None:
    text = mimebundle(Request((), (INFO.definition,), TokenParts(tools=INFO.tokens)))["text/plain"]
    match = re.search(r"system_info +≈ (\d+) +What", text)
    assert match
    assert int(match[1]) == INFO.tokens


@pytest.mark.parametrize(("deferred", "finder"), [(0, False), (3, True)])
def test_a_first_call_names_the_search_tool_that_its_request_counts(
    deferred: int, finder: bool
) -> None:
    text = mimebundle(SessionStatus(Servers({}, {}), offered=6, deferred=deferred))["text/plain"]
    sent = re.search(r"sent with every request: (.*)", text)
    assert sent
    assert sent[1].startswith("6 tools")
    assert ("search_tools" in sent[1]) is finder


def test_bars_of_one_column_have_one_scale() -> None:
    html = mimebundle(Request((), (), TokenParts(system=100)))["text/html"]
    single = re.search(r'class="cmn-bar" style="width:(\d+)px', html)
    stacked = re.search(r'style="border-left:(\d+)px', html)
    assert single
    assert stacked
    assert single[1] == stacked[1] != "0"
