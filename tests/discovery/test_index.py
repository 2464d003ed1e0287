"""How tools are ranked, and why."""

from __future__ import annotations

import logging
import pickle
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import MAX_CLAUSES
from casual_mcp_nb.errors import UnknownNameError, UsageError


def tool(server: str, name: str, description: str = "", **parameters: Any) -> ToolSpec:
    properties = {
        key: value if isinstance(value, dict) else {"description": value}
        for key, value in parameters.items()
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
        "weather",
        "get_forecast",
        "Forecast of the weather for the coming days",
        city="The place",
        days="How many",
    ),
    tool(
        "weather",
        "getCurrentWeather",
        "Current conditions",
        city="Place",
        units={"enum": ["celsius", "fahrenheit"]},
    ),
    tool("maps", "geocode_address", "Turn an address into coordinates", address="The address"),
    tool(
        "maps",
        "plan_route",
        "Route between two places by car, bike or foot",
        start="Start",
        destination="End",
    ),
    tool("git", "git_log", "Show the history of commits", repo_path="The repository"),
    tool(
        "git",
        "git_diff",
        "Show differences between branches or commits",
        repo_path="The repository",
        target="A branch",
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
    tool("web", "fetch_page", "Fetch a web page as Markdown", url="Its address"),
    tool("charts", "line_chart", "Draw a line chart of a series", data="The values"),
    tool("finance", "get_stock_price", "Price of a share on the stock market", ticker="Its symbol"),
    tool(
        "chat",
        "deliver_note",
        "",
        receiver={"type": "object", "properties": {"nickname": {"type": "string"}}},
    ),
]
INDEX = ToolSearchIndex(TOOLS)


def names_of(
    query: str, max_results: int = 5, server: str | None = None, index: ToolSearchIndex = INDEX
) -> list[str]:
    return [str(hit.tool.tool_name) for hit in index.search(query, max_results, server)]


def assert_adds_up(explanation: Explanation) -> None:
    assert sum(share.share for share in explanation.shares) == pytest.approx(
        explanation.score, rel=1e-9, abs=1e-12
    )


# what is found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what is in /home/ana/notes.txt", "files:read_file"),
        ("save this as report.md", "files:write_file"),
        ("drop Bob a message with the mail", "mail:send_email"),
        ("schedule a meeting on Friday", "calendar:create_event"),
        ("will it rain in Oslo tomorrow", "weather:get_forecast"),
        ("how warm is it now in celsius", "weather:getCurrentWeather"),
        ("directions from the station to the museum", "maps:plan_route"),
        ("compare main and develop", "git:git_diff"),
        ("plot the monthly sales", "charts:line_chart"),
        ("converting 10 kilometres into another unit", "units:convert_units"),
        ("which columns has the orders table", "db:describe_table"),
        ("open https://example.org/news", "web:fetch_page"),
        ("how much is a share of ACME", "finance:get_stock_price"),
        ("somebody's nickname", "chat:deliver_note"),
        ("differnces", "git:git_diff"),
    ],
)
def test_a_request_in_words_finds_its_tool_among_the_first_three(query: str, expected: str) -> None:
    assert expected in names_of(query, 3)


def tools_of(server: str, *tools: tuple[str, str]) -> list[ToolSpec]:
    return [
        ToolSpec(server, name, about, {"type": "object"}, wire_name=f"{server}__{name}")
        for name, about in tools
    ]


CREATION = [
    *tools_of(
        "charts",
        ("delete_chart", "Delete a chart."),
        ("create_chart", "Create a chart from a table."),
    ),
    *tools_of(
        "word",
        (
            "get_paragraph_text_from_document",
            "Get text from a specific paragraph in a Word document.",
        ),
        ("add_paragraph", "Add a paragraph to a Word document."),
        ("delete_paragraph", "Delete a paragraph from a document."),
    ),
    *tools_of(
        "arxiv",
        ("read_paper", "Read the full content of a stored arXiv paper."),
        ("download_paper", "Download a paper from arXiv."),
        ("search_papers", "Search for papers on arXiv."),
    ),
    *tools_of(
        "memory",
        ("create_entities", "Create multiple new entities in the knowledge graph."),
        ("add_observations", "Add new observations to existing entities in the knowledge graph."),
        ("delete_entities", "Delete entities from the knowledge graph."),
    ),
    *tools_of("people", ("get_person", "Look up a person by name.")),
    *tools_of("wiki", ("extract_key_facts", "Extract key facts from an article.")),
]


@pytest.mark.defect("M18")
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("make a pie chart", ["charts:create_chart"]),
        ("make me some charts", ["charts:create_chart"]),
        ("making a chart", ["charts:create_chart"]),
        ("write a paragraph in a word document", ["word:add_paragraph"]),
        ("put a paragraph into my document", ["word:add_paragraph"]),
        ("find papers on arxiv", ["arxiv:search_papers"]),
    ],
)
def test_a_verb_of_creation_or_finding_decides_between_tools_of_one_thing(
    query: str, first: list[str]
) -> None:
    hits = ToolSearchIndex(CREATION).search(query, 3)
    assert [str(hit.tool.tool_name) for hit in hits][:1] == first


@pytest.mark.defect("M18")
@pytest.mark.parametrize(
    "query", ["remember a fact about a person", "keep in mind that Ana likes tea", "memorize this"]
)
def test_what_is_to_be_remembered_finds_the_memory(query: str) -> None:
    assert "memory" in [hit.tool.server for hit in ToolSearchIndex(CREATION).search(query, 3)]


def test_a_request_with_several_needs_finds_a_tool_for_each() -> None:
    needs = ["weather:get_forecast", "mail:send_email", "charts:line_chart"]
    request = (
        "Look up the weather forecast for the coming days in Oslo, draw a line chart, and send it"
        " by email."
    )
    assert set(needs) <= set(names_of(request))


def test_a_part_of_the_request_lifts_the_tool_that_fits_it_best() -> None:
    request = "Read the text of the file and write the text into the file. Geocode."
    alone = "Read the text of the file and write the text into the file Geocode"
    explanation = next(
        hit for hit in INDEX.search(request, 10) if hit.tool.name == "geocode_address"
    ).explain()
    assert [share.term for share in explanation.shares if share.field == "part of the request"] == [
        'clause "Geocode"'
    ]
    assert (
        explanation.score
        > next(hit for hit in INDEX.search(alone, 10) if hit.tool.name == "geocode_address").score
    )


def test_tools_without_any_term_of_the_query_are_not_hits() -> None:
    assert names_of("qwertyuiop") == []
    hits = INDEX.search("stock price", 50)
    assert 0 < len(hits) < len(TOOLS)
    assert all(hit.score > 0 for hit in hits)


def test_hits_are_ranked_from_one_by_falling_score() -> None:
    hits = INDEX.search("find text in a file", 8)
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_small_catalogs_work(size: int) -> None:
    index = ToolSearchIndex(TOOLS[:size])
    assert names_of("read a file", index=index)[0] == "files:read_file"


def test_terms_that_every_tool_has_still_count() -> None:
    index = ToolSearchIndex([tool("a", f"thing_{n}", "handles a thing") for n in range(3)])
    assert names_of("thing", index=index) == ["a:thing_0", "a:thing_1", "a:thing_2"]


def test_an_index_without_tools_finds_nothing() -> None:
    index = ToolSearchIndex([])
    assert len(index) == 0
    assert index.search("anything") == []
    with pytest.raises(UnknownNameError):
        index.explain("anything", TOOLS[0])


def test_of_a_tool_given_twice_the_first_counts() -> None:
    first, second = tool("a", "x", "apples"), tool("a", "x", "bananas")
    index = ToolSearchIndex([first, second])
    assert index.tools == (first,)
    assert names_of("bananas", index=index) == []


def test_tools_that_say_the_same_leave_room_for_others() -> None:
    copies = [tool(f"s{n}", "get_weather", "Weather report for a city") for n in range(6)]
    index = ToolSearchIndex(
        [*copies, tool("other", "weather_alerts", "Warnings about bad weather")]
    )
    hits = index.search("weather report", 2)
    assert [str(hit.tool.tool_name) for hit in hits] == ["s0:get_weather", "s1:get_weather"]
    assert "other:weather_alerts" in names_of("weather report", 5, index=index)
    assert_adds_up(hits[1].explain())
    lost = hits[1].explain().shares[-1]
    assert "same description" in lost.term
    assert lost.field == "like s0:get_weather"
    assert lost.share < 0


@pytest.mark.parametrize(
    "said",
    [
        "DEPRECATED: Use read_text_file instead. Read the complete contents of a file as text.",
        "Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead.",
        "[Deprecated] Read the complete contents of a file as text.",
        "**Deprecated** Read the complete contents of a file as text.",
    ],
)
def test_a_deprecated_tool_ranks_after_its_successor_and_is_found_by_name(said: str) -> None:
    successor = (
        "Read the complete contents of a file from the file system as text. Handles various text"
        " encodings."
    )
    index = ToolSearchIndex(
        [tool("files", "read_file", said), tool("files", "read_text_file", successor)]
    )
    for query in ("read a file", "read the complete contents of a file", "file contents as text"):
        assert names_of(query, index=index) == ["files:read_text_file", "files:read_file"]
    last = index.search("read a file")[1].explain()
    assert_adds_up(last)
    assert "deprecated" in last.shares[-1].term
    assert names_of("read_file", index=index)[0] == "files:read_file"


def test_a_tool_about_what_is_deprecated_is_not_demoted() -> None:
    described = [
        "List deprecated packages of a project",
        "Filter by status: ACTIVE, DEPRECATED or REMOVED",
    ]
    index = ToolSearchIndex(
        [tool("packages", f"list_{n}", text) for n, text in enumerate(described)]
    )
    assert not [
        share
        for hit in index.search("list status packages")
        for share in hit.explain().shares
        if share.share < 0
    ]


def test_tools_of_one_name_with_different_descriptions_are_not_demoted() -> None:
    index = ToolSearchIndex(
        [
            tool("a", "lookup", "Books of a library"),
            tool("b", "lookup", "Phone numbers in a directory"),
        ]
    )
    assert not [
        share for hit in index.search("lookup") for share in hit.explain().shares if share.share < 0
    ]


# names


@pytest.mark.parametrize(
    "query",
    [
        "git_log",
        "GIT_LOG",
        "git__git_log",
        "git:git_log",
        "git:git_log shows differences between branches and commits of a repository",
        "differences between branches or commits with `git_log`, please",
        "show differences between branches (git__git_log)",
    ],
)
def test_an_exact_name_in_any_form_comes_first(query: str) -> None:
    hit = INDEX.search(query)[0]
    assert hit.tool.name == "git_log"
    assert "exact name" in [share.term for share in hit.explain().shares]


def test_several_exact_names_all_come_first() -> None:
    assert set(names_of("read the mail with line_chart, run_query", 2)) == {
        "charts:line_chart",
        "db:run_query",
    }


def test_an_exact_name_that_many_servers_have_brings_all_of_them_first() -> None:
    copies = [tool(f"s{n}", "get_weather", "Weather report for a city") for n in range(8)]
    index = ToolSearchIndex(
        [*copies, tool("other", "weather_report", "Weather report for a city, get it here")]
    )
    hits = index.search("get_weather weather report for a city", 9)
    assert [hit.tool.server for hit in hits] == [*(f"s{n}" for n in range(8)), "other"]
    for hit in hits:
        assert_adds_up(hit.explain())


def test_server_and_name_tell_tools_of_the_same_name_apart() -> None:
    assert names_of("mail:search")[0] == "mail:search"
    assert names_of("files:search")[0] == "files:search"


@pytest.mark.parametrize(
    "query", ["search", "Search", "use `search`", 'the tool "search"', "search?"]
)
def test_a_name_that_is_a_plain_word_is_called_alone_or_in_quotes(query: str) -> None:
    assert set(names_of(query, 2)) == {"mail:search", "files:search"}


def test_a_name_that_is_a_plain_word_is_just_a_word_in_a_sentence() -> None:
    assert names_of("search for the price of a share")[0] == "finance:get_stock_price"


def test_a_name_of_several_words_is_found_in_a_sentence() -> None:
    index = ToolSearchIndex([*TOOLS, tool("x", "Do The Thing", "")])
    assert names_of("read a file, then do the thing, now", index=index)[0] == "x:Do The Thing"


def test_a_name_of_stop_words_can_be_called() -> None:
    index = ToolSearchIndex([tool("a", "get_it"), tool("a", "other", "get it")])
    assert names_of("get_it", index=index) == ["a:get_it"]


# order


def test_equal_scores_are_ranked_by_wire_name_whatever_the_order_of_the_tools() -> None:
    tools = [
        tool(server, f"part_{n}", "the very same text about apples")
        for n in range(4)
        for server in "ba"
    ]
    expected = sorted(str(each.tool_name) for each in tools)
    for seed in range(5):
        shuffled = random.Random(seed).sample(tools, len(tools))
        assert names_of("apples", 8, index=ToolSearchIndex(shuffled)) == expected
        assert names_of("apples", 3, index=ToolSearchIndex(shuffled)) == expected[:3]


def test_the_first_hits_do_not_depend_on_how_many_are_asked_for() -> None:
    copies = [
        tool(f"s{n:02}", name, "Weather of a city")
        for n in range(40)
        for name in ("get_weather", f"weather_{n}")
    ]
    index = ToolSearchIndex(copies)
    everything = names_of("weather of a city", 80, index=index)
    for count in (1, 2, 5, 20, 60):
        assert names_of("weather of a city", count, index=index) == everything[:count]


def test_the_ranking_is_the_same_in_every_process() -> None:
    program = (
        "from casual_mcp_nb.discovery.search_tools import ToolSearchIndex as I\nfrom"
        " casual_mcp_nb.base.tool import ToolSpec as T\ni = I([T(f's{n % 3}', f'tool_{n}', f'finds"
        " files, mail and weather {n % 7}') for n in range(50)]);print([(h.tool.name,"
        " repr(h.score)) for h in i.search('look up documents, messages and the forecast', 20)])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "tool_" in runs[0].stdout


# limits


def test_a_server_limits_the_search_to_its_tools() -> None:
    assert {
        hit.tool.server for hit in INDEX.search("show differences, history and files", server="git")
    } == {"git"}
    assert names_of("git:git_log", server="mail") == []
    assert names_of("file", server="there is none") == []


@pytest.mark.parametrize(
    ("max_results", "expected"), [(-1, 0), (0, 0), (1, 1), (3, 3), (10**9, None)]
)
def test_at_most_so_many_are_found_as_are_asked_for(max_results: int, expected: int | None) -> None:
    hits = INDEX.search("file text", max_results)
    assert len(hits) == expected if expected is not None else 3 < len(hits) <= len(TOOLS)


@pytest.mark.fault(51)
@pytest.mark.parametrize(
    "query",
    [
        "",
        " \n\t",
        "?!…",
        "\x00\x1b[31m\x07",
        "\ud800 lone \udfff",
        "🌦️🌦️",
        "a" * 200_000,
        "read a file " * 17_000,
        "/" * 200_000,
        "天" * 200_000,
        "the and of to",
        "a" + "!" * 200_000 + "a",
        "'; DROP TABLE tools; --",
    ],
    ids=repr,
)
@pytest.mark.timeout(30)
def test_odd_queries_are_answered_quickly(query: str) -> None:
    hits = INDEX.search(query)
    INDEX.find(query).why_not("read_file")
    assert all(hit.score > 0 for hit in hits)


@pytest.mark.parametrize(
    ("name", "description", "query"),
    [
        ("天气", "查询城市的天气预报", "明天的天气预报"),
        ("طقس", "حالة الطقس في المدينة", "الطقس غدا"),
        ("मौसम", "शहर का मौसम", "कल का मौसम"),
        ("날씨", "도시의 날씨 예보", "내일 날씨를 알려줘"),
        ("clima", "Previsión meteorológica de una ciudad", "prevision de mañana"),
        ("погода", "Прогноз погоды для города", "ПРОГНОЗ на завтра"),
    ],
)
def test_other_languages_are_searched(name: str, description: str, query: str) -> None:
    index = ToolSearchIndex([*TOOLS, tool("w", name, description)])
    assert names_of(query, index=index)[0] == f"w:{name}"


@pytest.mark.fault(42)
@pytest.mark.timeout(60)
def test_ten_thousand_tools_one_with_a_megabyte_of_text_are_indexed_in_seconds() -> None:
    tools = [
        tool(
            f"s{n % 90}", f"tool_{n}", f"Does thing {n} with files, mail and weather", path="Where"
        )
        for n in range(10_000)
    ]
    properties = {f"p{n}": {"description": "x y z " * 1_000} for n in range(10_000)}
    huge = ToolSpec("huge", "big", "unusual " + "word " * 200_000, {"properties": properties})
    index = ToolSearchIndex([*tools, huge])
    assert names_of("unusual", index=index) == ["huge:big"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": None},
        {"properties": ["a"]},
        {"properties": {"a": True, "b": None, "c": {"description": 5, "enum": "no list"}}},
        {"properties": {"a": {"enum": [1, None, {"x": 1}, "odd"]}}},
        {"properties": {"a": {"type": "array", "items": [{"properties": 3}]}}},
        {"items": {"items": {"properties": {"deep": {}}}}},
    ],
)
def test_odd_schemas_are_indexed(schema: dict[str, Any]) -> None:
    index = ToolSearchIndex(
        [ToolSpec("a", "tool", "apples", schema), ToolSpec("b", "\ud800\x00", "", {})]
    )
    assert names_of("apples", index=index) == ["a:tool"]


def test_a_schema_that_holds_itself_is_indexed() -> None:
    schema: dict[str, Any] = {"properties": {"leaf": {"description": "apples"}}}
    schema["properties"]["self"] = schema
    assert names_of("apples", index=ToolSearchIndex([ToolSpec("a", "tool", "", schema)])) == [
        "a:tool"
    ]


# explanations


QUERIES = [
    "read a file",
    "git_log and the weather forecast, then send a message",
    "look up the document, mail it; plot it! book a meeting",
    "commit commit commit",
    "cities",
    "search",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("server", [None, "files"])
def test_the_shares_add_up_to_the_score(query: str, server: str | None) -> None:
    hits = INDEX.search(query, 50, server)
    for hit in hits:
        explanation = hit.explain()
        assert_adds_up(explanation)
        assert (explanation.score, explanation.rank, explanation.cut) == (hit.score, hit.rank, 50)
    for each in TOOLS:
        explanation = INDEX.explain(query, each, server=server)
        assert_adds_up(explanation)
        assert (explanation.rank is None) == (each not in [hit.tool for hit in hits])


def test_each_share_names_term_field_frequency_and_rarity() -> None:
    shares = INDEX.search("destination")[0].explain().shares
    share = next(share for share in shares if share.field == "parameter name")
    assert (share.term, share.frequency, share.query_term) == ("destin", 1, "")
    assert share.idf > 0
    assert share.length_norm > 0


def test_a_synonym_names_the_word_it_replaces() -> None:
    shares = INDEX.explain("document", TOOLS[0]).shares
    assert {(share.term, share.query_term) for share in shares if share.idf} == {("fil", "docu")}


def test_among_equal_tools_the_server_that_fits_the_request_comes_first() -> None:
    named = [tool("music", f"song_{n}", "Plays a song of an album") for n in range(3)]
    index = ToolSearchIndex(
        [*named, tool("music", "search", "Find a thing"), tool("attic", "search", "Find a thing")]
    )
    hits = index.search("find a song", 9)
    assert [hit.tool.server for hit in hits if hit.tool.name == "search"] == ["music", "attic"]
    parts = {share.term: share.share for share in hits[0].explain().shares}
    assert parts["the server's topic"] > 0
    for hit in hits:
        assert_adds_up(hit.explain())


def test_a_word_of_the_same_subject_finds_a_tool_behind_those_that_have_the_word() -> None:
    tools = [
        tool("a", "laptop", "Sells a laptop"),
        tool("b", "lookup", "Finds a product"),
        tool("c", "rain", "Will it rain"),
    ]
    assert names_of("laptop", 9, index=ToolSearchIndex(tools)) == ["a:laptop", "b:lookup"]


def test_filler_words_of_a_request_count_less_than_meaningful_ones() -> None:
    tools = [tool("a", "latest_items", "The latest items"), tool("b", "weather", "The weather")]
    assert names_of("the latest weather", 1, index=ToolSearchIndex(tools)) == ["b:weather"]
    assert names_of("latest items", 1, index=ToolSearchIndex(tools)) == ["a:latest_items"]


def test_words_late_in_a_long_description_are_found() -> None:
    late = tool("a", "x", f"{'Nothing of note. ' * 40} It paints unicorns.")
    index = ToolSearchIndex([late, tool("b", "y", "Other")])
    assert [share.field for share in index.explain("unicorn", late).shares if share.idf] == [
        "details"
    ]


def test_a_word_counts_more_than_its_synonym() -> None:
    index = ToolSearchIndex([tool("a", "x", "a document"), tool("b", "y", "a file")])
    assert names_of("document", index=index) == ["a:x", "b:y"]


def test_why_a_tool_was_not_found_is_explained() -> None:
    explanation = INDEX.explain("stock price", TOOLS[0])
    assert (explanation.score, explanation.rank, explanation.shares) == (0.0, None, ())
    assert explanation.missing == ("stock", "pric")
    assert explanation.verdict.startswith("No match: ")
    assert [explanation.word(term) for term in explanation.missing] == ["stock", "price"]


def test_a_tool_behind_the_cut_has_its_place() -> None:
    hits = INDEX.search("file text", 3)
    explanation = INDEX.explain("file text", hits[2].tool, max_results=2)
    assert explanation.rank == 3
    assert explanation.verdict == "Ranked 3rd: not returned (limit 2)."
    assert hits[2].explain().verdict == "Ranked 3rd: returned to the model."


def test_a_tool_of_another_server_is_not_found_and_this_is_explained() -> None:
    explanation = INDEX.explain("read a file", TOOLS[0], server="mail")
    assert (explanation.score, explanation.rank) == (0.0, None)
    assert "limited to server 'mail'" in explanation.verdict


def test_a_tool_that_is_not_in_the_index_cannot_be_explained() -> None:
    with pytest.raises(UnknownNameError, match="read_file"):
        INDEX.explain("x", tool("files", "read_fil"))


def test_results_for_displays_explain_any_tool_by_any_form_of_its_name() -> None:
    results = INDEX.find("read a file", 2)
    assert (results.query, results.cut, results.searched, len(results)) == (
        "read a file",
        2,
        len(TOOLS),
        2,
    )
    assert [hit.tool.name for hit in results] == [
        hit.tool.name for hit in INDEX.search("read a file", 2)
    ]
    for name in ("mail:send_email", "mail__send_email", "send_email"):
        assert results.why_not(name).tool.name == "send_email"
    with pytest.raises(UnknownNameError, match="send_email"):
        results.why_not("send_emial")
    with pytest.raises(UsageError, match="files:search"):
        results.why_not("search")
    assert INDEX.find("read a file", server="files").searched == 3


# the second signal


class LetterTriples:
    """A toy embedding: which triples of letters a text has, hashed into 256 places.

    Counts its calls.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(len(texts))
        return [self._row(text.lower()) for text in texts]

    def _row(self, text: str) -> list[float]:
        row = [0.0] * 256
        for at in range(len(text) - 2):
            row[sum(ord(letter) * 31**n for n, letter in enumerate(text[at : at + 3])) % 256] += 1
        return row


def test_an_embedding_finds_tools_that_words_do_not() -> None:
    query = "geokodierung von adressen"
    assert names_of(query) == []
    index = ToolSearchIndex(TOOLS, embed=LetterTriples())
    hits = index.search(query)
    assert hits[0].tool.name == "geocode_address"
    assert [share.term for share in hits[0].explain().shares] == ["meaning"]


def test_a_tool_is_embedded_by_its_name_in_words_and_its_description() -> None:
    from casual_mcp_nb.discovery.text import embedded_text

    assert (
        embedded_text(tool("s", "getStock_price-now", "What a share costs."))
        == "get Stock price now: What a share costs."
    )


def test_with_an_embedding_the_shares_still_add_up_and_exact_names_still_come_first() -> None:
    index = ToolSearchIndex(TOOLS, embed=LetterTriples())
    hits = index.search("git_log of the weather, then send a message", 50)
    assert hits[0].tool.name == "git_log"
    for hit in hits:
        assert_adds_up(hit.explain())


def test_tools_are_embedded_once_and_each_query_once() -> None:
    embed = LetterTriples()
    index = ToolSearchIndex([tool("s", f"tool_{n}", f"thing {n}") for n in range(300)], embed=embed)
    assert sum(embed.calls) == 300
    assert len(embed.calls) < 10
    embed.calls.clear()
    for hit in index.search("thing 7"):
        hit.explain()
    assert embed.calls == [1]


def _fails(texts: list[str]) -> Any:
    raise RuntimeError("no connection, key sk-secret")


def _fails_at_queries(texts: list[str]) -> Any:
    if len(texts) == 1:
        raise TimeoutError
    return [[1.0, float(n)] for n, _ in enumerate(texts)]


@pytest.mark.parametrize(
    "embed",
    [
        _fails,
        _fails_at_queries,
        lambda texts: [[1.0]],
        lambda texts: [1.0] * len(texts),
        lambda texts: [[float("nan")]] * len(texts),
        lambda texts: "nonsense",
        lambda texts: [[1.0] * len(texts)] * len(texts),
    ],
)
def test_when_an_embedding_fails_words_decide_and_a_warning_is_logged(
    embed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        index = ToolSearchIndex(TOOLS, embed=embed)
        hits = index.search("read a file")
    assert [(hit.tool, hit.score) for hit in hits] == [
        (hit.tool, hit.score) for hit in INDEX.search("read a file")
    ]
    assert "words only" in caplog.text
    assert "sk-secret" not in caplog.text


def test_lookups_are_cached_and_the_cache_is_bounded() -> None:
    import numpy as np

    from casual_mcp_nb.discovery._ranking import TermCache

    looked_up: list[str] = []

    def find(term: str) -> Any:
        looked_up.append(term)
        return np.arange(3), np.ones(3)

    memory = TermCache(limit=8)
    for term in ("a", "b", "a", "b", "c", "a"):
        assert len(memory.of(term, find)[0]) == 3
    assert looked_up == ["a", "b", "c", "a"]


# the base


def test_with_one_field_the_corpus_ranks_as_rank_bm25_does() -> None:
    from rank_bm25 import BM25Plus

    from casual_mcp_nb.discovery._ranking import K1, FieldedBM25
    from casual_mcp_nb.discovery.text import IndexField, terms

    texts = [each.description for each in TOOLS]
    ours = FieldedBM25([[text] for text in texts], [IndexField("description", 1.0, b=0.0)])
    theirs = BM25Plus([terms(text) for text in texts], k1=K1, b=0.0, delta=0.0)
    assert ours.idf == pytest.approx(theirs.idf)
    for text in ("stock price", "send an email to a file", *texts):
        assert ours.get_scores(terms(text)) == pytest.approx(theirs.get_scores(terms(text)))
        assert ours.get_top_n(terms(text), TOOLS, 1) == theirs.get_top_n(terms(text), TOOLS, 1)


def test_importing_the_index_loads_neither_numpy_nor_rank_bm25() -> None:
    program = (
        "import sys, casual_mcp_nb.discovery.search_tools; print({'numpy', 'rank_bm25', 'fastmcp'}"
        " & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"


def test_an_index_can_be_sent_to_another_process() -> None:
    copy = pickle.loads(pickle.dumps(INDEX))
    assert names_of("send an email", index=copy) == names_of("send an email")


@pytest.mark.defect("G12")
def test_a_long_query_adds_its_terms_in_a_few_passes_whatever_the_size_of_the_index() -> None:
    words = " ".join(f"{each.name} {each.description}." for each in TOOLS).replace("_", " ")
    passes = []
    for copies in (1, 50):
        index = ToolSearchIndex(
            [
                tool(f"{each.server}{n}", each.name, each.description)
                for n in range(copies)
                for each in TOOLS
            ]
        )
        index.search(words)
        calls: Counter[str] = Counter()
        sys.setprofile(
            lambda frame, event, _, calls=calls: calls.update(
                [frame.f_code.co_name] if event == "call" else []
            )
        )
        try:
            index.search(f"{words} again")
        finally:
            sys.setprofile(None)
        # One for the whole query, one for the servers, and one for each part of the request.
        assert 0 < calls["added"] <= 2 + MAX_CLAUSES
        passes.append(calls["added"])
    assert passes[0] == passes[1]
