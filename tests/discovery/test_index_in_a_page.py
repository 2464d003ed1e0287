"""A page without Python ranks with the scores of the index.

`ranking_in_a_page.json` has an index as the page gets it, and what Python finds with it. Here it is
compared with Python, and in `tests/search.test.ts` of the front end with the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

FILE = Path(__file__).with_name("ranking_in_a_page.json")
SHOWN = 5
EVIL = "</script><img src=x onerror=alert(1)>"


def tool(server: str, name: str, description: str = "", **parameters: str) -> ToolSpec:
    properties = {
        key: {"type": "string", "description": value} for key, value in parameters.items()
    }
    return ToolSpec(server, name, description, {"type": "object", "properties": properties})


TOOLS = [
    tool("files", "read_file", "Read the text of a file", path="Where the file is"),
    tool(
        "files",
        "write_file",
        "Write text into a file; makes it when it does not exist",
        path="Where",
        content="The text",
    ),
    tool("files", "delete_file", "Delete a file or an empty folder", path="The path"),
    tool(
        "files",
        "read_text",
        "Read the whole text of a file. DEPRECATED: Use read_file instead.",
        path="Where the file is",
    ),
    tool("files", "search", "Find files by a pattern in their name", pattern="Such as *.txt"),
    tool(
        "mail",
        "send_email",
        "Send an email",
        to="Recipients",
        subject="The subject",
        body="The text",
    ),
    tool("mail", "search", "Search messages in the inbox", query="Words or a sender"),
    tool("outlook", "send_email", "Send an email message", to="Recipients", subject="The subject"),
    tool(
        "calendar",
        "create_event",
        "Create an event in the calendar",
        title="What it is",
        start="When it begins",
    ),
    tool(
        "calendar",
        "list_events",
        "List events between two dates",
        start="First day",
        end="Last day",
    ),
    tool(
        "google",
        "create_event",
        "Create a new event in the calendar",
        title="What it is",
        start="When it begins",
    ),
    tool(
        "weather",
        "get_forecast",
        "Forecast of the weather for the coming days",
        city="The place",
        days="How many",
    ),
    tool(
        "weather",
        "getCurrentWeather",
        "Current temperature and conditions",
        city="Place",
        units="celsius or fahrenheit",
    ),
    tool("maps", "geocode_address", "Turn an address into coordinates", address="The address"),
    tool(
        "maps",
        "plan_route",
        "Route between two places by car, bike or foot",
        start="Start",
        destination="End",
    ),
    tool(
        "git",
        "git_log",
        "Show the history of commits",
        repo_path="The repository",
        max_count="How many",
    ),
    tool(
        "git",
        "git_diff",
        "Show differences between branches or commits",
        repo_path="The repository",
        target="A branch",
    ),
    tool(
        "github",
        "createIssue",
        "Open an issue in a GitHub repository",
        repo="owner/name",
        labels="Its labels",
    ),
    tool("db", "run_query", "Run an SQL query and return its rows", sql="The statement"),
    tool("db", "describe_table", "Columns and types of a table", table="Its name"),
    tool(
        "units",
        "convert_units",
        "Convert a value between units",
        value="The number",
        from_unit="Its unit",
    ),
    tool(
        "time",
        "convert_time",
        "Convert a time between time zones",
        time="The time",
        source="Time zone",
    ),
    tool("time", "now", "The current time in a timezone", zone="A time zone"),
    tool("web", "fetch_page", "Fetch a web page as Markdown", url="Its address"),
    tool("charts", "line_chart", "Draw a line chart of a series", data="The values"),
    tool("finance", "get_stock_price", "Price of a share on the stock market", ticker="Its symbol"),
    tool("日本", "天気予報", "都市の天気予報を取得します", 都市="場所の名前"),
    tool(
        "café",
        "Get Weather Now",
        "Météo d'une ville à l'instant: température et vent",
        ville="La ville",
    ),
    tool("evil", EVIL, EVIL, **{EVIL: EVIL}),
    tool("words", "constructor", "Describe __proto__ and toString of an object"),
]
QUERIES = [
    *(each.name for each in TOOLS),
    *(each.wire_name for each in TOOLS[:6]),
    *(str(each.tool_name) for each in TOOLS[:6]),
    *(each.description for each in TOOLS),
    "",
    "   ",
    "the of and",
    "tell my colleagues about the meeting by mail",
    "what will the weather be tomorrow in Oslo, and then book an event in the calendar",
    "read the file, convert its times; then send an email and draw a chart",
    "time zone",
    "timezones",
    "What is 19 times 23, 2^10, (3 + 4)*5, 48 / 6 and 15% OF 260?",
    (
        "What files do I have, what\u2019s in that folder, how big is it? Get rid of it, LOOK UP"
        " another"
    ),
    "translatoin of forcasts and messsages",
    "weather weather weather in three cities",
    "open /home/ana/report.pdf and mail it to ana@example.org before 2026-11-20",
    "https://github.com/x/y www.example.org C:\\data\\sales.xlsx 3.4.24 $& $1",
    "please `search` my \"inbox\" with 'now'",
    "call Get Weather Now!",
    "GIT_LOG of the last 12 commits in 2 repos",
    "\uff27\uff49\uff54\uff28\uff55\uff42 ﬁles Straße ΣΊΣΥΦΟΣ İstanbul naïve café",
    "東京の天気予報を調べて",
    "constructor __proto__ hasOwnProperty",
    "remember\u2028the\u00a0milk\u0085today\ufeff",
    "😀 stock prices 😀",
    "a" * 9_000,
    "weather and " * 900,
    EVIL,
]


def ranked() -> dict[str, Any]:
    """Export the index as a page gets it, and find the tools for each query in Python, with their
    scores.
    """
    index = ToolSearchIndex(TOOLS)
    ranks = [
        [[hit.tool.wire_name, hit.score] for hit in index.search(query, SHOWN)] for query in QUERIES
    ]
    return {"index": index.to_plain(), "queries": QUERIES, "found": ranks}


def test_the_reference_file_of_the_page_matches_python() -> None:
    written, now = json.loads(FILE.read_text(encoding="utf-8")), json.loads(json.dumps(ranked()))
    assert (written["index"], written["queries"]) == (
        now["index"],
        now["queries"],
    ), f"Write it again: python tests/discovery/{Path(__file__).name}"
    for one, other in zip(written["found"], now["found"], strict=True):
        assert [name for name, _ in one] == [name for name, _ in other]
        assert [score for _, score in one] == pytest.approx([score for _, score in other], rel=1e-9)


def test_the_file_has_every_part_of_a_score() -> None:
    index = ToolSearchIndex(TOOLS)
    labels = {
        share.term
        for query in QUERIES
        for hit in index.search(query, SHOWN)
        for share in hit.explain().shares
    }
    assert {
        "words of the name",
        "exact name",
        "the server's topic",
        "same description as a better hit",
    } <= labels
    assert "its server calls it deprecated" in labels
    assert any(label.startswith("clause ") for label in labels)


def test_an_index_without_tools_is_empty() -> None:
    assert ToolSearchIndex(()).to_plain() == {}


if __name__ == "__main__":
    FILE.write_text(
        f"{json.dumps(ranked(), ensure_ascii=False, separators=(',', ':'))}\n", encoding="utf-8"
    )
