"""The offline planner with the bundled servers: all but one behind the search tool, as in the
quickstart.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from casual_mcp_nb.offline.arguments import parameters_of
from casual_mcp_nb.offline.replies import EXAMPLES

QUESTIONS = [
    (
        "What time is it in Tokyo when it is 14:30 in Oslo?",
        "time__convert_time",
        {"time": "14:30", "from_timezone": "Europe/Oslo", "to_timezone": "Asia/Tokyo"},
        "22:30",
    ),
    (
        "Convert 26.2 miles to kilometres",
        "units__convert_units",
        {"value": 26.2, "from_unit": "miles", "to_unit": "kilometres"},
        "42.16",
    ),
    ("What is 17 * 23 + 4?", "math__evaluate_expression", {"expression": "17 * 23 + 4"}, "395"),
    ("Which tables are in the database?", "sqlite__list_tables", {}, "customers"),
    (
        "How many words are in 'the quick brown fox'?",
        "text__count_words",
        {"text": "the quick brown fox"},
        "4 words",
    ),
    (
        "What is the mean of 3, 5, 8 and 13?",
        "math__describe_numbers",
        {"numbers": [3, 5, 8, 13]},
        "mean: 7.25",
    ),
    (
        "How many days are there between 2026-01-01 and 2026-03-01?",
        "time__date_difference",
        {"start": "2026-01-01", "end": "2026-03-01"},
        "59 days",
    ),
    ("Describe the orders table", "sqlite__describe_table", {"table": "orders"}, "customer_id"),
    ("Convert 255 to hexadecimal", "math__convert_base", {"number": "255", "to_base": 16}, "ff"),
]


PLAIN_QUESTIONS = [
    (
        "What is the largest number that divides 84 and 126?",
        "math__gcd_and_lcm",
        {"numbers": [84, 126]},
    ),
    ("What is the smallest number divisible by 4 and 6?", "math__gcd_and_lcm", {"numbers": [4, 6]}),
    (
        "How many days until 2026-12-25?",
        "time__date_difference",
        {"start": "today", "end": "2026-12-25"},
    ),
    ("Solve x^2 - 5x + 6 = 0", "math__solve_quadratic", {"a": 1, "b": -5, "c": 6}),
    ("Solve 2x**2 - 8 = 0", "math__solve_quadratic", {"a": 2, "b": 0, "c": -8}),
    (
        'Replace "cat" with "dog" in "the cat sat"',
        "text__find_replace",
        {"text": "the cat sat", "find": "cat", "replace": "dog"},
    ),
    (
        "When it is noon in London, what time is it in New York?",
        "time__convert_time",
        {"time": "12:00", "from_timezone": "Europe/London", "to_timezone": "America/New_York"},
    ),
    (
        "Extract the emails from 'ada@example.com https://example.com'",
        "text__extract_emails",
        {"text": "ada@example.com https://example.com"},
    ),
    (
        "Extract the urls from 'ada@example.com https://example.com'",
        "text__extract_urls",
        {"text": "ada@example.com https://example.com"},
    ),
    ("Search the files for the word budget", "files__search_text", {"text": "budget"}),
    (
        "What's the square root of 2 plus 3?",
        "math__evaluate_expression",
        {"expression": "sqrt(2) + 3"},
    ),
    ("What's 7 factorial?", "math__evaluate_expression", {"expression": "factorial(7)"}),
    (
        "Round 3.14159 to two decimals",
        "math__evaluate_expression",
        {"expression": "round(3.14159, 2)"},
    ),
    (
        "How heavy is 5 pounds in kilos?",
        "units__convert_units",
        {"value": 5, "from_unit": "pounds", "to_unit": "kilos"},
    ),
    ("What time is it in Tokyo?", "time__current_time", {"timezone": "Asia/Tokyo"}),
    (
        "What date is it 45 days after 2026-01-15?",
        "time__add_duration",
        {"time": "2026-01-15", "days": 45},
    ),
    ("What's the sha256 of 'hello'?", "text__hash_text", {"text": "hello", "algorithm": "sha256"}),
    ('Check this JSON: {"a": 1}', "text__query_json", {"text": '{"a": 1}'}),
    ("Find all files that end in .csv", "files__search_files", {"pattern": "*.csv"}),
    ("Where is the word budget mentioned?", "files__search_text", {"text": "budget"}),
    ("How big is pyproject.toml?", "files__file_info", {"path": "pyproject.toml"}),
    ("Which week of the year is it?", "time__parse_date", {"text": "today"}),
    ("Which week of the year is 2026-05-04?", "time__parse_date", {"text": "2026-05-04"}),
    ("Which time zones are in Europe?", "time__list_timezones", {"filter": "Europe"}),
    ("Decode aGVsbG8= from base64", "text__decode_base64", {"text": "aGVsbG8="}),
    ("Show me the orders", "sqlite__list_rows", {"table": "orders"}),
    (
        "Show me the returned orders",
        "sqlite__list_rows",
        {"table": "orders", "containing": "returned"},
    ),
    (
        "How many orders are there per status?",
        "sqlite__count_rows",
        {"table": "orders", "by": "status"},
    ),
    (
        "What is the total price of all products?",
        "sqlite__summarize_column",
        {"table": "products", "column": "price"},
    ),
    ("What are the cheapest products?", None, {}),
    ("Show me the largest files", None, {}),
    ("Which customers live alone?", None, {}),
    ("Which customer ordered most?", None, {}),
    ("How many items were ordered?", None, {}),
    ("Which customers never ordered?", None, {}),
    ("Write me a poem", None, {}),
    ("Reverse the text 'abc'", None, {}),
    ("Tell me a joke", None, {}),
    ("How likely is rain with 3 and 7 clouds?", None, {}),
]


@pytest.mark.defect("D16")
@pytest.mark.parametrize(("question", "tool", "arguments"), PLAIN_QUESTIONS)
async def test_a_plain_question_gets_the_right_tool_or_none(
    bundled_room: Any, question: str, tool: str | None, arguments: dict[str, Any]
) -> None:
    said = await bundled_room.ask(question)
    assert said.tools == ([(tool, arguments)] if tool else [])


async def test_a_word_in_quotes_is_no_statement(bundled_room: Any) -> None:
    said = await bundled_room.ask("Run the SQL 'orders'")
    assert [name for name, _ in said.tools if name.startswith("sqlite__")] == []


async def test_several_calculations_are_no_list_of_their_numbers(bundled_room: Any) -> None:
    said = await bundled_room.ask("Calculate 2+3, 4*5")
    assert [arguments for _, arguments in said.tools if "numbers" in arguments] == []


@pytest.mark.parametrize(("question", "tool", "arguments", "answer"), QUESTIONS)
async def test_a_deferred_tool_is_found_called_and_its_result_reported(
    bundled_room: Any, question: str, tool: str, arguments: dict[str, Any], answer: str
) -> None:
    said = await bundled_room.ask(question)
    assert len(said.searches) == 1
    assert said.tools == [(tool, arguments)]
    assert answer in said.text


@pytest.mark.parametrize(
    ("question", "tool", "field"),
    [
        ("How much disk space is free?", "disk_info", "GiB"),
        ("How much memory is free?", "memory_info", "memory are available"),
        ("How much RAM do I have?", "memory_info", "GiB memory"),
        ("How many CPU cores do I have?", "cpu_info", "logical processor"),
        ("How many processors does this computer have?", "cpu_info", "logical processor"),
    ],
)
async def test_a_tool_that_is_loaded_is_used_without_a_search(
    bundled_room: Any, question: str, tool: str, field: str
) -> None:
    said = await bundled_room.ask(question)
    assert said.calls == [(f"system-info__{tool}", {})]
    assert field in said.text


async def test_a_question_about_the_computer_leaves_what_follows_it(bundled_room: Any) -> None:
    said = await bundled_room.ask("How much memory is free and what is 17 * 23 + 4?")
    assert "memory are available" in said.text
    assert "395" in said.text


@pytest.mark.parametrize("question", EXAMPLES.values())
async def test_the_questions_that_the_planner_proposes_are_answered(
    bundled_room: Any, question: str
) -> None:
    refused = await bundled_room.ask("Write me a poem")
    assert "“What time is it in Tokyo when it is 14:30 in Oslo?”" in refused.text
    said = await bundled_room.ask(question)
    assert said.tools
    assert "no tool that certainly fits" not in said.text


async def test_a_follow_up_uses_the_loaded_tool_and_keeps_what_it_does_not_change(
    bundled_room: Any,
) -> None:
    await bundled_room.ask("What time is it in Tokyo when it is 14:30 in Oslo?")
    said = await bundled_room.ask("And when it is 9:00 in New York?")
    wanted = {"time": "09:00", "from_timezone": "America/New_York", "to_timezone": "Asia/Tokyo"}
    assert said.calls == [("time__convert_time", wanted)]


async def test_a_follow_up_without_a_verb_is_a_call_of_its_own(bundled_room: Any) -> None:
    await bundled_room.ask("Convert 26.2 miles to kilometres")
    said = await bundled_room.ask("And 100 km to miles?")
    assert said.calls == [
        ("units__convert_units", {"value": 100, "from_unit": "km", "to_unit": "miles"})
    ]
    assert "62.13" in said.text


async def test_a_follow_up_about_something_else_does_not_reuse_the_last_tool(
    bundled_room: Any,
) -> None:
    await bundled_room.ask("Convert 26.2 miles to kilometres")
    said = await bundled_room.ask("And what is 17 * 23 + 4?")
    assert said.tools == [("math__evaluate_expression", {"expression": "17 * 23 + 4"})]


async def test_several_needs_are_searched_and_called_side_by_side(bundled_room: Any) -> None:
    said = await bundled_room.ask("What is 12 * (3 + 4), and which tables are in the database?")
    assert [len(calls) for calls in said.rounds] == [2, 2]
    assert [name for name, _ in said.tools] == ["math__evaluate_expression", "sqlite__list_tables"]
    assert "84" in said.text
    assert "customers" in said.text


async def test_ids_are_unique_over_the_whole_conversation(bundled_room: Any) -> None:
    for question in (
        "What is 2 + 2?",
        "How much disk space is free?",
        "Convert 5 miles to feet and convert 3 km to feet",
    ):
        await bundled_room.ask(question)
    ids = [
        call.id
        for message in bundled_room.messages
        for call in getattr(message, "tool_calls", None) or ()
    ]
    assert ids == [f"call_{number}" for number in range(1, len(ids) + 1)]


async def test_a_missing_argument_is_asked_for_and_taken_from_the_reply(bundled_room: Any) -> None:
    asked = await bundled_room.ask("Convert miles to kilometres")
    assert asked.tools == []
    assert "`value`" in asked.text
    said = await bundled_room.ask("5")
    assert said.calls == [
        ("units__convert_units", {"value": 5, "from_unit": "miles", "to_unit": "kilometres"})
    ]


async def test_a_new_request_after_a_question_is_not_taken_for_the_reply(bundled_room: Any) -> None:
    await bundled_room.ask("Convert miles to kilometres")
    said = await bundled_room.ask("How much disk space is free?")
    assert said.calls == [("system-info__disk_info", {})]


async def test_what_no_tool_can_do_is_said_plainly_with_the_servers_there_are(
    bundled_room: Any,
) -> None:
    said = await bundled_room.ask("What is the weather in Oslo?")
    assert said.tools == []
    assert "not a language model" in said.text
    assert "time (9 tools)" in said.text


@pytest.mark.parametrize(
    ("question", "tool", "missing"),
    [
        ("How full is my hard drive?", "system-info:disk_info", []),
        ("Can you roll a die for me?", "math:random_numbers", []),
        ("Show me the largest files", "files:read_file", ["path"]),
        ("I want to write a poem", "files:write_file", ["path", "content"]),
    ],
)
async def test_where_nothing_fits_the_nearest_tool_is_named_with_what_it_needs(
    bundled_room: Any, question: str, tool: str, missing: list[str]
) -> None:
    said = await bundled_room.ask(question)
    assert said.tools == []
    assert "no tool that certainly fits" in said.text
    (nearest,) = re.findall("The nearest is `([^`]+)`", said.text)
    (call,) = re.findall("To call it, ask for “([^”]+)”", said.text)
    assert nearest == tool
    assert call.split() == [tool, *(f"{name}=…" for name in missing)]


CHAT = """
Hello!|Thanks!|How are you?|Who are you?|Good morning|Tell me a joke|You're great|What's up?|Never mind|OK|I'm bored
Nice weather today|What do you think?|Do you like music?|See you tomorrow|I had a long day|That was quick|You made a mistake
Sing me a song|How old are you?|I love reading files|What a day|We moved house|Happy birthday|My day was long|How was your day?
Is everything fine?|Cool|Good job|Any news?|Are you a robot?|Surprise me|Really?|Maybe later|Tell me something interesting
"""


@pytest.mark.parametrize("text", CHAT.strip().replace("\n", "|").split("|"))
async def test_small_talk_calls_and_names_no_tool(bundled_room: Any, text: str) -> None:
    said = await bundled_room.ask(text)
    assert said.tools == []
    assert "The nearest is" not in said.text


async def test_a_tool_is_called_by_the_request_that_names_it_with_its_arguments(
    bundled_room: Any, room_of: Any
) -> None:
    values = {
        "number": "3",
        "integer": "3",
        "array": "[1, 2]",
        "boolean": "true",
        "object": '{"a": 1}',
    }
    for tool in bundled_room.catalog:
        required = [each for each in parameters_of(tool.input_schema) if each.required]
        texts = {
            each.name: (
                '"SELECT 1"' if each.kind == "sql" else next(iter(each.schema.choices), "abc")
            )
            for each in required
        }
        arguments = [f"{each.name}={values.get(each.type, texts[each.name])}" for each in required]
        said = await room_of(list(bundled_room.catalog), loaded={"system-info"}).ask(
            f"{tool.tool_name} {' '.join(arguments)}"
        )
        assert [name for name, _ in said.tools] == [tool.wire_name]


@pytest.mark.parametrize("text", ["Thanks!", "Who are you?"])
async def test_talk_after_a_question_is_not_taken_for_the_reply(
    bundled_room: Any, text: str
) -> None:
    await bundled_room.ask("Convert miles to kilometres")
    said = await bundled_room.ask(text)
    assert said.calls == []
    assert "offline planner" in said.text


async def test_a_greeting_calls_nothing(bundled_room: Any) -> None:
    said = await bundled_room.ask("Hello!")
    assert said.calls == []
    assert "offline planner" in said.text


async def test_a_failed_call_is_reported_with_the_tools_own_words(bundled_room: Any) -> None:
    said = await bundled_room.ask("Read nothere.txt")
    assert [name for name, _ in said.tools] == ["files__read_file"]
    assert "failed" in said.text
    assert "nothere.txt" in said.text


async def test_nothing_is_changed_unless_a_word_asks_for_it(bundled_room: Any) -> None:
    said = await bundled_room.ask("Which files are in the notebooks folder?")
    assert [name for name, _ in said.tools] == ["files__list_directory"]


async def test_the_same_conversation_gets_the_same_answer(bundled_room: Any) -> None:
    said = await bundled_room.ask("What is 17 * 23 + 4?")
    first = [message.model_dump_json() for message in bundled_room.messages]
    bundled_room.messages.clear()
    bundled_room.offered = [tool for tool in bundled_room.offered if tool.server == "system-info"]
    bundled_room.search = type(bundled_room.search)(bundled_room.deferred)
    again = await bundled_room.ask("What is 17 * 23 + 4?")
    assert again == said
    assert [message.model_dump_json() for message in bundled_room.messages] == first
    assert all(json.loads(line) for line in first)
