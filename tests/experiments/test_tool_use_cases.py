"""Cases of tool use: their values, their files, and what is imported from conversations, cassettes
and other projects.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kit.weather import weather

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.case_files import load_tool_cases, save_tool_cases
from casual_mcp_nb.experiments.cases import ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.matchers import (
    Equal,
    IfGiven,
    Near,
    OneOf,
    Regex,
    SameDate,
    Satisfies,
    fits,
    read_expectation,
    wrong_parameters,
)
from casual_mcp_nb.providers.scripted import call, scripted_model


def even(value: Any) -> bool:
    return bool(value % 2 == 0)


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        (Equal({"$regex": "a"}), [{"$regex": "a"}], [{"$regex": "b"}, None]),
        (Equal(1), [1, 1.0], [True, "1"]),
        (OneOf(["a", Regex("^b")]), ["a", "bc"], ["cb", "", 1]),
        (Regex(r"(?i)^oslo"), ["Oslo", "OSLO, Norway"], ["in Oslo", 3, None]),
        (Near(3.14, within=0.01), [3.14, 3.149, "3.14"], [3.2, "pi", None, True, float("nan")]),
        (
            SameDate("2026-11-23"),
            ["2026-11-23", "23 Nov 2026", "2026-11-23T10:00:00Z"],
            ["2026-11-24", "Monday", "23", 23, ""],
        ),
        (Satisfies(even), [2, 0], [3, 5]),
        (1, [1, 1.0], [True, 2, "1", None]),
        (True, [True], [1, "true"]),
        ([1, Near(2)], [[1, 2]], [[1], [1, 2, 3], "12"]),
        (
            {"a": {"b": OneOf([1, 2])}},
            [{"a": {"b": 2, "c": 3}, "d": 4}],
            [{"a": {"b": 3}}, {"a": 1}, []],
        ),
    ],
)
def test_a_matcher_fits_what_it_describes_and_has_a_form_in_files(
    expected: Any, right: list[Any], wrong: list[Any]
) -> None:
    assert [fits(expected, value) for value in right] == [True] * len(right)
    assert [fits(expected, value) for value in wrong] == [False] * len(wrong)
    case = ToolUseCase("Go", [("a:b", {"x": expected})])
    plain = json.loads(json.dumps(case.plain()))["calls"][0]["arguments"]["x"]
    again = read_expectation(plain, {"even": even})
    assert [fits(again, value) for value in (*right, *wrong)] == [True] * len(right) + [
        False
    ] * len(wrong)


def test_parameters_that_are_missing_other_or_unexpected_are_named() -> None:
    expected = {"a": 1, "b": IfGiven(2), "c": OneOf([3])}
    assert wrong_parameters(expected, {"a": 1, "c": 3, "d": 0}) == ()
    assert wrong_parameters(expected, {"a": 1, "c": 3, "d": 0}, exact=True) == ("d",)
    assert wrong_parameters(expected, {"b": 3, "c": 4}) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"message": ""}, "message"),
        ({"message": "Go"}, "expect"),
        ({"message": "Go", "calls": "a:b"}, "calls"),
        ({"message": "Go", "calls": ["a:b"], "no_call": True}, "no_call"),
        ({"message": "Go", "calls": ["a:b"], "order": "random"}, "order"),
        ({"message": "Go", "calls": ["a:b"], "extra_calls": -1}, "extra_calls"),
        ({"message": "Go", "calls": [ExpectedCall("a:b", turn=2)]}, "turn"),
        ({"message": "Go", "answer": 3}, "answer"),
        ({"message": "Go", "any_call": True, "no_call": True}, "no_call"),
        ({"message": "Go", "any_call": True, "extra_calls": 0}, "extra_calls"),
        ({"message": "Go", "any_call": True, "tags": [3]}, "tags"),
        ({"message": "Go", "any_call": True, "tags": 3}, "tags"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        ToolUseCase(**fields)


FULL = ToolUseCase(
    ["What is 17 * 23?", "And half of it?"],
    [
        ExpectedCall(["math:multiply", "math:product"], {"a": 17, "b": Near(23, 0.5)}, turn=1),
        ExpectedCall("math:divide", turn=2),
    ],
    alternatives=[["math:evaluate"]],
    order="in_order",
    extra_calls=1,
    arguments="exact",
    forbidden=["shell:run"],
    answer=["195.5", Regex("half")],
    cluster="products",
    metadata={"by": "Ada"},
    any_call=True,
    tags=["numbers", "slow"],
)


@pytest.mark.parametrize("name", ["cases.jsonl", "cases.yaml", "cases.json"])
def test_a_case_survives_its_file(tmp_path: Path, name: str) -> None:
    path = save_tool_cases([FULL, ToolUseCase("Hello", no_call=True)], tmp_path / name)
    if name.endswith(".json"):
        path.write_text(
            json.dumps([json.loads(line) for line in path.read_text().splitlines()], indent=1)
        )
    again = load_tool_cases(path)
    assert [case.plain() for case in again] == [
        FULL.plain(),
        ToolUseCase("Hello", no_call=True).plain(),
    ]
    assert again[0].digest == FULL.digest
    with pytest.raises(UsageError):
        save_tool_cases([FULL], path)


def test_an_id_is_that_of_the_content_and_two_cases_differ(tmp_path: Path) -> None:
    one, other = ToolUseCase("Go", ["a:b"]), ToolUseCase("Go", ["a:c"])
    assert one.id == ToolUseCase("Go", ["a:b"], cluster="x", metadata={"y": 1}).id != other.id
    assert re.fullmatch("case-[0-9a-f]{16}", one.id)
    with pytest.raises(UsageError, match="the id"):
        load_tool_cases([one, ToolUseCase("Stop", ["a:b"], id=one.id)])


@pytest.mark.defect("P10")
def test_many_cases_have_as_many_ids() -> None:
    """With 32 bits, two of 20,000 ids are equal in one of twenty files.

    With 64 bits, in one of ninety thousand million.
    """
    ids = {
        ToolUseCase(f"What is {number} + {number}?", any_call=True).id for number in range(20_000)
    }
    assert len(ids) == 20_000
    assert {len(each) for each in ids} == {len("case-") + 16}


def test_a_prompt_that_is_only_compared_expects_nothing() -> None:
    case = ToolUseCase("Go", judged=False)
    assert (case.acceptable, case.needs, case.plain()) == (
        ((),),
        (),
        {"id": case.id, "message": "Go", "judged": False},
    )
    assert ToolUseCase("Go", ["a:b"]).id != ToolUseCase("Go", ["a:b"], judged=False).id


def test_tags_are_no_part_of_what_is_expected() -> None:
    one, other = ToolUseCase("Go", ["a:b"], tags=["x", "y", "x"]), ToolUseCase("Go", ["a:b"])
    assert (one.tags, one.digest, one.id) == (("x", "y"), other.digest, other.id)
    assert ToolUseCase("Go", ["a:b"], tags="x").tags == ("x",)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            (
                '{"message": "Go", "calls": ["a:b"]}\n{"message": "Go", "calls": [{"tool": "a:b",'
                ' "argument": {}}]}'
            ),
            ["line 2", "calls", "argument"],
        ),
        ('{"message": "Go", "cals": ["a:b"]}', ["line 1", "cals", "calls"]),
        (
            '{"message": "Go", "calls": [{"tool": "a:b", "arguments": {"x": {"$regx": "a"}}}]}',
            ["line 1", "calls", "$regx", "$regex"],
        ),
        (
            '{"message": "Go", "calls": [{"tool": "a:b", "arguments": {"x": {"$regex": "("}}}]}',
            ["line 1", "calls"],
        ),
        (
            (
                '{"message": "Go", "calls": [{"tool": "a:b", "arguments": {"x": {"$function":'
                ' "system"}}}]}'
            ),
            ["line 1", "calls", "system"],
        ),
        ('{"message": "Go", "calls": "a:b"}', ["line 1", "calls"]),
        ('{"calls": ["a:b"]}', ["line 1", "message"]),
        ("{", ["line 1"]),
        ("[1]", ["line 1"]),
        ("", ["no cases"]),
    ],
)
def test_an_error_names_file_line_and_field(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        load_tool_cases(path)
    assert [part for part in parts if part not in str(raised.value)] == []
    assert "cases.jsonl" in str(raised.value) or not text


def test_a_yaml_file_names_the_line_and_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(
        "cases:\n- message: Go\n  calls: [a:b]\n- message: When?\n  calls:\n  - tool: a:b\n   "
        " arguments: {day: 2026-11-23}\n"
    )
    case = load_tool_cases(path)[1]
    assert case.calls[0].arguments == {"day": "2026-11-23"}
    path.write_text("- message: Go\n  calls: [a:b]\n- message: Go\n  oder: any\n")
    with pytest.raises(UsageError, match=r"line 3.*oder"):
        load_tool_cases(path)
    for text in ("- !!python/object/apply:os.system [ls]", "a: [", "message: Go"):
        path.write_text(text)
        with pytest.raises(UsageError, match=re.escape("cases.yaml")):
            load_tool_cases(path)


def test_a_table_has_cases_too() -> None:
    table = pd.DataFrame(
        {
            "message": ["What is 2 + 3?", "Hello"],
            "calls": ['[{"tool": "math:add", "arguments": {"a": 2}}]', None],
            "no_call": [False, True],
            "extra_calls": [1.0, float("nan")],
        }
    )
    table["extra_calls"] = (
        table["extra_calls"]
        .astype("Int64")
        .astype(object)
        .where(table["extra_calls"].notna(), None)
    )
    one, other = load_tool_cases(table)
    assert (one.calls[0].arguments, one.extra_calls, other.no_call) == ({"a": 2}, 1, True)
    with pytest.raises(UsageError, match="row 1"):
        load_tool_cases([{"message": "Go", "call": []}])


def test_cases_of_discovery_are_read_as_names_of_tools(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text(
        '{"query": "what time is it", "gold": [[["time", "now"], ["time", "clock"]], [["math",'
        ' "add"]]]}'
    )
    (case,) = load_tool_cases(path)
    assert [each.tools for each in case.calls] == [("time:clock", "time:now"), ("math:add",)]


async def test_past_turns_and_cassettes_are_first_drafts(tmp_path: Path) -> None:
    def answers() -> Any:
        return scripted_model(
            call("weather__forecast", city="Oslo"),
            "Sunny",
            call("weather__nothing"),
            "Hm",
            call("weather__history", city="Bergen"),
            "Rain",
        )

    async with Session({}, in_process={"weather": weather()}, store=None) as session:
        model = answers()
        with session.cassettes.use(tmp_path / "recorded.json", "all"):
            for text in ("Weather in Oslo?", "Nothing?", "And before in Bergen?"):
                await session.chat_async(text, model=model)
        cases = load_tool_cases(session.turns)
        assert [(case.message, case.calls) for case in cases] == [
            ("Weather in Oslo?", (ExpectedCall("weather:forecast", {"city": "Oslo"}),)),
            ("And before in Bergen?", (ExpectedCall("weather:history", {"city": "Bergen"}),)),
        ]
        session.export(tmp_path / "talk.json")
        assert [case.message for case in load_tool_cases(tmp_path / "talk.json")] == [
            case.message for case in cases
        ]
    recorded = load_tool_cases(tmp_path / "recorded.json")
    assert [(case.messages, [(each.tool, each.turn) for each in case.calls]) for case in recorded][
        -1
    ] == (
        ("Weather in Oslo?", "Nothing?", "And before in Bergen?"),
        [("weather:forecast", 1), ("weather:history", 3)],
    )


PYDANTIC = """
# yaml-language-server: $schema=./test_cases_schema.json
name: travel
cases:
- name: book
  inputs: {prompt: Book a flight to Oslo}
  expected_output: Booked
  metadata: {difficulty: easy}
  evaluators:
  - TrajectoryMatch:
      expected_trajectory: [search_flights, book_flight]
      order: in_order
  - ArgumentCorrectness:
      tool_name: book_flight
      expected_arguments: {to: Oslo}
      match_mode: exact
  - EqualsExpected
- name: names
  inputs: What can you do?
  evaluators:
  - ToolCorrectness: [list_tools]
  - Contains: {value: tools, case_sensitive: false}
evaluators:
- MaxDuration: 2.0
"""


def test_datasets_of_pydantic_evals_are_read(tmp_path: Path) -> None:
    path = tmp_path / "travel.yaml"
    path.write_text(PYDANTIC)
    book, names = load_tool_cases(path)
    assert (book.id, book.message, book.order, book.extra_calls) == (
        "book",
        "Book a flight to Oslo",
        "in_order",
        0,
    )
    assert book.calls == (
        ExpectedCall("search_flights"),
        ExpectedCall("book_flight", {"to": "Oslo"}, match="exact"),
    )
    assert [fits(book.checks[0], text) for text in ("Booked", "Booked!")] == [True, False]
    assert book.metadata == {"difficulty": "easy", "evaluators not read": ["MaxDuration"]}
    assert (names.calls, names.extra_calls, fits(names.checks[0], "Many Tools")) == (
        (ExpectedCall("list_tools"),),
        0,
        True,
    )
    path.write_text("cases:\n- name: one\n  inputs: [1]\n")
    with pytest.raises(UsageError, match=r"travel.yaml, line 2.*inputs"):
        load_tool_cases(path)


def test_evaluators_of_one_call_are_read_together(tmp_path: Path) -> None:
    path = tmp_path / "travel.yaml"
    path.write_text(
        """
cases:
- name: book
  inputs: Book a flight
  evaluators:
  - ToolCorrectness: {expected_tools: [book_flight], include_failed: true}
  - ArgumentCorrectness: {tool_name: book_flight, expected_arguments: {to: Oslo}}
  - ArgumentCorrectness: {tool_name: book_flight, expected_arguments: {seats: 2}}
"""
    )
    (case,) = load_tool_cases(path)
    assert case.calls == (
        ExpectedCall("book_flight", {"to": "Oslo", "seats": 2}, match="subset", may_fail=True),
    )


def test_a_parameter_of_bfcl_that_may_be_missing_may_be_an_empty_text() -> None:
    acceptable = {"unit": ["km", ""], "form": ["a", "b", ""], "note": [""], "base": [10]}
    row = {
        "id": "simple_0",
        "question": [[{"role": "user", "content": "How far?"}]],
        "function": [{"name": "distance"}],
        "ground_truth": [{"distance": acceptable}],
    }
    (case,) = load_tool_cases([row])
    expected = case.calls[0].arguments
    for name, (*values, empty) in acceptable.items():
        assert all(fits(expected[name], value) for value in (*values, empty))
        assert not fits(expected[name], "other")
    assert wrong_parameters(expected, {"base": 10}) == ()


def test_tasks_of_mcp_atlas_are_read_with_their_results(tmp_path: Path) -> None:
    def made(name: str, arguments: str, id: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {
            "role": "assistant",
            "content": "I will.",
            "tool_calls": [{"id": id, "type": "function", "function": function}],
        }

    trajectory = [
        made("files_list", "{}", "1"),
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a.csv"}]},
        made("files_read", '{\n "path": "a.csv"}', "2"),
        {
            "role": "tool",
            "tool_call_id": "2",
            "content": [{"type": "text", "text": "1,2" * 60_000}],
        },
    ]
    row = {
        "TASK": "5c6d7e8f9a",
        "ENABLED_TOOLS": json.dumps(["files_list", "files_read"]),
        "PROMPT": "What is in my file? ",
        "TRAJECTORY": json.dumps(trajectory),
        "GTFA_CLAIMS": "['It has 1.', \"It's 2.\"]",
    }
    path = tmp_path / "tasks.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    (case,) = load_tool_cases(path)
    assert (case.id, case.message, case.arguments) == (
        "5c6d7e8f9a",
        "What is in my file?",
        "ignore",
    )
    assert case.calls == (ExpectedCall("files_list"), ExpectedCall("files_read", {"path": "a.csv"}))
    assert (case.metadata["tools"], case.metadata["claims"]) == (
        ["files_list", "files_read"],
        ["It has 1.", "It's 2."],
    )
    assert load_tool_cases(path, arguments="subset")[0].arguments == "subset"
    (same,) = load_tool_cases(pd.DataFrame([row]))
    assert same.calls == case.calls
    with pytest.raises(UsageError, match="row 1"):
        load_tool_cases([{**row, "TRAJECTORY": "[3]"}])


def test_questions_of_bfcl_are_read_with_their_answers(tmp_path: Path) -> None:
    function = [{"name": "math.area", "description": "", "parameters": {}}]
    questions = [
        {
            "id": "simple_0",
            "question": [
                [{"role": "system", "content": "x"}, {"role": "user", "content": "Area?"}]
            ],
            "function": function,
        },
        {
            "id": "live_relevance_3",
            "question": [[{"role": "user", "content": "Area?"}]],
            "function": function,
        },
        {
            "id": "irrelevance_1",
            "question": [[{"role": "user", "content": "Hi"}]],
            "function": function,
        },
        {
            "id": "multi_turn_base_2",
            "question": [[{"role": "user", "content": "cd"}], [{"role": "user", "content": "ls"}]],
        },
    ]
    answers = [
        {
            "id": "simple_0",
            "ground_truth": [
                {"math.area": {"base": [10, 10.0], "unit": ["units", ""], "at": [{"x": [1]}]}}
            ],
        },
        {"id": "multi_turn_base_2", "ground_truth": [["cd(folder='document')"], ["ls(a=True)"]]},
    ]
    for name, rows in {"q.json": questions, "a.json": answers}.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    area, some, none, turns = load_tool_cases(tmp_path / "q.json", answers=tmp_path / "a.json")
    expected = area.calls[0]
    assert (expected.tools, area.arguments, area.extra_calls) == (
        ("math.area", "math_area"),
        "exact",
        0,
    )
    assert wrong_parameters(expected.arguments, {"base": 10, "at": {"x": 1}}, exact=True) == ()
    assert wrong_parameters(expected.arguments, {"base": 9, "unit": "m", "at": {"x": 2}}) == (
        "base",
        "unit",
        "at",
    )
    assert (some.any_call, some.no_call, some.calls) == (True, False, ())
    assert (none.any_call, none.no_call, none.calls) == (False, True, ())
    assert [(each.tools, each.arguments, each.turn) for each in turns.calls] == [
        (("cd",), {"folder": "document"}, 1),
        (("ls",), {"a": True}, 2),
    ]
    with pytest.raises(UsageError, match=r"simple_0.*answers"):
        load_tool_cases(tmp_path / "q.json")


def test_tasks_of_livemcpbench_are_read_as_names_of_tools(tmp_path: Path) -> None:
    tools = {"Tools": "1. geocode_address\n2. find_parking_facilities", "Number of tools": "2"}
    task = {
        "task_id": "dda8",
        "Question": "Where to park?",
        "answers": "",
        "category": "Travel",
        "Annotator Metadata": tools,
    }
    path = tmp_path / "all_annotations.json"
    path.write_text(json.dumps([task], indent=2))
    (case,) = load_tool_cases(path)
    assert (case.id, [each.tool for each in case.calls]) == (
        "dda8",
        ["geocode_address", "find_parking_facilities"],
    )
