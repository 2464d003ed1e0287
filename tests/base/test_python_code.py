"""Calls as Python: the code makes the same call."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.display.words import call_code


class Recorder:
    """A session whose tools return the arguments of their calls."""

    @property
    def tools(self) -> Recorder:
        return self

    def call(self, name: str, /, **arguments: Any) -> tuple[str, dict[str, Any]]:
        return name, arguments


HOSTILE = "\"'\\\n\u202e\x1b{}\ud800"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"a": 1, "b": 2.5, "c": True, "d": None, "name": "x"},
        {"text": 'it\'s "quoted"', "path": "C:\\x", "hostile": HOSTILE, "empty": ""},
        {"deep": {"list": [1, {"from": False}], HOSTILE: [None]}},
        {"from": 1, "a-b": 2, "class": 3, "ﬁ": 4, "fi": 5, "": 6, HOSTILE: 7},
        {"huge": 10**300, "large": 1e300, "infinite": math.inf, "less": -math.inf},
    ],
)
def test_the_code_makes_the_same_call(arguments: dict[str, Any]) -> None:
    code = call_code(ToolName("my server", "a:b"), arguments)
    assert eval(code, {"session": Recorder(), "__builtins__": {"float": float}}) == (
        "my server:a:b",
        arguments,
    )
    assert all(line.isprintable() for line in code.split("\n"))


def test_what_is_usual_is_written_as_people_write_it() -> None:
    assert (
        call_code(ToolName("math", "add"), {"a": 1, "b": 2})
        == 'session.tools.call("math:add", a=1, b=2)'
    )
    text = call_code(ToolName("files", "read"), {"path": "a.txt", "from": 3})
    assert text == 'session.tools.call("files:read", path="a.txt", **{"from": 3})'


def test_not_a_number_stays_one() -> None:
    code = call_code(ToolName("math", "add"), {"a": json.loads("NaN")})
    _, arguments = eval(code, {"session": Recorder()})
    assert math.isnan(arguments["a"])
