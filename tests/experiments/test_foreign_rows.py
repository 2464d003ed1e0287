"""Rows of other projects' files that are not cases: skipped and reported.

In this package's form they are errors.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.case_files import load_tool_cases
from casual_mcp_nb.experiments.cases import ExpectedCall

pytestmark = pytest.mark.defect("P10")


def bfcl(name: str, **fields: Any) -> dict[str, Any]:
    question = [[{"role": "user", "content": f"Question {name}"}]]
    return {
        "id": name,
        "question": question,
        "function": [{"name": "area"}],
        "ground_truth": [{"area": {"base": [1]}}],
        **fields,
    }


def atlas(name: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "files_read", "arguments": "{}"}
    trajectory = [{"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}]
    return {
        "TASK": name,
        "PROMPT": f"Prompt {name}",
        "TRAJECTORY": json.dumps(trajectory),
        **fields,
    }


def live(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "task_id": name,
        "Question": f"Question {name}",
        "Annotator Metadata": {"Tools": "1. geocode"},
        **fields,
    }


def evals(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "inputs": f"Input {name}",
        "evaluators": [{"ToolCorrectness": ["search"]}],
        **fields,
    }


def gold(name: str, **fields: Any) -> dict[str, Any]:
    return {"query": f"query {name}", "gold": [[["time", "now"]]], **fields}


NESTED = "[" * 2_000 + "]" * 2_000
ROWS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "BFCL": (
        bfcl,
        [
            bfcl("x", question=3),
            bfcl("x", question=[]),
            bfcl("x", question=[[{"role": "user"}]]),
            bfcl("x", function=[{}]),
            bfcl("x", ground_truth=[["1 + 1"]]),
            bfcl("x", ground_truth=[["cd(folder=x)"]]),
            bfcl("x", ground_truth=[3]),
            bfcl("x", ground_truth=[["f(" + "(" * 300 + ")" * 300 + ")"]]),
        ],
    ),
    "MCP-Atlas": (
        atlas,
        [
            atlas("x", TRAJECTORY="[3]"),
            atlas("x", TRAJECTORY="nothing"),
            atlas("x", TRAJECTORY="[]"),
            atlas("x", PROMPT=" "),
            atlas("x", TRAJECTORY=NESTED),
            atlas("x", TRAJECTORY=[{"tool_calls": [{}]}]),
        ],
    ),
    "LiveMCPBench": (
        live,
        [
            live("x", **{"Annotator Metadata": "none"}),
            live("x", Question=""),
            live("x", **{"Annotator Metadata": {}}),
        ],
    ),
    "pydantic-evals": (
        evals,
        [
            evals("x", inputs=[1]),
            evals("x", evaluators=[{"a": 1, "b": 2}]),
            evals(
                "x",
                evaluators=[{"TrajectoryMatch": {"expected_trajectory": ["a"], "order": "odd"}}],
            ),
            evals("x", evaluators=[]),
            evals("x", evaluators=[{"ToolCorrectness": [3]}]),
            evals("x", evaluators=["EqualsExpected"]),
        ],
    ),
    "queries": (
        gold,
        [
            gold("x", gold=3),
            gold("x", gold=[["ab"]]),
            gold("x", gold=[]),
            gold("x", query=" "),
            gold("x", gold=[[]]),
        ],
    ),
}
EACH = [(project, number) for project, (_, rows) in ROWS.items() for number in range(len(rows))]


@pytest.mark.parametrize(("project", "number"), EACH)
def test_one_row_that_is_no_case_costs_no_other(project: str, number: int, tmp_path: Path) -> None:
    build, rows = ROWS[project]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (build("a"), rows[number], build("b"))))
    with pytest.warns(UserWarning, match=r"1 of 3 rows .*'cases.jsonl' .*line 2"):
        cases = load_tool_cases(path)
    assert [text for case in cases for text in case.messages] == [
        load_tool_cases([build(name)])[0].message for name in "ab"
    ]
    (skipped,) = cases.skipped
    assert skipped.where == "cases.jsonl, line 2"
    assert skipped.where in skipped.problem
    with pytest.raises(UsageError, match="line 2"):
        load_tool_cases(path, strict=True)


@pytest.mark.parametrize("line", ["{", "[1]", "null", '{"message": "Go"}', NESTED])
def test_a_line_of_another_projects_file_that_cannot_be_read_is_skipped_too(
    line: str, tmp_path: Path
) -> None:
    path = tmp_path / "questions.json"
    path.write_text("\n".join([json.dumps(bfcl("a")), line, json.dumps(bfcl("b"))]))
    with pytest.warns(UserWarning, match="questions.json"):
        cases = load_tool_cases(path)
    assert [case.id for case in cases] == ["a", "b"]
    assert [each.where for each in cases.skipped] == ["questions.json, line 2"]


def test_where_the_second_file_has_no_answer_the_row_is_skipped_and_without_that_file_nothing_is_read(
    tmp_path: Path,
) -> None:
    questions = [
        {name: value for name, value in bfcl(each).items() if name != "ground_truth"}
        for each in ("a", "b")
    ]
    (tmp_path / "q.json").write_text("\n".join(map(json.dumps, questions)))
    (tmp_path / "a.json").write_text(
        json.dumps({"id": "b", "ground_truth": [{"area": {"base": [1]}}]})
    )
    with pytest.warns(UserWarning, match="1 of 2"):
        cases = load_tool_cases(
            tmp_path / "q.json", answers=tmp_path / "a.json", arguments="ignore"
        )
    assert ([case.id for case in cases], len(cases.skipped)) == (["b"], 1)
    with pytest.raises(UsageError, match="answers="):
        load_tool_cases(tmp_path / "q.json")


def test_a_file_without_any_case_is_an_error_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([atlas("x", TRAJECTORY="[3]")]))
    with pytest.raises(UsageError, match=r"tasks\.json, entry 1"):
        load_tool_cases(path)


@pytest.mark.parametrize("strict", [None, True])
def test_a_row_in_this_packages_form_is_an_error_unless_you_say_otherwise(
    strict: bool | None, tmp_path: Path
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"message": "Go", "calls": ["a:b"]}\n{"message": "Go", "cals": []}\n{')
    with pytest.raises(UsageError, match="line 2"):
        load_tool_cases(path, strict=strict)
    with pytest.warns(UserWarning, match="2 of 3"):
        assert len(load_tool_cases(path, strict=False)) == 1


def test_equal_ids_of_another_project_get_a_number(tmp_path: Path) -> None:
    rows = [
        bfcl("a"),
        bfcl("a"),
        bfcl("a-2"),
        bfcl("a", question=[[{"role": "user", "content": "Other"}]]),
    ]
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump(rows))
    assert [case.id for case in load_tool_cases(path)] == ["a", "a-2", "a-2-2", "a-3"]


def test_equal_cases_of_ones_own_are_one_and_others_with_the_same_id_an_error() -> None:
    row = {"id": "a", "message": "Go", "calls": ["a:b"]}
    assert len(load_tool_cases([row, dict(row)])) == 1
    with pytest.raises(UsageError, match="'a'"):
        load_tool_cases([row, {**row, "calls": ["a:c"]}])


CSV = """id,message,calls,no_call,any_call,extra_calls,tags,answer,cluster
7,What is 2 + 3?,"[{""tool"": ""math:add"", ""arguments"": {""a"": 2}}]",False,,0,"[""sums""]",5,1
hello,Hello,,TRUE,false,,,,
news,News?,,,true,,,,
"""


def test_a_csv_file_has_cases_as_a_table_does(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(CSV)
    for cases in (load_tool_cases(path), load_tool_cases(pd.read_csv(path))):
        add, hello, news = cases
        assert (add.id, add.calls, add.tags) == (
            "7",
            (ExpectedCall("math:add", {"a": 2}),),
            ("sums",),
        )
        assert (add.no_call, add.extra_calls, add.answer) == (False, 0, "5") or add.answer == "5.0"
        assert (hello.no_call, hello.any_call, news.any_call) == (True, False, True)
    path.write_text("message,no_call\nGo,perhaps\n")
    with pytest.raises(UsageError, match=r"cases.csv, line 2, field no_call.*perhaps"):
        load_tool_cases(path)
    path.write_text("message,no_call\nGo,true,3\n")
    with pytest.raises(UsageError, match=r"cases\.csv, line 2 .*cells"):
        load_tool_cases(path)


def test_a_json_document_on_one_line_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(
        json.dumps(
            {"cases": [{"message": "Go", "calls": ["a:b"]}, {"message": "Stop", "no_call": True}]}
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [case.message for case in load_tool_cases(path)] == ["Go", "Stop"]
    for text in ('{"cases": 3}', '{"cases": {}}', "3", '"x"', "[3]"):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"cases\.json"):
            load_tool_cases(path)
