from __future__ import annotations

import time

import pytest
from kit.growth import PART, assert_growth_of

PAGE = """<html><head><title>T</title><style>p {}</style></head><body><h1>Prices &amp; more</h1>
<script>alert("x")</script><p>One<br>two</p><ul><li>a</li><li>b</li></ul><noscript>no</noscript></body></html>"""


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("html_to_text", {"html": PAGE}, "Prices & more\n\nOne\ntwo\n\n* a\n* b"),
        ("html_to_text", {"html": "<head><p>broken <b>page"}, "broken page"),
        ("html_to_text", {"html": "<head><body>broken <b>page"}, "broken page"),
        (
            "extract_emails",
            {"text": "Write a.b+c@ex-ample.org, or a.b+c@ex-ample.org."},
            {"count": 1, "found": ["a.b+c@ex-ample.org"]},
        ),
        (
            "extract_urls",
            {"text": "See (https://a.org/x?y=1), http://b.org."},
            {"count": 2, "found": ["https://a.org/x?y=1", "http://b.org"]},
        ),
        (
            "extract_urls",
            {"text": "(see https://a.org/Python_(genus))."},
            {"count": 1, "found": ["https://a.org/Python_(genus)"]},
        ),
        (
            "find_replace",
            {"text": "a.b a.b axb", "find": "a.b", "replace": r"\1"},
            {"text": r"\1 \1 axb", "replaced": 2},
        ),
        (
            "find_replace",
            {
                "text": "Cat concat",
                "find": "cat",
                "replace": "dog",
                "ignore_case": True,
                "whole_words": True,
            },
            {"text": "dog concat", "replaced": 1},
        ),
        ("sort_lines", {"text": "b\na\nb", "unique": True}, "a\nb"),
        ("sort_lines", {"text": "x 10\nx 9", "by": "number", "order": "descending"}, "x 10\nx 9"),
        (
            "sort_lines",
            {"text": "none\nitem-2\nitem-10\nitem -3", "by": "number", "order": "descending"},
            "item-10\nitem-2\nitem -3\nnone",
        ),
        ("slugify", {"text": "Crème brûlée!"}, "creme-brulee"),
        ("hash_text", {"text": "abc", "algorithm": "md5"}, "900150983cd24fb0d6963f7d28e17f72"),
        ("encode_base64", {"text": "hé??>", "url_safe": True}, "aMOpPz8-"),
        ("decode_base64", {"text": "aMOpPz8-"}, "hé??>"),
        (
            "csv_to_markdown",
            {"text": "a,b\n1,x|y\n2\n"},
            "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n| 2 |  |",
        ),
        (
            "query_json",
            {"text": '{"u": [{"n": 1}, {"n": 2}]}', "path": "u[*].n"},
            {"value": [1, 2], "type": "list"},
        ),
        (
            "query_json",
            {"text": '{"u": [{"n": 1}, {"n": 2}]}', "path": "$.u[-1].n"},
            {"value": 2, "type": "int"},
        ),
        (
            "query_json",
            {"text": '{"u": [{"n": 1}, {"n": 2}]}', "path": "u[?n > `1`].n"},
            {"value": [2], "type": "list"},
        ),
        (
            "query_json",
            {"text": '{"u": [{"n": 1}, {"n": 2}]}', "path": "max_by(u, &n).n"},
            {"value": 2, "type": "int"},
        ),
        (
            "query_json",
            {"text": '{"a b": {"c.d": 3}}', "path": "a b['c.d']"},
            {"value": 3, "type": "int"},
        ),
    ],
)
async def test_a_text_tool_gives_the_right_answer(
    call, tool: str, arguments: dict, expected: object
) -> None:
    answer = await call("text", tool, **arguments)
    if isinstance(answer, dict):
        answer.pop("summary", None)
    assert answer == expected


async def test_words_are_counted(call) -> None:
    result = await call("text", "count_words", text="It's one. Is it two?\nIt is.")

    assert (result["words"], result["lines"], result["sentences"]) == (7, 2, 3)
    assert result["most_frequent"]["is"] == 2


async def test_two_texts_are_compared(call) -> None:
    result = await call("text", "diff_texts", before="a\nb\nc", after="a\nB\nc\nd")

    assert (result["added"], result["removed"]) == (2, 1)
    assert "-b\n+B" in result["diff"]
    assert (await call("text", "diff_texts", before="a", after="a"))["similarity"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("extract_emails", {"text": "a" * 199_999}),
        ("extract_emails", {"text": "a@" * 99_999}),
        ("extract_emails", {"text": "a@" + "a." * 99_000}),
        ("extract_urls", {"text": "http://" * 28_000}),
        ("count_words", {"text": "." * 199_999 + "a"}),
        ("count_words", {"text": "a-" * 99_999}),
        ("html_to_text", {"html": "<" * 199_999}),
        ("html_to_text", {"html": "<!--" * 49_999}),
        ("html_to_text", {"html": "<a " * 66_666}),
        ("html_to_text", {"html": "&" * 199_999}),
        ("diff_texts", {"before": "a\nb\n" * 900, "after": "b\na\n" * 900}),
        ("find_replace", {"text": "a" * 199_999, "find": "a" * 999, "replace": ""}),
        ("sort_lines", {"text": "-1" * 99_999, "by": "number"}),
        ("csv_to_markdown", {"text": "a,b\n" * 40_000}),
    ],
)
@pytest.mark.defect("F20")
@pytest.mark.timeout(30)
async def test_the_work_for_a_hostile_text_grows_with_its_length(
    call, tool: str, arguments: dict
) -> None:
    shorter = {
        name: value[: len(value) // PART] if len(value) > 1_000 else value
        for name, value in arguments.items()
    }
    seconds = []
    # What the first call imports is no work for the text.
    for given in (shorter, shorter, shorter, arguments, arguments):
        start = time.process_time()
        await call("text", tool, **given)
        seconds.append(time.process_time() - start)
    before, after = min(seconds[:3]), min(seconds[3:])
    # Comparing texts takes the square of their lines, which are limited.
    assert_growth_of(before, after, power=2 if tool == "diff_texts" else 1)


@pytest.mark.parametrize(
    ("tool", "arguments", "fragment"),
    [
        (
            "find_replace",
            {"text": "a" * 1000, "find": "a", "replace": "b" * 9999},
            "1,000,000 characters",
        ),
        ("diff_texts", {"before": "a\n" * 3000, "after": ""}, "2000 lines"),
        ("decode_base64", {"text": "!!"}, "Not Base64"),
        ("decode_base64", {"text": "/w=="}, "not UTF-8"),
        ("csv_to_markdown", {"text": ""}, "heading"),
        ("csv_to_markdown", {"text": "a" + "," * 9999 + "\nx" * 9999}, "too large"),
        ("query_json", {"text": "{'a': 1}"}, "line 1, column 2"),
        ("query_json", {"text": "[" * 100_000}, "nested too deeply"),
        ("query_json", {"text": "[NaN]"}, "Not usable JSON"),
        ("query_json", {"text": '{"name": 1}', "path": "nam"}, "closest: name"),
        ("query_json", {"text": "[1]", "path": "[1]"}, "list of 1"),
        ("query_json", {"text": "[1]", "path": "a"}, "a list"),
        ("query_json", {"text": "1", "path": "a["}, "not valid at"),
        ("query_json", {"text": "[1]", "path": "join(`a`, @)"}, "join is not offered"),
        ("query_json", {"text": "[1]", "path": "[@,@]|" * 60 + "[]"}, "selects too much"),
        ("query_json", {"text": '["a"]', "path": "sum(@)"}, "cannot be answered"),
        ("query_json", {"text": "[1]", "path": "!" * 499 + "a"}, "needs an object"),
        ("count_words", {"text": "a" * 200_001}, "200000"),
    ],
)
async def test_errors_of_a_text_tool_explain_the_problem(
    refused, tool: str, arguments: dict, fragment: str
) -> None:
    assert fragment in await refused("text", tool, **arguments)
