"""The value of a call is the function's result, whichever way it is called."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pandas
import pytest
from kit.turns import ask
from matplotlib.figure import Figure

from casual_mcp_nb import McpToolChat, Session, ToolContext, ToolOutput
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.engine.results import result_text
from casual_mcp_nb.errors import ToolCallError, UsageError
from casual_mcp_nb.own_tools.parameters import MAX_YIELDED, result_of
from casual_mcp_nb.providers.scripted import call, calls, scripted_model


@dataclass
class Point:
    x: int


class Opaque:
    """Has no JSON form."""


class Hostile:
    """Fails when it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("not for you")

    @property
    def __dict__(self) -> Any:
        raise RuntimeError("nor this")


TABLE = pandas.DataFrame({"n": range(3)})
RETURNED: dict[str, Any] = {
    "none": None,
    "int": 8,
    "bool": True,
    "float": 0.5,
    "nan": math.nan,
    "text": "8",
    "empty": "",
    "bytes": b"\x00\x01",
    "list": [1, "2", None],
    "tuple": (1, 2),
    "set": {1},
    "dict": {"a": 1, "b": [math.inf]},
    "records": [{"n": 1}, {"n": 2}],
    "decimal": Decimal("1.5"),
    "dataclass": Point(1),
    "object": Opaque(),
    "hostile": Hostile(),
    "class": Opaque,
    "table": TABLE,
    "figure": Figure(),
    "axes": Figure().subplots(),
    "grid of axes": Figure().subplots(1, 2),
    "tables": [TABLE, "and", TABLE],
    "large": "word " * 100_000,
}


def plainly(value: Any) -> Callable[[], Any]:
    return lambda: value


def awaited(value: Any) -> Callable[[], Any]:
    async def function() -> Any:
        return value

    return function


def behind_a_plain_function(value: Any) -> Callable[[], Any]:
    return lambda: awaited(value)()


WAYS = (plainly, awaited, lambda value: partial(awaited(value)), behind_a_plain_function)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session.from_config({}) as session:
        yield session


def model_that_calls(*names: str) -> Any:
    return scripted_model(calls(*(call(f"notebook__{name}") for name in names)), "done")


@pytest.mark.defect("J1")
@pytest.mark.parametrize("way", WAYS)
def test_the_value_is_the_object_that_was_returned(
    session: Session, way: Callable[[Any], Callable[[], Any]]
) -> None:
    seen: dict[str, Any] = {}
    for number, value in enumerate(RETURNED.values()):
        session.tools.add(way(value), name=f"give_{number}")

    @session.tool
    def give_all(context: ToolContext) -> None:
        for number, name in enumerate(RETURNED):
            seen[name] = context.call_tool(f"notebook:give_{number}").value

    names = [f"give_{number}" for number in range(len(RETURNED))]
    turn = session.chat("Give me everything.", model=model_that_calls(*names, "give_all"))
    direct = [session.tools.call(f"notebook:{name}").value for name in names]
    for number, (name, value) in enumerate(RETURNED.items()):
        made = turn.tool_calls[number]
        assert made.status == "ok", name
        assert made.value is value, name
        assert direct[number] is value, name
        assert seen[name] is value, name
    assert len(turn.tool_calls[-1].nested) == len(RETURNED)
    assert all(
        each.value is value
        for each, value in zip(turn.tool_calls[-1].nested, RETURNED.values(), strict=True)
    )


@pytest.mark.defect("J1")
def test_of_an_output_the_value_is_its_payload_or_else_its_content(session: Session) -> None:
    point = Point(2)
    session.tools.add(lambda: ToolOutput("short", point), name="with_payload")
    session.tools.add(lambda: ToolOutput([1]), name="without_payload")
    assert session.tools.call("notebook:with_payload").value is point
    assert session.tools.call("notebook:without_payload").value == [1]
    with session.tools.mock(
        {"notebook:with_payload": awaited(point), "notebook:without_payload": 8}
    ):
        turn = session.chat("Both.", model=model_that_calls("with_payload", "without_payload"))
    assert [each.value for each in turn.tool_calls] == [point, 8]


@pytest.mark.defect("J1")
def test_no_file_gets_what_was_returned(session: Session, tmp_path: Any) -> None:
    marker = "in the kernel only"

    class Secretive:
        def __repr__(self) -> str:
            return "<short>"

        def __getstate__(self) -> Any:
            raise AssertionError(marker)

    session.tools.add(Secretive, name="secretive")
    session.chat("Give it.", model=model_that_calls("secretive"))
    session.export(tmp_path / "chat.html")
    assert session.turns[-1].tool_calls[0].value.__class__ is Secretive
    assert marker not in (tmp_path / "chat.html").read_text()


@pytest.mark.defect("J2")
@pytest.mark.parametrize("is_async", [False, True])
def test_generators_are_read_to_their_end(session: Session, is_async: bool) -> None:
    ended = []

    def numbers() -> Iterator[int]:
        yield from (1, 2)
        ended.append("plain")

    async def async_numbers() -> AsyncIterator[int]:
        for number in (1, 2):
            yield number
        ended.append("async")

    async def makes_one() -> AsyncIterator[int]:
        return async_numbers()

    function = async_numbers if is_async else numbers
    functions = (
        function,
        partial(function),
        lambda: function(),
        makes_one,
        lambda: map(abs, (-1, -2)),
    )
    for number, each in enumerate(functions):
        session.tools.add(each, name=f"numbers_{number}")
    names = [f"numbers_{number}" for number in range(len(functions))]
    turn = session.chat("Count.", model=model_that_calls(*names))
    assert [(each.status, each.value) for each in turn.tool_calls] == [("ok", [1, 2])] * len(
        functions
    )
    assert [json.loads(each.result) for each in turn.tool_calls] == [[1, 2]] * len(functions)
    assert len(ended) == 4


@pytest.mark.defect("J2")
def test_a_generator_without_an_end_fails_its_call(session: Session) -> None:
    closed = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    session.tools.add(endless)
    with pytest.raises(ToolCallError, match=f"{MAX_YIELDED:,}"):
        session.tools.call("notebook:endless")
    assert closed == [True]


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.defect("J3")
@pytest.mark.parametrize("where", ["function", "async function", "mock"])
def test_an_error_without_words_fails_its_call_only(session: Session, where: str) -> None:
    def fail() -> None:
        raise MuteError

    async def fail_async() -> None:
        raise MuteError

    session.tools.add(fail_async if where == "async function" else fail, name="fail")
    session.tools.add(plainly(1), name="fine")
    with session.tools.mock({"notebook:fail": fail} if where == "mock" else {}):
        turn = session.chat("Both.", model=model_that_calls("fail", "fine"))
    assert turn.status == "done"
    assert [each.status for each in turn.tool_calls] == ["error", "ok"]
    assert "MuteError" in turn.tool_calls[0].result


@pytest.mark.defect("J3")
async def test_of_an_own_synthetic_tool_too() -> None:
    class Failing:
        name = "failing"
        definition = {"name": "failing", "description": "Fail.", "parameters": {"type": "object"}}  # noqa: RUF012

        async def execute(self, args: Any) -> Any:
            raise MuteError

    async with McpToolChat.from_config({}, synthetic_tools=[Failing()]) as chat:
        turn = await ask(chat, call("failing"), "done")
    assert (turn.status, turn.tool_calls[0].status) == ("done", "error")


@pytest.mark.defect("J3")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_without_json_are_sent_once_and_as_json(value: float) -> None:
    def strictly(constant: str) -> Any:
        raise AssertionError(constant)

    text = result_text(result_of({"a": value, "b": [value]}))
    assert len(json.loads(text, parse_constant=strictly)) == 2
    for structured in ({"a": value}, {"a": None}):
        servers = ToolResult(
            (ContentPart("text", json.dumps({"a": value})),), structured=structured
        )
        assert result_text(servers).count('"a"') == 1
    only_structured = ToolResult(structured={"a": value})
    assert json.loads(result_text(only_structured), parse_constant=strictly)


@pytest.mark.defect("J3")
@pytest.mark.parametrize(
    "axes", [Figure().subplots(), Figure().subplots(2, 2), Figure().subplots().plot([1, 2])]
)
def test_axes_give_their_figure(axes: Any) -> None:
    result = result_of(axes)
    assert [part.kind for part in result.content] == ["image"]
    payloads = result.payload if isinstance(result.payload, list) else [result.payload]
    assert all(isinstance(payload, Figure) for payload in payloads)
    assert result.returned[0] is axes
    assert result.previews[0].picture


@pytest.mark.defect("J3")
def test_a_class_takes_the_parameters_of_its_constructor(session: Session) -> None:
    spec = session.tools.add(Point)
    assert spec.input_schema["required"] == ["x"]
    assert session.tools.call("notebook:Point", x="3").value == Point(3)

    class Plain:
        """Make one."""

        def __init__(self, city: str, days: int = 1) -> None:
            """Make one.

            Args:
                city: Where.
            """
            self.days = days

    spec = session.tools.add(Plain)
    assert spec.input_schema["properties"]["city"] == {"type": "string", "description": "Where."}
    assert session.tools.call("notebook:Plain", city="Oslo").value.days == 1

    class Called:
        def __call__(self, n: int) -> int:
            return n + 1

    session.tools.add(Called, name="called")
    assert session.tools.call("notebook:called", n=1).value == 2
    with pytest.raises(UsageError):
        session.tools.add(Point(1))
