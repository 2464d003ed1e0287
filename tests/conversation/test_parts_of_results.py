"""Parts of a call's result, as models pass them to other tools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from casual_mcp_nb.base.content import ContentPart, KeptText, LargeResult, ToolResult
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.errors import UsageError

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def made(text: str, structured: Any = None) -> ToolCall:
    result = ToolResult((ContentPart("text", text),), structured)
    return ToolCall("1", "s__t", ToolName("s", "t"), {}, "ok", text, result)


@pytest.mark.parametrize(
    ("call", "path", "value", "text"),
    [
        (made('{"rows": [1, 2, 3]}'), "rows[1:]", [2, 3], "[2, 3]"),
        (made('{"rows":[1]}'), "", {"rows": [1]}, '{"rows":[1]}'),
        (made('{"a.\\nb": [1]}'), "['a.\nb'][0]", 1, "1"),
        (made("id,name\n1,a\n2,b\n"), "", ROWS, "id,name\n1,a\n2,b\n"),
        (made("id,name\n1,a\n2,b\n"), "[*].name", ["a", "b"], '["a", "b"]'),
        (made("1", {"result": 1}), "", "1", "1"),
        (made("Two.", {"result": ROWS}), "[0].id", 1, "1"),
        (made("Two.", {"result": "three, four"}), "", "three, four", "three, four"),
        (
            made("", {"result": 5, "more": 1}),
            "",
            {"result": 5, "more": 1},
            '{"result": 5, "more": 1}',
        ),
        (made("A text."), "", "A text.", "A text."),
    ],
)
def test_a_part_is_a_plain_value_or_a_text(
    call: ToolCall, path: str, value: Any, text: str
) -> None:
    assert call.part(path) == value
    assert call.part(path, as_text=True) == text


def test_a_part_of_a_large_result_is_one_of_all_of_it() -> None:
    kept = KeptText('{"rows": [1, 2]}')
    large = LargeResult("r_0123456789", "object", 16, 4, kept)
    call = replace(made('{"rows"'), large=large)
    assert call.part("rows") == [1, 2]
    plain = replace(call, large=replace(large, source=KeptText('{"rows": [1]}', plain=True)))
    assert plain.part() == '{"rows": [1]}'
    kept.drop()
    with pytest.raises(UsageError):
        call.part()


@pytest.mark.parametrize(
    "call",
    [
        made('{"row": 1}'),
        made("A text."),
        replace(made('{"rows": 1}'), status="error"),
        replace(made('{"rows": 1}'), original=ToolResult(task=1)),
    ],
)
def test_what_is_not_there_is_an_error(call: ToolCall) -> None:
    with pytest.raises(UsageError):
        call.part("rows")


@pytest.mark.parametrize("path", ["rows[2]", "rows[2:]", "rows[9000:9100]"])
def test_nothing_beyond_a_list_is_a_part(path: str) -> None:
    call = made('{"rows": [1, 2]}')
    assert call.part("rows[1:9]") == [2]
    with pytest.raises(UsageError):
        call.part(path)
